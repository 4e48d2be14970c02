"""Bin packing: every job in one round, in as few rounds as possible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Literal, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp

from formulations.all_assigned import (
    fitting_columns,
    jobs_alone,
    nowhere,
    refuse_jobs_nowhere,
    whole_amounts,
)
from formulations.machines import check_each_once, place_in, rank
from optsched.arrays import EMPTY, FloatArray, IntArray, owners
from optsched.arrays.matrices import sum_by
from optsched.candidates import Candidates, Classes
from optsched.errors import UsageError
from optsched.formulation import Formulation, FormulationOptions
from optsched.program import LinearProgram
from optsched.program.knapsack import best_items
from optsched.solution import Schedule
from optsched.solution.plan import LinearPlan, Patterns

MOST_COLUMNS = 500_000
MOST_ARCS = 200_000
"""Arcs of the program ``arc-flow``, beyond which ``auto`` takes ``assignment``."""
MOST_STATES = 50_000_000
"""Items times capacity of the knapsack that prices patterns, beyond which ``auto`` takes
``assignment``: one pricing visits so many states.
"""
FITS = 1 + 1e-9


class BinPacking(Formulation):
    """Run every job in one round; use as few rounds as possible. A round is a bin.

    Sets
        k in K: classes of n_k equal jobs;  c in C_k: their columns (without partners);
        r: resources of capacity b_r in every round (GPUs of a pool, or a resource of the instance)
    Parameters
        a_rc: what column c uses of r
    Program
        ``arc-flow``, where every class has one column and all use the same resource, in whole
        amounts a_k <= b: a bin is a path through 0, 1, ..., b; an arc (v, v + a) is a job of size a
        at place v. Sizes are taken in decreasing order, so that few arcs are needed. Before the
        solver, bins are made by column generation; each is the best one at the duals of the sizes.
        minimise z
        one   sum_{vw: w = v + a} f_vw  =  number of jobs of size a     every size a
        flow  sum_w f_vw  <=  sum_u f_uv,  at v = 0  <=  z              every place v
        f >= 0 integer

        ``assignment``, for several resources and choices; B: rounds of a first-fit packing:
        minimise  sum_b y_b
        one    sum_{c in C_k} sum_b x_cb  =  n_k                        every class k
        room   sum_c a_rc x_cb  <=  b_r y_b                             every r and round b
        order  y_b  >=  y_{b+1}
        x >= 0 integer;  y binary, 1 for as many rounds as the use of a resource fills at least

    The schedule has the round of each job, in seconds of the instance's ``round``. Durations and
    rates are not read. Left out: jobs that have not arrived. Consumable resources are refused.

    Options
        program   ``auto``: arc-flow where it applies, else assignment.

    References
        J. M. Valerio de Carvalho, "Exact solution of bin-packing problems using column generation
        and branch-and-bound", Annals of Operations Research 86 (1999); the bound of arc-flow is
        that of P. C. Gilmore and R. E. Gomory, Operations Research 9 (1961).
    """

    name = "vector-bin-packing"
    aliases = ("bin-packing",)
    reads_pairs = False
    sense = "min"
    takes_rows = False
    leaves_idle = True
    objective_words = "rounds"

    class Options(FormulationOptions):
        """Options of bin packing."""

        program: Literal["auto", "arc-flow", "assignment"] = "auto"

    def classes(self, candidates: Candidates) -> Classes:
        """Classes with options of rate 0, without columns of two jobs."""
        return super().classes(jobs_alone(candidates))

    def nowhere(self, candidates: Candidates) -> Mapping[int, str]:
        """Jobs that no round has room for."""
        return nowhere(self.classes(candidates))

    def build(self, C: Classes) -> LinearPlan:
        refuse_jobs_nowhere(C, "one")
        _refuse_consumables(C)
        rounds = _Rounds(C, np.flatnonzero(fitting_columns(C)))
        bins: _BinProgram | None = None
        if self.options.program != "assignment":
            flow = _arc_flow(rounds)
            if self.options.program == "arc-flow" and isinstance(flow, str):
                raise UsageError(f"vector-bin-packing with program=arc-flow: {flow}")
            bins = None if isinstance(flow, str) else flow
        bins = bins or _BinAssignment(rounds)
        return LinearPlan(
            C,
            bins.program(),
            lambda point: rounds.schedule(bins.packing(point)),
            lambda schedule: bins.point(rounds.packing(schedule)),
            bins.describe,
            step=1.0,
            known=bins.known,
            patterns=bins.patterns,
        )


def _refuse_consumables(C: Classes) -> None:
    """Refuse jobs that use up a resource."""
    use = C.usage.tocoo()
    consumed = np.flatnonzero(~C.resources.renewable[use.row])
    if len(consumed):
        name = C.resources.names[int(use.row[consumed[0]])]
        raise UsageError(f"vector-bin-packing: {name} is used up, and a round has it anew")


class _Bins(NamedTuple):
    """The round of each job.

    Attributes
    ----------
    column : IntArray, shape (J,)
        Row of the columns that each job runs in.
    number : IntArray, shape (J,)
        Number of the round of each job, from 0.
    """

    column: IntArray
    number: IntArray

    @property
    def rounds(self) -> int:
        """How many rounds are used."""
        return int(self.number.max(initial=-1)) + 1


class _Rounds:
    """The columns that jobs may run in, and how packings and schedules become each other.

    Attributes
    ----------
    classes : Classes
    columns : IntArray, shape (columns,)
    of_class : IntArray, shape (columns,)
    usage : csr_matrix, shape (resources, columns)
        Whole amounts of the resources that are used.
    capacity : IntArray, shape (resources,)
    """

    def __init__(self, classes: Classes, columns: IntArray) -> None:
        self.classes, self.columns = classes, columns
        self.of_class = classes.class_a[columns]
        usage = sp.csr_matrix(classes.usage.tocsr()[:, columns])
        self.used = np.flatnonzero(np.diff(usage.indptr)).astype(np.int64)
        self.usage, self.capacity = whole_amounts(classes, columns, self.used)

    @property
    def jobs(self) -> IntArray:
        """How many jobs each class has, shape (K,)."""
        return self.classes.count.astype(np.int64)

    def schedule(self, packing: _Bins) -> Schedule:
        """The rounds one after the other."""
        C = self.classes
        order = np.argsort(packing.number, kind="stable")
        column, number = packing.column[order], packing.number[order]
        start = C.instance.now + number.astype(np.float64) * C.instance.round
        member = rank(self.of_class[column])
        return Schedule.of_members(C, self.columns[column], member, start, start + C.instance.round)

    def packing(self, schedule: Schedule) -> _Bins:
        """The packing of a schedule; raises ValueError where there is none."""
        C, row = self.classes, place_in(self.columns, schedule, "that does not fit")
        check_each_once(C, schedule)
        start = (schedule.start - C.instance.now) / C.instance.round
        number = np.round(start).astype(np.int64)
        length = (schedule.end - schedule.start) / C.instance.round
        wrong = np.flatnonzero((np.abs(start - number) > 1e-6) | (np.abs(length - 1) > 1e-6))
        if len(wrong):
            name = C.instance.jobs_table.names[int(schedule.job[wrong[0]])]
            raise ValueError(f"job {name} does not run in exactly one round")
        # Rounds in which no job runs do not count
        return _Bins(row, np.unique(number, return_inverse=True)[1].astype(np.int64))

    def least(self) -> int:
        """Rounds that the use of some resource fills at least."""
        use = np.full((len(self.capacity), len(self.classes)), np.inf)
        dense = self.usage.toarray()
        for row in range(len(self.capacity)):
            np.minimum.at(use[row], self.of_class, dense[row])
        total = (use @ self.jobs) / np.maximum(self.capacity, 1)
        return int(np.ceil(total.max(initial=min(1, len(self.classes))) - 1e-9))

    def first_fit(self) -> _Bins:
        """The packing of a rule: largest job first, each into the first round that has room."""
        size = self.usage.toarray() / np.maximum(self.capacity, 1)[:, np.newaxis]
        # Of each class the column whose largest part of a resource is smallest
        largest = size.max(axis=0, initial=0.0)
        order = np.lexsort((largest, self.of_class))
        best = order[np.unique(self.of_class[order], return_index=True)[1]]
        by_size = best[np.argsort(-largest[best], kind="stable")]
        chosen = np.repeat(by_size, self.jobs[self.of_class[by_size]])
        use = self.usage.toarray().astype(np.int64).T
        free = np.tile(self.capacity, (len(chosen), 1))
        number = np.zeros(len(chosen), np.int64)
        opened = 1
        for job, column in enumerate(chosen.tolist()):
            roomy = (free[:opened] >= use[column]).all(axis=1)
            number[job] = int(np.argmax(roomy)) if roomy.any() else opened
            opened = max(opened, int(number[job]) + 1)
            free[number[job]] -= use[column]
        return _Bins(chosen, number)


class _BinProgram(Protocol):
    """One of the two programs, and how its points and packings become each other."""

    def program(self) -> LinearProgram:
        """The rows and columns."""

    def packing(self, point: FloatArray) -> _Bins:
        """The packing of a point."""

    def point(self, packing: _Bins) -> FloatArray:
        """The point of a packing; raises ValueError where there is none."""

    def known(self) -> FloatArray:
        """The point of a rule."""

    def describe(self, block: str, position: int) -> str:
        """What a row asks for, in words."""

    @property
    def patterns(self) -> Patterns | None:
        """What column generation needs, or None."""


# --- arc-flow -------------------------------------------------------------------------------------


def _arc_flow(rounds: _Rounds) -> _ArcFlow | str:
    """The program ``arc-flow``, or why it does not apply: a job is more than one size, or the
    program would be too large.
    """
    if len(rounds.columns) != len(rounds.classes):
        return "some job has several configurations"
    if len(rounds.capacity) != 1 or rounds.usage.nnz != len(rounds.columns):
        return "jobs do not all use the same resource, and no other"
    sizes, of_size = np.unique(rounds.usage.data, return_inverse=True)
    jobs = rounds.jobs[rounds.of_class[rounds.usage.indices]]
    most = np.minimum(np.bincount(of_size, jobs), rounds.capacity[0] // sizes)
    # The knapsack of a filling has items of 1, 2, 4, ... jobs of each size
    states = int(np.ceil(np.log2(most + 1)).sum()) * int(rounds.capacity[0])
    if states > MOST_STATES:
        return f"items times capacity are {states:,}, at most {MOST_STATES:,}"
    flow = _ArcFlow(rounds)
    arcs = len(flow.tail)
    return f"there are {arcs:,} arcs, at most {MOST_ARCS:,}" if arcs > MOST_ARCS else flow


class _ArcFlow:
    """The program ``arc-flow``: its variables f, arc by arc, and z as the last one."""

    def __init__(self, rounds: _Rounds) -> None:
        self.rounds = rounds
        self.capacity = int(rounds.capacity[0])
        # Every class has one column, whose row is that of the class; sizes decrease
        of_column = np.zeros(len(rounds.columns), np.int64)
        of_column[rounds.usage.indices] = rounds.usage.data.astype(np.int64)
        sizes, size_of = np.unique(-of_column, return_inverse=True)
        self.sizes, self.size_of = -sizes, size_of.astype(np.int64)
        jobs = np.zeros(len(rounds.columns), np.int64)
        jobs[:] = rounds.jobs[rounds.of_class]
        self.demand = np.bincount(self.size_of, jobs, minlength=len(sizes)).astype(np.int64)
        self.tail, self.size = self._arcs()

    def _arcs(self) -> tuple[IntArray, IntArray]:
        """Tail, and number of the size, of each arc, in order of both."""
        b = self.capacity
        place = np.arange(b + 1)
        reached = place == 0
        tails = []
        for size, demand in zip(self.sizes.tolist(), self.demand.tolist(), strict=True):
            # From each place that larger jobs reach, at most `demand` jobs of this size in a row
            rows = -(-(b + 1) // size)
            start = np.full(rows * size, -1)
            start[: b + 1] = np.where(reached, place // size, -1)
            start = np.maximum.accumulate(start.reshape(rows, size), axis=0).ravel()[: b + 1]
            tail = np.flatnonzero(
                (start >= 0) & (place // size - start < demand) & (place + size <= b)
            )
            reached[tail + size] = True
            tails.append(tail)
            if sum(map(len, tails)) > MOST_ARCS:
                break
        of_size = owners([len(tail) for tail in tails])
        tail = np.concatenate([EMPTY, *tails])
        order = np.lexsort((of_size, tail))
        return tail[order].astype(np.int64), of_size[order]

    @cached_property
    def _number(self) -> IntArray:
        """Number of the arc by tail and size; -1: none. Shape (b + 1, sizes)."""
        number = np.full((self.capacity + 1, len(self.sizes)), -1, np.int64)
        number[self.tail, self.size] = np.arange(len(self.tail))
        return number

    def program(self) -> LinearProgram:
        """The rows and columns."""
        arcs, tail = len(self.tail), self.tail
        head = tail + self.sizes[self.size]
        jobs = int(self.demand.sum())
        lp = LinearProgram()
        f = lp.variables(
            arcs, name="f", upper=self.demand[self.size].astype(np.float64), integer=True
        )
        least = max(self.rounds.least(), 0)
        z = lp.variables(1, name="z", lower=float(least), upper=float(jobs), integer=True)
        one = sum_by(self.size, 1.0, len(self.sizes))
        lp.constrain(one @ f == self.demand.astype(np.float64), name="one")
        # Places where no job starts need no row
        places, row = np.unique(tail, return_inverse=True)
        at = np.searchsorted(places, head)
        ends = (at < len(places)) & (places[np.minimum(at, len(places) - 1)] == head)
        flow = sp.csr_matrix(
            (
                np.concatenate([np.ones(arcs), -np.ones(int(ends.sum()))]),
                (
                    np.concatenate([row, at[ends]]),
                    np.concatenate([np.arange(arcs), np.flatnonzero(ends)]),
                ),
            ),
            shape=(len(places), arcs),
        )
        source = sp.csr_matrix((places == 0).astype(np.float64)[:, np.newaxis])
        lp.constrain(flow @ f - source @ z <= 0.0, name="flow")
        lp.minimise(z)
        return lp

    def point(self, packing: _Bins) -> FloatArray:
        """The point of a packing."""
        return self._point_of(self.size_of[packing.column], packing.number)

    def _point_of(self, size: IntArray, number: IntArray) -> FloatArray:
        """The point of sizes in rounds: each round is a path, its jobs in decreasing size."""
        order = np.lexsort((size, number))
        size, number = size[order], number[order]
        amount = self.sizes[size]
        before = np.cumsum(amount) - amount
        tail = before - before[np.searchsorted(number, number)]
        if (tail + amount > self.capacity).any():
            late = int(number[np.argmax(tail + amount > self.capacity)])
            raise ValueError(f"round {late} has more than there is room for")
        point = np.zeros(len(self.tail) + 1)
        np.add.at(point, self._number[tail, size], 1.0)
        point[-1] = int(number.max(initial=-1)) + 1
        return point

    def packing(self, point: FloatArray) -> _Bins:
        """The packing of a point."""
        return self._of_sizes(*self._paths(point))

    def _paths(self, point: FloatArray) -> tuple[IntArray, IntArray]:
        """Sizes, and the rounds that have them: the flow of a point is split into paths."""
        flow = np.round(point[:-1]).astype(np.int64).tolist()
        leaving: list[list[int]] = [[] for _ in range(self.capacity + 1)]
        for arc, (tail, amount) in enumerate(zip(self.tail.tolist(), flow, strict=True)):
            if amount:
                leaving[tail].append(arc)
        sizes, of_arc = self.sizes.tolist(), self.size.tolist()
        size, number = [], []
        bin_number = 0
        while leaving[0]:
            place = 0
            while leaving[place]:
                arc = leaving[place][-1]
                flow[arc] -= 1
                if not flow[arc]:
                    leaving[place].pop()
                size.append(of_arc[arc])
                number.append(bin_number)
                place += sizes[of_arc[arc]]
            bin_number += 1
        return np.array(size, np.int64), np.array(number, np.int64)

    def _of_sizes(self, size: IntArray, number: IntArray) -> _Bins:
        """The packing in which sizes are jobs: classes of one size take their places in order."""
        jobs = self.rounds.jobs[self.rounds.of_class]
        by_size = np.argsort(self.size_of, kind="stable")
        column = np.repeat(by_size, jobs[by_size])
        return _Bins(column, number[np.argsort(size, kind="stable")])

    def known(self) -> FloatArray:
        """The point of a rule: each round begins with the largest job left, and is filled as far as
        sizes add up to; of equal fillings that with the largest sizes.
        """
        left, sizes = self.demand.tolist(), self.sizes.tolist()
        size: list[int] = []
        lengths: list[int] = []
        while any(left):
            first = next(number for number, count in enumerate(left) if count)
            left[first] -= 1
            filling = [first, *_best_filling(self.capacity - sizes[first], sizes, left)]
            for number in filling[1:]:
                left[number] -= 1
            size += filling
            lengths.append(len(filling))
        return self._point_of(np.array(size, np.int64), owners(lengths))

    @property
    def patterns(self) -> Patterns:
        """A pattern is a filling of one round: how many jobs of each size it has."""

        def of_point(point: FloatArray) -> IntArray:
            size, number = self._paths(point)
            counts = np.zeros((len(self.sizes), int(number.max(initial=-1)) + 1), np.int64)
            np.add.at(counts, (size, number), 1)
            return counts

        def point(counts: IntArray) -> FloatArray:
            number, size = np.nonzero(counts.T)
            times = counts.T[number, size]
            return self._point_of(np.repeat(size, times), np.repeat(number, times))

        return Patterns(self.demand, self._best_pattern, of_point, point, self._duals)

    def _best_pattern(self, worth: FloatArray, left: IntArray) -> tuple[float, IntArray]:
        """The filling of the greatest worth: a knapsack of items that are 1, 2, 4, ... jobs."""
        most = np.minimum(left, self.capacity // self.sizes)
        kinds: list[IntArray] = []
        jobs: list[IntArray] = []
        while most.any():
            power = 1 << len(kinds)
            item = np.flatnonzero(most > 0)
            kinds.append(item)
            jobs.append(np.minimum(power, most[item]))
            most = np.maximum(most - power, 0)
        kind, count = np.concatenate([EMPTY, *kinds]), np.concatenate([EMPTY, *jobs])
        total, chosen = best_items(worth[kind] * count, self.sizes[kind] * count, self.capacity)
        return total, np.bincount(kind[chosen], count[chosen], len(self.sizes)).astype(np.int64)

    def _duals(self, worth: FloatArray) -> FloatArray:
        """Duals of the rows: the dual of place v is minus the worth of the best path from v on.

        All are scaled so that the best path from 0 is worth 1, the cost of a round.
        """
        head = self.tail + self.sizes[self.size]
        best = np.zeros(self.capacity + 1)
        places, first = np.unique(self.tail, return_index=True)
        end = np.append(first[1:], len(self.tail))
        for place in range(len(places) - 1, -1, -1):
            arcs = slice(first[place], end[place])
            best[places[place]] = max(0.0, float((worth[self.size[arcs]] + best[head[arcs]]).max()))
        duals: FloatArray = np.concatenate([worth, -best[places]]) / max(best[0], 1e-9)
        return duals

    def describe(self, block: str, position: int) -> str:
        """What a row asks for, in words."""
        if block == "one":
            return f"every job of size {self.sizes[position]} must run in one round"
        return f"row {block}[{position}]"


def _best_filling(room: int, sizes: Sequence[int], left: Sequence[int]) -> list[int]:
    """Numbers of the sizes that fill the room as far as they can, each at most as often as it is
    left.

    Sums that can be reached are the bits of a whole number: all are shifted at once.
    """
    reached, before = 1, []
    mask = (1 << (room + 1)) - 1
    for size, count in zip(sizes, left, strict=True):
        steps = [reached]
        for _ in range(min(count, room // max(size, 1))):
            steps.append((steps[-1] | (steps[-1] << size)) & mask)
        before.append(steps)
        reached = steps[-1]
        if reached >> room & 1:
            break
    total, filling = reached.bit_length() - 1, []
    for number in range(len(before) - 1, -1, -1):
        # As few of the smaller sizes as reach the sum
        steps = before[number]
        taken = 0
        while not steps[0] >> (total - taken * sizes[number]) & 1:
            taken += 1
        filling += [number] * taken
        total -= taken * sizes[number]
    return filling


# --- assignment -----------------------------------------------------------------------------------


class _BinAssignment:
    """The program ``assignment``: its variables x, round by round, and then y."""

    def __init__(self, rounds: _Rounds) -> None:
        self.rounds = rounds
        self.first = rounds.first_fit()
        self.B = self.first.rounds
        variables = self.B * (len(rounds.columns) + 1)
        if variables > MOST_COLUMNS:
            raise UsageError(
                f"vector-bin-packing: {len(rounds.columns):,} columns in {self.B:,} rounds have "
                f"{variables:,} variables, at most {MOST_COLUMNS:,} are taken"
            )

    def program(self) -> LinearProgram:
        """The rows and columns."""
        rounds, B = self.rounds, self.B
        columns = len(rounds.columns)
        of_class = np.tile(rounds.of_class, B)
        n = rounds.jobs.astype(np.float64)
        least = max(rounds.least(), 0)
        lp = LinearProgram()
        x = lp.variables(B * columns, name="x", upper=n[of_class], integer=True)
        filled = (np.arange(B) < least).astype(np.float64)
        y = lp.variables(B, name="y", lower=filled, upper=np.ones(B), integer=True)
        lp.constrain(sum_by(of_class, 1.0, len(n)) @ x == n, name="one")
        identity = sp.identity(B, format="csr")
        room = sp.csr_matrix(sp.kron(identity, rounds.usage))
        capacity = sp.csr_matrix(
            sp.kron(identity, rounds.capacity.astype(np.float64)[:, np.newaxis])
        )
        lp.constrain(room @ x - capacity @ y <= 0.0, name="room")
        if B > 1:
            lp.constrain((identity[:-1] - identity[1:]) @ y >= 0.0, name="order")
        lp.minimise(np.ones((1, B)) @ y)
        return lp

    def point(self, packing: _Bins) -> FloatArray:
        """The point of a packing."""
        columns = len(self.rounds.columns)
        if packing.rounds > self.B:
            raise ValueError(f"there are {packing.rounds} rounds, at most {self.B} are needed")
        point = np.zeros(self.B * (columns + 1))
        np.add.at(point, packing.number * columns + packing.column, 1.0)
        point[self.B * columns : self.B * columns + packing.rounds] = 1.0
        return point

    def packing(self, point: FloatArray) -> _Bins:
        """The packing of a point; rounds in which no job runs are left out."""
        columns = len(self.rounds.columns)
        jobs = np.round(point[: self.B * columns]).astype(np.int64)
        place = np.repeat(np.arange(len(jobs)), jobs)
        _, number = np.unique(place // columns, return_inverse=True)
        return _Bins(place % columns, number.astype(np.int64))

    def known(self) -> FloatArray:
        """The point of the first-fit packing."""
        return self.point(self.first)

    @property
    def patterns(self) -> None:
        """None: patterns have one resource."""

    def describe(self, block: str, position: int) -> str:
        """What a row asks for, in words."""
        if block == "one":
            return f"{self.rounds.classes.job_name(position)} must run in one round"
        return f"row {block}[{position}]"
