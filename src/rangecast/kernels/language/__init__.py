"""Loops over the bytes of conditions."""
