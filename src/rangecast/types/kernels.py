"""Traits in strings: one automaton over bytes for all of them, and the bundles of traits that hold.

The automaton is Aho's and Corasick's (1975): a trie of all pieces, with a link from each state to the longest
other state that is an end of it. Its edges lie in one table by open addressing, since a table of 256 next
states for each state would be a kilobyte per letter of the traits. The states next to the root do have such
a row: what a longer state does not know goes on there, so that a byte takes two look-ups at most as a rule.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rangecast.simd.compiler import inlined_kernel, kernel

ANY, ONE = 256, 257
"""% and _ among the bytes of a trait of LIKE."""

N_BIGRAMS = 1024
_MIX = 10_368_889


class Automaton(NamedTuple):
    """States of a trie, 0 being its root, and edges by open addressing.

    array     dtype   shape      meaning
    keys      int64   size       256 times a state and a byte, plus 1; 0 where the place is free
    targets   int32   size       the state that the edge leads to
    parents   int32   n_states   the state before
    letters   uint8   n_states   the byte that leads here
    depths    int32   n_states   how many bytes lead here
    fails     int32   n_states   the longest other state that is an end of this one
    pieces    int32   n_states   the piece that ends here, -1 for none
    ends      int32   n_states   the next state along `fails` in which a piece ends, 0 for none
    rows      int32   n_states   the state's row of `nexts`, -1 for none
    nexts     int32   256 n      the next state for each byte, for the first n states by depth
    steps     int32   (n, 4)     what a byte needs of its state, in one place: `rows`, `fails`, and the first
                                 state from it along `fails` in which a piece ends, 0 for none
    """

    keys: npt.NDArray[np.int64]
    targets: npt.NDArray[np.int32]
    parents: npt.NDArray[np.int32]
    letters: npt.NDArray[np.uint8]
    depths: npt.NDArray[np.int32]
    fails: npt.NDArray[np.int32]
    pieces: npt.NDArray[np.int32]
    ends: npt.NDArray[np.int32]
    rows: npt.NDArray[np.int32]
    nexts: npt.NDArray[np.int32]
    steps: npt.NDArray[np.int32]


class PieceUses(NamedTuple):
    """What a piece that was found says about traits; pieces and traits are numbers.

    array     dtype   shape          meaning
    whole     int32   n_pieces       the trait that holds where the piece is, -1 for none
    firsts    int32   n_pieces + 1   which of `fitted` have the piece as their longest, and then of `asked`
    fitted    int32                  traits of LIKE, whose bytes are marks[starts[k]:starts[k + 1]]
    hints     int16                  as `fitted`: two bytes that it has beside that piece, as one number
                                     (`bigram_of`), -1 where it has none
    numbers   int32   n_fitted       their numbers among all traits
    starts    int64   n_fitted + 1
    marks     int16                  bytes, ANY and ONE
    asking    int32   n_pieces + 1   as `firsts`, for traits that another engine decides
    asked     int32                  those traits
    always    int32                  which of the traits of LIKE have no piece
    """

    whole: npt.NDArray[np.int32]
    firsts: npt.NDArray[np.int32]
    fitted: npt.NDArray[np.int32]
    hints: npt.NDArray[np.int16]
    numbers: npt.NDArray[np.int32]
    starts: npt.NDArray[np.int64]
    marks: npt.NDArray[np.int16]
    asking: npt.NDArray[np.int32]
    asked: npt.NDArray[np.int32]
    always: npt.NDArray[np.int32]


class Bundles(NamedTuple):
    """Bundles of traits that hold together: some are asked, some are denied.

    array      dtype   shape            meaning
    codes      int64   n_bundles           the code of each
    starts     int32   n_bundles + 1       the traits of a bundle, in `traits` and `denied`
    traits   int32
    denied     uint8
    sources    int32   n_traits       where a trait is looked for
    leading    int32   n_traits + 1   the bundles, in `led`, that are looked at where a trait holds
    led        int32
    barring    int32   n_traits + 1   the bundles of denied traits alone, in `barred`, that have this one
    barred     int32
    """

    codes: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int32]
    traits: npt.NDArray[np.int32]
    denied: npt.NDArray[np.uint8]
    sources: npt.NDArray[np.int32]
    leading: npt.NDArray[np.int32]
    led: npt.NDArray[np.int32]
    barring: npt.NDArray[np.int32]
    barred: npt.NDArray[np.int32]


@inlined_kernel
def _place(keys, key):
    """Where a key stands, or the free place where it would."""
    last = len(keys) - 1
    at = key * _MIX  # a key has 40 bits at most
    at = (at ^ (at >> 17)) & last
    while keys[at] != 0 and keys[at] != key:
        at = (at + 1) & last
    return at


@kernel
def enter_pieces(automaton, starts, bytes_):
    """Enter all pieces into an empty trie; gives the number of states."""
    n_states = 1
    for piece in range(len(starts) - 1):
        state = np.int64(0)
        for at in range(starts[piece], starts[piece + 1]):
            key = state * 256 + bytes_[at] + 1
            place = _place(automaton.keys, key)
            if automaton.keys[place] == 0:
                automaton.keys[place] = key
                automaton.targets[place] = n_states
                automaton.parents[n_states] = state
                automaton.letters[n_states] = bytes_[at]
                automaton.depths[n_states] = automaton.depths[state] + 1
                automaton.pieces[n_states] = -1
                n_states += 1
            state = np.int64(automaton.targets[place])
        automaton.pieces[state] = piece
    return n_states


@kernel
def link_states(automaton, order):
    """Set `fails` and `ends`; `order` has all states but the root by their depths."""
    for k in range(len(order)):
        state = order[k]
        parent = automaton.parents[state]
        letter = automaton.letters[state]
        found = np.int64(0)
        if parent != 0:
            at = np.int64(automaton.fails[parent])
            while True:
                place = _place(automaton.keys, at * 256 + letter + 1)
                if automaton.keys[place] != 0:
                    found = np.int64(automaton.targets[place])
                    break
                if at == 0:
                    break
                at = np.int64(automaton.fails[at])
        automaton.fails[state] = found
        automaton.ends[state] = found if automaton.pieces[found] >= 0 else automaton.ends[found]


@kernel
def fill_rows(automaton, order):
    """Set `rows` and `nexts`, for the root and the first states of `order`."""
    for row in range(len(automaton.nexts) // 256):
        state = np.int64(0) if row == 0 else np.int64(order[row - 1])
        automaton.rows[state] = row
        for byte in range(256):
            place = _place(automaton.keys, state * 256 + byte + 1)
            found = np.int64(0)
            if automaton.keys[place] != 0:
                found = np.int64(automaton.targets[place])
            elif row != 0:  # a shorter state, which has its row by now
                found = np.int64(automaton.nexts[256 * automaton.rows[automaton.fails[state]] + byte])
            automaton.nexts[256 * row + byte] = found


@kernel
def fits_like(marks, start, stop, text, first, last):
    """Whether text[first:last] fits a trait of LIKE; it is UTF-8, and ONE is a character."""
    at, mark = first, start
    star, resume = np.int64(-1), first
    while at < last:
        wanted = marks[mark] if mark < stop else np.int16(-1)
        if wanted == ANY:
            star, resume = mark, at
            mark += 1
        elif wanted == ONE:
            at += 1
            while at < last and text[at] & 0xC0 == 0x80:
                at += 1
            mark += 1
        elif wanted == text[at]:
            at += 1
            mark += 1
        elif star >= 0:
            # let the last % stand for one character more
            resume += 1
            while resume < last and text[resume] & 0xC0 == 0x80:
                resume += 1
            at, mark = resume, star + 1
        else:
            return False
    while mark < stop and marks[mark] == ANY:
        mark += 1
    return mark == stop


@inlined_kernel
def bigram_of(first, second):
    """Two bytes as a number below N_BIGRAMS, which others may have too."""
    return (np.int64(first) * 37 + np.int64(second)) & (N_BIGRAMS - 1)


@kernel
def find_traits(automaton, uses, starts, text, stamps, bigrams, held, asked, ends):
    """The traits that each string fulfils, into `held`, and those to be asked, into `asked`.

    `stamps` (n_pieces) and `bigrams` (N_BIGRAMS) begin below 0: a piece counts once for each string, and so
    do two bytes that follow one another. ends[:, w] is where the two lists of string w end, or would if there
    were room.
    """
    n_held = n_asked = 0
    for word in range(len(starts) - 1):
        first, last = starts[word], starts[word + 1]
        for k in range(len(uses.always)):
            own = uses.always[k]
            if fits_like(uses.marks, uses.starts[own], uses.starts[own + 1], text, first, last):
                if n_held < len(held):
                    held[n_held] = uses.numbers[own]
                n_held += 1
        # many patterns of LIKE share their longest piece with a string and have nothing else of it: 2.5 times
        # as fast as trying each
        if len(uses.fitted) > 0:
            for at in range(first, last - 1):
                bigrams[bigram_of(text[at], text[at + 1])] = word
        state = np.int64(0)
        for at in range(first, last):
            byte = np.int64(text[at])
            while automaton.steps[state, 0] < 0:
                place = _place(automaton.keys, state * 256 + byte + 1)
                if automaton.keys[place] != 0:
                    state = np.int64(automaton.targets[place])
                    break
                state = np.int64(automaton.steps[state, 1])
            else:
                state = np.int64(automaton.nexts[256 * np.int64(automaton.steps[state, 0]) + byte])
            end = np.int64(automaton.steps[state, 2])
            while end != 0:
                piece = automaton.pieces[end]
                end = np.int64(automaton.ends[end])
                if stamps[piece] == word:
                    continue
                stamps[piece] = word
                if uses.whole[piece] >= 0:
                    if n_held < len(held):
                        held[n_held] = uses.whole[piece]
                    n_held += 1
                for k in range(uses.firsts[piece], uses.firsts[piece + 1]):
                    if uses.hints[k] >= 0 and bigrams[uses.hints[k]] != word:
                        continue
                    own = uses.fitted[k]
                    if fits_like(uses.marks, uses.starts[own], uses.starts[own + 1], text, first, last):
                        if n_held < len(held):
                            held[n_held] = uses.numbers[own]
                        n_held += 1
                for k in range(uses.asking[piece], uses.asking[piece + 1]):
                    if n_asked < len(asked):
                        asked[n_asked] = uses.asked[k]
                    n_asked += 1
        ends[0, word] = n_held
        ends[1, word] = n_asked


@kernel
def hold_bundles(bundles, where, firsts, traits, stamps, marks, held, barred, ends):
    """The bundles that hold in each column of events, into `held`, and those barred there, into `barred`.

    where[s, column] is a row of `firsts`, below 0 where source s is missing: there hold the traits from
    firsts[row] up to firsts[row + 1]. `stamps` (n_traits) and `marks` (n_bundles) begin below 0. The lists of
    a column end at ends[:, column], or would if there were room.
    """
    n_held = n_barred = 0
    n_sources, n_columns = where.shape
    for column in range(n_columns):
        # columns of one event often have the same words, and differ in other attributes
        same = column > 0
        for source in range(n_sources):
            same = same and where[source, column] == where[source, column - 1]
        if same:
            first = ends[0, column - 2] if column > 1 else 0
            for k in range(first, ends[0, column - 1]):
                if n_held < len(held):
                    held[n_held] = held[k]
                n_held += 1
            first = ends[1, column - 2] if column > 1 else 0
            for k in range(first, ends[1, column - 1]):
                if n_barred < len(barred):
                    barred[n_barred] = barred[k]
                n_barred += 1
            ends[0, column] = n_held
            ends[1, column] = n_barred
            continue
        for source in range(n_sources):
            row = where[source, column]
            if row >= 0:
                for k in range(firsts[row], firsts[row + 1]):
                    stamps[traits[k]] = column
        for source in range(n_sources):
            row = where[source, column]
            if row < 0:
                continue
            for k in range(firsts[row], firsts[row + 1]):
                trait = traits[k]
                for i in range(bundles.leading[trait], bundles.leading[trait + 1]):
                    one = bundles.led[i]
                    holds = marks[one] != column
                    for j in range(bundles.starts[one], bundles.starts[one + 1]):
                        other = bundles.traits[j]
                        if bundles.denied[j]:
                            holds &= stamps[other] != column and where[bundles.sources[other], column] >= 0
                        else:
                            holds &= stamps[other] == column
                        if not holds:
                            break
                    if holds:
                        marks[one] = column
                        if n_held < len(held):
                            held[n_held] = bundles.codes[one]
                        n_held += 1
                for i in range(bundles.barring[trait], bundles.barring[trait + 1]):
                    one = bundles.barred[i]
                    if marks[one] != column:
                        marks[one] = column
                        if n_barred < len(barred):
                            barred[n_barred] = bundles.codes[one]
                        n_barred += 1
        ends[0, column] = n_held
        ends[1, column] = n_barred


@kernel
def spread_bundles(firsts, held, held_starts, barred, barred_starts, out):
    """The codes of each column's copies: a bundle that holds, and a gap between two bundles that are barred.

    firsts[c] is where the copies of column c begin in `out`, whose three rows are the bundle, and the ends of
    the gap. Barred bundles ascend. A copy beyond the bundles or the gaps of its column repeats the first.
    """
    for column in range(len(firsts) - 1):
        n_held = held_starts[column + 1] - held_starts[column]
        first_gap = barred_starts[column]
        n_gaps = barred_starts[column + 1] - first_gap + 1
        for k in range(firsts[column + 1] - firsts[column]):
            at = firsts[column] + k
            out[0, at] = held[held_starts[column] + (k if k < n_held else 0)] if n_held else 0
            gap = k if k < n_gaps else 0
            out[1, at] = barred[first_gap + gap - 1] if gap > 0 else 0
            out[2, at] = barred[first_gap + gap] if gap < n_gaps - 1 else 9223372036854775807


@kernel
def code_texts(starts, text, part, out):
    """The code of eight bytes of each string, those of a part: base 246, 0 being its end."""
    for word in range(len(starts) - 1):
        first = starts[word] + 8 * part
        last = min(starts[word + 1], first + 8)
        number = np.uint64(0)
        for at in range(first, first + 8):
            number *= np.uint64(246)
            if at < last:
                number += np.uint64(text[at]) + np.uint64(1)
        # from the smallest code of a value on, which is 1 - 2 ** 63
        out[word] = np.int64(number ^ np.uint64(0x8000000000000000)) + 1
