"""The largest share of an allocation that can be realised, by column generation over patterns.

A pattern P is a set of rows that can run side by side; in it c_Pi of the members of item i run
(`Items`). With X_i the time of item i,

    minimise   sum_P z_P
    s.t.       sum_P c_Pi z_P >= X_i    for every item i        (duals y_i >= 0)
               z >= 0

is the shortest time in which X can be run (a subset of a pattern is a pattern, so >= is as good as
=). The allocation is realised if it is at most 1; if not, lambda = 1 / min is the largest share of
it that the window holds (Gilmore and Gomory, "A linear programming approach to the cutting-stock
problem", 1961).

Pricing: the most valuable pattern at the prices y is an integer program,

    v(y) = maximise  sum_i y_i c_i
           s.t.      sum over the items i of group g of c_i  <=  n_g      (no job twice)
                     sum_i u_ri c_i  <=  1                                (renewable resources)

A pattern of value above 1 enters. If rows use shares of GPUs, the program is a relaxation with the
necessary conditions of `optsched.placement.shares`: the part of its solution that can be packed is
used, and the search may end without a proof. If nodes matter, the program includes their rows and
columns (`optsched.program.space`), and a pattern is a placement. If their contents are made on
demand, the pattern is the best one of the known contents, and the prices of nodes bound v(y). For
any y >= 0, y / v(y) is feasible for the dual, so that (Farley, "A note on bounding a class of
linear programming problems, including cutting stock problems", 1990)

    lambda <= v(y) / sum_i y_i X_i.

Equal jobs are counted together (`Items`), and the counts are turned back into rows in the end
(`spread`). A group has n equal members. In slice P, of length z_P, c_Pi of them run in item i. Let
t_mPi be the time of member m in item i during slice P. Each member is to have the same time,

sum_P t_mPi = sum_P c_Pi z_P / n    for every member m and item i,
    sum_m t_mPi = c_Pi z_P              for every slice P and item i,
    sum_i t_mPi <= z_P                  for every member m and slice P,   t >= 0.

t_mPi = c_Pi z_P / n solves this, so the polytope is not empty; a vertex of it is sparse: most t are
0 or all of z_P. Within a slice the t of a group are times of jobs on places with room for c_Pi, of
which no job and no place has more than z_P: an open shop, which `decompose` runs in exactly z_P.
Groups have no member in common and are cut side by side.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from optsched.arrays import EMPTY, BoolArray, FloatArray, IntArray
from optsched.errors import SolverCrashed
from optsched.instance.durations import Timer
from optsched.placement.instant import SCRAMBLE, Instant, run_matrix
from optsched.placement.node_room import NodeRoom
from optsched.placement.open_shop import decompose
from optsched.placement.shares import FULL, Shares
from optsched.program import LinearProgram
from optsched.solution.values import Termination
from optsched.solvers import Session
from optsched.solving.engine import Engine


@dataclass(frozen=True)
class Items:
    """Rows of equal jobs merged: n_g jobs with equal rows (equal use and fraction) are one group.

    An item is one row of a group, for all its members; c of an item run if c members run in that
    row. Jobs in pairs are separate groups.

    Attributes
    ----------
    need : FloatArray, shape (I,)
        Time of the item: of all members together, as a share of the window.
    usage : FloatArray, shape (R, I)
        Share of each capacity that one member uses.
    member : csr_matrix, shape (G, I)
        1 if a member of the group runs in the item.
    count : IntArray, shape (G,)
        n_g.
    rows : tuple of IntArray, length I
        The row of each member, in the order of the members.
    shares : Shares, optional
        The shares of GPUs of each item; None if all items use whole GPUs.
    nodes : NodeRoom, optional
        The nodes on which items need room; None if only sums of pools count.
    """

    need: FloatArray
    usage: FloatArray
    member: sp.csr_matrix
    count: IntArray
    rows: tuple[IntArray, ...]
    shares: Shares | None = None
    nodes: NodeRoom | None = None

    @classmethod
    def of(cls, instant: Instant) -> Items:
        """Merge the rows of equal jobs."""
        use = instant.usage.toarray()
        shares, nodes = instant.shares, instant.nodes
        rows_of_job, has_partner = _rows_of_jobs(instant, _kinds(use, shares, nodes))
        # Jobs with equal rows are one group; each job in a pair is a separate group.
        groups: dict[object, list[int]] = {}
        for job, (_, alike) in sorted(rows_of_job.items()):
            groups.setdefault(job if has_partner[job] else alike, []).append(job)
        group_of = {job: number for number, jobs in enumerate(groups.values()) for job in jobs}
        rows: list[IntArray] = []
        member = []
        for number, jobs in enumerate(groups.values()):
            for i, row in enumerate(rows_of_job[jobs[0]][0]):
                item = len(rows)
                rows.append(np.array([rows_of_job[job][0][i] for job in jobs], np.int64))
                member.append((number, item))
                if instant.partner[row] >= 0:
                    member.append((group_of[int(instant.partner[row])], item))
        first = np.array([part[0] for part in rows], np.int64)
        group, item_of = np.array(member, np.int64).reshape(-1, 2).T
        return cls(
            need=np.array([instant.fraction[part].sum() for part in rows]),
            usage=use[:, first],
            member=sp.csr_matrix(
                (np.ones(len(group)), (group, item_of)),
                shape=(len(groups), len(rows)),
            ),
            count=np.array([len(jobs) for jobs in groups.values()], np.int64),
            rows=tuple(rows),
            shares=None if shares is None else shares.take(first),
            nodes=None if nodes is None else nodes.take(first),
        )

    def __len__(self) -> int:
        return len(self.need)

    def greedy(self, order: IntArray, most: FloatArray) -> FloatArray:
        """Counts of a set that fits: items in order, each as often as there is room, at most
        ``most`` times.
        """
        free = np.full(len(self.usage), FULL)
        members = self.count.astype(np.float64)
        by_item = self.member.tocsc()
        counts = np.zeros(len(self))
        for item in order.tolist():
            uses = self.usage[:, item]
            groups = by_item.indices[by_item.indptr[item] : by_item.indptr[item + 1]]
            room = min(
                (free[uses > 0] / uses[uses > 0]).min(initial=np.inf),
                members[groups].min(),
            )
            counts[item] = taken = np.floor(min(room, most[item]))
            if taken > 0:
                free -= taken * uses
                members[groups] -= taken
        return self.packed(counts)

    def packed(self, counts: FloatArray) -> FloatArray:
        """Of counts within all capacities, those that also find nodes, or whole GPUs for their
        shares.
        """
        if self.shares is None and self.nodes is None:
            return counts
        each = np.repeat(np.arange(len(self)), counts.astype(np.int64))
        if self.nodes is not None:
            fitting = np.bincount(self.nodes.fitting(each), minlength=len(self))
            return fitting.astype(np.float64)
        assert self.shares is not None
        if self.shares.fits(each):
            return counts
        order = self.shares.decreasing(each)
        return np.bincount(order[self.shares.first_fit(order)], minlength=len(self)).astype(
            np.float64
        )

    def peel(self, need: FloatArray, timer: Timer) -> tuple[FloatArray, FloatArray]:
        """Run all of ``need`` greedily: sets that fit, the longest jobs first, each until one item
        ends.

        Raises `OutOfTime`: with thousands of items, each set takes a hundredth of a second.

        Returns
        -------
        lengths : FloatArray, shape (S,)
        counts : FloatArray, shape (S, I)
        """
        left = need.copy()
        lengths = []
        counts = []
        while (left > 0).any():
            timer.check()
            load = np.asarray((self.member @ left) / self.count)
            urgency = self.member.T @ load  # of a pair: both jobs
            size = self.usage.max(axis=0, initial=0.0)
            order = np.lexsort((-size, -urgency))
            chosen = self.greedy(order[left[order] > 0], np.full(len(self), np.inf))
            on = chosen > 0
            length = float((left[on] / chosen[on]).min())
            lengths.append(length)
            counts.append(chosen)
            left[on] -= length * chosen[on]
            left[left < 1e-15] = 0.0
        return np.array(lengths), np.array(counts).reshape(-1, len(self))


CLOSED = 1e-9
"""Gap between the share and its bound at which the search ends."""
COST = 2.0**13
"""Factor of prices in programs, because solvers stop at absolute gaps of 1e-6."""


def _kinds(use: FloatArray, shares: Shares | None, nodes: NodeRoom | None) -> IntArray:
    """Number of the kind of each row, equal for rows with equal use of every resource."""
    alike = use if shares is None else np.vstack([use, shares.pool, shares.gpus, shares.share])
    if nodes is not None:
        alike = np.vstack([alike, nodes.column])
    if not len(alike):
        return np.zeros(use.shape[1], np.int64)
    return np.unique(alike, axis=1, return_inverse=True)[1].ravel()


def _rows_of_jobs(
    instant: Instant, kind: IntArray
) -> tuple[dict[int, tuple[list[int], tuple[tuple[int, float], ...]]], BoolArray]:
    """Rows of each job in the order of kind and fraction, with these as a key; and a mask of the
    jobs in pairs.

    A row of two jobs is listed for the first of them.
    """
    rows: dict[int, list[int]] = {}
    for row in np.lexsort((instant.fraction, kind)).tolist():
        rows.setdefault(int(instant.job[row]), []).append(row)
    has_partner = np.zeros(instant.jobs + 1, bool)
    for row in np.flatnonzero(instant.partner >= 0).tolist():
        has_partner[instant.job[row]] = has_partner[instant.partner[row]] = True
        rows.setdefault(int(instant.partner[row]), [])
    keyed = {
        job: (of_job, tuple((int(kind[row]), float(instant.fraction[row])) for row in of_job))
        for job, of_job in rows.items()
    }
    return keyed, has_partner


@dataclass(frozen=True)
class PatternTimes:
    """Patterns and how long each runs.

    Attributes
    ----------
    lengths : FloatArray, shape (S,)
        z; shares of the window, with a sum of at most 1 if the allocation is realised.
    counts : FloatArray, shape (S, I)
        Counts of each item in each pattern.
    bound : float
        No larger share of the allocation than this can be realised, at most 1.
    finished : bool
        False if a limit stopped the search, or if it ended without a proof.
    """

    lengths: FloatArray
    counts: FloatArray
    bound: float
    finished: bool


def shortest(items: Items, engine: Engine) -> PatternTimes:
    """Run all items in the shortest time; raises `OutOfTime` if there is no solution in time."""
    # The greedy start is often short enough. Its time counts as building, because `spread` needs
    # about as much time after the search.
    lengths, counts = engine.build(lambda: items.peel(items.need, engine.timer))
    bound = 1.0
    finished = True
    if lengths.sum() <= FULL:
        return PatternTimes(lengths, counts, 1.0, True)
    master = PatternMaster(items.need, sp.csc_matrix(counts.T), engine)
    pricing = Pricing(items, engine)
    while True:
        outcome = master.run()
        if outcome is None:
            finished = False
            break
        lengths, y = outcome
        if lengths.sum() <= 1 + CLOSED / 10:
            bound = 1.0
            break
        # The integer program is solved only if the heuristic finds no pattern.
        new = pricing.quickly(y)
        if not len(new):
            best, value = pricing.exactly(y)
            if value is None:
                finished = False
                break
            bound = min(bound, value / float(y @ items.need))
            if bound - 1 / lengths.sum() <= CLOSED:
                break
            known = best is not None and (counts == best).all(axis=1).any()
            # No new pattern: the gap is within the solver's tolerance, or a limit was reached.
            if best is None or known or y @ best <= 1 + CLOSED / 10:
                finished = bound - 1 / lengths.sum() <= 10 * CLOSED
                break
            new = best[None, :]
        master.add(sp.csc_matrix(new.T))
        counts = np.vstack([counts, new])
    used = lengths > 0
    return PatternTimes(lengths[used], counts[: len(lengths)][used], bound, finished)


class PatternMaster:
    """minimise sum z  s.t.  patterns z >= need, z >= 0: a session to which patterns are added.

    Parameters
    ----------
    need : FloatArray, shape (I,)
    patterns : csc_matrix, shape (I, S)
        Patterns that cover the need.
    engine : Engine
    """

    def __init__(self, need: FloatArray, patterns: sp.csc_matrix, engine: Engine) -> None:
        self.engine = engine
        # No pattern runs longer than all items one after the other.
        self.longest = float(need.sum()) + 1.0
        program = LinearProgram()
        z = program.variables(patterns.shape[1], name="patterns", implied=(0.0, self.longest))
        program.constrain(patterns @ z >= need, name="need")
        program.minimise(z.sum())
        self.session: Session = engine.open(program.arrays)

    def run(self) -> tuple[FloatArray, FloatArray] | None:
        """(z, y), or None if a limit stopped the run."""
        values = self.engine.run(self.session)
        if values.termination is not Termination.OPTIMAL or values.x is None or values.y is None:
            return None
        return np.maximum(values.x, 0.0), np.maximum(values.y, 0.0)

    def add(self, patterns: sp.csc_matrix) -> None:
        """Add patterns, shape (I, new)."""
        count = patterns.shape[1]
        self.session.add_columns(patterns, np.ones(count), np.full(count, self.longest))


class Pricing:
    """The most valuable pattern, by a heuristic and exactly."""

    def __init__(self, items: Items, engine: Engine) -> None:
        self.items = items
        self.engine = engine
        # The objective is a placeholder: `exactly` sets the prices.
        self.session = engine.open(self._program(np.ones(len(items))).arrays)

    def _program(
        self, worth: FloatArray, nodes: bool = True, contents: bool = True
    ) -> LinearProgram:
        """The most valuable pattern as an integer program, with or without nodes and their
        contents.
        """
        items = self.items
        most = np.minimum.reduce([np.full(len(items), float(items.count.max())), *_limits(items)])
        program = LinearProgram()
        c = program.variables(
            len(items),
            name="count",
            upper=most,
            implied=(0.0, most),
            integer=True,
        )
        program.constrain(items.member @ c <= items.count, name="jobs")
        if len(items.usage):
            program.constrain(items.usage @ c <= FULL, name="resources")
        if items.nodes is not None and nodes:
            items.nodes.add_to(program, c, contents)
        program.maximise(worth[np.newaxis, :] @ c)
        return program

    def quickly(self, y: FloatArray) -> FloatArray:
        """Patterns of value above 1, by filling in the order of value per use; shape (found, I)."""
        items = self.items
        worth = np.flatnonzero(y > CLOSED)
        total = items.usage.sum(axis=0)
        largest = items.usage.max(axis=0, initial=0.0)
        found: dict[bytes, FloatArray] = {}
        # Which measure of size is best depends on the prices: all are tried.
        for size in (largest, total, np.ones(len(y)), np.sqrt(largest)):
            with np.errstate(divide="ignore"):
                order = worth[np.argsort(-y[worth] / size[worth], kind="stable")]
            counts = items.greedy(order, np.full(len(y), np.inf))
            if y @ counts > 1 + 1e-6:
                found.setdefault(counts.tobytes(), counts)
        return np.array(list(found.values())).reshape(-1, len(y))

    def exactly(self, y: FloatArray) -> tuple[FloatArray | None, float | None]:
        """(counts, upper bound of v(y)); the bound is None if a limit left none."""
        if self.items.nodes is not None and not self.items.nodes.space.complete:
            return self._by_priced_contents(self.items.nodes, y)
        others = self.session.arrays.shape[1] - len(y)  # the columns of the nodes
        self.session.set_cost(np.append(y * COST, np.zeros(others)))
        values = self.engine.run(self.session)
        if values.bound is None:
            return None, None
        counts = None if values.x is None else np.round(values.x[: len(y)])
        if counts is not None and not _fits(self.items, counts):
            raise SolverCrashed(
                "the solver returned a pattern of rows that do not fit side by side"
            )
        return None if counts is None else self.items.packed(counts), values.bound / COST

    def _by_priced_contents(
        self, nodes: NodeRoom, y: FloatArray
    ) -> tuple[FloatArray | None, float | None]:
        """(counts with the known contents of nodes, upper bound of v(y) over all contents)."""
        worth = y * COST
        alone = self._program(worth, nodes=False).arrays
        bounding = self._program(worth, contents=False).arrays
        bound = nodes.make_contents(self._program(worth).arrays, alone, bounding)
        outcome = self.engine.solve_linear(self._program(worth), np.round)
        counts = None if outcome.x is None else outcome.x[: len(y)]
        return counts, None if bound is None else bound / COST


def _limits(items: Items) -> list[FloatArray]:
    with np.errstate(divide="ignore"):
        return [np.floor(FULL / use) for use in items.usage]


def _fits(items: Items, counts: FloatArray) -> bool:
    within = (items.usage @ counts <= FULL * (1 + 1e-6)).all()
    return bool(within and (items.member @ counts <= items.count).all())


Part = tuple[FloatArray, list[IntArray]]
"""Ends of the parts of a slice, as shares of it, and the rows of a group that run in each."""


def spread(
    items: Items, lengths: FloatArray, counts: FloatArray, engine: Engine
) -> tuple[FloatArray, sp.csr_matrix]:
    """Slices of rows in which all members of a group run equally long in each of its items.

    Parameters
    ----------
    items : Items
    lengths : FloatArray, shape (S,)
        Above 0.
    counts : FloatArray, shape (S, I)
        Members of each item in each slice.
    engine : Engine
        Finds the vertices.

    Returns
    -------
    lengths : FloatArray
    runs : csr_matrix of 0/1, shape (slices, rows)

    Raises
    ------
    OutOfTime
        Some groups have no slices yet.
    """
    rows = int(max((part.max() for part in items.rows), default=-1)) + 1
    parts: list[list[Part]] = [[] for _ in lengths]
    indptr = items.member.indptr
    for group, size in enumerate(engine.timer.watching(items.count.tolist())):
        of_group = items.member.indices[indptr[group] : indptr[group + 1]].astype(np.int64)
        if size == 1:
            chosen = counts[:, of_group] > 0
            # Only slices in which the job runs: it is idle in most of them.
            for number in np.flatnonzero(chosen.any(axis=1)).tolist():
                its_rows = [items.rows[item][0] for item in of_group[chosen[number]]]
                parts[number].append((np.ones(1), [np.array(its_rows, np.int64)]))
            continue
        for number, part in _shared_out(items, of_group, size, lengths, counts, engine):
            parts[number].append(part)
    made = []
    runs = []
    for length, groups in zip(lengths.tolist(), parts, strict=True):
        ends = np.unique(np.concatenate([[1.0], *(end for end, _ in groups)]))
        starts = np.concatenate(([0.0], ends[:-1]))
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            # After the last end of a group its members are idle.
            running = [
                rows_of[k]
                for at, rows_of in groups
                if (k := int(np.searchsorted(at, end))) < len(at)
            ]
            runs.append(np.unique(np.concatenate([EMPTY, *running])))  # a pair is in two groups
            made.append(length * (end - start))
    return np.array(made), run_matrix(runs, rows)


def _shared_out(
    items: Items,
    of_group: IntArray,
    size: int,
    lengths: FloatArray,
    counts: FloatArray,
    engine: Engine,
) -> list[tuple[int, Part]]:
    """(slice, its parts) for a group of several members; ``of_group`` are its items."""
    slices, places = np.nonzero(counts[:, of_group])
    if len(slices) == 0:
        return []
    # Cells: slices in which an item of the group runs, and the number of members that run in it.
    count = counts[slices, of_group[places]]
    time = _vertex(slices, places, count * lengths[slices], lengths, size, engine)
    # (items, members): the row of each member in each item.
    rows = np.stack([items.rows[item] for item in of_group])
    result = []
    for number in np.unique(slices).tolist():
        cells = np.flatnonzero(slices == number)
        member = np.repeat(np.arange(size), len(cells))
        place = np.tile(places[cells], size)
        takes = np.ones(len(of_group), np.int64)
        takes[places[cells]] = count[cells]
        cut, running, total = decompose(
            member, place, (time[:, cells] / lengths[number]).ravel(), takes
        )
        # The parts may exceed the slice within a tolerance: all are shortened in proportion.
        ends = np.cumsum(cut) / max(total, 1.0)
        ends[ends > 1 - 1e-12] = 1.0
        result.append(
            (
                number,
                (
                    ends,
                    [rows[place[entry], member[entry]] for entry in running],
                ),
            )
        )
    return result


def _vertex(
    slices: IntArray,
    places: IntArray,
    amount: FloatArray,
    lengths: FloatArray,
    size: int,
    engine: Engine,
) -> FloatArray:
    """t of every member and cell (slice, item), shape (members, cells): a vertex, or equal shares
    if a limit is reached.
    """
    cells = len(slices)
    equal = np.tile(amount / size, (size, 1))
    whole = sp.eye_array(size)
    of_place = sp.csr_matrix((np.ones(cells), (places, np.arange(cells))))
    used, of_cell = np.unique(slices, return_inverse=True)
    of_slice = sp.csr_matrix((np.ones(cells), (of_cell, np.arange(cells))))
    program = LinearProgram()
    t = program.variables(size * cells, name="time", upper=np.tile(lengths[slices], size))
    program.constrain(
        sp.kron(whole, of_place) @ t == np.tile(np.bincount(places, amount) / size, size),
        name="members",
    )
    program.constrain(
        sp.kron(np.ones((1, size)), sp.eye_array(cells)) @ t == amount,
        name="cells",
    )
    if len(used) < cells:
        program.constrain(
            sp.kron(whole, of_slice) @ t <= np.tile(lengths[used], size),
            name="slices",
        )
    # Any vertex is good; a cost without ties finds one in few steps.
    program.minimise(np.arange(1, size * cells + 1)[None, :] * SCRAMBLE % 1.0 @ t)
    values = engine.run(engine.open(program.arrays))
    if values.termination is not Termination.OPTIMAL or values.x is None:
        return equal
    time = np.clip(values.x.reshape(size, cells), 0.0, None)
    time[time < 1e-12] = 0.0
    return time
