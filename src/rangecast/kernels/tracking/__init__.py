"""Loops over the states of objects."""
