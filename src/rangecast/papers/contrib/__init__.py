"""Loops of the papers' structures, a folder for each paper."""
