"""Loops over what the broker sends."""
