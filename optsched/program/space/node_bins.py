"""Columns of a `Space` for contents of nodes and GPUs, and the bins that hold them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from optsched.arrays import EMPTY, BoolArray, FloatArray, IntArray
from optsched.candidates import NO_SLICE
from optsched.program.space.bins import Bin
from optsched.program.space.contents import GangPart
from optsched.program.space.gangs import GangTypes, NodeClasses, SharedKind

MOST_CONTENTS = 5_000
"""Contents of one node that are all written down."""


class Contents(NamedTuple):
    """Columns n and m: nodes of a class, or GPUs of such nodes, with some contents; arrays of
    length M.

    Attributes
    ----------
    node_class, row : IntArray
        The class, and the row of ``counts``.
    of_gpu : BoolArray
        Whether they are contents of a GPU.
    counts : IntArray, shape (contents, parts)
        Those of a GPU have -1 for one whole GPU.
    """

    node_class: IntArray
    row: IntArray
    of_gpu: BoolArray
    counts: IntArray


def no_contents(parts: int) -> Contents:
    """None of any node, of so many parts."""
    return Contents(EMPTY, EMPTY, np.zeros(0, bool), np.zeros((0, parts), np.int64))


class NodeBins(NamedTuple):
    """The bins of equal nodes: a node, and a GPU with its own contents, where there are any.

    Attributes
    ----------
    node : Bin
    gpu : Bin or None
    one_gpu : int
        The part whose place in the node such a GPU takes; -1 for none.
    """

    node: Bin
    gpu: Bin | None
    one_gpu: int


def node_bins(
    parts: tuple[GangPart, ...], most: FloatArray, types: GangTypes, nodes: NodeClasses
) -> tuple[tuple[GangPart, ...], tuple[NodeBins, ...]]:
    """Bins by the numbers of `NodeClasses.contents`;
    and the parts, with one whole GPU of each pool whose GPUs have their own contents.
    """
    of_gpu = {
        number
        for number, part in enumerate(parts)
        if part.share < 1 and types.kinds[SharedKind(part.pool, part.profile != NO_SLICE)]
    }
    pools = sorted({parts[p].pool for p in of_gpu})
    ones = {pool: GangPart(pool, 1, 1.0, (0.0,) * types.need.shape[1]) for pool in pools}
    parts = tuple(dict.fromkeys((*parts, *ones.values())))
    whole = {pool: parts.index(one) for pool, one in ones.items()}
    most = np.append(most, np.zeros(len(parts) - len(most)))
    most[list(whole.values())] = np.inf  # for those of which shares take the places
    first = np.unique(nodes.contents, return_index=True)[1].tolist()
    return parts, tuple(_bins_of(parts, most, types, nodes, r, of_gpu, whole) for r in first)


def _bins_of(
    parts: tuple[GangPart, ...],
    most: FloatArray,
    types: GangTypes,
    nodes: NodeClasses,
    r: int,
    of_gpu: set[int],
    whole: Mapping[int, int],
) -> NodeBins:
    """Bins of the nodes of class ``r``; ``whole`` is the part that is one whole GPU, by pool."""
    pool, gpus, rooms = int(nodes.pool[r]), int(nodes.gpus[r]), nodes.rooms[r]
    legal = types.layouts.get(pool)
    layouts = None if legal is None else legal.counts
    own, taken = nodes.own[r], nodes.taken[:, r]
    # Parts of reserved cells are in no contents (`Space`).
    here = [p for p, part in enumerate(parts) if part.pool == pool and not part.owner]
    shared = [p for p in here if p in of_gpu]
    rest = [p for p in here if p not in of_gpu]
    if gpus == 0:
        # Nodes without a whole GPU, and single GPUs, have what fits beside the jobs that stay.
        rest = [p for p in here if any(room.after(parts[p].piece, layouts) for room in rooms)]
        shared = []
    node = Bin(parts, rest, most, gpus, own, layouts, taken, rooms)
    gpu = Bin(parts, shared, most, 1, own, layouts, taken) if shared else None
    return NodeBins(node, gpu, whole[pool] if shared else -1)


def all_contents(
    nodes: NodeClasses, bins: Sequence[NodeBins], parts: int, has_time: Callable[[], bool]
) -> Contents | None:
    """All fullest contents, or all of nodes where cells are reserved beside them; None where there
    are too many of some bin, or no time to list them.
    """
    found: list[tuple[IntArray, BoolArray]] = [
        (np.zeros((0, parts), np.int64), np.zeros(0, bool))
    ] * len(bins)
    # Those with most contents come first: they may be too many.
    for number in sorted(
        range(len(bins)), key=lambda n: -bins[n].node.gpus * len(bins[n].node.allowed)
    ):
        kind = bins[number]
        of_node = kind.node.fullest(MOST_CONTENTS, len(nodes.blocks) > 0, has_time)
        of_gpu = (
            np.zeros((0, parts), np.int64)
            if kind.gpu is None
            else kind.gpu.fullest(MOST_CONTENTS, has_time=has_time)
        )
        if of_node is None or of_gpu is None:
            return None
        if kind.gpu is not None:
            of_gpu[:, kind.one_gpu] -= 1
        both = np.concatenate([of_node, of_gpu])
        found[number] = both, np.repeat([False, True], [len(of_node), len(of_gpu)])
    length = np.array([len(counts) for counts, _ in found], np.int64)[nodes.contents]
    start = np.cumsum([0, *(len(counts) for counts, _ in found)])[nodes.contents]
    node_class = np.repeat(np.arange(len(nodes), dtype=np.int64), length)
    row = np.repeat(start - np.cumsum(length) + length, length) + np.arange(len(node_class))
    counts = np.concatenate([np.zeros((0, parts), np.int64), *(counts for counts, _ in found)])
    cut = np.concatenate([np.zeros(0, bool), *(mask for _, mask in found)])
    return Contents(node_class, row.astype(np.int64), cut[row], counts)
