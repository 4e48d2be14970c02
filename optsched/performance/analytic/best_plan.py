"""The fastest plan that fits, for many transformers on many configurations."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray, group_rows, ranges
from optsched.performance.analytic.parallel3d import Machines, Plans, Rules, evaluate, plans
from optsched.performance.analytic.transformer import Transformers

CHUNK = 250_000
"""Plans that are evaluated at a time."""


class Best(NamedTuple):
    """For each of N cells.

    Attributes
    ----------
    seconds : FloatArray
        Of a step by the fastest plan that fits; inf where there is none.
    memory : FloatArray
        Bytes on its fullest GPU; of the most frugal plan where none fits.
    possible : BoolArray
        Whether there is any plan, whatever its memory.
    plan : Plans
        The fastest plan that fits, else the most frugal one; what it says is void where nothing is possible.
    """

    seconds: FloatArray
    memory: FloatArray
    possible: BoolArray
    plan: Plans


def best_plans(models: Transformers, machines: Machines, rules: Rules) -> Best:
    """Enumerate all (T, p, d, M) of every cell: transformer i on machine i."""
    cells = len(models)
    if cells == 0:
        return Best(np.zeros(0), np.zeros(0), np.zeros(0, bool), _nothing(0))
    batch = models.batch.astype(np.int64)
    groups = group_rows((machines.gpus, batch), cells)
    pairs, of_cell = (
        zip(machines.gpus[groups.first].tolist(), batch[groups.first].tolist(), strict=True),
        groups.inverse,
    )
    parts = [plans(gpus, size, rules) for gpus, size in pairs]
    length = np.array([len(part) for part in parts], np.int64)
    table = Plans(
        *(np.concatenate([getattr(p, name) for p in parts]) for name in Plans.__dataclass_fields__)
    )
    start = (np.cumsum(length) - length)[of_cell]
    size = length[of_cell]

    seconds, memory = np.full(cells, np.inf), np.full(cells, np.inf)
    possible, chosen = np.zeros(cells, bool), np.zeros(cells, np.int64)
    for here in _pieces(size):
        row = ranges(start[here], size[here])
        cell = np.repeat(here, size[here])
        out = evaluate(models.take(cell), table.take(row), machines.take(cell), rules)
        time = np.where(out.allowed & out.fits, out.seconds, np.inf)
        need = np.where(out.allowed, out.memory, np.inf)
        first = np.cumsum(size[here]) - size[here]
        seconds[here] = np.minimum.reduceat(time, first)
        least = np.minimum.reduceat(need, first)
        possible[here] = np.isfinite(least)
        wanted = np.where(np.repeat(np.isfinite(seconds[here]), size[here]), time, need)
        target = np.minimum.reduceat(wanted, first)
        hit = np.flatnonzero(wanted == np.repeat(target, size[here]))
        _, at = np.unique(cell[hit], return_index=True)
        chosen[here], memory[here] = row[hit[at]], out.memory[hit[at]]
    if len(table) == 0:
        return Best(seconds, memory, possible, _nothing(cells))
    return Best(seconds, memory, possible, table.take(chosen))


def _pieces(size: IntArray) -> list[IntArray]:
    """Cells that have plans, in pieces with about `CHUNK` plans each."""
    cells = np.flatnonzero(size > 0)
    if len(cells) == 0:
        return []
    piece = np.cumsum(size[cells]) // CHUNK
    return np.split(cells, np.flatnonzero(np.diff(piece)) + 1)


def _nothing(cells: int) -> Plans:
    void = np.zeros(cells)
    return Plans(void, void, void, void, np.zeros(cells, bool))
