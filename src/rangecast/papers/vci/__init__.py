"""Interval indexing by virtual construct intervals, with the structures that its paper compares it with."""
