"""Covering: which subscriptions are not needed, because another matches whatever they match.

universe.py    boxes as points, where a cover dominates what it covers
curve.py       the approximate search of Shen and Tirthapura (2012)
blocks.py      the exact search, ours
index.py       `CoverIndex`: both behind one question, under inserts and deletes
reduction.py   `reduce`: what stays of a whole set
"""

from rangecast.covering.index import CoverIndex
from rangecast.covering.reduction import Reduction, reduce

__all__ = ["CoverIndex", "Reduction", "reduce"]
