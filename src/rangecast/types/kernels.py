"""Traits in strings: one automaton over bytes for all of them, and the bundles of traits that hold.

The automaton is Aho's and Corasick's (1975): a trie of all pieces, with a link from each state to the longest
other state that is an end of it. Its edges lie in one table by open addressing, since a table of 256 next
states for each state would be a kilobyte per letter of the traits. The states next to the root do have such
a row: what a longer state does not know goes on there, so that a byte takes two look-ups at most as a rule.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import config, types
from numba.extending import intrinsic

from rangecast.simd.compiler import inlined_kernel, kernel
from rangecast.simd.memory import view, view_rows

# Finding strings of an Arrow column in a table of words, by their bytes.
#
# A string of at most sixteen bytes is told by its first eight, its last eight and its length, so that it is
# found in its place of the table without a look at anything else, and without a branch on its length: lengths
# come in no order, so such a branch is foretold wrongly half of the time. Of a shorter one than eight the
# bytes behind it are cut off; nothing behind the buffer is touched, which may end with the string.
#
# Looking up what is in its first place or has none at once, and the others of a run of strings afterwards,
# has no branch at all in its first loop, and takes as long.

MISSING = -(2**63)
_A = np.uint64(0x9E3779B97F4A7C15)
_B = np.uint64(0xD6E8FEB86659FD93)
_HALF = np.uint64(32)
_ONE = np.uint64(1)
_ALL = np.uint64(2**64 - 1)
_CODES = np.uint64(2**32 - 1)
_TOPS = np.uint64(0x8080808080808080)
_WHOLE = 16  # bytes of the longest string that its place in the table holds


class WordTable(NamedTuple):
    """Words by their hash, in open addressing: a power of two of places, at most half of them taken.

    array     dtype    shape       meaning
    places    uint64   (size, 3)   of the word at a place: its first eight bytes, its last eight, and its
                                   length << 32 | its code; a shorter one's bytes with zeros, twice; 0 where
                                   the place is free
    starts    int64    n + 1       word of code c is letters[starts[c - 1]:starts[c]]
    letters   uint8                UTF-8
    """

    places: npt.NDArray[np.uint64]
    starts: npt.NDArray[np.int64]
    letters: npt.NDArray[np.uint8]


if config.DISABLE_JIT:  # type: ignore[attr-defined]

    def eight(letters: Any, at: Any) -> Any:
        """The eight bytes from a place on, as one number."""
        return np.uint64(int.from_bytes(letters[at : at + 8].tobytes(), "little"))

    def four(letters: Any, at: Any) -> Any:
        """The four bytes from a place on."""
        return np.uint64(int.from_bytes(letters[at : at + 4].tobytes(), "little"))

    def put_eight(letters: Any, at: Any, word: Any) -> None:
        """Write eight bytes from a place on."""
        letters[at : at + 8] = np.frombuffer(np.uint64(word).tobytes(), np.uint8)

    def _times(a: Any, b: Any) -> Any:
        return np.uint64(int(a) * int(b) & (2**64 - 1))

else:

    def _load(bits):
        def generate(context, builder, signature, arguments):
            data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
            place = builder.bitcast(builder.gep(data, [arguments[1]]), ir.IntType(bits).as_pointer())
            word = builder.load(place)
            word.align = 1
            return word if bits == 64 else builder.zext(word, ir.IntType(64))

        return generate

    @intrinsic
    def eight(typing_context, letters, at):
        """The eight bytes from a place on, as one number."""
        return types.uint64(letters, types.intp), _load(64)

    @intrinsic
    def four(typing_context, letters, at):
        """The four bytes from a place on."""
        return types.uint64(letters, types.intp), _load(32)

    @intrinsic
    def put_eight(typing_context, letters, at, word):
        """Write eight bytes from a place on."""

        def generate(context, builder, signature, arguments):
            data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
            place = builder.bitcast(builder.gep(data, [arguments[1]]), ir.IntType(64).as_pointer())
            builder.store(arguments[2], place, align=1)
            return context.get_dummy_value()

        return types.void(letters, types.intp, types.uint64), generate

    @inlined_kernel
    def _times(a, b):
        return a * b


@inlined_kernel
def _stir(h, word):
    h = _times(h ^ word, _A)
    return h ^ (h >> _HALF)


@inlined_kernel
def _ends(letters, a, n):
    """The first and the last eight of letters[a:a + n], with zeros behind fewer than eight."""
    if a + 8 > letters.size:
        few = np.uint64(0)
        for k in range(n):
            few |= np.uint64(letters[a + k]) << np.uint64(8 * k)
        return few, few
    own = _ALL if n >= 8 else (_ONE << np.uint64(8 * min(n, 7))) - _ONE
    return eight(letters, a) & own, eight(letters, a + max(n - 8, 0)) & own


@inlined_kernel
def _hash(letters, a, n, first, last):
    """A 64-bit hash of letters[a:a + n], of which the ends are known."""
    h = _stir(_times(np.uint64(n), _B), first)
    if n > _WHOLE:
        at = a + 8
        while at < a + n - 8:
            h = _stir(h, eight(letters, at))
            at += 8
    h = _times(h ^ last, _B)
    return h ^ (h >> _HALF)


@inlined_kernel
def same_letters(letters, a, n, others, b):
    """Whether letters[a:a + n] are others[b:b + n]."""
    if n >= 8:
        q = 0
        while q < n - 8:
            if eight(letters, a + q) != eight(others, b + q):
                return False
            q += 8
        return eight(letters, a + n - 8) == eight(others, b + n - 8)
    if n >= 4:
        if four(letters, a) != four(others, b):
            return False
        return four(letters, a + n - 4) == four(others, b + n - 4)
    for q in range(n):
        if letters[a + q] != others[b + q]:
            return False
    return True


@kernel
def enter_words(words, first):
    """Put the words from code first + 1 on into the table; all of them differ."""
    mask = np.uint64(words.places.shape[0] - 1)
    for k in range(first, words.starts.size - 1):
        a = words.starts[k]
        n = words.starts[k + 1] - a
        begin, end = _ends(words.letters, a, n)
        place = _hash(words.letters, a, n, begin, end) & mask
        while words.places[place, 2] != 0:
            place = (place + _ONE) & mask
        words.places[place, 0] = begin
        words.places[place, 1] = end
        words.places[place, 2] = (np.uint64(n) << _HALF) | np.uint64(k + 1)


@inlined_kernel
def _place_of(letters, a, n, words):
    """The place of letters[a:a + n] in a table, free where no word is it, and its first and last eight."""
    mask = np.uint64(words.places.shape[0] - 1)
    first, last = _ends(letters, a, n)
    place = _hash(letters, a, n, first, last) & mask
    while words.places[place, 2] != 0:
        mark = words.places[place, 2]
        if (
            words.places[place, 0] == first
            and words.places[place, 1] == last
            and mark >> _HALF == np.uint64(n)
        ):
            code = np.int64(mark & _CODES)
            if n <= _WHOLE or same_letters(letters, a, n, words.letters, words.starts[code - 1]):
                break
        place = (place + _ONE) & mask
    return place, first, last


@inlined_kernel
def find_word(letters, a, n, words):
    """The code of letters[a:a + n] in a table, 0 where no word is it."""
    place, _, _ = _place_of(letters, a, n, words)
    return np.int64(words.places[place, 2] & _CODES)


@inlined_kernel
def hash_word(letters, a, n):
    """The hash of letters[a:a + n], whose lowest bits are where a table is looked at first."""
    first, last = _ends(letters, a, n)
    return _hash(letters, a, n, first, last)


@inlined_kernel
def number_word(letters, a, n, words, counts):
    """The code of letters[a:a + n] in a table that grows: a word that is new is entered.

    There is room for one more. counts: how many words the table has, and how many letters they have.
    """
    place, first, last = _place_of(letters, a, n, words)
    mark = words.places[place, 2]
    if mark != 0:
        return np.int64(mark & _CODES)
    code, used = counts[0] + 1, counts[1]
    words.places[place, 0] = first
    words.places[place, 1] = last
    words.places[place, 2] = (np.uint64(n) << _HALF) | np.uint64(code)
    for q in range(n):
        words.letters[used + q] = letters[a + q]
    words.starts[code] = used + n
    counts[0] = code
    counts[1] = used + n
    return code


@inlined_kernel
def find_in(letters, a, n, tables, column):
    """The same in the table of a column, of which `tables` has three rows (simd/memory.py)."""
    words = WordTable(
        view_rows(tables[3 * column], np.uint64),
        view(tables[3 * column + 1], np.int64),
        view(tables[3 * column + 2], np.uint8),
    )
    return find_word(letters, a, n, words)


@inlined_kernel
def _is_ascii(letters, a, n):
    bits = np.uint64(0)
    at = a
    while at + 8 <= a + n:
        bits |= eight(letters, at)
        at += 8
    while at < a + n:
        bits |= np.uint64(letters[at])
        at += 1
    return bits & _TOPS == 0


@inlined_kernel
def _find(starts, letters, valid, first_bit, words, out):
    strange = np.int64(0)
    foreign = np.int64(0)
    for i in range(out.size):
        if valid.size:
            bit = first_bit + i
            if not (valid[bit >> 3] >> np.uint8(bit & 7)) & 1:
                out[i] = MISSING
                continue
        a = np.int64(starts[i])
        n = np.int64(starts[i + 1]) - a
        if a < 0 or n < 0 or a + n > letters.size:
            return np.int64(-1)
        code = find_word(letters, a, n, words)
        out[i] = code
        if code == 0:
            strange += 1
            if not foreign and not _is_ascii(letters, a, n):
                foreign = np.int64(1)
    return 2 * strange + foreign


@kernel
def find_words(buffers, first_bit, words, out):
    """out[i] = the code of string i, 0 where no word is it, MISSING where it is null.

    `buffers` says where offsets of 64 bits, letters and bits of validity lie (simd/memory.py): arrays over
    Arrow's are now writable and now not, which would be types of their own. `valid` has a bit per string from
    `first_bit` on, or nothing where none is null. Returns twice how many strings are no word, and 1 more
    where one of those is not ASCII; -1 where an offset does not lead to letters.
    """
    starts, letters, valid = (
        view(buffers[0], np.int64),
        view(buffers[1], np.uint8),
        view(buffers[2], np.uint8),
    )
    return _find(starts, letters, valid, first_bit, words, out)


@kernel
def find_words_narrow(buffers, first_bit, words, out):
    """The same with offsets of 32 bits."""
    starts, letters, valid = (
        view(buffers[0], np.int32),
        view(buffers[1], np.uint8),
        view(buffers[2], np.uint8),
    )
    return _find(starts, letters, valid, first_bit, words, out)


@kernel
def copy_spans(text, begins, sizes, starts, out):
    """Copy pieces of a text one after the other, each from starts[i] on; `text` says where it lies."""
    letters = view(text[0], np.uint8)
    for i in range(begins.size):
        a, b, n = starts[i], begins[i], sizes[i]
        if a + n + 8 <= out.size and b + n + 8 <= letters.size:
            # what is written behind a piece is written over by the next one
            for k in range(0, n, 8):
                put_eight(out, a + k, eight(letters, b + k))
        else:
            for k in range(n):
                out[a + k] = letters[b + k]


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


# Whether points lie in regions: circles on the sphere, and polygons on a grid of whole numbers.
#
# A point is a code (types/places.py): its latitude above 32 bits, its longitude below, both in units of 1e-7
# degrees and counted from the south pole and from 180 degrees west. A polygon has its corners on the same
# grid, so that which side of an edge a point is on is a matter of whole numbers, and the border is exact. A
# circle is the points whose straight line through the sphere to its centre is not longer than its own.

SCALE = 10_000_000
"""Units of a degree."""

WEST = 180 * SCALE
SOUTH = 90 * SCALE
_TURN = 360 * SCALE
_LOW_BITS = (1 << 32) - 1
_MISSING = np.iinfo(np.int64).min
_LAST = np.iinfo(np.int64).max
_DECIDED = 1 << 33
_RADIANS = np.pi / (180.0 * SCALE)


class RegionArrays(NamedTuple):
    """Regions, numbered from 1: a point is in one when it is in all of its areas, and in no denied one.

    array           dtype     area           meaning
    starts          int64     n_regions + 1   where the areas of a region begin in `named`
    named           int64     n_named         1 more than the number of an area; negative where it is denied
    areas          int64     n_areas        the number k of a circle, or -1 - k for a polygon
    circles         float64   (n_circles, 4)  centre on the unit sphere, and the square of its chord
    extents          int64     (n_polygons, 4) west, south, east and north end; counted from 0 degrees
    polygon_starts  int64     n_polygons + 1  where its parts begin: a point in any of them is in it
    part_starts     int64     n_parts + 1     where the rings of a part begin: its outline and its holes
    ring_starts     int64     n_rings + 1     where the corners of a ring begin; the last is the first again
    xs, ys          int64     n_corners       counted from 0 degrees
    lone_circles    int64     n_regions       the circle of a region that is one circle and no more, or -1
    """

    starts: Any
    named: Any
    areas: Any
    circles: Any
    extents: Any
    polygon_starts: Any
    part_starts: Any
    ring_starts: Any
    xs: Any
    ys: Any
    lone_circles: Any


@inlined_kernel
def _side(ax, ay, bx, by, x, y):
    """The sign of (bx - ax)(y - ay) - (x - ax)(by - ay): of products of up to 64 bits, so in two halves."""
    width = bx - ax
    reach = x - ax
    rise = by - ay
    up = y - ay
    high = (width >> 16) * up - (reach >> 16) * rise
    if high > _DECIDED:
        return 1
    if high < -_DECIDED:
        return -1
    whole = (high << 16) + (width & 65535) * up - (reach & 65535) * rise
    return 1 if whole > 0 else -1 if whole < 0 else 0


@kernel
def in_polygon(regions, k, x, y):
    """Whether a polygon holds a point, its border included; its parts by the even-odd rule."""
    xs = regions.xs
    ys = regions.ys
    for part in range(regions.polygon_starts[k], regions.polygon_starts[k + 1]):
        odd = False
        for ring in range(regions.part_starts[part], regions.part_starts[part + 1]):
            for i in range(regions.ring_starts[ring], regions.ring_starts[ring + 1] - 1):
                ay = ys[i]
                by = ys[i + 1]
                if (y < ay and y < by) or (y > ay and y > by):
                    continue
                ax = xs[i]
                bx = xs[i + 1]
                if x > ax and x > bx:
                    continue
                if ay == by:
                    if x >= ax or x >= bx:
                        return True
                    continue
                if ay > by:
                    ax, bx = bx, ax
                    ay, by = by, ay
                if x < ax and x < bx:
                    side = 1
                else:
                    side = _side(ax, ay, bx, by, x, y)
                    if side == 0:
                        return True
                # an edge without its upper end, so that a corner counts once
                odd ^= side > 0 and y < by
        if odd:
            return True
    return False


@inlined_kernel
def in_circle(regions, k, code, spheres, j, e):
    """Whether circle k holds the point of event e; spheres[j] has its place on the unit sphere once it is
    known, and 1 more than the number of its event."""
    if spheres[j, 3] != e + 1.0:
        longitude = (code & _LOW_BITS) - WEST
        latitude = (code >> 32) - SOUTH
        flat = np.cos(latitude * _RADIANS)
        spheres[j, 0] = flat * np.cos(longitude * _RADIANS)
        spheres[j, 1] = flat * np.sin(longitude * _RADIANS)
        spheres[j, 2] = np.sin(latitude * _RADIANS)
        spheres[j, 3] = e + 1.0
    circles = regions.circles
    dx = spheres[j, 0] - circles[k, 0]
    dy = spheres[j, 1] - circles[k, 1]
    dz = spheres[j, 2] - circles[k, 2]
    return dx * dx + dy * dy + dz * dz <= circles[k, 3]


@kernel
def _in_area(regions, area, code, spheres, j, e):
    """Whether an area holds the point of event e; `spheres` as in `in_circle`."""
    k = regions.areas[area]
    longitude = (code & _LOW_BITS) - WEST
    latitude = (code >> 32) - SOUTH
    if k < 0:
        k = -1 - k
        extents = regions.extents
        if latitude < extents[k, 1] or latitude > extents[k, 3]:
            return False
        # a polygon over the date line goes on beyond 180 degrees
        for turn in range(-1, 2):
            x = longitude + turn * _TURN
            if extents[k, 0] <= x <= extents[k, 2] and in_polygon(regions, k, x, latitude):
                return True
        return False
    return in_circle(regions, k, code, spheres, j, e)


@inlined_kernel
def in_region(regions, number, code, spheres, j, e):
    """Whether a region, by its place in `starts`, holds the point of event e."""
    for i in range(regions.starts[number], regions.starts[number + 1]):
        name = regions.named[i]
        area = abs(name) - 1
        if _in_area(regions, area, code, spheres, j, e) != (name > 0):
            return False
    return True


@inlined_kernel
def in_any_region(regions, base, count, low, high, code, spheres, j, e):
    """Whether the regions that a span of an attribute names hold a point, one of them at least.

    An event has as values of the attribute the regions that its point is in, and LAST for being there at all;
    regions of the attribute are base .. base + count.
    """
    if code == _MISSING:
        return low == _MISSING
    if high == _LAST:
        return True
    for number in range(max(low, 1) - 1, min(high, count)):
        if in_region(regions, base + number, code, spheres, j, e):
            return True
    return False


@kernel
def mark_inside(regions, number, codes, spheres, out):
    """out[e] = 1 where a region holds point e, 0 where it does not; missing points are in none."""
    for e in range(codes.size):
        out[e] = codes[e] != _MISSING and in_region(regions, number, codes[e], spheres, 0, e)
