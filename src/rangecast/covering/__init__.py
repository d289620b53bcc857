"""Covering: which subscriptions are not needed, because another matches whatever they match.

searches.py    boxes as points, where a cover dominates what it covers; the exact search, ours, and the
               approximate one of Shen and Tirthapura (2012)
index.py       `CoverIndex`: all of them behind one question, under inserts and deletes; covers made of
               several
reduction.py   `reduce`: what remains of a whole set; `merge`: one box that replaces several (Li, Hou,
               Jacobsen 2005)
"""

from rangecast.covering.index import CoverIndex
from rangecast.covering.reduction import Merging, Reduction, merge, reduce

__all__ = ["CoverIndex", "Merging", "Reduction", "merge", "reduce"]
