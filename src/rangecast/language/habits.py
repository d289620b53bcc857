"""What to write instead: hints for texts as people write them in SQL, in code and in spreadsheets.

A text whose meaning is plain is accepted (`&&`, `≥`, `1_000`, `10k`, a leading WHERE, curly quotes; see
`tokens.py`). Any other is refused at the place where reading stopped, and here that place is looked at: each
hint has a pattern for what stands before it, one for what stands there, and says whether it is for places
where an operand is expected (an attribute or a value), for others, or for both. The first that fits is shown.
"""

from __future__ import annotations

import re
from typing import NamedTuple

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
