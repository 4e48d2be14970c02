"""Room for a gang by moving running jobs: the fewest migrations, and of these the cheapest.

Sets and parameters: the placement problem of `optsched.placement.problem` with the running jobs that
may move, each in the configuration in which it runs, and the newcomer in each of its configurations
c. A running job that cannot be preempted, is exempt for now, runs on a node that takes no work, or
shares its GPUs with another stays where it is,
and so does one that shares GPUs of a pool with slices (MIG). r_j: seconds that it costs to start j again.

Columns beside those of `optsched.placement.exact`: m[j], whether running job j migrates.

    1.  maximise  sum_c place[c]                        the newcomer has room, or it is shown to have none
    2.  minimise  sum_j m[j]      with  sum_c place[c] = 1
    3.  minimise  sum_j r_j m[j]  with the number of migrations of 2.
    s.t.  place[j] = 1;   sum_c place[c] <= 1
          sum over GPUs h that j holds of keep[j,h]  >=  g_j (1 - m[j])

Where this program is large it is solved for a part: the newcomer may have the nodes from which the
fewest jobs would have to go, and the jobs there may go to the nodes that have most room. A plan of
the part is a plan. That no plan has fewer migrations follows from a count:

    a node with f free GPUs gives u of them only if the k jobs that hold most of it go, with
    f + (what they hold of it) >= u

and over the nodes of a gang (`optsched.placement.leavers`).
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
from optsched.placement.leavers import SLACK, Holdings, cost_of_leaving, fewest_leavers
from optsched.placement.occupied import Occupied, occupied_by
from optsched.placement.problem import Assignment, Nodes, Problem
from optsched.placement.requests import Requests
from optsched.solution.solution import Status
from optsched.solving.engine import Engine
from optsched.solving.outcome import Outcome

COLUMNS = 10_000
"""Columns of the placement (`optsched.placement.exact.size`) up to which the whole program is solved."""
NEAREST, ROOMIEST = 8, 32
"""Nodes for the newcomer, and nodes that jobs may go to, in the part of a large program; both are
doubled while no plan is found and the part is small enough."""
PROGRAM_WORK = 2_000
"""Nodes of branch and bound after which a program stops."""


class Migration(NamedTuple):
    """A running job that moves.

    Attributes
    ----------
    job : int
        Row of the job table.
    gpus, target : tuple of str
        What it holds and what it gets, written ``node/index``.
    seconds : float
        What starting it again costs.
    step : int
        Migrations go one after the other; those of one step take each other's GPUs, and stop together.
    """

    job: int
    gpus: tuple[str, ...]
    target: tuple[str, ...]
    seconds: float
    step: int


@dataclass(frozen=True)
class RoomFound:
    """How room is made for a job, or that none can be made.

    Attributes
    ----------
    possible : bool or None
        Whether it can have room; None: neither a plan nor a proof was found.
    counted : bool
        Whether that it cannot was shown by counting GPUs, without a solver.
    column : int
        Column of the classes in which it runs; -1 without a plan.
    gpus : tuple of str
        What it gets.
    migrations : tuple of Migration
    fewest : int
        No plan has fewer migrations.
    cheapest : float
        No plan with so few migrations costs fewer seconds of restarts.
    after : Occupied or None
        Who holds which GPUs then.
    """

    possible: bool | None
    counted: bool = False
    column: int = -1
    gpus: tuple[str, ...] = ()
    migrations: tuple[Migration, ...] = ()
    fewest: int = 0
    cheapest: float = 0.0
    after: Occupied | None = None


def make_room(
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
    fewest = state.fewest
    if fewest is None:
        return RoomFound(False, counted=True)
    part = _Part.whole(state)
    if part.size <= COLUMNS:
        return part.solve(engine, fewest)
    nearest, roomiest = NEAREST, ROOMIEST
    while True:
        part = _Part.around(state, nearest, roomiest)
        if part.size > COLUMNS and nearest > NEAREST:
            return RoomFound(None, fewest=fewest)
        found = part.solve(engine, fewest)
        # Only the whole program can show that there is no room
        if found.possible or not engine.has_time_left(0.0):
            return found
        nearest, roomiest = 2 * nearest, 2 * roomiest


# --- what runs, and what may move -----------------------------------------------------------------


@dataclass(frozen=True)
class _State:
    """Running jobs, and the ways in which the newcomer may run.

    Attributes
    ----------
    classes : Classes
    job : int
    ways : IntArray
        Columns of the newcomer.
    movable, column : IntArray, shape (M,)
        Running jobs that may move, and the column in which each runs.
    fixed : Occupied
        All others.
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
        option = np.full(len(stays), -1, np.int64)
        with_gpus = C.alone & (C.pool >= 0) & (C.gpus > 0)
        ways = np.flatnonzero(with_gpus & (C.first[C.class_a] == job))
        movable = np.flatnonzero(moves)
        fixed = occupied_by(instance, stays, option)
        return cls(C, job, ways.astype(np.int64), movable, column[movable], fixed, constraints)

    @cached_property
    def seconds(self) -> FloatArray:
        """r_j of the movable jobs, shape (M,)."""
        C = self.classes
        return restart_costs(C.instance, self.movable, C.pool[self.column], C.gpus[self.column])

    def held(self, some: IntArray) -> list[tuple[str, ...]]:
        """GPUs of some movable jobs."""
        running = self.classes.instance.jobs_table.running
        return [running[job][1] for job in self.movable[some].tolist()]

    def rows(self, some: IntArray) -> JobRows:
        """Rows of some movable jobs, then of the newcomer in each of its ways."""
        job = np.append(self.movable[some], np.full(len(self.ways), self.job))
        column = np.append(self.column[some], self.ways)
        nothing = np.zeros(len(job))
        return JobRows(job, np.full(len(job), -1, np.int64), column, nothing, nothing, nothing)

    def beside(self, others: IntArray) -> Occupied:
        """The fixed jobs, and some movable ones that stay too."""
        rows = self.rows(others)
        chosen = np.arange(len(others), dtype=np.int64)
        moving = Occupied.of_rows(self.classes, rows, chosen, self.held(others))
        return self.fixed.and_also(moving)

    def after(
        self, migrations: Sequence[Migration], column: int, gpus: tuple[str, ...]
    ) -> Occupied:
        """Who holds which GPUs after the migrations, and the newcomer; raises ValueError where one
        GPU is held by more than it can be.
        """
        everybody = np.arange(len(self.movable), dtype=np.int64)
        target = {one.job: one.target for one in migrations}
        held = zip(self.movable.tolist(), self.held(everybody), strict=True)
        places = [target.get(job, before) for job, before in held]
        rows = self.rows(everybody)
        entered = len(everybody) + int(np.flatnonzero(self.ways == column)[0])
        chosen = np.append(everybody, entered)
        return self.fixed.and_also(Occupied.of_rows(self.classes, rows, chosen, [*places, gpus]))

    # --- counting ---------------------------------------------------------------------------------

    @cached_property
    def _holdings(self) -> tuple[IntArray, IntArray, FloatArray]:
        """(movable job, node of the cluster, GPUs there), those of a node together, largest first."""
        numbering = self.classes.instance.cluster.numbering
        occupied = self.beside(np.arange(len(self.movable), dtype=np.int64))
        share = occupied.share[occupied.owner]
        mine = np.isin(occupied.job[occupied.owner], self.movable)
        owner = np.searchsorted(self.movable, occupied.job[occupied.owner[mine]])
        key, at = np.unique(owner * numbering.nodes + occupied.node[mine], return_inverse=True)
        amount = np.bincount(at, share[mine], len(key))
        who, node = (part.astype(np.int64) for part in np.divmod(key, max(numbering.nodes, 1)))
        held: FloatArray = np.asarray(amount, np.float64)
        order = np.lexsort((who, -held, node))
        return who[order], node[order], held[order]

    @cached_property
    def leavers(self) -> tuple[Nodes, FloatArray, FloatArray, FloatArray]:
        """Usable nodes; free GPUs of each beside all jobs; the same without the movable ones; and how
        many jobs must go, at least, before it has room for the newcomer's GPUs on one node (inf: not even then).
        """
        C = self.classes
        pools = np.unique(C.pool[self.ways]).tolist()
        nodes = Nodes.of(C.instance, pools)
        free = nodes.beside(self.beside(np.arange(len(self.movable), dtype=np.int64))).room
        cleared = nodes.beside(self.fixed).room.sum(axis=1)
        now = free.sum(axis=1)
        local = nodes.local()
        _, node, amount = self._holdings
        here = np.flatnonzero(local[node] >= 0)
        at, amount = local[node[here]], amount[here]
        needed = np.full(len(nodes), np.inf)
        # What the k jobs that hold most of a node give, for k = 0, 1, ...
        given = np.cumsum(amount)
        first = np.searchsorted(at, np.arange(len(nodes)))
        before = np.concatenate([[0.0], given])[first]
        for way in self.ways.tolist():
            # A gang on several nodes has at least its part on one of them
            span = max(int(C.configurations.nodes[C.configuration[way]]), 1)
            share = float(C.configurations.share[C.configuration[way]])
            wants = np.ceil(int(C.gpus[way]) / span) * share - 1e-9
            mine = nodes.pool == C.pool[way]
            enough = now >= wants
            reached = now[at] + given - before[at] >= wants
            jobs = np.arange(len(at)) - first[at] + 1.0
            least = np.full(len(nodes), np.inf)
            np.minimum.at(least, at[reached], jobs[reached])
            needed = np.where(mine, np.minimum(needed, np.where(enough, 0.0, least)), needed)
        return nodes, now, cleared, needed

    @cached_property
    def restarts(self) -> FloatArray:
        """Seconds that the restarts of the fewest jobs cost at least which must leave each node; inf
        for nodes that have no room even then. Shape (nodes,).
        """
        C = self.classes
        nodes, now, _, needed = self.leavers
        who, node, amount = self._holdings
        local = nodes.local()[node]
        here = np.flatnonzero(local >= 0)
        at, amount, cost = local[here], amount[here], self.seconds[who[here]]
        wants = np.full(len(C.instance.cluster.pools), np.inf)
        span = np.maximum(C.configurations.nodes[C.configuration[self.ways]], 1)
        share = C.configurations.share[C.configuration[self.ways]]
        np.minimum.at(wants, C.pool[self.ways], np.ceil(C.gpus[self.ways] / span) * share)
        # One job alone must be large enough; of several only the number is used
        enough = (needed[at] > 1) | (amount >= (wants[nodes.pool] - now - 1e-9)[at])
        order = np.lexsort((cost, at))[enough[np.lexsort((cost, at))]]
        total = np.cumsum(cost[order])
        first = np.searchsorted(at[order], np.arange(len(nodes)))
        last = first + np.where(np.isfinite(needed), needed, 0.0).astype(np.int64)
        sums = np.concatenate([[0.0], total])
        least: FloatArray = sums[np.minimum(last, len(total))] - sums[first]
        return np.where(np.isfinite(needed), least, np.inf)

    def cheapest(self, migrations: int) -> float:
        """Seconds of restarts that every plan of so many migrations costs at least."""
        known = float(np.sort(self.seconds)[:migrations].sum())
        return max(known, self._counted[1]) if migrations == self.fewest else known

    @property
    def fewest(self) -> int | None:
        """Migrations that every plan needs at least; None: all jobs that may move, gone, are too few."""
        jobs = self._counted[0]
        return None if np.isinf(jobs) else int(jobs)

    @cached_property
    def _counted(self) -> tuple[float, float]:
        """Fewest migrations, and the seconds of restarts that so few cost at least."""
        return min((self._counted_of(way) for way in self.ways.tolist()), default=(np.inf, 0.0))

    def _counted_of(self, way: int) -> tuple[float, float]:
        """The same where the newcomer runs in one of its ways."""
        C = self.classes
        nodes, now, cleared, needed = self.leavers
        mine = np.flatnonzero(nodes.pool == C.pool[way])
        span = max(int(C.configurations.nodes[C.configuration[way]]), 1)
        share = float(C.configurations.share[C.configuration[way]])
        wants = float(C.gpus[way] * share) - SLACK
        if np.sort(cleared[mine])[::-1][:span].sum() < wants:
            return np.inf, 0.0
        if share < 1.0:
            # On several nodes the sums alone say whether anybody must go
            some = float(np.sort(now[mine])[::-1][:span].sum() < wants)
            return (some if span > 1 else float(needed[mine].min(initial=np.inf))), 0.0
        who, node, amount = self._holdings
        place = np.full(len(nodes), -1, np.int64)
        place[mine] = np.arange(len(mine))
        local = nodes.local()[node]
        local = np.where(local >= 0, place[local], -1)
        here = np.flatnonzero(local >= 0)
        held = Holdings(who[here], local[here], amount[here], self.seconds[who[here]])
        cost = cost_of_leaving(held, now[mine], cleared[mine])
        return fewest_leavers(cost, int(C.gpus[way]), span)


def _running_columns(C: Classes, running: Running) -> IntArray:
    """The column in which each job runs, on the fewest nodes that are enough; -1: none. Shape (jobs,)."""
    job = C.first[C.class_a]
    span = np.maximum(C.configurations.nodes[C.configuration], 1)
    fits = C.alone & (C.pool >= 0) & (C.pool == running.pool[job]) & (C.gpus == running.gpus[job])
    some = np.flatnonzero(fits & (span >= running.nodes[job]))
    found = np.full(len(running.pool), -1, np.int64)
    # Most nodes first: the last that is written, of the fewest, stays
    order = some[np.lexsort((some, span[some]))[::-1]]
    found[job[order]] = order
    return found


def _in_cut_pools(C: Classes) -> BoolArray:
    """Columns that are slices, or share GPUs of a pool in which some column is a slice."""
    share = C.configurations.share[C.configuration]
    found: BoolArray = np.isin(C.pool, list(Slices.of(C).layouts)) & (share < 1.0)
    return found


def _sharing(C: Classes, column: IntArray) -> IntArray:
    """Running jobs whose whole GPUs somebody else holds too: the other job of a pair."""
    places, numbering = C.instance.jobs_table.places, C.instance.cluster.numbering
    everybody = np.arange(len(places.job), dtype=np.int64)
    gpu, owner = places.numbers_of(everybody, numbering), owners(places.length)
    holders = np.bincount(gpu, minlength=numbering.gpus)
    job = places.job[owner[holders[gpu] > 1]]
    whole = np.ones(len(column), bool)
    known = column >= 0
    whole[known] = C.configurations.share[C.configuration[column[known]]] == 1.0
    # Whoever shares a GPU with such a job stays too
    odd = np.unique(gpu[(holders[gpu] > 1) & whole[places.job[owner]]])
    return np.unique(np.append(job[whole[job]], places.job[owner[np.isin(gpu, odd)]]))


# --- the program ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Part:
    """The program of some movable jobs; all others stay.

    Attributes
    ----------
    state : _State
    some : IntArray
        The movable jobs that may go, by their place among them.
    complete : bool
        Whether these are all, and every node is open.
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
        """The newcomer on the nodes from which the fewest must go; these jobs to the roomiest nodes."""
        nodes, now, _, needed = state.leavers
        order = np.argsort(-now, kind="stable")  # where nobody has to go
        if state.fewest:
            order = np.lexsort((np.arange(len(nodes)), -now, state.restarts, needed))
        close = nodes.number[order[:nearest]]
        who, node, _ = state._holdings  # noqa: SLF001
        some = np.unique(who[np.isin(node, close)])
        roomy = nodes.number[np.argsort(-now, kind="stable")[:roomiest]]
        own = node[np.isin(who, some)]
        return cls._of(state, some, close, np.unique(np.concatenate([close, roomy, own])))

    @classmethod
    def _of(
        cls, state: _State, some: IntArray, close: IntArray | None, reach: IntArray | None
    ) -> _Part:
        C = state.classes
        others = np.setdiff1d(np.arange(len(state.movable)), some)
        rows = state.rows(some)
        numbering = C.instance.cluster.numbering
        barred = None
        if close is not None and reach is not None:
            names = [numbering.node_name(node) for node in range(numbering.nodes)]
            far, beyond = (
                frozenset(np.array(names, object)[~mask_of(open_, numbering.nodes)].tolist())
                for open_ in (close, reach)
            )
            barred = [beyond] * len(some) + [far] * len(state.ways)
        requests = Requests.of(C, rows, np.arange(len(rows.job)), state.constraints, barred)
        pools = np.unique(requests.pool).tolist()
        problem = Problem.of(requests, pools, state.beside(others))
        return cls(state, some, close is None, problem)

    @property
    def size(self) -> int:
        """Columns of the placement."""
        return size(self.problem)

    def solve(self, engine: Engine, fewest: int) -> RoomFound:
        """Solve the three programs, each with what came before it fixed."""
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
        count = self._migrating(built, best.x)
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
        """Matrix that chooses the requests of the newcomer, shape (ways, requests)."""
        movers, ways = len(self.some), len(self.state.ways)
        return np.eye(movers + ways)[movers:]

    def _constrain(self, built: PlacementProgram, migrates: object) -> None:
        R, movers, program = self.problem.requests, len(self.some), built.program
        everybody = np.eye(len(R))[:movers]
        if movers:
            program.constrain(everybody @ built.place >= np.ones(movers), name="runs on")
        program.constrain((self._newcomer() @ built.place).sum() <= 1.0, name="one way")
        if not movers:
            return
        kept = None
        if len(built.keep_j):
            kept = sum_by(built.keep_j, 1.0, len(R))[:movers] @ built.keep
        if len(built.part_pair):
            request, gpu = built.j[built.part_pair], built.part_gpu
            mine = np.zeros(len(gpu))
            for row, held in enumerate(self.problem.held[:movers]):
                numbers = [int(built.start[node]) + index for node, index in held.gpus.tolist()]
                mine[(request == row) & np.isin(gpu, numbers)] = 1.0
            parts = sum_by(request, mine, len(R))[:movers] @ built.part
            kept = parts if kept is None else kept + parts
        assert kept is not None, "every movable job holds GPUs of usable nodes"
        gpus = R.gpus[:movers].astype(np.float64)
        program.constrain(kept + migrates * gpus >= gpus, name="stays")  # type: ignore[operator]

    def _migrating(self, built: PlacementProgram, x: FloatArray) -> int:
        return len(self._moved(built.read(x)))

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
            migrations=tuple(sorted(migrations, key=lambda one: (one.step, one.job))),
            fewest=min(fewest, len(migrations)),
            cheapest=min(cheapest, sum(one.seconds for one in migrations)),
        )


def _proven(outcome: Outcome) -> bool:
    return outcome.status is Status.OPTIMAL and outcome.certificate.ok


def _steps(moves: dict[int, tuple[set[str], set[str]]]) -> dict[int, int]:
    """The order of migrations: a job goes when nobody that is still to go holds what it gets.

    Jobs that wait for each other go together.
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
