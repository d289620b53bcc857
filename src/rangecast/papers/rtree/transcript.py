"""The printed algorithms of the batch search's paper, line by line, in plain Python.

Source: Wang, Zhang and Kitsuregawa (2004), figure 1 (WorkloadTable), figure 2 (EstimateWorkload and
BatchIntersect) and section 3 (BatchSearch). Names are the paper's; numbers at the ends of lines are those of
figure 2. The adaptive model of figure 3 is plain Python as it is: `AdaptiveLevel` in structures.py.

The kernel (`descend` in kernels.py) goes level by level where BatchIntersect recurses, so that one buffer
serves a whole level. The paper's levels 0 and 1 are alike: both stop at the root (line 3); the level of
`RTreeIndex.estimate` is the paper's less one. tests/papers/test_transcripts.py holds both against each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

BoundingBox = tuple[Sequence[int], Sequence[int]]
"""The MBR of an event or of an item: its lows and highs."""


class Node(NamedTuple):
    """A node of the R-tree: the MBRs of its items, and their subnodes, or the ids in a leaf."""

    boxes: Sequence[BoundingBox]
    subnodes: Sequence[Node]
    ids: Sequence[int]


class WorkloadItem(NamedTuple):
    """Figure 1: an event and the nodes where its search paths have stopped; their number is its workload."""

    event: int
    nodes: list[Node]


def intersects(one: BoundingBox, other: BoundingBox) -> bool:
    """Whether two MBRs share a point."""
    return all(low <= high for low, high in zip((*one[0], *other[0]), (*other[1], *one[1]), strict=True))


def EstimateWorkload(Root: Node, EventArray: Sequence[BoundingBox], Level: int) -> list[WorkloadItem]:
    """Figure 2: the workload of every event of a batch, the least first."""
    IntersectBuffer: dict[int, dict[int, list[int]]] = {0: {id(Root): list(range(len(EventArray)))}}  # 1
    WorkloadTable = [WorkloadItem(event, []) for event in range(len(EventArray))]
    BatchIntersect(Root, EventArray, 1, Level, IntersectBuffer, WorkloadTable)  # 2
    return sorted(WorkloadTable, key=lambda item: len(item.nodes))  # 3


def BatchIntersect(
    CurrentNode: Node,
    EventArray: Sequence[BoundingBox],
    CurrentLevel: int,
    Level: int,
    IntersectBuffer: dict[int, dict[int, list[int]]],
    WorkloadTable: list[WorkloadItem],
) -> None:
    """Figure 2: take the events of a node to its items, down to the level."""
    EventList = IntersectBuffer[CurrentLevel - 1][id(CurrentNode)]  # 1, 2
    if not CurrentNode.subnodes or CurrentLevel >= Level:  # 3
        for event in EventList:  # 4
            WorkloadTable[event].nodes.append(CurrentNode)
        return
    IntersectBuffer[CurrentLevel] = {}  # 6
    for box, SubNode in zip(CurrentNode.boxes, CurrentNode.subnodes, strict=True):  # 7
        IntersectBuffer[CurrentLevel][id(SubNode)] = [
            event
            for event in EventList
            if intersects(box, EventArray[event])  # 8 to 14
        ]
    for SubNode in CurrentNode.subnodes:  # 16
        BatchIntersect(SubNode, EventArray, CurrentLevel + 1, Level, IntersectBuffer, WorkloadTable)  # 17


def BatchSearch(Root: Node, EventArray: Sequence[BoundingBox], Level: int) -> Iterator[tuple[int, list[int]]]:
    """Section 3: answer the events of a batch one by one, the shortest job first."""
    for event, nodes in EstimateWorkload(Root, EventArray, Level):
        yield event, [id for node in nodes for id in search(node, EventArray[event])]


def search(node: Node, event: BoundingBox) -> Iterator[int]:
    """The search of the R-tree: the ids of the boxes below a node that share a point with an event."""
    for k, box in enumerate(node.boxes):
        if intersects(box, event):
            if node.subnodes:
                yield from search(node.subnodes[k], event)
            else:
                yield node.ids[k]
