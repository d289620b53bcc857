"""Approximate covering on the Z curve: what its paper counts, and its experiment."""
