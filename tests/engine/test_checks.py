"""What is checked of arrays from files, beside plain definitions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rangecast as rc
from rangecast.engine import checks, kernels
from rangecast.papers.ubtree.structures import hold_needed


def refused(check, *arguments):
    try:
        check(*arguments)
    except rc.StorageError:
        return True
    return False


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8, np.uint32])
@pytest.mark.parametrize("least", [-1, 0, 1])
def test_numbers_are_within_their_ends_and_no_further(dtype, least):
    inside = [value for value in (least, 3, 4) if value >= np.iinfo(dtype).min]
    assert not refused(checks.within, "x", np.array(inside, dtype), 5, least)
    for wrong in (5, least - 1, np.iinfo(dtype).max, np.iinfo(dtype).min):
        if np.iinfo(dtype).min <= wrong and not least <= wrong < 5:
            assert refused(checks.within, "x", np.array([*inside, wrong], dtype), 5, least), wrong


def ends(heads, links):
    """Whether every walk is within the nodes and ends."""
    for node in heads:
        for _ in range(len(links) + 1):
            if not -1 <= node < len(links):
                return False
            if node < 0:
                break
            node = links[node]
        else:
            return False
    return True


@given(
    st.lists(st.tuples(st.integers(-2, 4), st.integers(-3, 8)), max_size=7),
    st.lists(st.integers(-2, 7), max_size=3),
    st.sampled_from([2, 5]),
)
def test_walks_along_lists_that_are_taken_end(rows, heads, width):
    nodes = np.zeros((len(rows), width), np.int32)
    link = 1 if width == 2 else 3
    if rows:
        nodes[:, 0], nodes[:, link] = np.transpose(rows)
    taken = not refused(checks.listed, "lists", nodes, link, 4, np.array(heads, np.int32))
    links = [to for _, to in rows]
    sound = all(0 <= box < 4 for box, _ in rows) and all(-1 <= to < len(rows) for to in (*heads, *links))
    if taken:
        assert sound
        assert ends(heads, links)
    met = [to for to in (*heads, *links) if to >= 0]
    if sound and (len(set(met)) == len(met) or all(to < place for place, to in enumerate(links))):
        assert taken


@pytest.mark.parametrize("width", [2, 5])
def test_lists_at_the_ends_of_their_numbers(width):
    link = 1 if width == 2 else 3
    for column, wrong in ((0, -1), (0, 9), (0, 2**31 - 1), (0, -(2**31)), (link, -2), (link, 3),
                          (link, 2**31 - 1), (link, -(2**31))):  # fmt: skip
        nodes = np.zeros((3, width), np.int32)
        nodes[:, link] = [-1, 0, 1]
        nodes[2, 0] = 8
        checks.listed("lists", nodes, link, 9, np.array([2, -1]))
        nodes[1, column] = wrong
        assert refused(checks.listed, "lists", nodes, link, 9, np.array([2, -1])), (column, wrong)


@given(st.integers(0, 2**32), st.integers(-70, 40), st.integers(0, 9), st.integers(0, 140), st.data())
def test_bits_stand_for_numbers(seed, base, step, n, data):
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 2**32, (3, 3), np.uint32) & rng.integers(0, 2**32, (3, 3), np.uint32)
    bits[rng.random(bits.shape) < data.draw(st.sampled_from([0, 0.5, 0.9]))] = 0
    each = [[32 * w + k for w in range(3) for k in range(32) if int(row[w]) >> k & 1] for row in bits]
    assert kernels.most_bits(bits) == max(map(len, each))
    inside = all(0 <= base + r * step + bit < n for r, row in enumerate(each) for bit in row)
    assert kernels.check_bits(bits, base, step, n) == inside


def test_members_are_counted():
    checks.counted("that", np.array([0, 2, 2], np.int32), 3, np.array([1, 0, 2], np.uint8))
    assert refused(checks.counted, "that", np.array([0, 2], np.int32), 3, np.array([1, 0, 2]))
    assert refused(checks.counted, "that", np.array([0, 2, 2], np.int32), 3, np.array([1, 0]))
    assert refused(checks.counted, "that", np.array([0], np.int32), 1, np.array([-1]))
    often = np.zeros(256, np.int32)
    assert refused(checks.counted, "that", often, 1, np.array([0], np.uint8))
    checks.counted("that", often[1:], 1, np.array([255], np.uint8))


def test_a_counter_that_cannot_go_around_is_not_counted():
    members = np.zeros(300, np.int32)
    hold_needed(members, 1, np.array([5], np.int32))
    assert refused(hold_needed, members, 1, np.array([5], np.uint8))
    assert refused(hold_needed, members, 1, np.array([5, 5], np.int32))
