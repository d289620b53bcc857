"""Fuzz conditions: random conditions match what their meaning says, random texts are read or refused.

    python tests/fuzz/fuzz_conditions.py --seconds 60 --seed 7

A condition is drawn together with its meaning, a Python function of an event's values that knows nothing of
codes and boxes. Some conditions make subscriptions, some rows make events; the boxes are matched by
`tests/oracle.py` in plain loops and by the `scan` index, and both must find what the functions say. Beside
them, texts are damaged at random: each is a condition or a LanguageError, in bulk as alone.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import rangecast as rc
from rangecast.language import clauses_of, compile_conditions

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import fuzzing

from oracle import match_boxes, rows_of

BIG = 2**53 + 1
WORDS = ["A", "B", "it's", "", "日本", "a b", "true"]
INTS = [-1, 0, 1, 2, 3, BIG, BIG + 1, 2**63 - 1]
FLOATS = [-1.5, 0.0, 0.1, 0.30000000000000004, 1e300, float("inf")]
PIECES = [
    *"()'\"<>=!,.+-0123456789eE \n",
    "and",
    "or",
    "not",
    "in",
    "between",
    "is",
    "missing",
    "i",
    "x",
    "c",
]
STRANGE = ["\ud800", "\x00", "²", "🙂", "9" * 5000, "1e99999999999", "''", "--", "2026-13-01", "((("]
COMPARE = {
    "=": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def new_schema() -> rc.Schema:
    return rc.Schema(rc.Int("i"), rc.Float("x"), rc.Category("c"), rc.Int("k"))


def literal(name: str, rng: random.Random):
    """A value for an attribute and how a condition writes it."""
    if name == "c":
        word = rng.choice(WORDS)
        return word, "'" + word.replace("'", "''") + "'"
    if name == "x":
        number = rng.choice(FLOATS)
        return number, repr(number)
    number = rng.choice(INTS)
    return number, rng.choice([str(number), f"{number}.0", f"{number}e0"])


def predicate(rng: random.Random):
    """A text and two functions of a row: whether it holds, and whether its negation does."""
    name = rng.choice("ixck")
    kind = rng.randrange(4)
    if kind == 0:
        present = rng.random() < 0.5
        text = f"{name} is {'present' if present else 'missing'}"
        return (
            text,
            lambda row: (row.get(name) is not None) is present,
            lambda row: (row.get(name) is not None) is not present,
        )
    if kind == 1:
        drawn = [literal(name, rng) for _ in range(rng.randrange(1, 4))]
        values = [value for value, _ in drawn]
        text = f"{name} in ({', '.join(written for _, written in drawn)})"
        return on_value(text, name, lambda value: value in values)
    if kind == 2 and name != "c":
        (low, a), (high, b) = sorted((literal(name, rng) for _ in range(2)), key=lambda pair: pair[0])
        return on_value(f"{name} between {a} and {b}", name, lambda value: low <= value <= high)
    operator = rng.choice(["=", "!="] if name == "c" else list(COMPARE))
    value, written = literal(name, rng)
    return on_value(f"{name} {operator} {written}", name, lambda v: COMPARE[operator](v, value))


def on_value(text, name, holds):
    def yes(row):
        return row.get(name) is not None and holds(row[name])

    def no(row):
        return row.get(name) is not None and not holds(row[name])

    return text, yes, no


def condition(rng: random.Random, depth: int = 0):
    """As `predicate`, of any shape."""
    kind = rng.randrange(5) if depth < 3 else 0
    if kind < 2:
        return predicate(rng)
    if kind == 2:
        text, yes, no = condition(rng, depth + 1)
        return f"not ({text})", no, yes
    parts = [condition(rng, depth + 1) for _ in range(rng.randrange(2, 4))]
    joined = (" and " if kind == 3 else " or ").join(f"({text})" for text, _, _ in parts)
    every, some = (all, any) if kind == 3 else (any, all)
    return (
        joined,
        lambda row: every(yes(row) for _, yes, _ in parts),
        lambda row: some(no(row) for _, _, no in parts),
    )


def drawn_row(rng: random.Random) -> dict:
    row = {}
    for name in "ixck":
        if rng.random() < 0.8:
            row[name] = literal(name, rng)[0]
    return row


def check_meaning(rng: random.Random) -> int:
    """Some conditions against some rows; gives back how many pairs were checked."""
    schema = new_schema()
    drawn = [condition(rng) for _ in range(6)]
    rows = [drawn_row(rng) for _ in range(6)]
    events = rc.Events.from_rows(schema, rows)  # before its strings have codes
    subs = rc.Subscriptions.parse(schema, {number: text for number, (text, _, _) in enumerate(drawn)})
    wanted = [{number for number, (_, yes, _) in enumerate(drawn) if yes(row)} for row in rows]
    texts = [text for text, _, _ in drawn]
    assert match_boxes(subs, events) == wanted, (texts, rows)
    index = rc.open_index("scan", schema)
    index.insert(subs)
    assert rows_of(index.match(events)) == [sorted(found) for found in wanted], (texts, rows)
    return len(drawn) * len(rows)


def damaged(rng: random.Random) -> str:
    text = condition(rng)[0] if rng.random() < 0.7 else ""
    for _ in range(rng.randrange(1, 5)):
        at = rng.randrange(len(text) + 1)
        piece = rng.choice(STRANGE) if rng.random() < 0.2 else rng.choice(PIECES)
        text = text[:at] + piece + text[at + rng.randrange(3) :]
    return text


def check_texts(rng: random.Random) -> int:
    """Damaged texts: the same outcome alone and in bulk, and never another error than LanguageError."""
    schema = new_schema()
    texts = [damaged(rng) for _ in range(8)] * 2  # twice, so that shapes are shared
    compiled = compile_conditions(schema, texts)
    failed = {row for row, error in compiled.errors if str(error).encode()}
    for row, text in enumerate(texts[:8]):
        try:
            n_boxes = len(clauses_of(schema, text))
        except rc.LanguageError:
            assert {row, row + 8} <= failed, text
        else:
            assert not {row, row + 8} & failed, text
            assert (compiled.owners == row).sum() == n_boxes, text
            assert (compiled.owners == row + 8).sum() == n_boxes, text
    for _, attribute in schema.categories():
        assert all(word.encode() is not None for word in attribute.vocabulary.words())
    return 8


def check(rng: random.Random, folder: Path) -> tuple[int, int]:
    """Some conditions and some texts: (pairs of condition and row, damaged texts)."""
    return check_meaning(rng), check_texts(rng)


if __name__ == "__main__":
    fuzzing.main(__doc__, check, "{:,} pairs of condition and event, {:,} damaged texts, 0 wrong")
