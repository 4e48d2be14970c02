"""Cells of GPUs that virtual clusters own: buddy allocation, its safety, and exact placement of
pods.

A cell of level l is a group of nearby GPUs, and splits into k_l cells of level l - 1, down to
single GPUs. Virtual clusters own numbers of cells of each level, not GPUs, so that the GPUs
promised to a tenant are never fragmented. With f_l the free cells of level l that are in no larger
free cell, and q_l the cells of level l that are promised and not yet taken:

    s_L = f_L - q_L at the highest level,   s_l = f_l - q_l + k_{l+1} s_{l+1}

All promises can be kept if, and only if, every s_l >= 0. Buddy allocation of a promised cell
preserves this: it takes a free cell of its level, else a part of the smallest larger free cell.

References
----------
H. Zhao et al., "HiveD: Sharing a GPU Cluster for Deep Learning with Guarantees", OSDI 2020,
sections 3 and 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import scipy.sparse as sp

from optsched.arrays import IntArray
from optsched.display import Displayed, count
from optsched.errors import InvalidArgument, UsageError
from optsched.program import LinearProgram
from optsched.solution.solution import Status
from optsched.solving.engine import Engine


class BuddyCells(Displayed):
    """Cells of equal GPUs, which split and merge as they are taken and given back.

    Parameters
    ----------
    sizes : sequence of int
        GPUs of a cell of each level, ascending from 1, each a multiple of the one before.
    tops : int
        Cells of the highest level, such as nodes.

    Raises
    ------
    InvalidArgument
        If a size is no multiple of the one before.
    """

    def __init__(self, sizes: Sequence[int], tops: int) -> None:
        ascending = list(sizes[:1]) == [1] and list(sizes) == sorted(set(sizes))
        if not ascending or any(size % before for before, size in pairwise(sizes)):
            expected = "sizes from 1 on, each a multiple of the one before"
            raise InvalidArgument("sizes", str(list(sizes)), expected)
        self.sizes = tuple(sizes)
        self.leaves = sizes[-1] * tops
        top = len(sizes) - 1
        self._free: list[set[int]] = [set() for _ in sizes]
        self._free[top] = {number * sizes[-1] for number in range(tops)}
        self._taken: dict[int, int] = {}

    def _headline(self) -> str:
        free = ", ".join(
            f"{len(cells)} x {size}" for size, cells in zip(self.sizes, self._free, strict=True)
        )
        return f"of {count(self.leaves, 'GPU')}: free {free}"

    @property
    def free(self) -> IntArray:
        """f_l: free cells of each level that are in no larger free one."""
        return np.array([len(cells) for cells in self._free], np.int64)

    def open(self, level: int) -> list[int]:
        """First GPUs of all cells of a level of which every GPU is free.

        Parameters
        ----------
        level : int

        Returns
        -------
        list of int
        """
        size = self.sizes[level]
        return sorted(
            part
            for at in range(level, len(self.sizes))
            for start in self._free[at]
            for part in range(start, start + self.sizes[at], size)
        )

    def around(self, start: int) -> int:
        """Size, in GPUs, of the free cell that contains the free GPU ``start``.

        Parameters
        ----------
        start : int

        Returns
        -------
        int
        """
        return next(
            size
            for size, cells in zip(self.sizes, self._free, strict=True)
            if start - start % size in cells
        )

    def slack(self, promised: Sequence[int]) -> IntArray:
        """s_l of every level.

        Parameters
        ----------
        promised : sequence of int
            q_l: cells of each level that are promised and not yet taken.

        Returns
        -------
        IntArray, shape (levels,)
        """
        slack = np.zeros(len(self.sizes), np.int64)
        above = 0
        for level in range(len(self.sizes) - 1, -1, -1):
            slack[level] = len(self._free[level]) - promised[level] + above
            above = int(slack[level]) * (self.sizes[level] // self.sizes[max(level - 1, 0)])
        return slack

    def safe(self, promised: Sequence[int]) -> bool:
        """Whether all promises can be kept.

        Parameters
        ----------
        promised : sequence of int
            As of `slack`.

        Returns
        -------
        bool
        """
        return bool((self.slack(promised) >= 0).all())

    def take(self, level: int) -> int | None:
        """Take a cell: a free one of the level, else a part of the smallest larger one.

        Parameters
        ----------
        level : int

        Returns
        -------
        int or None
            Its first GPU; None where no cell is free.
        """
        for at in range(level, len(self.sizes)):
            if self._free[at]:
                start = min(self._free[at])
                self._cut(at, start, level, start)
                self._taken[start] = level
                return start
        return None

    def take_beside(self, level: int, promised: Sequence[int]) -> int | None:
        """Take a cell for a job without promises, if all promises can still be kept.

        Parameters
        ----------
        level : int
        promised : sequence of int
            As of `slack`.

        Returns
        -------
        int or None
        """
        start = self.take(level)
        if start is not None and not self.safe(promised):
            self.give_back(start)
            return None
        return start

    def take_at(self, level: int, start: int) -> None:
        """Take one particular cell, such as a GPU that is broken.

        Parameters
        ----------
        level, start : int
            One of `open`.

        Raises
        ------
        ValueError
            If it is not free.
        """
        for at in range(level, len(self.sizes)):
            first = start - start % self.sizes[at]
            if first in self._free[at] and start % self.sizes[level] == 0:
                self._cut(at, first, level, start)
                self._taken[start] = level
                return
        raise ValueError(f"the cell of {self.sizes[level]} GPUs at {start} is not free")

    def give_back(self, start: int) -> None:
        """Give a cell back; free cells that form a larger cell are merged.

        Parameters
        ----------
        start : int
            Its first GPU.
        """
        level = self._taken.pop(start)
        self._free[level].add(start)
        while level + 1 < len(self.sizes):
            first = start - start % self.sizes[level + 1]
            parts = range(first, first + self.sizes[level + 1], self.sizes[level])
            if not all(part in self._free[level] for part in parts):
                return
            self._free[level].difference_update(parts)
            level, start = level + 1, first
            self._free[level].add(start)

    def _cut(self, at: int, first: int, level: int, start: int) -> None:
        """Split a free cell down to the cell of a level that begins at a GPU; that cell is not
        free.
        """
        self._free[at].remove(first)
        while at > level:
            at -= 1
            parts = range(first, first + self.sizes[at + 1], self.sizes[at])
            first = start - start % self.sizes[at]
            self._free[at].update(part for part in parts if part != first)


def place_pods(
    chains: Sequence[BuddyCells], pods: Sequence[int], engine: Engine
) -> list[tuple[int, int]] | None:
    """Cells for all pods of a gang; None if it is proven that they do not fit.

        z[p,c] in {0, 1}:  sum_c z[p,c] = 1 ;  each GPU in at most one chosen cell
        minimise  sum_{p,c} b_c z[p,c],   b_c: GPUs of the free cell around c that are not in c

    First fit over sorted nodes may miss a gang that fits: nodes of 2 and 1 GPUs, and pods of 1 and
    2.

    Parameters
    ----------
    chains : sequence of BuddyCells
        Kinds of cells, such as nodes of different sizes. Nothing is taken.
    pods : sequence of int
        GPUs of each, in a cell of the smallest size that holds them.
    engine : Engine
        Solves the integer program.

    Returns
    -------
    list of (int, int), or None
        Chain and first GPU of each pod's cell; None: it is proven that they do not fit.

    Raises
    ------
    UsageError
        If a limit stops the search.
    """
    pod, chain, start, size, broken = _choices(chains, pods)
    if len(np.unique(pod)) < len(pods):
        return None
    first = np.cumsum([0, *(cells.leaves for cells in chains)])
    leaf = np.repeat(first[chain] + start, size) + _within(size)
    program = LinearProgram()
    z = program.variables(len(pod), name="z", upper=1.0, integer=True)
    of_pod = sp.csr_matrix((np.ones(len(pod)), (pod, np.arange(len(pod)))))
    of_leaf = sp.csr_matrix(
        (np.ones(len(leaf)), (leaf, np.repeat(np.arange(len(pod)), size))),
        shape=(int(first[-1]), len(pod)),
    )
    # A pod that is left out costs more than all broken cells, so the program is always feasible.
    out = program.variables(len(pods), name="out", upper=1.0, integer=True)
    program.constrain(of_pod @ z + out == 1.0, name="one")
    program.constrain(of_leaf @ z <= 1.0, name="apart")
    worst = float(broken.max(initial=0)) * len(pods) + 1.0
    program.minimise(broken[None, :].astype(np.float64) @ z + worst * out.sum())
    outcome = engine.solve_linear(program)
    if outcome.x is None or outcome.status is not Status.OPTIMAL or not outcome.certificate.ok:
        raise UsageError("the search for cells was stopped: neither cells nor a proof were found")
    chosen = np.flatnonzero(np.round(outcome.x[: len(pod)]))
    if len(chosen) < len(pods):
        return None
    order = chosen[np.argsort(pod[chosen], kind="stable")]
    return list(zip(chain[order].tolist(), start[order].tolist(), strict=True))


def _choices(
    chains: Sequence[BuddyCells], pods: Sequence[int]
) -> tuple[IntArray, IntArray, IntArray, IntArray, IntArray]:
    """Every open cell of the right level for each pod: pod, chain, first GPU, GPUs, and b."""
    rows = []
    for number, gpus in enumerate(pods):
        for place, cells in enumerate(chains):
            level = int(np.searchsorted(cells.sizes, gpus))
            if level == len(cells.sizes):
                continue
            for start in cells.open(level):
                around = cells.around(start)
                rows.append((number, place, start, cells.sizes[level], around - cells.sizes[level]))
    table = np.array(rows, np.int64).reshape(-1, 5)
    return table[:, 0], table[:, 1], table[:, 2], table[:, 3], table[:, 4]


def _within(size: IntArray) -> IntArray:
    """0, 1, ..., n - 1 for each n of ``size``, one after the other."""
    return np.arange(int(size.sum())) - np.repeat(np.cumsum(size) - size, size)
