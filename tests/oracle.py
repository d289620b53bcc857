"""The definition of a match, in plain loops. Nothing in src imports this.

`match_boxes` takes the normal form and says which subscriptions an event is in; `match_values` takes
bounds and rows as users give them, so that the encoding is checked as well as the matching.
"""

from __future__ import annotations

import math
from fractions import Fraction


def match_boxes(subs, events):
    """For each event, the set of ids of the subscriptions that hold it."""
    # plain numbers, which plain loops read several times as fast as those of arrays
    found = events.encoded(subs.schema)
    codes = list(zip(*found.codes.tolist(), strict=True))
    firsts = list(range(len(events) + 1)) if found.firsts is None else found.firsts.tolist()
    boxes = subs.boxes
    starts, lows, highs = boxes.starts.tolist(), boxes.lows.tolist(), boxes.highs.tolist()
    attributes = [attribute & (2**30 - 1) for attribute in boxes.attributes.tolist()]
    spans = [[span] for span in zip(lows, highs, strict=True)]
    for k, entry in enumerate(boxes.sets.tolist()):
        own = slice(boxes.set_starts[k], boxes.set_starts[k + 1])
        spans[entry] = list(zip(boxes.set_lows[own].tolist(), boxes.set_highs[own].tolist(), strict=True))
    ids = [subs.ids[owner] for owner in subs.owners.tolist()]
    # what a box asks of a point is an area, and no interval of its codes
    points = dict(subs.schema.points)
    answer = []
    for e in range(len(events)):
        row = set()
        for b in range(subs.n_boxes):
            for column in codes[firsts[e] : firsts[e + 1]]:
                inside = True
                for i in range(starts[b], starts[b + 1]):
                    code = column[attributes[i]]
                    if attributes[i] in points:
                        held = points[attributes[i]].holds(code, spans[i])
                    else:
                        held = any(low <= code <= high for low, high in spans[i])
                    if not held:
                        inside = False
                        break
                if inside:
                    row.add(ids[b])
                    break
        answer.append(row)
    return answer


def match_held(held, events):
    """As `match_boxes`, each row sorted, for subscriptions one by one by id, as after a history of writes."""
    answer = [set() for _ in range(len(events))]
    for one in held.values():
        answer = [row | found for row, found in zip(answer, match_boxes(one, events), strict=True)]
    return [sorted(row) for row in answer]


def match_values(schema, ids, lows, highs, rows):
    """As `match_boxes`, from (n, d) bounds with None for an open side, and dicts as events."""
    answer = []
    for row in rows:
        found = set()
        for i, low, high in zip(ids, lows, highs, strict=True):
            holds = True
            for j, name in enumerate(schema.names):
                value = row.get(name)
                if isinstance(value, float) and math.isnan(value):
                    value = None
                if low[j] is None and high[j] is None:
                    continue
                if (
                    value is None
                    or (low[j] is not None and value < low[j])
                    or (high[j] is not None and value > high[j])
                ):
                    holds = False
            if holds:
                found.add(i)
        answer.append(found)
    return answer


def rows_of(matches):
    """A Matches as a list of lists, so that a repeat shows."""
    return [sorted(matches.row(e).tolist()) for e in range(len(matches))]


def covers(subs, s, other, t):
    """Whether subscription s of `subs` covers subscription t of `other`: each box of t in some box of s."""
    for b in range(other.n_boxes):
        if other.owners[b] != t:
            continue
        held = False
        for c in range(subs.n_boxes):
            if subs.owners[c] != s:
                continue
            inside = True
            for j in range(len(subs.schema)):
                if subs.lows[j, c] > other.lows[j, b] or subs.highs[j, c] < other.highs[j, b]:
                    inside = False
            held = held or inside
        if not held:
            return False
    return True


def covers_of(subs, other):
    """For each subscription of `other`, the set of ids of `subs` that cover it; never its own id."""
    return [
        {subs.ids[s] for s in range(len(subs)) if subs.ids[s] != other.ids[t] and covers(subs, s, other, t)}
        for t in range(len(other))
    ]


def expression_value(tree, row):
    """The value of an expression on one event, None where it is missing.

    A tree is a number, the name of an attribute, or (operator, tree, ...).
    """
    if isinstance(tree, str):
        return None if row.get(tree) is None else Fraction(row[tree])
    if not isinstance(tree, tuple):
        return Fraction(tree)
    op, *parts = tree
    values = [expression_value(part, row) for part in parts]
    there = [value for value in values if value is not None]
    if op == "coalesce":
        return there[0] if there else None
    if op in ("least", "greatest"):
        return {"least": min, "greatest": max}[op](there) if there else None
    if any(value is None for value in values) or (op == "/" and values[1] == 0):
        return None
    return {
        "+": lambda a, b: a + b,
        "-": lambda a, b: a - b,
        "*": lambda a, b: a * b,
        "/": lambda a, b: a / b,
        "abs": abs,
    }[op](*values)
