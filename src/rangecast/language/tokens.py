"""Tokens: the pieces that a text is read in, the `TokenReader` of them, and errors that point at their place.

What people write from habit and what can mean one thing alone becomes the token that it stands for: `&&` is
AND, `≥` is >=, a string in curly quotes is a string, `-- a comment` is nothing. `docs/language.md` has the
list, and the hints at the end of this module say what to write instead of the rest.

A text with such a piece is told apart (`irregular`): `templates.py` cuts texts at their literals without
knowing comments or curly quotes, and must not take what it finds there for a literal.
"""

from __future__ import annotations

import difflib
import re
from typing import NamedTuple, NoReturn

from rangecast.errors import LanguageError, SchemaError, visible
from rangecast.language.tree import NUMBER, STRING, TIMESTAMP, Literal, Span, quoted_string
from rangecast.types.columns import is_unicode
from rangecast.types.expressions import (
    INSTANT_WORDS,
    KEYWORDS,
    PLAIN_NAME,
    quoted_name,
    unknown_function,
    unquoted,
)
from rangecast.types.schema import Schema

MAX_TOKENS = 32_768
MAX_LISTED = 262_144
"""How many values the IN lists of a condition may have together; they are no words of MAX_TOKENS."""

ARITHMETIC = ("+", "-", "*", "/")
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


def goes_on(token: Token) -> bool:
    """Whether a token behind an operand makes it a part of a longer one.

    `a -5` is a difference: a value with a sign cannot follow an operand.
    """
    return token.word in ARITHMETIC or (token.kind == "value" and token.text[0] in "+-\u2212\u2013")


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


_PLAIN = re.compile(PLAIN_NAME + r"\Z")
_INSTANT = re.compile(rf"'({TIMESTAMP})'\Z")


class TokenReader:
    """A text, its tokens and the place of the next one, and the names and literals that stand there.

    `irregular` says that the tree of the text says more than `templates.split` finds in it, so that no other
    text can share it. Nothing is added to the dictionary of a category here.
    """

    __slots__ = ("irregular", "literals", "next", "schema", "text", "tokens")

    def __init__(self, text: str, schema: Schema) -> None:
        self.text = text
        self.schema = schema
        self.tokens, self.literals, self.irregular = tokens_of(text)
        self.next = 0

    @property
    def peek(self) -> Token:
        """The next token, which stays."""
        return self.tokens[self.next]

    @property
    def follows(self) -> str:
        """The word that the next token is, in capitals: a keyword, an operator, a mark or a plain name."""
        token = self.tokens[self.next]
        return token.word or (token.text.upper() if token.kind == "name" else "")

    def accept(self, *words: str) -> str:
        """The word of the next token, taken if it is one of these, or an empty string."""
        token = self.tokens[self.next]
        if token.word not in words:
            return ""
        self.next += 1
        return token.word

    def fail(self, expected: str, hint: str = "", *, operand: bool = False) -> NoReturn:
        """Refuse the next token; `operand` where an attribute or a value was expected."""
        token = self.peek
        hint = hint_at(self.text, token.start, operand) or hint
        if token.kind == "name" and self.text[token.start - 1 : token.start] == "'":
            hint = "a quote within a string is doubled: 'it''s'"
        raise error_at(f"expected {expected}, got {token}{hint and '; ' + hint}", self.text, token.start)

    def since(self, start: int) -> Span:
        """From an offset up to the end of the last token taken."""
        return start, self.tokens[self.next - 1].end

    def is_date(self, at: int) -> bool:
        """Whether the tokens from a place on are an instant as SQL writes it: DATE '2026-01-31'."""
        token = self.tokens[at]
        if token.kind != "name" or token.text.upper() not in INSTANT_WORDS:
            return False
        return self.tokens[at + 1].text[:1] == "'"

    def named(self, at: int) -> str:
        """The name that the token at a place writes; empty if it is none."""
        token = self.tokens[at]
        if token.kind == "name":
            return token.text
        return unquoted(token.text) if token.kind == "quoted" else ""

    def is_call(self, at: int) -> bool:
        """Whether the tokens from a place on are a name and a parenthesis, as of a function."""
        return self.tokens[at].kind == "name" and self.tokens[at + 1].word == "("

    def attribute(self, expected: str) -> int:
        """The position of the attribute that comes next."""
        token = self.peek
        name = self.named(self.next)
        if token.kind in KEYWORDS and token.text in self.schema:
            self.fail(expected, f'an attribute with this name is written in double quotes: "{token.text}"')
        if token.kind not in ("name", "quoted"):
            self.fail(expected, operand=True)
        try:
            position = self.schema.position(name)
        except SchemaError:
            if self.is_call(self.next):
                self._unknown_function(token)
            hint = hint_at(self.text, token.start, True)
            message = self._unknown(name, token)
            raise error_at(f"{message}; {hint}" if hint else message, self.text, token.start) from None
        self.next += 1
        return position

    def _unknown_function(self, token: Token) -> NoReturn:
        name, hint = shortened(token.text), hint_at(self.text, token.start, True)
        message = f"unknown function {name}; {hint}" if hint else unknown_function(name)
        raise error_at(message, self.text, token.start)

    def _unknown(self, name: str, token: Token) -> str:
        """What to say of a name that the schema does not have."""
        unknown = f"unknown attribute {shortened(name)!r}"
        last = name.rpartition(".")[2]
        if last in self.schema:
            return f"{unknown}; write {last}, without what it is an attribute of"
        first = re.split(r"[-.]", name)[0]
        if first in self.schema:
            return f"{unknown}; after {first} a minus needs blanks around it"
        folded = {known.casefold(): known for known in self.schema.names}
        begun = self.text[token.start :].casefold()
        spaced = [known for known in folded if begun.startswith(known) and not _PLAIN.match(known)]
        if spaced:
            written = quoted_name(folded[max(spaced, key=len)])
            return f"{unknown}; such a name is written in double quotes: {written}"
        near = [folded[match] for match in difflib.get_close_matches(name.casefold(), folded, n=3)]
        if near:
            return f"{unknown}; did you mean {' or '.join(near)}?"
        names = list(self.schema.names)
        shown = names if len(names) <= 12 else [*names[:12], f"{len(names) - 12:,} more"]
        return f"{unknown}; the schema has {', '.join(shown)}"

    def value(self) -> Literal:
        """The literal that comes next."""
        token = self.peek
        if token.kind == "value":
            self.next += 1
            if token.text[0] in CURLY:
                return Literal(quoted_string(token.text[1:-1]), token.start)
            return Literal(token.text, token.start, token.ordinal)
        if self.is_date(self.next):
            written = self.tokens[self.next + 1]
            instant = _INSTANT.match(written.text)
            if instant is None:
                message = f"{token.text} takes a date in quotes, as {token.text} '2026-01-31'"
                raise error_at(message, self.text, written.start)
            self.next += 2
            self.irregular = True
            return Literal(instant[1], token.start)
        if token.kind == "quoted" and token.text[0] == '"' and unquoted(token.text) not in self.schema:
            self.next += 1
            self.irregular = True
            return Literal(quoted_string(unquoted(token.text)), token.start)
        return self._no_value(token)

    def _no_value(self, token: Token) -> NoReturn:
        if token.text not in self.schema and self.is_call(self.next):
            self._unknown_function(token)
        hint = ""
        if token.word in ("NULL", "MISSING", "PRESENT") or token.text.lower() == "nan":
            hint = "a missing value is tested with IS MISSING"
        elif token.kind in ("name", "quoted"):
            bare = shortened(token.text.strip('"').replace("'", "''"))
            hint = f"a string is written '{bare}', and two attributes of strings cannot be compared"
        self.fail("a value", hint, operand=True)


# What to write instead: hints for texts as people write them in SQL, in code and in spreadsheets.
#
# A text whose meaning is plain is accepted (`&&`, `≥`, `1_000`, `10k`, a leading WHERE, curly quotes; see
# `tokens.py`). Any other is refused at the place where reading stopped, and here that place is looked at:
# each hint has a pattern for what stands before it, one for what stands there, and says whether it is for
# places where an operand is expected (an attribute or a value), for others, or for both. The first that fits
# is shown.

_LONGEST = 120


class Hint(NamedTuple):
    """What stands before the place where reading stopped and there, and what to write instead."""

    before: re.Pattern[str]
    there: re.Pattern[str]
    hint: str
    operand: bool | None


def _hint(there: str, hint: str, before: str = "", operand: bool | None = None) -> Hint:
    flags = re.IGNORECASE | re.DOTALL
    behind = re.compile(rf"(?:{before})\s*\Z" if before else "", flags)
    return Hint(behind, re.compile(there, flags), hint, operand)


def _operand(there: str, hint: str) -> Hint:
    return _hint(there, hint, operand=True)


def _operator(there: str, hint: str, before: str = "") -> Hint:
    return _hint(there, hint, before, operand=False)


_CLOCK = r"(now|today|yesterday|tomorrow|current_(date|time|timestamp)|getdate|sysdate|utcnow|localtime)\b"
_ONE_EVENT = "a condition is about one event alone, without counts and sums over several"
_AGAIN = "name the attribute again: price > 5 AND price < 10, or write 5 < price < 10"
_MISSING = "write IS MISSING or IS PRESENT"
_MONTHS = "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec"
_PATTERNS = "startswith|endswith|includes|rlike|regexp|similar|glob"
_PREFIXES = "write STARTS WITH, ENDS WITH, CONTAINS, LIKE 'A%B_' or MATCHES 'regular expression'"
_REST = "the condition ends there: leave out the rest"
_HINTS = (
    # times
    _operand(
        _CLOCK,
        "a condition does not know the time at which it is matched; give the event its age as an attribute "
        "and write age < 3600, or replace the subscription as time goes by",
    ),
    _hint(r"interval\b", "a duration is written 5 min, 2 h or 1 d"),
    _hint(r"[0-9]{1,2}\.[0-9]{1,2}\.[0-9]{4}", "a date is written year-month-day: 2026-01-31"),
    _hint(r"[0-9]{1,4}/[0-9]{1,2}/[0-9]{1,4}", "a date is written year-month-day: 2026-01-31"),
    _hint(r"/[0-9]{1,2}/[0-9]{1,4}", "a date is written year-month-day: 2026-01-31", "[0-9]"),
    _hint(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}", "a date has two digits for month and day: 2026-01-02"),
    _operand(r"[0-9]{1,2}:[0-9]{2}", "an instant has a date: 2026-01-31T09:30"),
    _operand(rf"({_MONTHS})[a-z]* [0-9]", "a date is written 2026-01-31"),
    # numbers
    _hint(r",[0-9]{3}\b", "a large number is written 1000 or 1_000", r"\b[0-9]{1,3}"),
    _hint(r",[0-9]", "a number has a decimal point: 1.5", r"[0-9]"),
    _hint(r"%", "write 0.05 for five percent, or 5 where the attribute counts in percent", "[0-9]"),
    _hint(r"[+-]?[0-9.]+%", "write 0.05 for five percent, or 5 where the attribute counts in percent"),
    _operand(r"[$€£¥]", "a number stands without its currency: 10"),
    _operator(r"(usd|eur|gbp|jpy|chf|dollars?|euros?)\b", "a number stands without its unit: 10", "[0-9]"),
    _hint(r"[+-]?[0-9.]+(usd|eur|gbp|jpy|chf|[$€£¥])", "a number stands without its currency: 10"),
    _hint(r"[+-]?[0-9][0-9_.]*(m|mn|mio|million)\b", "a million is written 1e6 or 1_000_000"),
    _operator(r"(m|mn|mio|millions?)\b", "a million is written 1e6 or 1_000_000", "[0-9]"),
    _hint(r"[+-]?[0-9][0-9_.]*(b|bn|billion)\b", "a billion is written 1e9 or 1_000_000_000"),
    _operator(r"(b|bn|billions?)\b", "a billion is written 1e9 or 1_000_000_000", "[0-9]"),
    _operator(r"thousand\b", "a thousand is written 1000, 1_000 or 1k", "[0-9]"),
    _hint(r"0x[0-9a-f]+", "a number is written in decimal digits: 255"),
    _hint(r"[+-]?[0-9.]+\.\.", "a range is written 10 <= price <= 20 or BETWEEN 10 AND 20"),
    _hint(r"[0-9.]+-[0-9.]+", "a range is written 10 <= price <= 20 or BETWEEN 10 AND 20"),
    _hint(r"[0-9.]+(px|kg|km|cm|mm|ms|sec|s|h|d|w|g|c|f)\b", "a number stands without its unit: 10"),
    # operators
    _hint(r"(=|>)", "write >= without a blank", r">"),
    _hint(r"(=|>)", "write <= or != without a blank", r"<"),
    _hint(r">", "write >=", r"="),
    _hint(r"<", "write <=", r"="),
    _hint(r"[=<>]", "an operator is one of = != < <= > >=", r"[=<>~^!]"),
    _hint(r"=", "write !=", r"\bnot"),
    _hint(r"[<>]", "write the opposite operator, or NOT before the attribute", r"\bnot"),
    _operator(r"[~^]=?", "the operators are = != < <= > >= BETWEEN IN IS"),
    _hint(r"&", "write AND"),
    _hint(r"\|", "write OR"),
    _operator(r"(xor|nand|nor)\b", "the words are AND, OR and NOT"),
    _operator(r"(unless|except)\b", "write AND NOT"),
    _operator(r"but\b", "write AND"),
    _hint(r",", "write AND between predicates, or IN ('A', 'B') for a list"),
    _hint(r"[<>=!]", _AGAIN, r"\b(and|or)"),
    _hint(r"(not\s+)?(empty|unknown|nan|none|undefined|set|there)\b", _MISSING, r"\bis(\s+not)?"),
    _operator(r"(equals?|eq|is equal)\b", "write ="),
    _operator(r"(ne|neq|differs|unequal)\b", "write !="),
    _operator(r"(gte|ge|at least|atleast|min|from)\b", "write >="),
    _operator(r"(lte|le|at most|atmost|max|until|up to)\b", "write <="),
    _operator(r"(gt|above|over|greater|more|exceeds|after|since)\b", "write >"),
    _operator(r"(lt|below|under|less|smaller|before)\b", "write <"),
    _operator(rf"({_PATTERNS})\b", _PREFIXES),
    _operator(r"(exists|present|given|set|notnull)\b", "write IS PRESENT"),
    _operator(r"(isnull|missing|absent|empty|undefined|none)\b", "write IS MISSING"),
    _operator(r"to\b", "write BETWEEN 10 AND 20"),
    # IS, BETWEEN, IN
    _operator(r"(not\s+)?distinct\b", "write != or ="),
    _hint(r"(not\s+)?(in|between|like)\b", "leave out IS", r"\bis(\s+not)?"),
    _hint(r"[0-9'+.\"-]", "write != to compare with a value", r"\bis\s+not"),
    _hint(r"[0-9'+.\"-]", "write = to compare with a value", r"\bis"),
    _hint(r"[([]", "write BETWEEN 10 AND 20", r"\bbetween"),
    _hint(r"symmetric\b", "write BETWEEN with the low end first", r"\bbetween"),
    _hint(r"select\b", "a list of values stands there; a condition reads no tables", r"\("),
    _operand(r"select\b", "a condition is what stands after WHERE"),
    _hint(r"['0-9+.-]", "write IN ('A', 'B') with parentheses", r"\bin"),
    _hint(r"\)", "a list needs a value, and none after its last comma", r"[(,]"),
    _hint(r"[{<]", "write IN ('A', 'B') with parentheses", r"\bin"),
    # other words of SQL, of code and of templates
    _operator(r"(order|group|limit|having|offset|union|returning)\b", _REST),
    _operand(r"(count|sum|avg|max|min|first|last|median)\s*\(", _ONE_EVENT),
    _operand(r"(case|when|then|else|if|iff|elif)\b", "write the cases as (a AND b) OR (NOT a AND c)"),
    _operand(r"exists\b", "write price IS PRESENT"),
    _hint(r"(cast|convert)\b|::", "the schema states the type of an attribute: leave out the cast"),
    _operand(r"(\?|:[a-z_]|@|\$\{|\{\{|\{)", "a value stands there: fill in the placeholder"),
    _operand(r"\$[a-z_{]", "a value stands there: fill in the placeholder"),
    _hint(r"#|//", "a comment begins with --"),
    _hint(r"\[", "a name stands in double quotes: \"order id\""),
    _hint(r"'", "a quote within a string is doubled: 'it''s'", r"[\w\\]'[^']*"),
    _hint(r"'", "a string ends with the quote that it began with; a quote within it is doubled: 'it''s'"),
    _hint(r"[+*/-]", "arithmetic on the right side of a comparison takes attributes and numbers alone"),
    _operand(r"(yes|no|on|off|y|n|t|f)\b", "write TRUE or FALSE, or the string in quotes"),
)  # fmt: skip


def hint_at(text: str, position: int, operand: bool) -> str:
    """What to write instead of what stands at a position, where an operand or something else was expected.

    >>> hint_at("price > 5 & volume = 1", 10, False), hint_at("at > now()", 5, True)[:25]
    ('write AND', 'a condition does not know')
    """
    before, there = text[max(0, position - _LONGEST) : position], text[position : position + _LONGEST]
    if not there:
        return ""
    for hint in _HINTS:
        if hint.operand in (None, operand) and hint.there.match(there) and hint.before.search(before):
            return hint.hint
    return ""
