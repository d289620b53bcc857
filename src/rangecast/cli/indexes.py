"""`rangecast indexes`: what `--index` takes."""

from __future__ import annotations

import inspect

from rangecast.cli.console import print_table
from rangecast.engine import index_names, index_type

# for whoever chooses one; the first line of a class says how it works, to whoever reads its code
USES = {
    "auto": "The one to take: it looks at your subscriptions and chooses a way for each of them.",
    "scan": "Looks at every subscription for every event. Good up to a few thousand, and the baseline.",
    "direct": "One attribute with short ranges over few different values; fast, and takes much memory.",
    "islist": "One attribute, subscriptions that come and go one by one. Slower than vci; to compare with.",
    "vci": "One attribute with ranges of any width, also when an event matches very many.",
    "vcr": "Two attributes at once, such as longitude and latitude, with areas that overlap.",
    "counting": "Equality on many attributes with many different values.",
    "ubtree": "Many attributes, most of them bounded narrowly, with steady changes.",
    "rtree": "Areas in a few attributes, with changes in place; can answer its cheapest events first.",
    "hint": "One attribute with ranges of any width; to compare with.",
    "cei": "One attribute with ranges that are not too long; to compare with.",
    "rein": "Wide ranges on many attributes, where most subscriptions match most events.",
    "opindex": "Thousands of attributes of which an event has few.",
    "cells": "One or two attributes; larger answers than an index by value can give as fast.",
    "bitmap": "Many attributes of which no single one tells much.",
}


def indexes() -> None:
    """List the indexes and what each is good for.

    All give the same answer; they differ in speed and memory. Take auto unless you have a reason to choose
    another. Indexes of other packages are listed after ours.

    \b
    Example:
      rangecast indexes
    """
    rows = []
    for name in index_names():
        summary = USES.get(name) or (inspect.getdoc(index_type(name)) or "").partition("\n")[0]
        rows.append([name, summary])
    print_table(["index", "good for"], rows)
