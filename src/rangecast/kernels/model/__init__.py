"""Loops over ids, boxes and matches."""
