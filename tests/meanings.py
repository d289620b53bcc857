"""Random conditions of the whole language, each with its meaning in plain Python: the oracle of texts.

A meaning is a function of an event as a dict: True, False, or None where a missing value leaves it undecided,
so that neither the predicate nor its negation holds. Nothing here calls the package.
"""

import datetime as dt
import ipaddress
import math
import re
from fractions import Fraction

from hypothesis import strategies as st

LETTERS = "abZ ä%_'"
WORDS = [
    "",
    "a",
    "ab",
    "abä",
    "b",
    "Zab",
    "ab ab",
    "äb",
    "a%b",
    "it's",
    "ababababab",
    "ababababä",
    "abababab",
]
TAGS = ["x", "y", "z", "it's"]
ADDRESSES = ["10.0.0.1", "10.1.2.3", "192.168.0.7", "::1", "fd00::5", "::ffff:10.0.0.1", "no address"]
START = dt.datetime(2026, 1, 30, 22, 15)


def quoted(word):
    return "'" + word.replace("'", "''") + "'"


def said(text, meaning, *names):
    """A predicate that is undecided where one of some attributes has no value."""

    def holds(row):
        values = [row.get(name) for name in names]
        if any(value is None or value == [] for value in values):
            return None
        return meaning(*values)

    return text, holds


def said_of_any(text, meaning, *names):
    """A predicate on those of some attributes that have a value, undecided where none has."""

    def holds(row):
        values = [row[name] for name in names if row.get(name) is not None]
        return meaning(values) if values else None

    return text, holds


def compared(sign, ours, theirs):
    return {
        "<": ours < theirs, "<=": ours <= theirs, ">": ours > theirs, ">=": ours >= theirs,
        "=": ours == theirs, "!=": ours != theirs,
    }[sign]  # fmt: skip


def like(pattern):
    found, letters = "", iter(pattern)
    for letter in letters:
        found += {"%": ".*", "_": "."}.get(letter) or re.escape(next(letters) if letter == "\\" else letter)
    return re.compile(found, re.DOTALL)


def half_up(x):
    return math.copysign(math.floor(abs(Fraction(x)) + Fraction(1, 2)), x)


signs = st.sampled_from(["<", "<=", ">", ">=", "=", "!="])
small = st.integers(-4, 4)
words = st.sampled_from(WORDS)
pieces = st.sampled_from(["a", "b", "ab", "ä", " ", "ba", "%", "'", "Z", "abab"])
patterns = st.lists(st.sampled_from(["%", "_", "a", "b", "ä", "'", r"\%", "ab"]), max_size=5).map("".join)
strings = st.sampled_from(["name", "title"])

NUMBERS = st.one_of(
    st.tuples(signs, small).map(lambda p: said(f"a {p[0]} {p[1]}", lambda a: compared(p[0], a, p[1]), "a")),
    st.tuples(signs, small).map(
        lambda p: said(f"a * b {p[0]} {p[1]}", lambda a, b: compared(p[0], a * b, p[1]), "a", "b")
    ),
    st.tuples(signs, small).map(
        lambda p: said(f"a {p[0]} b + {p[1] + 5}", lambda a, b: compared(p[0], a, b + p[1] + 5), "a", "b")
    ),
    st.tuples(signs, small).map(
        lambda p: said(f"abs(a - b) {p[0]} {p[1]}", lambda a, b: compared(p[0], abs(a - b), p[1]), "a", "b")
    ),
    st.tuples(small, small).map(
        lambda p: said(f"a between {min(p)} and {max(p)}", lambda a: min(p) <= a <= max(p), "a")
    ),
    st.tuples(signs, small).map(
        lambda p: said_of_any(
            f"greatest(a, b) {p[0]} {p[1]}", lambda there: compared(p[0], max(there), p[1]), "a", "b"
        )
    ),
    st.tuples(signs, small).map(
        lambda p: said(f"x / 2 {p[0]} {p[1]}", lambda x: compared(p[0], x / 2, p[1]), "x")
    ),
    st.tuples(signs, small).map(
        lambda p: said(f"round(x) {p[0]} {p[1]}", lambda x: compared(p[0], half_up(x), p[1]), "x")
    ),
    st.lists(small, min_size=1, max_size=3).map(
        lambda some: said(f"a not in ({', '.join(map(str, some))})", lambda a: a not in some, "a")
    ),
)
TIMES = st.one_of(
    st.tuples(signs, st.integers(0, 23)).map(
        lambda p: said(f"hour(at) {p[0]} {p[1]}", lambda at: compared(p[0], at.hour, p[1]), "at")
    ),
    st.sampled_from(["sat", "fri", "sunday"]).map(
        lambda day: said(
            f"weekday(at) = '{day}'", lambda at: at.strftime("%A").lower().startswith(day[:3]), "at"
        )
    ),
    st.sampled_from(["2026-01-30", "2026-01-31"]).map(
        lambda day: said(f"at on {day}", lambda at: at.date().isoformat() == day, "at")
    ),
)
TEXTS = st.one_of(
    st.tuples(strings, pieces).map(
        lambda p: said(f"{p[0]} contains {quoted(p[1])}", lambda s: p[1] in s, p[0])
    ),
    st.tuples(strings, words).map(
        lambda p: said(f"{p[0]} starts with {quoted(p[1])}", lambda s: s.startswith(p[1]), p[0])
    ),
    st.tuples(strings, words).map(
        lambda p: said(f"{p[0]} ends with {quoted(p[1])}", lambda s: s.endswith(p[1]), p[0])
    ),
    st.tuples(strings, patterns).map(
        lambda p: said(f"{p[0]} like {quoted(p[1])}", lambda s: like(p[1]).fullmatch(s) is not None, p[0])
    ),
    st.tuples(strings, patterns).map(
        lambda p: said(
            f"{p[0]} ilike {quoted(p[1])}",
            lambda s: like(p[1].lower()).fullmatch(s.lower()) is not None,
            p[0],
        )
    ),
    st.tuples(strings, st.sampled_from(["^a", "b$", "a+b", "(ab){2}", "Z|ä", "b.b"])).map(
        lambda p: said(f"{p[0]} matches {quoted(p[1])}", lambda s: re.search(p[1], s, re.A) is not None, p[0])
    ),
    st.tuples(strings, st.sampled_from(["=", "!="]), words).map(
        lambda p: said(f"{p[0]} {p[1]} {quoted(p[2])}", lambda s: (s == p[2]) is (p[1] == "="), p[0])
    ),
    st.tuples(signs, words).map(
        lambda p: said(f"name {p[0]} {quoted(p[1])}", lambda s: compared(p[0], s, p[1]), "name")
    ),
    st.tuples(words, words).map(
        lambda p: said(
            f"name between {quoted(min(p))} and {quoted(max(p))}", lambda s: min(p) <= s <= max(p), "name"
        )
    ),
    st.tuples(words, words).map(
        lambda p: said(f"{quoted(min(p))} <= name < {quoted(max(p))}", lambda s: min(p) <= s < max(p), "name")
    ),
    st.tuples(signs, st.integers(0, 9)).map(
        lambda p: said(f"length(title) {p[0]} {p[1]}", lambda s: compared(p[0], len(s), p[1]), "title")
    ),
)
several = st.lists(st.sampled_from(TAGS), min_size=1, max_size=3, unique=True)
HAVING = st.one_of(
    st.sampled_from(TAGS).map(lambda tag: said(f"tags has {quoted(tag)}", lambda own: tag in own, "tags")),
    several.map(
        lambda some: said(
            f"tags has all ({', '.join(map(quoted, some))})", lambda own: set(some) <= set(own), "tags"
        )
    ),
    several.map(
        lambda some: said(
            f"tags has any ({', '.join(map(quoted, some))})", lambda own: bool(set(some) & set(own)), "tags"
        )
    ),
    several.map(
        lambda some: said(
            f"tags has none ({', '.join(map(quoted, some))})", lambda own: not set(some) & set(own), "tags"
        )
    ),
)


def address_of(text):
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = getattr(found, "ipv4_mapped", None)
    return mapped or found


def within(network):
    parsed = ipaddress.ip_network(network)

    def holds(row):
        address = address_of(row["ip"]) if row.get("ip") is not None else None
        return None if address is None else address.version == parsed.version and address in parsed

    return f"ip in '{network}'", holds


def metres_between(one, other):
    """Along the great circle of a sphere, by the haversine formula."""
    (x, y), (u, v) = (tuple(map(math.radians, place)) for place in (one, other))
    h = math.sin((v - y) / 2) ** 2 + math.cos(y) * math.cos(v) * math.sin((u - x) / 2) ** 2
    return 2 * 6_371_008.8 * math.asin(min(1.0, math.sqrt(h)))


def in_map_box(place, west, south, east, north):
    x, y = place
    turns = (x, -180, 180) if abs(x) == 180 else (x,)
    across = any(west <= t <= east if west <= east else t >= west or t <= east for t in turns)
    return across and south <= y <= north


def in_triangle(place, corners):
    """Whether whole numbers lie in a triangle or on its border, as they are or a turn further."""
    for turn in (-360, 0, 360):
        x, y = place[0] + turn, place[1]
        sides = [
            (bx - ax) * (y - ay) - (by - ay) * (x - ax)
            for (ax, ay), (bx, by) in zip(corners, corners[1:] + corners[:1], strict=True)
        ]
        if min(sides) >= 0 or max(sides) <= 0:
            return True
    return False


# whole degrees, so that points on borders and corners are common; the last ones are about the date line
SPOTS = st.tuples(st.sampled_from([-1, 0, 1, 2, 3, 178, 179, 180, -180, -179]), st.integers(-2, 3))
TRIANGLES = [
    [(0, 0), (2, 0), (1, 3)], [(-1, -2), (3, -1), (0, 2)], [(178, -1), (182, -1), (180, 2)],
]  # fmt: skip


def triangle(corners):
    shown = ", ".join(f"{x} {y}" for x, y in [*corners, corners[0]])
    return said(f"spot in polygon 'POLYGON(({shown}))'", lambda spot: in_triangle(spot, corners), "spot")


PLACES = st.one_of(
    # radii that are far from any distance between two of the places
    st.tuples(SPOTS, st.sampled_from([40, 130, 190, 300, 5_000])).map(
        lambda p: said(
            f"spot within {p[1]} km of ({p[0][0]}, {p[0][1]})",
            lambda spot: metres_between(p[0], spot) < p[1] * 1000,
            "spot",
        )
    ),
    st.tuples(SPOTS, SPOTS)
    .map(lambda p: (p[0][0], min(p[0][1], p[1][1]), p[1][0], max(p[0][1], p[1][1])))
    .map(lambda box: said(f"spot in box {box}", lambda spot: in_map_box(spot, *box), "spot")),
    st.sampled_from(TRIANGLES).map(triangle),
    st.tuples(signs, small).map(
        lambda p: said(f"latitude(spot) {p[0]} {p[1]}", lambda spot: compared(p[0], spot[1], p[1]), "spot")
    ),
)

OTHERS = st.one_of(
    st.sampled_from(["10.0.0.0/8", "192.168.0.0/16", "fd00::/8", "::/0"]).map(within),
    st.sampled_from(["a", "name", "title", "tags", "at", "ok", "spot"]).map(
        lambda name: (f"{name} is missing", lambda row: row.get(name) is None or row.get(name) == [])
    ),
    st.just(said("ok", lambda ok: ok, "ok")),
)


def joined(word, parts):
    def holds(row):
        found = [part[1](row) for part in parts]
        decisive = word == "or"
        return decisive if decisive in found else None if None in found else not decisive

    return f"({f' {word} '.join(text for text, _ in parts)})", holds


def denied(part):
    def holds(row):
        found = part[1](row)
        return None if found is None else not found

    return f"not {part[0]}", holds


def conditions(*atoms):
    """Trees of AND, OR and NOT over predicates: those of the whole language unless told."""
    return st.recursive(
        st.one_of(*(atoms or (NUMBERS, TIMES, TEXTS, HAVING, PLACES, OTHERS))),
        lambda inner: st.one_of(
            st.tuples(st.sampled_from(["and", "or"]), st.lists(inner, min_size=2, max_size=3)).map(
                lambda p: joined(*p)
            ),
            inner.map(denied),
        ),
        max_leaves=5,
    )


EVENTS = st.fixed_dictionaries(
    {},
    optional={
        "a": small,
        "b": small,
        "x": st.sampled_from([-2.5, -1.0, 0.0, 0.5, 1.5, 3.0]),
        "at": st.integers(0, 60).map(lambda hours: START + dt.timedelta(hours=hours)),
        "name": st.one_of(words, st.text(LETTERS, max_size=10)),
        "title": st.one_of(words, st.text(LETTERS, max_size=10)),
        "tags": st.lists(st.sampled_from([*TAGS, "unnamed"]), max_size=3, unique=True),
        "ip": st.sampled_from(ADDRESSES),
        "ok": st.booleans(),
        "spot": SPOTS.map(list),
    },
)


def matches(some, rows):
    """For each event, the numbers of the conditions that hold."""
    return [[k for k, (_, holds) in enumerate(some) if holds(row) is True] for row in rows]
