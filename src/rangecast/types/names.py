"""Names of attributes as conditions and expressions write them."""

from __future__ import annotations

import re

_JOINING = {"AND", "OR", "NOT", "BETWEEN", "IN", "IS"}
KEYWORDS = frozenset(_JOINING | {"MISSING", "PRESENT", "NULL", "TRUE", "FALSE", "INF", "INFINITY"})
PLAIN_NAME = r"[^\W\d][\w.$-]*"

_PLAIN = re.compile(PLAIN_NAME + r"\Z")


def quoted_name(name: str) -> str:
    """An attribute's name as a condition must write it.

    >>> quoted_name("price"), quoted_name("order id"), quoted_name("in")
    ('price', '"order id"', '"in"')
    """
    if _PLAIN.match(name) and name.upper() not in KEYWORDS:
        return name
    return '"' + name.replace('"', '""') + '"'


def unquoted(name: str) -> str:
    """A name without its quotes, which are " or `.

    >>> unquoted('"order id"'), unquoted("`in`")
    ('order id', 'in')
    """
    return name[1:-1].replace('""', '"') if name[0] == '"' else name[1:-1]
