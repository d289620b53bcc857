"""Loops of the R*-tree."""
