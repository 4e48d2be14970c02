"""Cells: workloads in configurations, each once, as the ``analytic`` model computes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from optsched.arrays import FloatArray, IntArray, group_rows
from optsched.performance.analytic.board import Board
from optsched.performance.analytic.mig import slice_of
from optsched.performance.configurations import Configurations

MIG = "mig"
"""Attribute of a configuration: its MIG profile."""


@dataclass(frozen=True)
class Cells:
    """Structure of arrays of length N.

    Attributes
    ----------
    workload, pool, gpus, nodes : IntArray
    compute, memory : FloatArray
        Shares of a GPU's arithmetic, and of its memory and bandwidth.
    """

    workload: IntArray
    pool: IntArray
    gpus: IntArray
    nodes: IntArray
    compute: FloatArray
    memory: FloatArray

    def __len__(self) -> int:
        return len(self.workload)

    def take(self, rows: IntArray) -> Self:
        """The cells at these rows."""
        return type(self)(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))

    @classmethod
    def of(
        cls,
        workload: IntArray,
        configuration: IntArray,
        configurations: Configurations,
        boards: Sequence[Board],
    ) -> tuple[Self, IntArray]:
        """The different cells among pairs (workload, configuration), and the cell of each pair."""
        compute, memory = shares(configurations, boards)
        columns = (configurations.pool, configurations.gpus, configurations.nodes, compute, memory)
        ways = group_rows(columns, len(configurations))
        numbers = (workload + 1) * len(ways) + ways.inverse[configuration]  # -1: no workload
        used, of_pair = _intern(numbers, int(workload.max(initial=-1) + 2) * len(ways))
        way = ways.first[used % len(ways)] if len(used) else used
        pool, gpus, nodes = (column[way] for column in columns[:3])
        return cls(
            used // max(len(ways), 1) - 1, pool, gpus, nodes, compute[way], memory[way]
        ), of_pair

    @classmethod
    def whole(cls, workload: int, pool: int, gpus: int, nodes: int) -> Self:
        """One cell of whole GPUs."""
        one = [np.array([number], np.int64) for number in (workload, pool, gpus, nodes)]
        return cls(one[0], one[1], one[2], one[3], np.ones(1), np.ones(1))

    @property
    def asked(self) -> IntArray:
        """Rows that are ways to run: with a pool, GPUs, and at most one node for each."""
        return np.flatnonzero(
            (self.pool >= 0) & (self.gpus > 0) & (self.nodes > 0) & (self.nodes <= self.gpus)
        )


def _intern(numbers: IntArray, count: int) -> tuple[IntArray, IntArray]:
    """The different ones among numbers below ``count``, ascending, and the place of each among them."""
    if count > 4 * len(numbers):
        used, place = np.unique(numbers, return_inverse=True)
        return used, place
    present = np.zeros(count, bool)
    present[numbers] = True
    return np.flatnonzero(present), (np.cumsum(present) - 1)[numbers]


def shares(
    configurations: Configurations, boards: Sequence[Board]
) -> tuple[FloatArray, FloatArray]:
    """Shares of compute and of memory of each configuration: those of the MIG profile that it names, else its own.

    Raises
    ------
    InvalidInput
        If a board has no such profile.
    """
    compute, memory = configurations.share.copy(), configurations.share.copy()
    for number, attributes in enumerate(configurations.attribute_sets):
        if attributes.get(MIG) is None:
            continue
        for row in np.flatnonzero(
            (configurations.attributes == number) & (configurations.pool >= 0)
        ).tolist():
            board = boards[int(configurations.pool[row])]
            compute[row], memory[row] = slice_of(board, attributes[MIG], f"attributes.{MIG}")
    return compute, memory
