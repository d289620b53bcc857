"""Kernels of loading/."""
