"""Loops of the Z curve and of the tree along it."""
