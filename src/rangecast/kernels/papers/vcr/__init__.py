"""Loops of the rectangle paper's structures."""
