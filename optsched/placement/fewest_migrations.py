"""Make room for a gang by moving running jobs: the fewest migrations, and of these the cheapest.

Sets and parameters: the placement problem of `optsched.placement.problem` with the running jobs
that may move, each in the configuration in which it runs, and the new job in each of its
configurations c. A running job stays where it is if it cannot be preempted, is within its exempt
time, runs on a node that takes no work, shares its GPUs as one of a pair, or shares GPUs of a pool
with slices (MIG). r_j: seconds that a restart of job j takes.

Columns beside those of `optsched.placement.exact`: m[j], whether running job j migrates.

    1.  maximise  sum_c place[c]                        the new job has room, or provably none
    2.  minimise  sum_j m[j]      with  sum_c place[c] = 1
    3.  minimise  sum_j r_j m[j]  with the number of migrations of 2.
    s.t.  place[j] = 1;   sum_c place[c] <= 1
          sum over GPUs h that j holds of keep[j,h]  >=  g_j (1 - m[j])

A large program is restricted: the new job may only use the nodes that fewest jobs would have to
leave, and these jobs may only move to the nodes with most free GPUs. A plan of the restricted
program is a plan. The lower bound on the migrations of all plans does not need the program: it
counts the jobs that must leave the nodes of the gang (`optsched.placement.leavers`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray, mask_of, owners
from optsched.arrays.matrices import sum_by
from optsched.candidates import Classes, JobRows, Slices
from optsched.instance.restart import restart_costs
from optsched.instance.staying import Running, exempt_left
from optsched.placement.exact import PlacementProgram, size
from optsched.placement.leavers import (
    SLACK,
    Holdings,
    Leaving,
    cost_of_leaving,
    fewest_leavers,
)
from optsched.placement.occupied import Occupied, occupied_by
from optsched.placement.problem import Assignment, Nodes, Problem
from optsched.placement.requests import Requests
from optsched.solution.solution import Status
from optsched.solving.engine import Engine
from optsched.solving.outcome import Outcome

COLUMNS = 10_000
"""Columns of the placement (`optsched.placement.exact.size`) up to which the program is not
restricted."""
NEAREST, ROOMIEST = 8, 32
"""Nodes for the new job, and nodes that jobs may move to, in a restricted program; both are doubled
until a plan is found or the restricted program is too large."""
PROGRAM_WORK = 2_000
"""Nodes of branch and bound after which a program stops."""


class Migration(NamedTuple):
    """A running job that moves.

    Attributes
    ----------
    job : int
        Row of the job table.
    gpus, target : tuple of str
        GPUs that it holds, and GPUs that it gets, written ``node/index``.
    seconds : float
        Time that its restart takes.
    step : int
        Migrations are carried out step by step. Jobs of one step get each other's GPUs: they stop
        together.
    """

    job: int
    gpus: tuple[str, ...]
    target: tuple[str, ...]
    seconds: float
    step: int


@dataclass(frozen=True)
class RoomFound:
    """How room is made for a job, or that this is impossible.

    Attributes
    ----------
    possible : bool or None
        Whether the job can have room; None: neither a plan nor a proof was found.
    counted : bool
        Whether counting GPUs proved that it is impossible, without a solver.
    column : int
        Column of the classes in which the job runs; -1 without a plan.
    gpus : tuple of str
        GPUs that the job gets.
    migrations : tuple of Migration
    fewest : int
        No plan has fewer migrations.
    cheapest : float
        No plan with so few migrations has less restart time, seconds.
    after : Occupied or None
        The holders of GPUs after the migrations.
    """

    possible: bool | None
    counted: bool = False
    column: int = -1
    gpus: tuple[str, ...] = ()
    migrations: tuple[Migration, ...] = ()
    fewest: int = 0
    cheapest: float = 0.0
    after: Occupied | None = None


def fewest_migrations(
    classes: Classes,
    job: int,
    engine: Engine,
    constraints: Sequence[Mapping[str, Any]] = (),
) -> RoomFound:
    """The fewest and cheapest migrations that make room for a job.

    Parameters
    ----------
    classes : Classes
        Each job its own class.
    job : int
        Row of a job that does not run.
    engine : Engine
        Solves the programs within its time.
    constraints : sequence of mappings
        Side constraints; those of kind ``anti-affinity`` are read.

    Returns
    -------
    RoomFound
    """
    state = _State.of(classes, job, constraints)
    if np.isinf(state.fewest):
        return RoomFound(False, counted=True)
    fewest = int(state.fewest)
    part = _Part.whole(state)
    if part.size <= COLUMNS:
        return part.solve(engine, fewest)
    nearest, roomiest = NEAREST, ROOMIEST
    while True:
        part = _Part.around(state, nearest, roomiest)
        if part.size > COLUMNS and nearest > NEAREST:
            return RoomFound(None, fewest=fewest)
        found = part.solve(engine, fewest)
        # A restricted program cannot prove that there is no room.
        if found.possible or not engine.has_time_left(0.0):
            return found
        nearest, roomiest = 2 * nearest, 2 * roomiest


# --- running jobs, and those that may move --------------------------------------------------------


@dataclass(frozen=True)
class _State:
    """Running jobs, and the configurations of the new job.

    Attributes
    ----------
    classes : Classes
    job : int
        The new job.
    ways : IntArray
        Columns of the new job.
    movable, column : IntArray, shape (M,)
        Running jobs that may move, and the column in which each runs.
    fixed : Occupied
        All other running jobs.
    constraints : sequence of mappings
    """

    classes: Classes
    job: int
    ways: IntArray
    movable: IntArray
    column: IntArray
    fixed: Occupied
    constraints: Sequence[Mapping[str, Any]]

    @classmethod
    def of(cls, C: Classes, job: int, constraints: Sequence[Mapping[str, Any]]) -> _State:
        instance, table = C.instance, C.instance.jobs_table
        running = Running.of(instance)
        column = _running_columns(C, running)
        alone = np.ones(len(table), bool)
        alone[_sharing(C, column)] = False
        moves = running.runs & table.preemptible & (exempt_left(instance) == 0) & ~running.barred
        moves &= (column >= 0) & alone
        moves[moves] = ~_in_cut_pools(C)[column[moves]]
        stays = np.flatnonzero(running.runs & ~moves)
        unknown_option = np.full(len(table), -1, np.int64)
        with_gpus = C.alone & (C.pool >= 0) & (C.gpus > 0)
        ways = np.flatnonzero(with_gpus & (C.first[C.class_a] == job))
        movable = np.flatnonzero(moves)
        fixed = occupied_by(instance, stays, unknown_option)
        return cls(C, job, ways.astype(np.int64), movable, column[movable], fixed, constraints)

    @cached_property
    def seconds(self) -> FloatArray:
        """Restart time r_j of the movable jobs, shape (M,)."""
        C = self.classes
        return restart_costs(C.instance, self.movable, C.pool[self.column], C.gpus[self.column])

    def held(self, chosen: IntArray) -> list[tuple[str, ...]]:
        """GPUs of some movable jobs."""
        running = self.classes.instance.jobs_table.running
        return [running[job][1] for job in self.movable[chosen].tolist()]

    def rows(self, chosen: IntArray) -> JobRows:
        """Rows of some movable jobs, then one row of the new job for each of its columns."""
        job = np.append(self.movable[chosen], np.full(len(self.ways), self.job))
        column = np.append(self.column[chosen], self.ways)
        nothing = np.zeros(len(job))
        return JobRows(job, np.full(len(job), -1, np.int64), column, nothing, nothing, nothing)

    def beside(self, others: IntArray) -> Occupied:
        """The fixed jobs, and some movable jobs on the GPUs that they hold."""
        rows = self.rows(others)
        chosen = np.arange(len(others), dtype=np.int64)
        moving = Occupied.of_rows(self.classes, rows, chosen, self.held(others))
        return self.fixed.and_also(moving)

    def after(
        self, migrations: Sequence[Migration], column: int, gpus: tuple[str, ...]
    ) -> Occupied:
        """The holders of GPUs after the migrations, the new job among them; raises ValueError where
        the shares of a GPU add up to more than 1.
        """
        movers = np.arange(len(self.movable), dtype=np.int64)
        target = {migration.job: migration.target for migration in migrations}
        held = zip(self.movable.tolist(), self.held(movers), strict=True)
        places = [target.get(job, before) for job, before in held]
        rows = self.rows(movers)
        entered = len(movers) + int(np.flatnonzero(self.ways == column)[0])
        chosen = np.append(movers, entered)
        return self.fixed.and_also(Occupied.of_rows(self.classes, rows, chosen, [*places, gpus]))

    # --- counting ---------------------------------------------------------------------------------

    @cached_property
    def everything(self) -> Occupied:
        """GPUs that all running jobs occupy, those that may migrate too."""
        return self.beside(np.arange(len(self.movable), dtype=np.int64))

    @cached_property
    def nodes(self) -> Nodes:
        """The usable nodes of the pools that the new job may use."""
        return Nodes.of(self.classes.instance, np.unique(self.classes.pool[self.ways]).tolist())

    @cached_property
    def free(self) -> FloatArray:
        """Free GPUs of each of these nodes."""
        return np.asarray(self.nodes.beside(self.everything).room.sum(axis=1))

    @cached_property
    def cleared(self) -> FloatArray:
        """GPUs of each of these nodes that would be free without the movable jobs."""
        return np.asarray(self.nodes.beside(self.fixed).room.sum(axis=1))

    @cached_property
    def holdings(self) -> Holdings:
        """GPUs of the movable jobs (by their place in ``movable``), by node of the cluster."""
        occupied, count = self.everything, self.classes.instance.cluster.numbering.nodes
        moves = np.isin(occupied.job[occupied.owner], self.movable)
        owner = np.searchsorted(self.movable, occupied.job[occupied.owner[moves]])
        key, entry = np.unique(owner * count + occupied.node[moves], return_inverse=True)
        share = occupied.share[moves]
        amount = np.asarray(np.bincount(entry, share, len(key)), np.float64)
        job, node = (part.astype(np.int64) for part in np.divmod(key, max(count, 1)))
        order = np.lexsort((job, -amount, node))
        return Holdings(job[order], node[order], amount[order], self.seconds[job[order]])

    def leaving(self, chosen: IntArray, amounts: Sequence[float | FloatArray] | None) -> Leaving:
        """The cost of making room on some of the nodes (`cost_of_leaving`)."""
        held = self.holdings
        number = np.full(self.classes.instance.cluster.numbering.nodes, -1, np.int64)
        number[self.nodes.number[chosen]] = np.arange(len(chosen))
        node = number[held.node]
        inside = node >= 0
        held = Holdings(held.job[inside], node[inside], held.amount[inside], held.seconds[inside])
        return cost_of_leaving(held, self.free[chosen], self.cleared[chosen], amounts)

    @cached_property
    def hardest(self) -> tuple[FloatArray, FloatArray]:
        """Fewest jobs that must leave each node before it has room for its part of the new job, and
        the seconds that their restarts take at least; inf where it never has.
        """
        C = self.classes
        span = np.maximum(C.configurations.nodes[C.configuration[self.ways]], 1)
        share = C.configurations.share[C.configuration[self.ways]]
        # One of the nodes of a gang has at least the mean number of its GPUs.
        part = np.full(len(C.instance.cluster.pools), np.inf)
        np.minimum.at(part, C.pool[self.ways], np.ceil(C.gpus[self.ways] / span) * share)
        cost = self.leaving(np.arange(len(self.nodes)), [part[self.nodes.pool]])
        return cost.jobs[:, 0], cost.seconds[:, 0]

    def cheapest(self, migrations: int) -> float:
        """Lower bound on the restart times of all plans with this number of migrations, seconds."""
        known = float(np.sort(self.seconds)[:migrations].sum())
        return max(known, self._counted[1]) if migrations == self.fewest else known

    @property
    def fewest(self) -> float:
        """Lower bound on the migrations of all plans; inf if moving all movable jobs is not
        enough.
        """
        return self._counted[0]

    @cached_property
    def _counted(self) -> tuple[float, float]:
        """Lower bounds on the migrations, and on the seconds of restarts of that many
        migrations.
        """
        return min((self._counted_of(way) for way in self.ways.tolist()), default=(np.inf, 0.0))

    def _counted_of(self, way: int) -> tuple[float, float]:
        """The same if the new job runs in one of its columns."""
        C = self.classes
        in_pool = np.flatnonzero(self.nodes.pool == C.pool[way])
        span = max(int(C.configurations.nodes[C.configuration[way]]), 1)
        gpus, share = int(C.gpus[way]), float(C.configurations.share[C.configuration[way]])

        def have_room(free: FloatArray) -> bool:
            return bool(np.sort(free[in_pool])[::-1][:span].sum() >= gpus * share - SLACK)

        if not have_room(self.cleared):
            return np.inf, 0.0
        if share == 1.0:
            return fewest_leavers(self.leaving(in_pool, None), gpus, span)
        if span == 1:
            return float(self.leaving(in_pool, [gpus * share]).jobs.min(initial=np.inf)), 0.0
        # Shares on several nodes: only whether any job must leave is counted.
        return float(not have_room(self.free)), 0.0


def _running_columns(C: Classes, running: Running) -> IntArray:
    """The column in which each job runs, with the smallest span that is enough; -1 for none.
    Shape (jobs,).
    """
    job = C.first[C.class_a]
    span = np.maximum(C.configurations.nodes[C.configuration], 1)
    fits = C.alone & (C.pool >= 0) & (C.pool == running.pool[job]) & (C.gpus == running.gpus[job])
    wide_enough = np.flatnonzero(fits & (span >= running.nodes[job]))
    found = np.full(len(running.pool), -1, np.int64)
    # The last column that is written, the one with the smallest span, wins.
    order = wide_enough[np.lexsort((wide_enough, span[wide_enough]))[::-1]]
    found[job[order]] = order
    return found


def _in_cut_pools(C: Classes) -> BoolArray:
    """Mask of the columns that are slices, or share GPUs of a pool in which some column is a
    slice.
    """
    share = C.configurations.share[C.configuration]
    found: BoolArray = np.isin(C.pool, list(Slices.of(C).layouts)) & (share < 1.0)
    return found


def _sharing(C: Classes, column: IntArray) -> IntArray:
    """Running jobs that share whole GPUs with another job, as pairs do, and all jobs on these
    GPUs.
    """
    places, numbering = C.instance.jobs_table.places, C.instance.cluster.numbering
    gpu, owner = places.numbers(numbering), owners(places.length)
    holders = np.bincount(gpu, minlength=numbering.gpus)
    job = places.job[owner[holders[gpu] > 1]]
    whole = np.ones(len(column), bool)
    known = column >= 0
    whole[known] = C.configurations.share[C.configuration[column[known]]] == 1.0
    shared = np.unique(gpu[(holders[gpu] > 1) & whole[places.job[owner]]])
    return np.unique(np.append(job[whole[job]], places.job[owner[np.isin(gpu, shared)]]))


# --- the program ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Part:
    """The program in which some of the movable jobs may move, and all other jobs stay.

    Attributes
    ----------
    state : _State
    some : IntArray
        The jobs that may move, by their place in ``state.movable``.
    complete : bool
        Whether these are all movable jobs, and no node is barred.
    problem : Problem
    """

    state: _State
    some: IntArray
    complete: bool
    problem: Problem

    @classmethod
    def whole(cls, state: _State) -> _Part:
        return cls._of(state, np.arange(len(state.movable), dtype=np.int64), None, None)

    @classmethod
    def around(cls, state: _State, nearest: int, roomiest: int) -> _Part:
        """The new job may use the nodes that the fewest jobs must leave; these jobs may move to the
        nodes with most free GPUs.
        """
        number, free, held = state.nodes.number, state.free, state.holdings
        most_free = np.argsort(-free, kind="stable")
        order = most_free
        if state.fewest:
            jobs, seconds = state.hardest
            order = np.lexsort((np.arange(len(number)), -free, seconds, jobs))
        close = number[order[:nearest]]
        movers = np.unique(held.job[np.isin(held.node, close)])
        present = held.node[np.isin(held.job, movers)]
        reach = np.concatenate([close, number[most_free[:roomiest]], present])
        return cls._of(state, movers, close, np.unique(reach))

    @classmethod
    def _of(
        cls, state: _State, movers: IntArray, close: IntArray | None, reach: IntArray | None
    ) -> _Part:
        C = state.classes
        others = np.setdiff1d(np.arange(len(state.movable)), movers)
        rows = state.rows(movers)
        numbering = C.instance.cluster.numbering
        barred = None
        if close is not None and reach is not None:
            names = [numbering.node_name(node) for node in range(numbering.nodes)]
            far, beyond = (
                frozenset(np.array(names, object)[~mask_of(open_, numbering.nodes)].tolist())
                for open_ in (close, reach)
            )
            barred = [beyond] * len(movers) + [far] * len(state.ways)
        requests = Requests.of(C, rows, np.arange(len(rows.job)), state.constraints, barred)
        problem = Problem.of(requests, state.beside(others))
        return cls(state, movers, close is None, problem)

    @property
    def size(self) -> int:
        """Columns of the placement."""
        return size(self.problem)

    def solve(self, engine: Engine, fewest: int) -> RoomFound:
        """Solve the three programs, each with the optima of those before it fixed."""
        movers = len(self.some)
        built = PlacementProgram(self.problem, bandwidth=False)
        program = built.program
        migrates = program.variables(movers, name="migrates", upper=1.0, integer=True)
        self._constrain(built, migrates)
        enters = self._newcomer() @ built.place
        program.maximise(enters.sum())
        first = engine.solve_linear(program)
        if first.x is None or first.value is None or first.value < 0.5:
            shown = self.complete and first.x is not None and _proven(first)
            return RoomFound(False if shown else None, fewest=fewest)
        program.constrain(enters.sum() >= 1.0, name="enters")
        program.minimise(migrates.sum())
        second = engine.solve_linear(program, point=first.x)
        best = first if second.x is None else second
        assert best.x is not None
        if second.bound is not None and self.complete:
            fewest = max(fewest, int(np.ceil(second.bound - 1e-6)))
        count = len(self._moved(built.read(best.x)))
        cost = self.state.seconds[self.some]
        cheapest = self.state.cheapest(count)
        if count and cost.any():
            program.constrain(migrates.sum() <= float(count), name="fewest")
            program.minimise(cost[None, :] @ migrates)
            third = engine.solve_linear(program, point=best.x)
            best = best if third.x is None else third
            if third.bound is not None and self.complete:
                cheapest = max(cheapest, third.bound)
        assert best.x is not None
        return self._read(built.read(best.x), fewest, cheapest)

    def _newcomer(self) -> FloatArray:
        """Matrix that selects the requests of the new job, shape (ways, requests)."""
        movers, ways = len(self.some), len(self.state.ways)
        return np.eye(movers + ways)[movers:]

    def _constrain(self, built: PlacementProgram, migrates: object) -> None:
        R, movers, program = self.problem.requests, len(self.some), built.program
        if movers:
            running = np.eye(len(R))[:movers]
            program.constrain(running @ built.place >= np.ones(movers), name="runs on")
        program.constrain((self._newcomer() @ built.place).sum() <= 1.0, name="one way")
        if not movers:
            return
        kept = None
        if len(built.keep_j):
            kept = sum_by(built.keep_j, 1.0, len(R))[:movers] @ built.keep
        if len(built.part_pair):
            request, gpu = built.j[built.part_pair], built.part_gpu
            kept_part = np.zeros(len(gpu))
            for row, held in enumerate(self.problem.held[:movers]):
                numbers = [int(built.start[node]) + index for node, index in held.gpus.tolist()]
                kept_part[(request == row) & np.isin(gpu, numbers)] = 1.0
            parts = sum_by(request, kept_part, len(R))[:movers] @ built.part
            kept = parts if kept is None else kept + parts
        assert kept is not None, "every movable job holds GPUs of usable nodes"
        gpus = R.gpus[:movers].astype(np.float64)
        program.constrain(kept + migrates * gpus >= gpus, name="stays")  # type: ignore[operator]

    def _moved(self, assignment: Assignment) -> dict[int, tuple[tuple[str, ...], tuple[str, ...]]]:
        """GPUs before and after of each request of a job that moves."""
        names = self.problem.gpu_names(assignment)
        held = self.state.held(self.some)
        return {
            row: (before, names[row])
            for row, before in enumerate(held)
            if set(before) != set(names[row])
        }

    def _read(self, assignment: Assignment, fewest: int, cheapest: float) -> RoomFound:
        moved = self._moved(assignment)
        step = _steps({row: (set(before), set(after)) for row, (before, after) in moved.items()})
        migrations = [
            Migration(
                int(self.state.movable[self.some[row]]),
                before,
                after,
                float(self.state.seconds[self.some[row]]),
                step[row],
            )
            for row, (before, after) in moved.items()
        ]
        (entered,) = (row for row in assignment if row >= len(self.some))
        column = int(self.state.ways[entered - len(self.some)])
        gpus = self.problem.gpu_names(assignment)[entered]
        return RoomFound(
            True,
            column=column,
            gpus=gpus,
            after=self.state.after(migrations, column, gpus),
            migrations=tuple(sorted(migrations, key=lambda move: (move.step, move.job))),
            fewest=min(fewest, len(migrations)),
            cheapest=min(cheapest, sum(move.seconds for move in migrations)),
        )


def _proven(outcome: Outcome) -> bool:
    return outcome.status is Status.OPTIMAL and outcome.certificate.ok


def _steps(moves: dict[int, tuple[set[str], set[str]]]) -> dict[int, int]:
    """The step of each migration: a job moves once no job that has yet to move holds its new GPUs.

    Jobs that wait for each other move together.
    """
    left, step, now = dict(moves), dict[int, int](), 1
    while left:
        ready = [
            row
            for row, (_, after) in left.items()
            if not any(after & before for other, (before, _) in left.items() if other != row)
        ]
        for row in ready or list(left):
            step[row] = now
            del left[row]
        now += 1
    return step
