"""Loops over values."""
