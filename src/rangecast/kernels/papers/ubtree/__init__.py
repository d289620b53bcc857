"""Loops of the UB-tree and of counting."""
