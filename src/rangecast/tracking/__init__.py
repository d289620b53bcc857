"""What changed: for events that are successive states of objects, what each entered, left and stays in."""

from rangecast.tracking.tracker import Changes, Tracker

__all__ = ["Changes", "Tracker"]
