"""Loops of the interval paper's structures."""
