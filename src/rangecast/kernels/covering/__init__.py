"""Loops of the search for covers."""
