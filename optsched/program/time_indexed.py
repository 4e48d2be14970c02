"""A timeline program as a linear one: a column for every start that a mode can have.

J. P. Sousa, L. A. Wolsey, "A time indexed formulation of non-preemptive single machine scheduling
problems", Mathematical Programming 54 (1992). Its linear relaxation is far tighter than that of
programs with orders of pairs; its size grows with the horizon. What a resource is used for follows
from its use a unit of time before, from what starts and what ends; each start is in two such rows,
not in one for every unit of time that it lasts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from optsched.arrays import FloatArray, IntArray, owners, ranges
from optsched.arrays.matrices import sum_by
from optsched.errors import UsageError
from optsched.program.linear import Expression, LinearProgram
from optsched.program.timeline import TimelineProgram

MOST_NONZEROS = 5_000_000
"""Coefficients up to which a program is made; solvers take about 1 kB of memory for each."""
STOCKS = {"use": "busy", "ready": "before"}
"""Columns that carry something from each unit of time to the next, and the rows that say how."""


@dataclass(frozen=True)
class TimeIndexed:
    """The linear program of a timeline program, and what its columns mean.

    minimise  sum_{m,t} cost_m(t) x_mt + w C
    one      sum over modes m of a and t of  x_mt  =  1                               every activity a
    busy     use_rt  =  use_r,t-1 + sum_m usage_rm (x_mt - x_m,t-d_m)                 every resource r, time t
             0  <=  use_rt  <=  capacity_r - closed_rt
    spend    sum_m budget_usage_bm sum_t x_mt  <=  budget_b                           every budget b
    before   ready_pt  =  ready_p,t-1 + sum of x_as that end at t - sum_m x_mt of b   every precedence p = (a, b), t
             0  <=  ready_pt  <=  1    whether a has ended by t, and b not begun
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
        """The point of a schedule; if it breaks a rule between activities, one that breaks rows.

        Raises
        ------
        ValueError
            If an activity starts outside of its window, where there is no column.
        """
        begin, count = _starts(self.timeline)
        if ((start < begin[mode]) | (start >= begin[mode] + count[mode])).any():
            raise ValueError("an activity starts outside of its window")
        arrays = self.program.arrays
        x = np.zeros(arrays.shape[1])
        # Columns of a mode stand in order of their starts.
        first = np.searchsorted(self.mode, mode)
        x[first + start - self.start[first]] = 1.0
        blocks = {block.name: block for block in arrays.columns}
        if "C" in blocks:
            x[blocks["C"].slice] = float((start + self.timeline.duration[mode]).max(initial=0))
        for stock, flow in STOCKS.items():
            if stock in blocks:
                # With the stocks still 0 in x, their rows hold what each unit of time adds to them.
                (rows,) = (block for block in arrays.rows if block.name == flow)
                level = np.cumsum(
                    (arrays.by_rows[rows.slice] @ x).reshape(-1, self.timeline.horizon), axis=1
                )
                x[blocks[stock].slice] = level.ravel()
        return x


def count_columns(timeline: TimelineProgram) -> int:
    """Starts that `time_indexed` would have columns for."""
    return int(_starts(timeline)[1].sum())


def count_nonzeros(timeline: TimelineProgram) -> int:
    """Coefficients that `time_indexed` would make, at most; counted without making any."""
    count, horizon = _starts(timeline)[1], timeline.horizon
    # Rows one, before, span, most and the cost: 5. For each use of a resource two rows busy, one
    # load.
    per_start = 5 + 3 * np.diff(timeline.usage.tocsc().indptr)
    if timeline.budget_usage is not None:
        per_start = per_start + np.diff(timeline.budget_usage.tocsc().indptr)
    of_activity = np.bincount(timeline.activity, count, minlength=len(timeline))
    ordered = of_activity[timeline.precedence].sum()
    stocks = len(timeline.capacity) + len(timeline.precedence)
    return int(count @ per_start + ordered + 2 * stocks * horizon)


def _starts(timeline: TimelineProgram) -> tuple[IntArray, IntArray]:
    """(first start, number of starts) of each mode."""
    release = timeline.release[timeline.activity]
    last = timeline.deadline[timeline.activity] - timeline.duration
    return release, np.maximum(last - release + 1, 0)


def time_indexed(timeline: TimelineProgram) -> TimeIndexed:
    """Lower a timeline program; see `TimeIndexed`.

    Raises
    ------
    UsageError
        For more than `MOST_NONZEROS` coefficients; they are counted before any is made.
    """
    nonzeros = count_nonzeros(timeline)
    if nonzeros > MOST_NONZEROS:
        raise UsageError(
            f"indexed by time the program has {count_columns(timeline):,} starts and {nonzeros:,} "
            "coefficients, at "
            f"most {MOST_NONZEROS:,} are taken: give a longer unit of time (-O unit=SECONDS) or "
            "take --solver cp-sat"
        )
    first, count = _starts(timeline)
    columns = int(count.sum())
    mode = np.repeat(np.arange(timeline.modes, dtype=np.int64), count)
    start = ranges(first, count)
    end = start + timeline.duration[mode]
    owner = timeline.activity[mode]

    lp = LinearProgram()
    x = lp.variables(columns, name="x", upper=1.0, integer=True)
    lp.constrain(sum_by(owner, 1.0, len(timeline)) @ x == 1.0, name="one")
    _constrain_resources(lp, x, timeline, mode, start)
    if timeline.budget_usage is not None:
        lp.constrain(timeline.budget_usage.tocsc()[:, mode] @ x <= timeline.budget, name="spend")
    if len(timeline.precedence):
        _constrain_order(lp, x, timeline, owner, start, end)
    objective = _cost(timeline, mode, start, end)[np.newaxis, :] @ x
    if timeline.cost.makespan:
        span = lp.variables(1, name="C", upper=float(timeline.horizon))
        ones = np.ones((len(timeline), 1))
        lp.constrain(sum_by(owner, end, len(timeline)) @ x - ones @ span <= 0.0, name="span")
        # These rows follow from the others for whole numbers; for fractions they make the bound.
        load = sp.csr_matrix(timeline.usage @ sp.diags_array(timeline.duration.astype(float)))
        lp.constrain(
            load.tocsc()[:, mode] @ x - timeline.capacity[:, np.newaxis].astype(float) @ span
            <= 0.0,
            name="load",
        )
        objective = objective + float(timeline.cost.makespan) * span
    if timeline.most is not None:
        lp.constrain(objective <= float(timeline.most), name="most")
    lp.minimise(objective)
    return TimeIndexed(timeline, lp, mode, start)


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
    """Rows ``busy``: of every resource, what is in use at each unit of time."""
    uses = timeline.usage.tocsc()[:, mode].tocoo()
    horizon = timeline.horizon
    capacity = np.repeat(timeline.capacity.astype(float), horizon)
    for resource, begin, stop, lost in timeline.closed.tolist():
        capacity[resource * horizon + max(begin, 0) : resource * horizon + min(stop, horizon)] -= (
            lost
        )
    column = uses.col.astype(np.int64)
    owner = uses.row.astype(np.int64)
    amount = uses.data.astype(float)
    changes = _Changes(len(timeline.capacity), horizon, len(mode))
    begins = changes.at(owner, start[column], column, amount)
    ends = changes.at(owner, start[column] + timeline.duration[mode][column], column, amount)
    use = lp.variables(len(capacity), name="use", lower=np.minimum(capacity, 0.0), upper=capacity)
    lp.constrain((begins - ends) @ x - changes.growth @ use == 0.0, name="busy")


def _constrain_order(
    lp: LinearProgram,
    x: Expression,
    timeline: TimelineProgram,
    owner: IntArray,
    start: IntArray,
    end: IntArray,
) -> None:
    """Rows ``before``: of every precedence, whether the second may begin and has not yet."""
    first = np.searchsorted(owner, np.arange(len(timeline) + 1)).astype(np.int64)
    changes = _Changes(len(timeline.precedence), timeline.horizon, len(owner))

    def flow(activity: IntArray, moment: IntArray) -> sp.csr_matrix:
        count = first[activity + 1] - first[activity]
        column, pair = ranges(first[activity], count), owners(count)
        return changes.at(pair, moment[column], column, np.ones(len(column)))

    a, b = timeline.precedence.T
    ready = lp.variables(len(timeline.precedence) * timeline.horizon, name="ready", upper=1.0)
    lp.constrain((flow(a, end) - flow(b, start)) @ x - changes.growth @ ready == 0.0, name="before")


@dataclass(frozen=True)
class _Changes:
    """Rows for each of some stocks and each unit of time: what the stock grows by then."""

    stocks: int
    horizon: int
    columns: int

    def at(
        self, stock: IntArray, moment: IntArray, column: IntArray, amount: FloatArray
    ) -> sp.csr_matrix:
        """Columns that add an amount to a stock from a moment on;
        after the horizon nothing counts.
        """
        row = stock * self.horizon + moment
        some = moment < self.horizon
        shape = (self.stocks * self.horizon, self.columns)
        return sp.csr_matrix((amount[some], (row[some], column[some])), shape=shape)

    @property
    def growth(self) -> sp.csr_matrix:
        """Each stock less what it was a unit of time before."""
        size = self.stocks * self.horizon
        again = np.ones(size)
        again[:: self.horizon] = 0.0  # nothing was there before the first unit
        return sp.csr_matrix(
            sp.eye_array(size) - sp.diags_array(again[1:], offsets=-1, shape=(size, size))
        )
