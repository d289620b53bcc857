"""Covering: which subscriptions are not needed, because another matches whatever they match.

universe.py    boxes as points, where a cover dominates what it covers
curve.py       the approximate search of Shen and Tirthapura (2012)
blocks.py      the exact search, ours
union.py       covers made of several, exact with a budget, or probable
index.py       `CoverIndex`: all of them behind one question, under inserts and deletes
reduction.py   `reduce`: what stays of a whole set
merging.py     `merge`: one box in the place of several (Li, Hou, Jacobsen 2005)
"""

from rangecast.covering.index import CoverIndex
from rangecast.covering.merging import Merging, merge
from rangecast.covering.reduction import Reduction, reduce

__all__ = ["CoverIndex", "Merging", "Reduction", "merge", "reduce"]
