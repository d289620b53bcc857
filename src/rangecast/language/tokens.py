"""Tokens: the pieces that a text is read in, and errors that point at their place.

What people write from habit and what can mean one thing alone becomes the token that it stands for: `&&` is
AND, `≥` is >=, a string in curly quotes is a string, `-- a comment` is nothing. `docs/language.md` has the
list, and `habits.py` says what to write instead of the rest.

A text with such a piece is told apart (`irregular`): `templates.py` cuts texts at their literals without
knowing comments or curly quotes, and must not take what it finds there for a literal.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from rangecast.errors import LanguageError, visible
from rangecast.language.tree import NUMBER, STRING, TIMESTAMP
from rangecast.types.columns import is_unicode
from rangecast.types.names import KEYWORDS, PLAIN_NAME

MAX_TOKENS = 32_768
MAX_LISTED = 262_144
"""How many values the IN lists of a condition may have together; they are no words of MAX_TOKENS."""

CURLY = "\u2018\u2019\u201c\u201d"
_TOKEN = re.compile(
    rf"\s+|(?P<comment>--[^\n]*|/\*.*?\*/)"
    rf"|(?P<value>{STRING}|(?:{TIMESTAMP}|{NUMBER}|(?i:true|false))(?![\w.$:+-]))|(?P<name>{PLAIN_NAME})"
    r'|(?P<quoted>"[^"]*(?:""[^"]*)*"|`[^`]*`)|(?P<operator><=|>=|<>|!==?|={1,3}|[=<>≤≥≠])'
    r"|(?P<word>&&|\|\||[!∧\u2228¬∈])|(?P<mark>[(),;\[\]*]|/(?!/)|[+-](?![0-9.]))"
    r"|(?P<curly>[\u2018\u2019][^\u2018\u2019]*\u2019|[\u201c\u201d][^\u201c\u201d]*\u201d)"
    r"|(?P<bad>[+-]?[0-9.][\w.:+-]*|.)",
    re.DOTALL,
)
_WORDS = {
    "==": "=", "===": "=", "<>": "!=", "!==": "!=", "≠": "!=", "≤": "<=", "≥": ">=",
    "&&": "AND", "∧": "AND", "||": "OR", "\u2228": "OR", "!": "NOT", "¬": "NOT", "∈": "IN",
}  # fmt: skip
_WINDOW = 72
_SHOWN = 40


class Token(NamedTuple):
    """A piece of the text; `word` is the keyword in capitals, the operator, the mark, or empty."""

    kind: str
    text: str
    start: int
    word: str
    ordinal: int

    def __str__(self) -> str:
        if self.kind == "end":
            return "the end of the text"
        if self.kind == "bad" and self.text in "'\"":
            return f"a {self.text} that is not closed"
        text = shortened(self.text)
        return f"the name {text}" if self.kind in ("name", "quoted") else self.word or text

    @property
    def end(self) -> int:
        """Where it ends in the text."""
        return self.start + len(self.text)


class Tokens(NamedTuple):
    """The tokens of a text, the texts of its literals, and whether some are not where they seem."""

    tokens: list[Token]
    literals: list[str]
    irregular: bool


def tokens_of(text: str) -> Tokens:
    """The tokens of a text, the last of which is its end; LanguageError when there are too many.

    >>> [token.word or token.text for token in tokens_of("price ≥ 10k && symbol = 'IBM' -- old").tokens]
    ['price', '>=', '10k', 'AND', 'symbol', '=', "'IBM'", '']
    """
    tokens: list[Token] = []
    literals: list[str] = []
    listed = 0
    irregular = False
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup
        if kind is None:
            continue
        piece, word, ordinal = match.group(), "", -1
        if kind == "comment":
            irregular = True
            continue
        if kind == "name":
            if piece.upper() in KEYWORDS:
                kind = word = piece.upper()
        elif kind == "value":
            if not piece[0].isalpha():
                ordinal = len(literals)
                literals.append(piece)
        elif kind == "curly":
            kind, irregular = "value", True
        elif kind in ("operator", "mark", "word"):
            word = _WORDS.get(piece, piece)
        if word == "," or (kind == "value" and tokens and tokens[-1].word == ","):
            listed += 1
            if listed == 2 * MAX_LISTED:
                message = f"the IN lists of a condition may have at most {MAX_LISTED:,} values"
                raise error_at(message + "; cut it into several subscriptions", text, match.start())
        elif len(tokens) - listed == MAX_TOKENS:
            message = f"a condition may have at most {MAX_TOKENS:,} words, values and signs"
            raise error_at(message + "; cut it into several subscriptions", text, match.start())
        tokens.append(Token(kind, piece, match.start(), word, ordinal))
    if tokens and tokens[-1].word == ";":
        tokens.pop()
    tokens.append(Token("end", "", len(text), "", -1))
    return Tokens(tokens, literals, irregular)


def error_at(message: str, text: str, position: int) -> LanguageError:
    """An error that begins with the column and ends with a caret under the text."""
    line_start = text.rfind("\n", 0, position) + 1
    line = text[line_start:].split("\n", 1)[0]
    column = position - line_start
    first = max(0, min(column - _WINDOW // 2, len(line) - _WINDOW))
    before, after = "..." if first else "", "..." if first + _WINDOW < len(line) else ""
    # one column for each character, whatever a tab would take
    shown = "".join(c if c.isprintable() else " " for c in line[first : first + _WINDOW])
    caret = " " * (len(before) + column - first) + "^"
    lines = f"{describe_position(text, position)}: {visible(message)}", before + shown + after, caret
    return LanguageError("\n  ".join(lines), text, position)


def describe_position(text: str, position: int) -> str:
    """The column of a position, and its line where there are several."""
    column = position - text.rfind("\n", 0, position)
    line = text.count("\n", 0, position) + 1
    return f"line {line}, column {column}" if "\n" in text else f"column {column}"


def shortened(text: str) -> str:
    """A piece of a text as a message shows it."""
    text = text if is_unicode(text) else text.encode(errors="backslashreplace").decode()
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
