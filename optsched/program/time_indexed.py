"""A timeline program as a linear one: a column for every start that a mode can have.

J. P. Sousa, L. A. Wolsey, "A time indexed formulation of non-preemptive single machine scheduling problems",
Mathematical Programming 54 (1992). Its linear relaxation is far tighter than that of programs with orders of pairs; its
size grows with the horizon.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from optsched.arrays import FloatArray, IntArray, ranges
from optsched.errors import UsageError
from optsched.program.linear import Expression, LinearProgram
from optsched.program.timeline import TimelineProgram

MOST_COLUMNS = 1_000_000


@dataclass(frozen=True)
class TimeIndexed:
    """The linear program of a timeline program, and what its columns mean.

    minimise  sum_{m,t} cost_m(t) x_mt + w C
    one      sum over modes m of a and t of  x_mt  =  1                               every activity a
    busy     sum_m usage_rm sum_{t - d_m < s <= t} x_ms  <=  capacity_r - closed_rt   every resource r, time t
    spend    sum_m budget_usage_bm sum_t x_mt  <=  budget_b                           every budget b
    before   sum of x_bs over s <= t  <=  sum of x_as over ends <= t                  every precedence (a, b), time t
    span     sum_{m,t} (t + d_m) x_mt  <=  C                                          every activity a, if w > 0
    load     sum_{m,t} usage_rm d_m x_mt  <=  capacity_r C                            every resource r, if w > 0
    most     cost  <=  most                                                           if there is a cut-off

    Attributes
    ----------
    timeline : TimelineProgram
    program : LinearProgram
    mode, start : IntArray, shape (N,)
        Of each column x_mt.
    """

    timeline: TimelineProgram
    program: LinearProgram
    mode: IntArray
    start: IntArray

    def read(self, x: FloatArray) -> tuple[IntArray, IntArray]:
        """(start, mode) of every activity: its largest column."""
        chosen = x[: len(self.mode)]
        owner = self.timeline.activity[self.mode]
        order = np.lexsort((-chosen, owner))
        first = order[np.searchsorted(owner[order], np.arange(len(self.timeline)))]
        return self.start[first], self.mode[first]

    def complete(self, start: IntArray, mode: IntArray) -> FloatArray:
        """The point that a schedule stands for."""
        base = self.start[np.searchsorted(self.mode, mode)]
        x = np.zeros(self.program.arrays.shape[1])
        x[np.searchsorted(self.mode, mode) + start - base] = 1.0
        if self.timeline.cost.makespan:
            x[-1] = float((start + self.timeline.duration[mode]).max(initial=0))
        return x


def count_columns(timeline: TimelineProgram) -> int:
    """Columns that `time_indexed` would make."""
    return int(_starts(timeline)[1].sum())


def _starts(timeline: TimelineProgram) -> tuple[IntArray, IntArray]:
    """(first start, number of starts) of each mode."""
    release, last = timeline.release[timeline.activity], timeline.deadline[timeline.activity] - timeline.duration
    return release, np.maximum(last - release + 1, 0)


def time_indexed(timeline: TimelineProgram) -> TimeIndexed:
    """Lower a timeline program; see `TimeIndexed`.

    Raises
    ------
    UsageError
        For more than `MOST_COLUMNS` columns.
    """
    first, count = _starts(timeline)
    columns = int(count.sum())
    if columns > MOST_COLUMNS:
        raise UsageError(
            f"indexed by time the program has {columns} columns, at most {MOST_COLUMNS} are taken: "
            "choose a longer unit of time, or a solver for timelines (cp-sat)"
        )
    mode = np.repeat(np.arange(timeline.modes, dtype=np.int64), count)
    start = ranges(first, count)
    end = start + timeline.duration[mode]
    owner = timeline.activity[mode]
    number = np.arange(columns)

    lp = LinearProgram()
    x = lp.variables(columns, name="x", upper=1.0, integer=True)
    lp.constrain(_sum_by(owner, np.ones(columns), len(timeline)) @ x == 1.0, name="one")
    _constrain_resources(lp, x, timeline, mode, start)
    if timeline.budget_usage is not None:
        lp.constrain(timeline.budget_usage.tocsc()[:, mode] @ x <= timeline.budget, name="spend")
    for pair, (a, b) in enumerate(timeline.precedence.tolist()):
        moments = np.arange(timeline.release[b], timeline.deadline[b])
        mine, other = number[owner == a], number[owner == b]
        earlier = sp.csr_matrix((start[other][np.newaxis, :] <= moments[:, np.newaxis]).astype(float))
        done = sp.csr_matrix((end[mine][np.newaxis, :] <= moments[:, np.newaxis]).astype(float))
        rows = earlier @ _pick(other, columns) - done @ _pick(mine, columns)
        lp.constrain(rows @ x <= 0.0, name=f"before#{pair}")
    objective = _cost(timeline, mode, start, end)[np.newaxis, :] @ x
    if timeline.cost.makespan:
        span = lp.variables(1, name="C", upper=float(timeline.horizon))
        ones = np.ones((len(timeline), 1))
        lp.constrain(_sum_by(owner, end, len(timeline)) @ x - ones @ span <= 0.0, name="span")
        load = sp.csr_matrix(timeline.usage @ sp.diags_array(timeline.duration.astype(float)))
        lp.constrain(
            load.tocsc()[:, mode] @ x - timeline.capacity[:, np.newaxis].astype(float) @ span <= 0.0, name="load"
        )
        objective = objective + float(timeline.cost.makespan) * span
    if timeline.most is not None:
        lp.constrain(objective <= float(timeline.most), name="most")
    lp.minimise(objective)
    return TimeIndexed(timeline, lp, mode, start)


def _sum_by(owner: IntArray, value: FloatArray | IntArray, rows: int) -> sp.csr_matrix:
    return sp.csr_matrix((np.asarray(value, float), (owner, np.arange(len(owner)))), shape=(rows, len(owner)))


def _pick(chosen: IntArray, columns: int) -> sp.csr_matrix:
    return sp.csr_matrix((np.ones(len(chosen)), (np.arange(len(chosen)), chosen)), shape=(len(chosen), columns))


def _cost(timeline: TimelineProgram, mode: IntArray, start: IntArray, end: IntArray) -> FloatArray:
    cost, owner = timeline.cost, timeline.activity[mode]
    total = np.zeros(len(mode))
    if cost.start is not None:
        total += cost.start[owner] * start
    if cost.end is not None:
        total += cost.end[owner] * end
    if cost.tardiness is not None and cost.due is not None:
        total += cost.tardiness[owner] * np.maximum(end - cost.due[owner], 0)
    if cost.mode is not None:
        total += cost.mode[mode]
    return total


def _constrain_resources(
    lp: LinearProgram, x: Expression, timeline: TimelineProgram, mode: IntArray, start: IntArray
) -> None:
    """Rows ``busy``, one for each resource and each unit of time in which something may use it."""
    uses = timeline.usage.tocsc()[:, mode].tocoo()
    length = timeline.duration[mode][uses.col]
    horizon = timeline.horizon
    moment = ranges(start[uses.col], length)
    row = np.repeat(uses.row.astype(np.int64), length) * horizon + moment
    column, amount = np.repeat(uses.col, length), np.repeat(uses.data.astype(float), length)
    capacity = np.repeat(timeline.capacity.astype(float), horizon)
    for resource, begin, stop, lost in timeline.closed.tolist():
        capacity[resource * horizon + max(begin, 0) : resource * horizon + min(stop, horizon)] -= lost
    used, position = np.unique(row, return_inverse=True)
    matrix = sp.csr_matrix((amount, (position, column)), shape=(len(used), len(mode)))
    lp.constrain(matrix @ x <= capacity[used], name="busy")
