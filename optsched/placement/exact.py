"""The exact placement: an integer program that is solved once for each part of the objective."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from optsched.arrays import FloatArray, IntArray, ranges
from optsched.arrays.matrices import rows_of, sum_by
from optsched.placement.identities import with_identities
from optsched.placement.problem import ROUNDING, Assignment, Bounds, Problem, Worth
from optsched.program import LinearProgram
from optsched.program.linear import Expression
from optsched.solution.solution import Status
from optsched.solving.engine import Engine


class PlacementProgram:
    """Integer program of a placement problem; `optsched.placement.problem` states the rules and the objective.

    Columns, for request j, node n of its pool that could give it a GPU, and GPU h:

        place[j]    whether it is placed
        used[j,n]   whether it spans the node
        whole[j,n]  GPUs on the node, where it may span several; else its GPUs on the node are g_j used[j,n]
        part[j,h]   of a request that shares: whether it is on the GPU
        open[h]     whether the GPU is for those that share
        keep[j,h]   whether a request of whole GPUs keeps a GPU that it holds
        level[j,b]  whether its nodes are joined at bandwidth b;  touch[j,b,c]  whether it is in group c of that level

    Rows, with a[j,n] its GPUs on the node:

        sum_n a[j,n] == g_j place[j];   a[j,n] <= most[j,n] used[j,n];   sum_n used[j,n] <= k_j place[j]
        sum over whole j of a[j,n] + sum over free h on n of open[h] <= G_n;   sum_j s_j part[j,h] <= room_h open[h]
        sum_j d_jr a[j,n] <= cap_nr;   of resources of some nodes: sum_jn d_jr a[j,n] <= cap_r
        sum over j of a set of used[j,n] <= 1
        sum_j keep[j,h] + open[h] <= 1;   sum over h on n of keep[j,h] <= a[j,n]
        used[j,n] <= touch[j,b,c(n)];   sum_c touch[j,b,c] <= 1 + (k_j - 1)(1 - level[j,b])

    G_n counts the free GPUs of a node, on which nothing stands; room_h is what is left of a GPU, 1 if it is free.
    A request's bottleneck is the sum over levels of (b - next lower b) level[j,b].
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        R, N = problem.requests, problem.nodes
        most = np.zeros((len(R), len(N)), np.int64)
        for j in np.flatnonzero(problem.fewest > 0).tolist():
            most[j, problem.of_pool(j)] = np.minimum(problem.at_most(j), R.gpus[j])
        single = (R.span == 1) | (R.gpus == 1)
        most[single] = np.where(most[single] >= R.gpus[single, None], R.gpus[single, None], 0)
        self.j, self.n = np.nonzero(most)
        self.most = most[self.j, self.n]
        shares = R.share < 1.0
        pair_shares = shares[self.j]
        self.gpu_node = np.repeat(np.arange(len(N), dtype=np.int64), N.gpus)
        self.gpu_index = ranges(np.zeros(len(N), np.int64), N.gpus)
        self.start = np.cumsum(N.gpus) - N.gpus
        pairs = np.flatnonzero(pair_shares)
        self.part_pair = np.repeat(pairs, N.gpus[self.n[pairs]])
        self.part_gpu = ranges(self.start[self.n[pairs]], N.gpus[self.n[pairs]])
        self.room = N.room[self.gpu_node, self.gpu_index]
        roomy = self.room[self.part_gpu] >= R.share[self.j[self.part_pair]] - ROUNDING
        self.part_pair, self.part_gpu = self.part_pair[roomy], self.part_gpu[roomy]
        self.open_gpu = np.unique(self.part_gpu)
        self.several = np.flatnonzero(~single[self.j] & ~pair_shares)
        self.alone = np.flatnonzero(single[self.j] & ~pair_shares)
        self._find_kept(most)
        self.program = LinearProgram()
        self._build(self.program)

    def _find_kept(self, most: IntArray) -> None:
        """Held GPUs that a request of whole GPUs could keep, each with how many of its jobs hold it."""
        keep_j, keep_gpu, weight = [], [], []
        for j, held in enumerate(self.problem.held):
            for (node, index), count in zip(held.gpus.tolist(), held.weight.tolist(), strict=True):
                free = self.problem.nodes.room[node, index] >= 1.0
                if self.problem.requests.share[j] == 1.0 and most[j, node] and free:
                    keep_j.append(j)
                    keep_gpu.append(int(self.start[node]) + index)
                    weight.append(count)
        self.keep_j, self.keep_gpu = np.array(keep_j, np.int64), np.array(keep_gpu, np.int64)
        self.keep_weight = np.array(weight, np.float64)

    def _build(self, program: LinearProgram) -> None:
        R, N = self.problem.requests, self.problem.nodes
        requests, pairs = len(R), len(self.j)

        def binary(count: int, name: str) -> Expression:
            return program.variables(count, name=name, upper=1.0, integer=True)

        fits = (self.problem.fewest > 0).astype(np.float64)
        self.place = program.variables(requests, name="place", upper=fits, integer=True)
        self.used = binary(pairs, "used")
        gang = np.zeros(pairs)
        gang[self.alone] = R.gpus[self.j[self.alone]]
        amount = self.used * gang
        if len(self.several):
            self.whole = program.variables(
                len(self.several), name="whole", upper=self.most[self.several], integer=True
            )
            amount = amount + sum_by(self.several, 1.0, pairs) @ self.whole
        if len(self.part_pair):
            self.part, self.open = (
                binary(len(self.part_pair), "part"),
                binary(len(self.open_gpu), "open"),
            )
            amount = amount + sum_by(self.part_pair, 1.0, pairs) @ self.part
        by_request = sum_by(self.j, 1.0, requests)
        program.constrain(by_request @ amount == self.place * R.gpus, name="gang")
        program.constrain(amount <= self.used * self.most, name="spanned")
        program.constrain(by_request @ self.used <= self.place * R.span, name="span")

        whole = (R.share[self.j] == 1.0).astype(np.float64)
        taken = sum_by(self.n, whole, len(N)) @ amount
        if len(self.part_pair):
            place_of = np.searchsorted(self.open_gpu, self.part_gpu)
            share = sum_by(place_of, R.share[self.j[self.part_pair]], len(self.open_gpu))
            room = self.room[self.open_gpu]
            program.constrain(share @ self.part <= self.open * room, name="shares")
            taken = (
                taken
                + sum_by(self.gpu_node[self.open_gpu], (room >= 1.0).astype(float), len(N))
                @ self.open
            )
        program.constrain(taken <= N.free, name="gpus")
        self._resources(program, amount)
        self._apart(program)
        if len(self.keep_j):
            self._keep_rows(program, binary(len(self.keep_j), "keep"), amount)
        self._levels(program)

    def _resources(self, program: LinearProgram, amount: Expression) -> None:
        R, N = self.problem.requests, self.problem.nodes
        for place, name in enumerate(("cpu", "memory")):
            limited = np.flatnonzero(np.isfinite(N.own[:, place]))
            if len(limited) and R.need[:, place].any():
                need = sum_by(self.n, R.need[self.j, place], len(N))[limited]
                program.constrain(
                    need @ amount <= N.own[limited, place] * (1 + ROUNDING), name=name
                )
        for place, group in enumerate(N.groups):
            need = R.group_need[self.j, place] * N.member[place, self.n]
            if need.any():
                row = sp.csr_matrix(need[None, :])
                program.constrain(
                    row @ amount <= [N.group_capacity[place] * (1 + ROUNDING)],
                    name=f"resource {group.name}",
                )

    def _apart(self, program: LinearProgram) -> None:
        N = len(self.problem.nodes)
        for number in sorted({number for sets in self.problem.requests.apart for number in sets}):
            mine = np.array([number in sets for sets in self.problem.requests.apart])[self.j]
            program.constrain(
                sum_by(self.n, mine.astype(float), N) @ self.used <= np.ones(N),
                name=f"apart {number}",
            )

    def _keep_rows(self, program: LinearProgram, keep: Expression, amount: Expression) -> None:
        self.keep = keep
        gpus, place = np.unique(self.keep_gpu, return_inverse=True)
        once = sum_by(place, 1.0, len(gpus)) @ keep
        shared = np.flatnonzero(np.isin(gpus, self.open_gpu))
        if len(shared):
            column = np.searchsorted(self.open_gpu, gpus[shared])
            once = once + sum_by(shared, 1.0, len(gpus)) @ (
                rows_of(column, len(self.open_gpu)) @ self.open
            )
        program.constrain(once <= np.ones(len(gpus)), name="held once")
        width = len(self.problem.nodes)
        pair = np.searchsorted(
            self.j * width + self.n, self.keep_j * width + self.gpu_node[self.keep_gpu]
        )
        pairs = len(self.j)
        program.constrain(sum_by(pair, 1.0, pairs) @ keep <= amount, name="kept on the node")

    def _levels(self, program: LinearProgram) -> None:
        """The columns and rows of bandwidth; requests of one GPU have none."""
        links, R = self.problem.links, self.problem.requests
        gangs = np.flatnonzero((R.gpus > 1) & (self.problem.fewest > 0))
        rank = np.full(len(R), -1, np.int64)
        rank[gangs] = np.arange(len(gangs))
        pairs = np.flatnonzero(rank[self.j] >= 0)
        value = links.bandwidth - np.append(links.bandwidth[1:], 0.0)
        self.bandwidth: Expression | None = None
        if not len(gangs):
            return
        for b, label in enumerate(links.label):
            level = program.variables(len(gangs), name=f"level{b}", upper=1.0, integer=True)
            program.constrain(level <= rows_of(gangs, len(R)) @ self.place, name=f"placed{b}")
            group = label[self.n[pairs]]
            apart, joined = pairs[group < 0], pairs[group >= 0]
            if len(apart):
                of_gang = rows_of(rank[self.j[apart]], len(gangs)) @ level
                program.constrain(
                    rows_of(apart, len(self.j)) @ self.used + of_gang <= 1.0, name=f"in parts{b}"
                )
            if len(joined):
                groups = int(label.max()) + 1
                key, place = np.unique(
                    rank[self.j[joined]] * groups + label[self.n[joined]], return_inverse=True
                )
                touch = program.variables(len(key), name=f"touch{b}", upper=1.0)
                touched = (
                    rows_of(joined, len(self.j)) @ self.used <= rows_of(place, len(key)) @ touch
                )
                program.constrain(touched, name=f"touched{b}")
                more = np.maximum(R.span[gangs] - 1.0, 0.0)
                parts = sum_by(key // groups, 1.0, len(gangs)) @ touch
                program.constrain(parts + level * more <= 1.0 + more, name=f"joined{b}")
            total = level.sum() * value[b]
            self.bandwidth = total if self.bandwidth is None else self.bandwidth + total

    @property
    def moved(self) -> Expression:
        """GPUs moved."""
        R = self.problem.requests
        running = np.array([held.running for held in self.problem.held], np.float64)
        moved = (running * R.gpus)[None, :] @ self.place
        if len(self.keep_j):
            moved = moved - self.keep_weight[None, :] @ self.keep
        if len(self.part_pair):
            weight = np.zeros(len(self.part_pair))
            for j, held in enumerate(self.problem.held):
                for (node, index), count in zip(
                    held.gpus.tolist(), held.weight.tolist(), strict=True
                ):
                    mine = (self.j[self.part_pair] == j) & (
                        self.part_gpu == self.start[node] + index
                    )
                    weight[mine] = count
            moved = moved - weight[None, :] @ self.part
        return moved


COLUMNS = 2_000
"""Pairs of a request and a node (or a GPU, of requests that share) up to which the integer program is solved."""
WORK = 500
"""Nodes of branch and bound after which each search of `optsched.place` stops: some ten seconds at worst."""
SLACK = 1e-9
"""Relative slack of the bandwidth that the fewest moves may not give up."""


@dataclass(frozen=True)
class Exact:
    """What the integer programs gave.

    Attributes
    ----------
    assignment : mapping or None
        The best found; None where a limit was reached before anything was found.
    proven : bool
        Whether no assignment is better.
    """

    assignment: Assignment | None
    proven: bool


def size(problem: Problem) -> int:
    """Columns that the program of a problem has at most, those of the levels of bandwidth left out."""
    R, N = problem.requests, problem.nodes
    nodes, gpus = (
        np.bincount(N.pool, weight, int(R.pool.max(initial=0)) + 1).astype(np.int64)[R.pool]
        for weight in (None, N.gpus)
    )
    return int(np.where(R.share < 1.0, nodes + gpus, np.where(R.span > 1, 2 * nodes, nodes)).sum())


def solve_exactly(problem: Problem, start: Worth, bounds: Bounds, engine: Engine) -> Exact:
    """Most rows, then fewest nodes, then best bandwidth, then fewest moves, each with what came before it fixed.

    What the start is known to have at its bound is fixed without being solved. A run that stops at a limit, or whose
    certificate does not hold, ends the search: what was found so far is given, not proven.
    """
    built = PlacementProgram(problem)
    program, rows, nodes = built.program, built.place.sum(), built.used.sum()
    fixed, best, proven = start, None, True
    known = start.rows == bounds.rows
    for stage in ("rows", "nodes", "bandwidth", "moved"):
        if stage == "nodes":
            known = known and start.nodes == bounds.nodes
        elif stage == "bandwidth":
            known = built.bandwidth is None
        elif stage == "moved":
            known = not any(held.running for held in problem.held)
        if not known:
            if stage == "rows":
                program.maximise(rows)
            elif stage == "nodes":
                program.minimise(nodes)
            elif stage == "bandwidth" and built.bandwidth is not None:
                program.maximise(built.bandwidth)
            else:
                program.minimise(built.moved)
            outcome = engine.solve_linear(program)
            if outcome.x is None:
                return Exact(best, False)
            found = read(built, outcome.x)
            fixed = problem.worth(found)
            if best is None or fixed.key < problem.worth(best).key:
                best = found
            if outcome.status is not Status.OPTIMAL or not outcome.certificate.ok:
                return Exact(best, False)
        if stage == "rows":
            program.constrain(rows >= float(fixed.rows), name="most rows")
        elif stage == "nodes":
            program.constrain(nodes <= float(fixed.nodes), name="fewest nodes")
        elif stage == "bandwidth" and built.bandwidth is not None:
            program.constrain(
                built.bandwidth >= fixed.bandwidth * (1 - SLACK), name="best bandwidth"
            )
    return Exact(best, proven)


def read(built: PlacementProgram, x: FloatArray) -> Assignment:
    """The assignment that a point of the program stands for."""
    R = built.problem.requests

    def values(block: Expression) -> IntArray:
        assert block.variables is not None
        return np.round(x[block.variables.slice]).astype(np.int64)

    amount = np.zeros(len(built.j), np.int64)
    amount[built.alone] = R.gpus[built.j[built.alone]] * values(built.used)[built.alone]
    if len(built.several):
        amount[built.several] = values(built.whole)
    pieces: dict[int, list[tuple[int, int]]] = {}
    for j, n, gpus in zip(built.j.tolist(), built.n.tolist(), amount.tolist(), strict=True):
        if gpus:
            pieces.setdefault(j, []).append((n, gpus))

    def spots(owner: IntArray, gpu: IntArray) -> dict[int, list[tuple[int, int]]]:
        gathered: dict[int, list[tuple[int, int]]] = {}
        for j, node, index in zip(
            owner.tolist(), built.gpu_node[gpu].tolist(), built.gpu_index[gpu].tolist(), strict=True
        ):
            gathered.setdefault(j, []).append((node, index))
        return gathered

    shared: dict[int, IntArray] = {}
    if len(built.part_pair):
        on = np.flatnonzero(values(built.part))
        of = spots(built.j[built.part_pair[on]], built.part_gpu[on])
        shared = {j: np.array(gpus, np.int64) for j, gpus in of.items()}
    kept: dict[int, list[tuple[int, int]]] = {}
    if len(built.keep_j):
        on = np.flatnonzero(values(built.keep))
        kept = spots(built.keep_j[on], built.keep_gpu[on])
    return with_identities(built.problem, pieces, shared, kept)
