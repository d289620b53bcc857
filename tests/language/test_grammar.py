"""The grammar of docs/language.md: texts that are made by it are conditions."""

import random
import re
import warnings
from pathlib import Path

import pytest

import rangecast as rc

pytestmark = pytest.mark.without_kernels

PAGE = Path(__file__).resolve().parents[2] / "docs" / "language.md"
SCHEMA = rc.Schema(
    rc.Int("size"), rc.Float("price"), rc.Timestamp("at"), rc.Timestamp("opened"), rc.Category("symbol"),
    rc.Category("order ip"), rc.Bool("active"), rc.Tags("topics"), rc.Text("name"),
    rc.Point("spot"),
)  # fmt: skip
# what the page gives no rule for, in a few of its forms
WORDS = {
    "number": ["size", "price", "PRICE", '"size"'],
    "instant": ["at", "opened"],
    "text": ["symbol", '"order ip"', "name"],
    "ordered": ["name", '"name"', "NAME"],
    "string_before": ["''", "'A'", "'Anna Maria'"],
    "string_after": ["'Annabel'", "'z'", "'ä'"],
    "bool": ["active"],
    "tags": ["topics"],
    "point": ["spot", '"spot"', "SPOT"],
    "longitude": ["13.4", "-180", "0", "179.9999999"],
    "latitude": ["52.5", "-10", "90", "1e1"],
    "polygon": ["'POLYGON((0 0, 1 0, 1 1, 0 0))'", "'multipolygon (((175 -5,190 -5,190 5,175 -5)))'"],
    "constant": ["5", "-0.25", "1e6", "0", "+3", "12345678901"],
    "string": ["'IBM'", "''", "'it''s'", "'a b (c) and'", "'ä'"],
    "timestamp": ["2026-01-31", "2026-01-31T09:30:00Z", "1969-12-31T23:59:59.5"],
    "string_timestamp": ["'2026-01-31'", "'2026-01-31T09:30:00+01:00'"],
    "day": ["2026-01-31", "2024-02-29"],
    "pattern": ["'AB%'", "'%YZ'", "'AB%YZ'", "'%'", "'AB'", "'%B%'", "'A_B%'", r"'10\%'", "''"],
    "regular_expression": ["'^A+$'", "'a|b'", "'[0-9]{2}'", "''"],
    "network": ["'10.0.0.0/8'", "'2001:db8::/32'", "'10.1.2.3/32'"],
}
DEEP = 26
TOKEN = re.compile(r'\s*("[^"]*"|\w+|[{}()\[\]|=;])')


def rules_of(page):
    """The rules of the page as trees: ("or" | "and" | "many" | "maybe", parts), a word or a name."""
    block = page.partition("```ebnf\n")[2].partition("```")[0]
    tokens = TOKEN.findall(block)
    assert "".join(tokens) == re.sub(r"\s+", "", block)
    rules, at = {}, 0

    def alternatives(at):
        ways = []
        while True:
            way, at = sequence(at)
            ways.append(way)
            if tokens[at] != "|":
                return ("or", ways), at
            at += 1

    def sequence(at):
        parts = []
        while tokens[at] not in ("|", ";", ")", "]", "}"):
            closing = {"(": ")", "[": "]", "{": "}"}.get(tokens[at])
            if closing is None:
                parts.append(tokens[at])
                at += 1
                continue
            inner, end = alternatives(at + 1)
            assert tokens[end] == closing
            parts.append({")": inner, "]": ("maybe", inner), "}": ("many", inner)}[closing])
            at = end + 1
        assert parts
        return ("and", parts), at

    while at < len(tokens):
        assert tokens[at + 1] == "="
        rules[tokens[at]], end = alternatives(at + 2)
        assert tokens[end] == ";"
        at = end + 1
    return rules


RULES = rules_of(PAGE.read_text())


def words(tree, chance, depth=0):
    """A random text of a rule, as words; deep in it always the first alternative, which comes to an end."""
    match tree:
        case ("or", ways):
            yield from words(chance.choice(ways) if depth < DEEP else ways[0], chance, depth + 1)
        case ("and", parts):
            for part in parts:
                yield from words(part, chance, depth + 1)
        case ("maybe" | "many" as kind, inner):
            often = 1 if kind == "maybe" else 2
            for _ in range(chance.randint(0, often) if depth < DEEP else 0):
                yield from words(inner, chance, depth + 1)
        case str() if tree.startswith('"'):
            word = tree.strip('"')
            yield chance.choice([word, word.lower()]) if word.isupper() else word
        case str() if tree in RULES:
            yield from words(RULES[tree], chance, depth + 1)
        case _:
            yield chance.choice(WORDS[tree])


def test_every_name_has_a_rule_or_words():
    def names(tree):
        if isinstance(tree, str):
            return set() if tree.startswith('"') else {tree}
        kind, inner = tree
        return names(inner) if kind in ("maybe", "many") else set().union(*map(names, inner))

    named = set().union(*map(names, RULES.values()))
    assert named - set(RULES) == set(WORDS)
    assert set(RULES) <= named


@pytest.mark.parametrize("seed", range(8))
def test_texts_of_the_grammar_are_conditions(seed):
    chance = random.Random(seed)
    for _ in range(60):
        text = " ".join(words("condition", chance))
        # a schema of its own: each takes a limited number of expressions
        try:
            rc.language.parse(text, rc.Schema(*SCHEMA))
        except rc.LanguageError as error:
            # rules of meaning, which no grammar says
            if not re.search("cancel out|low must not exceed high", str(error)):
                raise


def test_every_text_can_be_looked_through_and_loads_warn_alike():
    chance = random.Random(20)
    odd = 0
    for _ in range(40):
        text = " ".join(words("condition", chance))
        try:
            found = rc.language.lint(rc.Schema(*SCHEMA), text)
        except rc.LanguageError:
            continue
        odd += bool(found)
        assert all(0 <= one.start < one.end <= len(text) for one in found)
        for several in (1, 12):  # by its tree, and by the columns of its shape
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                rc.Subscriptions.parse(rc.Schema(*SCHEMA), dict.fromkeys(range(several), text))
            assert bool(said) == bool(found), text
    assert odd > 10


def test_what_no_rule_makes_is_refused():
    chance = random.Random(1)
    for ending in ("AND", "NOT", "price", "(", "IN ()"):
        text = " ".join(words("condition", chance))
        with pytest.raises(rc.LanguageError):
            rc.language.parse(f"{text} {ending}", rc.Schema(*SCHEMA))


def test_the_cheat_sheet_is_right():
    page = (PAGE.parent / "cheat-sheet.md").read_text()
    schema = rc.Schema(
        rc.Float("price"), rc.Float("close"), rc.Int("qty"), rc.Category("symbol"), rc.Category("ip"),
        rc.Bool("active"), rc.Timestamp("at"), rc.Timestamp("opened"), rc.Int("order id"),
        rc.Point("spot"),
        rc.Float("notional", "price * qty"), rc.Tags("tags"), rc.Text("name"),
    )  # fmt: skip
    cells = re.findall(r"^\| (`.+?`) \|", page, re.MULTILINE)
    texts = [text for cell in cells for text in re.findall(r"`([^`]+)`", cell)]
    assert len(texts) > 40
    for text in texts:
        rc.language.parse(text, schema)
    wrong = re.findall(r"^\| not `(.+?)` \|", page, re.MULTILINE)
    assert len(wrong) > 3
    for text in wrong:
        with pytest.raises(rc.LanguageError):
            rc.language.parse(text, schema)
