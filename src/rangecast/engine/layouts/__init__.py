"""Loops of the engine, a module for each module of `rangecast.engine` that has any."""
