"""Traits of texts, and of several values, as bundles that hold together: one dictionary for a schema.

`title CONTAINS 'disk'`, LIKE, MATCHES and `tags HAS 'x'` are *traits*. What a box asks of all its traits
is one *trait bundle*: `contains(title, 'disk') AND NOT contains(title, 'test')`, on whatever attributes they
are. Bundles are the words of one dictionary that only grows, as those of a category are, and three hidden
attributes hold what an event has of them, in as many copies of its column as are needed:

    traits(1)   a bundle that holds
    traits(2)   the end below, and
    traits(3)   the end above of a gap between bundles of denied traits that do not hold

A bundle that asks for at least one trait is `traits(1) = code`. An event has few such bundles, however many
there are. A bundle of denied traits alone holds nearly everywhere, so an event says which of them do *not*
hold, sorted, and the gaps between those: the bundle `c` holds where one gap has c within it, which is
`traits(2) < c AND traits(3) > c`. No box asks for both, so that an event needs as many copies as the longer
of the two lists, and never their product. So no conjunction, negation or number of traits needs a second look
at what an index finds, or an attribute of its own. Alternatives that lost: an attribute per trait takes 256
traits and a column for each; an attribute per text with its traits as values cannot say `a CONTAINS 'x' AND
a CONTAINS 'y'`, nor NOT, and multiplies copies; checking candidates again would need every index to know of
texts.

That a bundle is denied of a missing text is asked by the box itself, of the attribute.

Bundles are found by an automaton over bytes (types/kernels.py) in the strings of a batch, each
distinct string once: CONTAINS by its string, LIKE by its longest piece and then by a kernel, a regular
expression by a piece that it must have and then by RE2. `CompiledBundles` covers a stretch of the dictionary.
As it grows, a new one is compiled for what is new and merged with the last while that is not much larger: a
live insert costs what is new, and log2(n) automata are run at most.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rangecast.durable import lock
from rangecast.errors import CapacityError, SchemaError
from rangecast.types import kernels
from rangecast.types.arrow_compute import pc
from rangecast.types.attributes import LAST, MISSING, PRESENT, Attribute, Codes
from rangecast.types.expressions import unescaped
from rangecast.types.kernels import ANY, N_BIGRAMS, ONE
from rangecast.types.strings import arrow_words
from rangecast.types.vocabulary import Vocabulary

MOST_BUNDLES = 1 << 24
ROOM_OF_ONE = 64
"""Traits and bundles of one event for which there is room at first."""
MOST_WITHOUT_PIECES = 256
"""How many traits of a schema may have no fixed part, so that every string is tried."""

HELD, BELOW, ABOVE = names = ("traits(1)", "traits(2)", "traits(3)")
DICTIONARY = "\ntraits"
"""The name of the dictionary, which no attribute can have."""

_MEMBER = re.compile(
    r"""(NOT )?(contains|like|matches|has)\(((?:[a-z]+\()*(?:"[^"]*(?:""[^"]*)*"|[^"(),]+)\)*), """
    r"""'([^']*(?:''[^']*)*)'\)(?: AND |\Z)"""
)


class Trait(NamedTuple):
    """A member of a bundle: how and for what a source is looked at, and whether that is denied.

    A source is the text of an expression that gives text, or for `has` the name of an attribute.
    """

    op: str
    source: str
    string: str
    denied: bool = False


class SourceWords(NamedTuple):
    """What a source has in a batch: the words, and the word of each column, below 0 where it is missing."""

    words: Sequence[str]
    where: npt.NDArray[np.int64]


WordFinder = Callable[[str], SourceWords]


class HeldBundle(Attribute):
    """One of the three hidden attributes; see the module head."""

    kind = "trait bundle"
    __slots__ = ("bundles",)

    def __init__(self, name: str, bundles: TraitBundles) -> None:
        super().__init__(name)
        self.bundles = bundles

    def decode(self, code: int) -> Any:
        if code == MISSING:
            return None
        return self.bundles.vocabulary.word(code) or ("(no pattern)" if code <= 0 else "(any other)")


class TraitBundles:
    """The dictionary of a schema's trait bundles, and what finds them.

    >>> bundles = TraitBundles()
    >>> bundles.vocabulary.add("contains(title, 'disk') AND NOT contains(title, 'test')")
    1
    >>> found = bundles.find(lambda source: SourceWords(["a disk", "disk test"], np.array([0, 1])), 2, None)
    >>> found.held.tolist(), found.held_starts.tolist()
    ([1], [0, 1, 1])
    """

    name = DICTIONARY

    def __init__(self, words: Iterable[str] = ()) -> None:
        self.vocabulary = Vocabulary(words)
        self.single_columns = False
        """Set where an event must stay one column of codes: then each trait becomes an expression."""
        self._parts: tuple[CompiledBundles, ...] = ()
        self._without_pieces = 0
        self._counted = 0
        self._lock = threading.Lock()
        lock.watch(self)

    def _after_fork(self) -> None:
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return TraitBundles, (self.vocabulary.words(),)

    def attributes(self) -> list[Attribute]:
        """The hidden attributes, in their order."""
        return [HeldBundle(name, self) for name in names]

    def code(self, members: Sequence[Trait], texts: Sequence[str]) -> int:
        """The code of a bundle of traits, given with their texts; CapacityError where there are too many."""
        word = " AND ".join(sorted(set(texts)))
        code = self.vocabulary.look_up(word)
        if code:
            return code
        if len(self.vocabulary) >= MOST_BUNDLES:
            raise CapacityError(f"the conditions of a schema may have {MOST_BUNDLES:,} sets of patterns")
        if not all(map(has_piece, members)):
            with self._lock:
                known = self.vocabulary.words()
                self._without_pieces += sum(
                    not all(map(has_piece, members_of(one))) for one in known[self._counted :]
                )
                self._counted = len(known)
            if self._without_pieces >= MOST_WITHOUT_PIECES:
                raise CapacityError(
                    f"the conditions of a schema may have {MOST_WITHOUT_PIECES} patterns without a fixed "
                    "part, for which every string must be tried; write one that has some letters"
                )
        return self.vocabulary.add(word)

    def find(self, finder: WordFinder, n_columns: int, owners: npt.NDArray[np.int64] | None) -> FoundBundles:
        """The bundles that hold in the columns of a batch, and those of denied traits that do not."""
        parts = [part.find(finder, n_columns, owners) for part in self._compiled()]
        if not parts:
            none = np.zeros(n_columns + 1, np.int64)
            return FoundBundles(np.empty(0, np.int64), none, np.empty(0, np.int64), none)
        return parts[0] if len(parts) == 1 else FoundBundles.joined(parts)

    def find_one(self, words_of: Callable[[str], list[str]]) -> tuple[list[int], list[int]]:
        """As `find`, of one event, whose words of a source `words_of` gives; the bundles that do not hold
        ascend."""
        held: list[int] = []
        barred: list[int] = []
        for part in self._compiled():
            for out, codes in zip((held, barred), part.find_one(words_of), strict=True):
                out += codes
        barred.sort()
        return held, barred

    def _compiled(self) -> tuple[CompiledBundles, ...]:
        """The parts that cover the dictionary as it is now."""
        known = len(self.vocabulary)
        parts = self._parts
        if (parts[-1].stop if parts else 0) >= known:
            return parts
        with self._lock:
            parts = self._parts
            start = parts[-1].stop if parts else 0
            if start < known:
                # a part at most twice as large as what comes after it is compiled with that
                while parts and parts[-1].stop - parts[-1].start <= 2 * (known - start):
                    start = parts[-1].start
                    parts = parts[:-1]
                words = self.vocabulary.words()[start:known]
                parts = self._parts = (*parts, CompiledBundles(start, words))
            return parts


def members_of(word: str) -> list[Trait]:
    """The traits of a bundle.

    >>> members_of("NOT has(tags, 'it''s') AND contains(lower(title), 'a AND b')")[0]
    Trait(op='has', source='tags', string="it's", denied=True)
    """
    found, at = [], 0
    while at < len(word):
        member = _MEMBER.match(word, at)
        if member is None:
            raise ValueError(f"no bundle of traits: {word!r}")
        denied, op, source, string = member.groups()
        found.append(Trait(op, source, unescaped(string), denied is not None))
        at = member.end()
    return found


def has_piece(trait: Trait) -> bool:
    """Whether a string that fulfils a trait has some fixed string within it."""
    if trait.op == "like":
        return bool(longest_piece(trait.string))
    return trait.op != "matches" or bool(needed_piece(trait.string))


class FoundBundles(NamedTuple):
    """The codes of bundles by column: those that hold, and of denied traits those that do not, ascending."""

    held: Codes
    held_starts: npt.NDArray[np.int64]
    barred: Codes
    barred_starts: npt.NDArray[np.int64]

    @classmethod
    def joined(cls, parts: Sequence[FoundBundles]) -> FoundBundles:
        """What several parts found; the codes of a part are above those of the parts before it."""
        out: list[Any] = []
        for k in (0, 2):
            columns = np.concatenate(
                [np.repeat(np.arange(len(part[k + 1]) - 1), np.diff(part[k + 1])) for part in parts]
            )
            order = np.argsort(columns, kind="stable")
            out.append(np.concatenate([part[k] for part in parts])[order])
            out.append(np.sum([part[k + 1] for part in parts], axis=0))
        return cls(*out)

    def spread(self) -> tuple[npt.NDArray[np.int64], Codes]:
        """How many copies each column has, and the codes of the hidden attributes in them, (3, n_copies)."""
        copies = np.maximum(np.maximum(np.diff(self.held_starts), np.diff(self.barred_starts) + 1), 1)
        firsts = np.concatenate([[0], np.cumsum(copies)]).astype(np.int64)
        out = np.empty((3, int(firsts[-1])), np.int64)
        kernels.spread_bundles(firsts, self.held, self.held_starts, self.barred, self.barred_starts, out)
        return copies, out


class CompiledBundles:
    """What finds the bundles of a stretch of the dictionary."""

    def __init__(self, start: int, words: Sequence[str]) -> None:
        self.start, self.stop = start, start + len(words)
        numbers: dict[Trait, int] = {}
        members = [members_of(word) for word in words]
        asked = [
            [numbers.setdefault(one._replace(denied=False), len(numbers)) for one in own] for own in members
        ]
        traits = list(numbers)
        by_source: dict[str, list[int]] = {}
        for number, trait in enumerate(traits):
            key = f"has {trait.source}" if trait.op == "has" else trait.source
            by_source.setdefault(key, []).append(number)
        self.sources: list[_TagLookup | _TextAutomaton] = [
            _TagLookup(traits, own) if key.startswith("has ") else _TextAutomaton(traits, own)
            for key, own in by_source.items()
        ]
        sources = np.empty(len(traits), np.int32)
        for k, own in enumerate(by_source.values()):
            sources[own] = k
        denied = [[one.denied for one in own] for own in members]
        said = Counter(
            number
            for own, flags in zip(asked, denied, strict=True)
            for number, flag in zip(own, flags, strict=True)
            if not flag
        )
        leads = [_lead(own, flags, said) for own, flags in zip(asked, denied, strict=True)]
        sizes = np.array([len(own) for own in members], np.int64)
        flat = np.array([number for own in asked for number in own], np.int32)
        flat_denied = np.array([flag for own in denied for flag in own], np.uint8)
        pure = np.array([lead < 0 for lead in leads], bool)
        leading = np.array([own[lead] for own, lead in zip(asked, leads, strict=True) if lead >= 0], np.int64)
        of_bundles = np.repeat(np.arange(len(members)), sizes)
        barring = pure[of_bundles]
        n = len(traits)
        self._bundles = kernels.Bundles(
            np.arange(self.start + 1, self.stop + 1, dtype=np.int64),
            _starts(sizes).astype(np.int32),
            flat,
            flat_denied,
            sources,
            *_grouped(leading, np.flatnonzero(~pure), n),
            *_grouped(flat[barring], of_bundles[barring], n),
        )
        self._n_traits = n
        self._shares = [2.0, 2.0]

    def find(self, finder: WordFinder, n_columns: int, owners: npt.NDArray[np.int64] | None) -> FoundBundles:
        """The bundles of this stretch in the columns of a batch."""
        where = np.empty((len(self.sources), n_columns), np.int64)
        firsts: list[npt.NDArray[np.int64]] = [np.zeros(1, np.int64)]
        traits: list[npt.NDArray[np.int32]] = []
        rows = n_held = 0
        for k, source in enumerate(self.sources):
            found = finder(source.name)
            ends, own, places = source.find(found, owners)
            where[k] = np.where(places >= 0, places + rows, -1)
            firsts.append(ends + n_held)
            traits.append(own)
            rows += len(ends)
            n_held += len(own)
        joined = np.concatenate(firsts), np.concatenate(traits) if traits else np.empty(0, np.int32)
        room = [max(1024, int(share * n_columns)) for share in self._shares]
        while True:
            held, barred = np.empty(room[0], np.int64), np.empty(room[1], np.int64)
            ends = np.zeros((2, n_columns), np.int64)
            stamps = np.full(self._n_traits, -1, np.int64)
            marks = np.full(len(self._bundles.codes), -1, np.int64)
            kernels.hold_bundles(self._bundles, where, *joined, stamps, marks, held, barred, ends)
            needed = ends[:, -1].tolist() if n_columns else [0, 0]
            if needed[0] <= room[0] and needed[1] <= room[1]:
                break
            room = [max(had, want) for had, want in zip(room, needed, strict=True)]
        self._shares = [1 + 1.5 * want / max(n_columns, 1) for want in needed]
        held_starts, barred_starts = (np.concatenate([[0], row]).astype(np.int64) for row in ends)
        barred = barred[: needed[1]]
        if len(barred):
            columns = np.repeat(np.arange(n_columns), np.diff(barred_starts))
            barred = barred[np.lexsort((barred, columns))]
        return FoundBundles(held[: needed[0]], held_starts, barred, barred_starts)

    def find_one(self, words_of: Callable[[str], list[str]]) -> tuple[list[int], list[int]]:
        """The bundles of this stretch that hold in one event, and those of denied traits that do not."""
        traits: list[int] = []
        ends = [0]
        where = np.empty((len(self.sources), 1), np.int64)
        for k, source in enumerate(self.sources):
            words = words_of(source.name)
            if words:
                traits += source.find_one(words)
            where[k] = k if words else -1
            ends.append(len(traits))
        if not traits:  # as of most events: then no bundle holds, and none is barred
            return [], []
        own = np.array(traits, np.int32)
        room = ROOM_OF_ONE
        while True:
            held, barred = np.empty(room, np.int64), np.empty(room, np.int64)
            found = np.zeros((2, 1), np.int64)
            stamps = np.full(self._n_traits, -1, np.int64)
            marks = np.full(len(self._bundles.codes), -1, np.int64)
            kernels.hold_bundles(
                self._bundles, where, np.array(ends), own, stamps, marks, held, barred, found
            )
            n_held, n_barred = found[:, 0].tolist()
            if max(n_held, n_barred) <= room:
                return held[:n_held].tolist(), barred[:n_barred].tolist()
            room = max(n_held, n_barred)


class _TagLookup:
    """An attribute of several values, which are looked up among the strings that are asked for."""

    def __init__(self, traits: Sequence[Trait], own: Sequence[int]) -> None:
        self.name = f"has {traits[own[0]].source}"
        self._numbers = {traits[number].string: number for number in own}

    def find(
        self, found: SourceWords, owners: npt.NDArray[np.int64] | None
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        """Where the traits of each row end, the traits, and the row of each column: that of its event."""
        get = self._numbers.get
        of_words = np.array([get(word, -1) for word in found.words] or [-1], np.int64)
        rows = np.arange(len(found.where)) if owners is None else owners
        n = int(rows[-1]) + 1 if len(rows) else 0
        numbers = np.where(found.where >= 0, of_words[found.where], -1)
        held = np.flatnonzero(numbers >= 0)
        # as one number each: numpy takes twenty times as long for pairs
        pairs = np.unique((rows[held] << 32) | numbers[held])
        ends = np.cumsum(np.bincount(pairs >> 32, minlength=n)).astype(np.int64)
        return ends, (pairs & 0xFFFF_FFFF).astype(np.int32), np.where(found.where >= 0, rows, -1)

    def find_one(self, words: list[str]) -> list[int]:
        """The traits of one event."""
        numbers = self._numbers
        return list({numbers[word] for word in words if word in numbers})


class _TextAutomaton:
    """A text, and the automaton over all traits that are looked for in it."""

    def __init__(self, traits: Sequence[Trait], own: Sequence[int]) -> None:
        self.name = traits[own[0]].source
        pieces: dict[str, int] = {}
        whole: dict[int, int] = {}
        likes: list[tuple[int, int]] = []
        asking: list[tuple[int, int]] = []
        marks: list[list[int]] = []
        hints: list[int] = []
        numbers: list[int] = []
        self._all: list[tuple[int, str]] = []
        self._expressions = {n: traits[n].string for n in own if traits[n].op == "matches"}
        for number in own:
            trait = traits[number]
            if trait.op == "contains":
                whole[pieces.setdefault(trait.string, len(pieces))] = number
            elif trait.op == "like":
                piece = longest_piece(trait.string)
                likes.append((pieces.setdefault(piece, len(pieces)) if piece else -1, len(marks)))
                marks.append(like_marks(trait.string))
                hints.append(other_bigram(trait.string, piece))
                numbers.append(number)
            else:
                piece = needed_piece(trait.string)
                if piece:
                    asking.append((pieces.setdefault(piece, len(pieces)), number))
                else:
                    self._all.append((number, trait.string))
        n = len(pieces)
        self._n_pieces = n
        of_pieces = np.full(n, -1, np.int32)
        of_pieces[list(whole)] = list(whole.values())
        some = np.array([pair for pair in likes if pair[0] >= 0], np.int64).reshape(-1, 2)
        asked = np.array(asking, np.int64).reshape(-1, 2)
        firsts, fitted = _grouped(some[:, 0], some[:, 1], n)
        self._uses = kernels.PieceUses(
            of_pieces,
            firsts,
            fitted,
            np.array(hints, np.int16)[fitted],
            np.array(numbers, np.int32),
            _starts(np.array([len(one) for one in marks], np.int64)),
            np.array([mark for one in marks for mark in one], np.int16),
            *_grouped(asked[:, 0], asked[:, 1], n),
            np.array([k for piece, k in likes if piece < 0], np.int32),
        )
        self._automaton = automaton_of(list(pieces))
        self._share = 4.0
        """How many traits a string fulfilled in the last batch, and some more."""

    def find(
        self, found: SourceWords, owners: npt.NDArray[np.int64] | None
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        """Where the traits of each word end, the traits, and the word of each column."""
        column = arrow_words(found.words)
        starts, text = buffers_of(column)
        n = len(found.words)
        room = [max(1024, int(self._share * n)), max(1024, n if self._expressions else 0)]
        while True:
            held, asked = np.empty(room[0], np.int32), np.empty(room[1], np.int32)
            ends = np.zeros((2, n), np.int64)
            stamps = np.full(self._n_pieces, -1, np.int64)
            bigrams = np.full(kernels.N_BIGRAMS, -1, np.int64)
            kernels.find_traits(self._automaton, self._uses, starts, text, stamps, bigrams, held, asked, ends)
            needed = ends[:, -1].tolist() if n else [0, 0]
            if needed[0] <= room[0] and needed[1] <= room[1]:
                break
            room = [max(had, want) for had, want in zip(room, needed, strict=True)]
        self._share = 1 + 1.5 * needed[0] / max(n, 1)
        own = held[: needed[0]]
        if not self._expressions:
            return ends[0], own, found.where
        words = [np.repeat(np.arange(n), np.diff(ends[0], prepend=0))]
        numbers = [own]
        candidates = np.repeat(np.arange(n), np.diff(ends[1], prepend=0))
        wanted = asked[: needed[1]]
        order = np.argsort(wanted, kind="stable")
        wanted, candidates = wanted[order], candidates[order]
        cuts = np.flatnonzero(np.diff(wanted)) + 1
        tried = [
            (int(group[0]), rows)
            for group, rows in zip(np.split(wanted, cuts), np.split(candidates, cuts), strict=True)
            if len(group)
        ]
        tried += [(number, np.arange(n)) for number, _ in self._all]
        for number, rows in tried:
            some = column if len(rows) == n else column.take(pa.array(rows))
            fits = pc.match_substring_regex(some, self._expressions[number])
            rows = rows[fits.to_numpy(zero_copy_only=False)]
            words.append(rows)
            numbers.append(np.full(len(rows), number, np.int32))
        by_word = np.concatenate(words)
        order = np.argsort(by_word, kind="stable")
        ends = np.cumsum(np.bincount(by_word, minlength=n)).astype(np.int64)
        return ends, np.concatenate(numbers)[order], found.where

    def find_one(self, words: list[str]) -> list[int]:
        """The traits that one word has."""
        letters = words[0].encode()
        # kernels are compiled for arrays that may be written to
        text = np.frombuffer(bytearray(letters or b" "), np.uint8)
        starts = np.array([0, len(letters)])
        room = ROOM_OF_ONE
        while True:
            held, asked = np.empty(room, np.int32), np.empty(room, np.int32)
            ends = np.zeros((2, 1), np.int64)
            stamps = np.full(self._n_pieces, -1, np.int64)
            bigrams = np.full(kernels.N_BIGRAMS, -1, np.int64)
            kernels.find_traits(self._automaton, self._uses, starts, text, stamps, bigrams, held, asked, ends)
            n_held, n_asked = ends[:, 0].tolist()
            if max(n_held, n_asked) <= room:
                break
            room = max(n_held, n_asked)
        found: list[int] = held[:n_held].tolist()
        wanted = [*asked[:n_asked].tolist(), *(number for number, _ in self._all)]
        if wanted:
            column = arrow_words(words)
            for number in dict.fromkeys(wanted):
                if pc.match_substring_regex(column, self._expressions[number])[0].as_py():
                    found.append(number)
        return found


def _lead(numbers: Sequence[int], denied: Sequence[bool], said: Counter[int]) -> int:
    """Which of its traits a bundle is looked at for: the one that fewest have, -1 where all are denied."""
    ours = [k for k, flag in enumerate(denied) if not flag]
    return min(ours, key=lambda k: said[numbers[k]], default=-1)


def _grouped(
    keys: npt.NDArray[Any], values: npt.NDArray[Any], n: int
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Values by their keys below n: where those of a key begin, and the values."""
    order = np.argsort(keys, kind="stable")
    return _starts(np.bincount(keys, minlength=n)).astype(np.int32), values[order].astype(np.int32)


def _starts(counts: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]).astype(np.int64)


def interval_of(code: int, denied: bool) -> dict[int, tuple[int, int]]:
    """What a box asks of the hidden attributes for a bundle, by their order."""
    return {1: (PRESENT, code - 1), 2: (code + 1, LAST)} if denied else {0: (code, code)}


# The fixed strings within patterns, by which an automaton finds who may fit.
#
# A pattern of LIKE is strings between wildcards. What a regular expression must have within it is found by a
# reading that knows little and gives up soon: no piece is always right, a wrong one never. It goes along the
# top level of the expression and keeps runs of plain letters; a letter before `?`, `*` or `{` is no part of
# one, what stands in parentheses or brackets is passed over, and one with `|` at the top level, or with
# flags, has none.

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


# Building the automaton that finds many strings at once (types/kernels.py).

_ROWS = 1024  # states with a row of next states: a megabyte


def buffers_of(column: pa.Array[Any]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Where strings of `arrow_words` begin, and their bytes, as arrays that may be written to."""
    _, starts, letters = column.buffers()
    bytes_ = np.zeros(1, np.uint8) if not letters.size else np.frombuffer(letters, np.uint8).copy()
    return np.frombuffer(starts, np.int64, len(column) + 1).copy(), bytes_


def automaton_of(pieces: Sequence[str]) -> kernels.Automaton:
    """The automaton of some strings, by their numbers.

    >>> automaton_of(["disk", "is"]).depths.max()
    np.int32(4)
    """
    starts, letters = buffers_of(arrow_words(pieces))
    n = int(starts[-1]) + 1
    size = 1 << max(4, (2 * n).bit_length())
    numbers = [np.zeros(n, np.int32) for _ in range(5)]
    parents, depths, fails, ends, of_states = numbers
    of_states[0] = -1
    found = kernels.Automaton(
        np.zeros(size, np.int64),
        np.zeros(size, np.int32),
        parents,
        np.zeros(n, np.uint8),
        depths,
        fails,
        of_states,
        ends,
        np.full(n, -1, np.int32),
        np.zeros(0, np.int32),
        np.zeros((n, 4), np.int32),
    )
    n_states = kernels.enter_pieces(found, starts, letters)
    found = found._replace(nexts=np.zeros(256 * min(n_states, _ROWS), np.int32))
    order = np.argsort(depths[1:n_states], kind="stable") + 1
    kernels.link_states(found, order)
    kernels.fill_rows(found, order)
    ending = np.where(of_states >= 0, np.arange(n), ends)
    found.steps[:, :3] = np.stack([found.rows, fails, ending], axis=1)
    return found
