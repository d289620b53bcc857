r"""The fixed strings within patterns, by which an automaton finds who may fit.

A pattern of LIKE is strings between wildcards. What a regular expression must have within it is found by a
reading that knows little and gives up soon: no piece is always right, a wrong one never. It goes along the
top level of the expression and keeps runs of plain letters; a letter before `?`, `*` or `{` is no part of
one, what stands in parentheses or brackets is passed over, and one with `|` at the top level, or with flags,
has none.
"""

from __future__ import annotations

import re
from functools import lru_cache

from rangecast.errors import SchemaError
from rangecast.types.kernels import ANY, N_BIGRAMS, ONE

_PLAIN_ESCAPES = set(r"\.+*?()|[]{}^$-/\"' #&~,:;<>=!@%_`")
_WILDCARDS = re.compile("(%+|_)")
_ZERO_WIDTH = set("bBAz")
_CLASSES = set("dDwWsS")


def like_pieces(pattern: str) -> list[tuple[str, str]]:
    r"""A pattern of LIKE as pairs: a wildcard and nothing, or nothing and the string between two of them.

    >>> like_pieces(r"a%%b\_c_")
    [('', 'a'), ('%', ''), ('', 'b_c'), ('_', '')]
    """
    if "\\" not in pattern:  # eight times as fast
        pieces = _WILDCARDS.split(pattern)
        return [("", piece) if k % 2 == 0 else (piece[0], "") for k, piece in enumerate(pieces) if piece]
    found: list[tuple[str, str]] = []
    escaped = False
    for letter in pattern:
        if escaped and letter not in "%_\\":
            break
        if not escaped and letter == "\\":
            escaped = True
            continue
        wild = letter if letter in "%_" and not escaped else ""
        escaped = False
        if not wild and found and not found[-1][0]:
            found[-1] = "", found[-1][1] + letter
        elif wild != "%" or not found or found[-1][0] != "%":
            found.append((wild, "" if wild else letter))
    if escaped:
        raise SchemaError(rf"a backslash in a pattern stands before %, _ or \\, got {pattern!r}")
    return found


def longest_piece(pattern: str) -> str:
    """The longest string between the wildcards of a pattern of LIKE."""
    return max((string for _, string in like_pieces(pattern)), key=len, default="")


def like_marks(pattern: str) -> list[int]:
    """A pattern of LIKE as its bytes, with ANY and ONE for the wildcards."""
    marks: list[int] = []
    for wild, string in like_pieces(pattern):
        marks += [ANY if wild == "%" else ONE] if wild else string.encode()
    return marks


def other_bigram(pattern: str, longest: str) -> int:
    """Two bytes of a pattern of LIKE beside its longest piece, as `bigram_of` of the kernels numbers them; -1
    where it has none.

    >>> other_bigram("%acme%ab%", "acme") == (ord("a") * 37 + ord("b")) % 1024, other_bigram("%acme_", "acme")
    (True, -1)
    """
    for _, string in reversed(like_pieces(pattern)):
        raw = string.encode()
        if len(raw) > 1 and string != longest:
            return (raw[-2] * 37 + raw[-1]) % N_BIGRAMS
    return -1


@lru_cache(4096)
def needed_piece(pattern: str) -> str:
    r"""The longest string that whatever fulfils a regular expression surely has, or none.

    >>> needed_piece("^disk [0-9]+ full$"), needed_piece("(?i)disk"), needed_piece("disk|tape")
    ('disk ', '', '')
    >>> needed_piece(r"disks? (is|was) full\."), needed_piece("ab{0}cd")
    (' full.', 'cd')
    """
    runs, run, at = [""], "", 0
    while at < len(pattern):
        letter = pattern[at]
        at += 1
        if letter == "|":
            return ""
        if letter in "([":
            at = _closed(pattern, at - 1)
            if at < 0:
                return ""
            runs, run, letter = [*runs, run], "", ""
        elif letter == "\\":
            if at >= len(pattern):
                return ""
            letter = pattern[at]
            at += 1
            if letter in _CLASSES or letter in _ZERO_WIDTH:
                runs, run, letter = [*runs, run], "", ""
            elif letter not in _PLAIN_ESCAPES:
                return ""
        elif letter in "^$.":
            runs, run, letter = [*runs, run], "", ""
        elif letter in "*+?{":  # a second mark after one, or nothing to repeat
            return ""
        follows = pattern[at : at + 1]
        if follows in ("*", "?", "{", "+") and follows:
            if follows == "+":
                # once at least; what comes after it need not follow the first one
                runs, run = [*runs, run + letter], ""
            else:
                runs, run = [*runs, run], ""
            at += 1
            if follows == "{":
                end = pattern.find("}", at)
                if end < 0 or not pattern[at:end].replace(",", "").isdigit():
                    return ""
                at = end + 1
            if pattern[at : at + 1] == "?":
                at += 1
            continue
        run += letter
    return max([*runs, run], key=len)


def _closed(pattern: str, at: int) -> int:
    """Behind the end of what a bracket opens; -1 where that is not plain to see, or where it has flags."""
    if pattern.startswith("(?", at) and not pattern.startswith("(?:", at):
        return -1
    if pattern[at] == "[":
        end = at + 1 + pattern.startswith("[^", at)
        end += pattern.startswith("]", end)
        while end < len(pattern) and pattern[end] != "]":
            if pattern[end] == "[":  # [:alpha:]
                return -1
            end += 2 if pattern[end] == "\\" else 1
        return end + 1 if end < len(pattern) else -1
    end = at + 1
    while end < len(pattern) and pattern[end] != ")":
        if pattern[end] in "([":
            end = _closed(pattern, end)
            if end < 0:
                return -1
        else:
            end += 2 if pattern[end] == "\\" else 1
    return end + 1 if end < len(pattern) else -1
