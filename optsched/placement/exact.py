"""The exact placement: an integer program that is solved once for each part of the objective."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from optsched.arrays import BoolArray, FloatArray, IntArray, owners, ranges
from optsched.arrays.matrices import rows_of, sum_by
from optsched.placement.cut_gpus import CutGpus
from optsched.placement.problem import (
    Assignment,
    Bounds,
    Pieces,
    Problem,
    Worth,
    with_identities,
)
from optsched.placement.shares import FULL, ROUNDING
from optsched.program import Expression, LinearProgram
from optsched.solution.solution import Status
from optsched.solving.engine import Engine

COLUMNS = 2_000
"""Pairs of a request and a node (or a GPU, for requests that share GPUs) up to which the integer
program is solved.
"""
WORK = 500
"""Nodes of branch and bound after which each search of `optsched.place` stops, at most about ten
seconds.
"""
BANDWIDTH_SLACK = 1e-9
"""Relative slack of the best bandwidth while the number of moves is minimised."""


class PlacementProgram:
    """Integer program of a placement problem;
    `optsched.placement.problem` states the rules and the objective.

    Columns, for request j, node n of its pool that could give it a GPU, and GPU h:

        place[j]    whether it is placed
        used[j,n]   whether it spans the node
        whole[j,n]  GPUs on the node, where it may span several; else its GPUs on the node are g_j used[j,n]
        part[j,h]   of a request that shares: whether it is on the GPU
        open[h]     whether the GPU is for those that share
        keep[j,h]   whether a request of whole GPUs keeps a GPU that it holds
        level[j,b]  whether its nodes are joined at bandwidth b;  inside[j,b,c]  whether it is in group c of that level

    Rows, with a[j,n] its GPUs on the node:

        sum_n a[j,n] == g_j place[j];   a[j,n] <= most[j,n] used[j,n];   sum_n used[j,n] <= k_j
        place[j] sum over whole j of a[j,n] + sum over free h on n of open[h] <= G_n;   sum_j s_j
        part[j,h] <= room_h open[h] sum_j d_jr a[j,n] <= cap_nr;   of resources of some nodes:
        sum_jn d_jr a[j,n] <= cap_r sum over j of a set of used[j,n] <= 1
        used[j,n] <= at[j,G(n)];   sum_G at[j,G] <= 1        G: groups of the level that it states
        sum_j keep[j,h] + open[h] <= 1;   sum over h on n of keep[j,h] <= a[j,n]
        used[j,n] <= inside[j,b,c(n)];   sum_c inside[j,b,c] <= 1 + (k_j - 1)(1 - level[j,b])

    G_n is the number of free GPUs of a node; room_h is the free share of a GPU, 1 for a free GPU.
    A request's bottleneck is the sum over levels of (b - next lower b) level[j,b].
    """

    def __init__(self, problem: Problem, *, bandwidth: bool = True) -> None:
        self.problem = problem
        most = self._find_pairs()
        self._find_gpus()
        self._find_kept(most)
        self.program = LinearProgram()
        amount = self._gangs()
        self._gpus(amount)
        self._resources(amount)
        self._anti_affinity()
        self._in_one_group()
        if len(self.keep_j):
            self._kept(amount)
        self.bandwidth: Expression | None = None
        if bandwidth:
            self._bandwidth()

    # --- columns ------------------------------------------------------------------------------

    def _find_pairs(self) -> IntArray:
        """Find the pairs (j, n) of a request and a node that can give it GPUs; return the numbers
        of these GPUs as a table.
        """
        R = self.problem.requests
        N = self.problem.nodes
        most = np.zeros((len(R), len(N)), np.int64)
        for j in np.flatnonzero(self.problem.fewest > 0).tolist():
            most[j, self.problem.of_pool(j)] = np.minimum(self.problem.at_most(j), R.gpus[j])
        # A request of one node has all its GPUs there or none, so it needs no column for their
        # number.
        single = (R.span == 1) | (R.gpus == 1)
        gpus = R.gpus[single, None]
        most[single] = np.where(most[single] >= gpus, gpus, 0)
        self.j, self.n = np.nonzero(most)
        self.most = most[self.j, self.n]
        whole = R.share[self.j] == 1.0
        self.alone = np.flatnonzero(single[self.j] & whole)
        self.several = np.flatnonzero(~single[self.j] & whole)
        return most

    def _find_gpus(self) -> None:
        """Find the GPUs of all nodes, and those with room for each request that shares GPUs."""
        R = self.problem.requests
        N = self.problem.nodes
        self.gpu_node = owners(N.gpus)
        self.gpu_index = ranges(0, N.gpus)
        self.start = np.cumsum(N.gpus) - N.gpus
        self.room = N.room[self.gpu_node, self.gpu_index]
        pairs = np.flatnonzero(R.share[self.j] < 1.0)
        count = N.gpus[self.n[pairs]]
        pair = np.repeat(pairs, count)
        gpu = ranges(self.start[self.n[pairs]], count)
        fits = self.room[gpu] >= R.share[self.j[pair]] - ROUNDING
        if N.cut is not None:
            fits &= self._have_layouts(N.cut, self.j[pair], gpu)
        self.part_pair = pair[fits]
        self.part_gpu = gpu[fits]
        self.open_gpu = np.unique(self.part_gpu)

    def _have_layouts(self, cut: CutGpus, request: IntArray, gpu: IntArray) -> BoolArray:
        """Whether GPUs have a layout (MIG) with one more slice for a request."""
        R = self.problem.requests
        code = cut.code[self.gpu_node[gpu], self.gpu_index[gpu]]
        able = np.ones(len(gpu), bool)
        for j in np.unique(request).tolist():
            same = request == j
            what = int(R.profile[j]), float(R.share[j])
            able[same] = cut.able(int(R.pool[j]), code[same], *what)
        return able

    def _find_kept(self, most: IntArray) -> None:
        """Find the held GPUs that a request of whole GPUs can keep, and the number of its jobs that
        hold each of them.
        """
        R = self.problem.requests
        room = self.problem.nodes.room
        kept = []
        for j, held in enumerate(self.problem.held):
            if R.share[j] < 1.0:
                continue
            for (node, index), weight in zip(held.gpus.tolist(), held.weight.tolist(), strict=True):
                if most[j, node] and room[node, index] >= 1.0:
                    kept.append((j, int(self.start[node]) + index, weight))
        self.keep_j, self.keep_gpu, weights = np.array(kept, np.int64).reshape(-1, 3).T
        self.keep_weight = weights.astype(np.float64)

    def _binary(self, count: int, name: str) -> Expression:
        return self.program.variables(count, name=name, upper=1.0, integer=True)

    # --- families of rows ---------------------------------------------------------------------

    def _gangs(self) -> Expression:
        """A request has all its GPUs or none, on the nodes that it spans, at most k_j; returns
        a[j,n].
        """
        R = self.problem.requests
        program = self.program
        pairs = len(self.j)
        fits = (self.problem.fewest > 0).astype(np.float64)
        self.place = program.variables(len(R), name="place", upper=fits, integer=True)
        self.used = self._binary(pairs, "used")
        # A gang of one node needs no count of its GPUs there: it has all or none.
        gang = np.zeros(pairs)
        gang[self.alone] = R.gpus[self.j[self.alone]]
        amount = self.used * gang
        if len(self.several):
            most = self.most[self.several]
            self.whole = program.variables(len(most), name="whole", upper=most, integer=True)
            amount = amount + sum_by(self.several, 1.0, pairs) @ self.whole
        if len(self.part_pair):
            self.part = self._binary(len(self.part_pair), "part")
            self.open = self._binary(len(self.open_gpu), "open")
            amount = amount + sum_by(self.part_pair, 1.0, pairs) @ self.part
        by_request = sum_by(self.j, 1.0, len(R))
        program.constrain(by_request @ amount == self.place * R.gpus, name="gang")
        program.constrain(amount <= self.used * self.most, name="spanned")
        program.constrain(by_request @ self.used <= self.place * R.span, name="span")
        return amount

    def _gpus(self, amount: Expression) -> None:
        """A free GPU is used as a whole or opened for shares; the shares of an open GPU are within
        its room.
        """
        R = self.problem.requests
        N = self.problem.nodes
        whole = (R.share[self.j] == 1.0).astype(np.float64)
        in_use = sum_by(self.n, whole, len(N)) @ amount
        if len(self.part_pair):
            gpus = len(self.open_gpu)
            room = self.room[self.open_gpu]
            place = np.searchsorted(self.open_gpu, self.part_gpu)
            share = sum_by(place, R.share[self.j[self.part_pair]], gpus)
            self.program.constrain(share @ self.part <= self.open * room, name="shares")
            # A free GPU that is opened for shares is in use.
            free = (room >= 1.0).astype(float)
            in_use = in_use + sum_by(self.gpu_node[self.open_gpu], free, len(N)) @ self.open
        self.program.constrain(in_use <= N.free, name="gpus")

    def _resources(self, amount: Expression) -> None:
        """CPUs and memory of every node, and resources of some nodes."""
        R = self.problem.requests
        N = self.problem.nodes
        program = self.program
        for place, name in enumerate(("cpu", "memory")):
            limited = np.flatnonzero(np.isfinite(N.own[:, place]))
            if len(limited) and R.need[:, place].any():
                need = sum_by(self.n, R.need[self.j, place], len(N))[limited]
                capacity = N.own[limited, place] * FULL
                program.constrain(need @ amount <= capacity, name=name)
        for place, group in enumerate(N.groups):
            each = R.group_need[self.j, place] * N.member[place, self.n]
            if each.any():
                row = sp.csr_matrix(each[None, :])
                group_capacity = [N.group_capacity[place] * FULL]
                program.constrain(
                    row @ amount <= group_capacity,
                    name=f"resource {group.name}",
                )

    def _anti_affinity(self) -> None:
        """At most one request of each anti-affinity set is on a node."""
        apart = self.problem.requests.apart
        nodes = len(self.problem.nodes)
        for number in sorted({number for sets in apart for number in sets}):
            in_set = np.array([number in sets for sets in apart])[self.j].astype(float)
            on_node = sum_by(self.n, in_set, nodes) @ self.used
            self.program.constrain(on_node <= np.ones(nodes), name=f"apart {number}")

    def _in_one_group(self) -> None:
        """A request that states a level of the topology uses nodes of one group of this level."""
        problem = self.problem
        for j in range(len(problem)):
            group = problem.group_of(j)
            pairs = np.flatnonzero(self.j == j)
            if group is None or len(pairs) < 2:
                continue
            of_pair = group[self.n[pairs] - problem.of_pool(j).start]
            known, place = np.unique(of_pair, return_inverse=True)
            at = self.program.variables(len(known), name=f"at{j}", upper=1.0)
            used = rows_of(pairs, len(self.j)) @ self.used
            self.program.constrain(
                used <= rows_of(place.astype(np.int64), len(known)) @ at, name=f"at group{j}"
            )
            self.program.constrain(at.sum() <= 1.0, name=f"one group{j}")

    def _kept(self, amount: Expression) -> None:
        """A GPU is kept by at most one request, is then not open for shares, and counts for its
        node.
        """
        keep = self.keep = self._binary(len(self.keep_j), "keep")
        gpus, place = np.unique(self.keep_gpu, return_inverse=True)
        once = sum_by(place, 1.0, len(gpus)) @ keep
        shared = np.flatnonzero(np.isin(gpus, self.open_gpu))
        if len(shared):
            column = np.searchsorted(self.open_gpu, gpus[shared])
            opened = rows_of(column, len(self.open_gpu)) @ self.open
            once = once + sum_by(shared, 1.0, len(gpus)) @ opened
        self.program.constrain(once <= np.ones(len(gpus)), name="held once")
        width = len(self.problem.nodes)
        pairs = len(self.j)
        # Pairs are sorted by request and node.
        wanted = self.keep_j * width + self.gpu_node[self.keep_gpu]
        pair = np.searchsorted(self.j * width + self.n, wanted)
        kept = sum_by(pair, 1.0, pairs) @ keep
        self.program.constrain(kept <= amount, name="kept on the node")

    def _bandwidth(self) -> None:
        """The bottleneck of each gang by levels; requests of one GPU have none."""
        links = self.problem.links
        R = self.problem.requests
        program = self.program
        gangs = np.flatnonzero((R.gpus > 1) & (self.problem.fewest > 0))
        if not len(gangs):
            return
        rank = np.full(len(R), -1, np.int64)
        rank[gangs] = np.arange(len(gangs))
        pairs = np.flatnonzero(rank[self.j] >= 0)
        more_nodes = np.maximum(R.span[gangs] - 1.0, 0.0)
        # Levels are nested: each one adds its difference to the next lower level.
        value = links.bandwidth - np.append(links.bandwidth[1:], 0.0)
        for b, label in enumerate(links.label):
            level = self._binary(len(gangs), f"level{b}")
            program.constrain(level <= rows_of(gangs, len(R)) @ self.place, name=f"placed{b}")
            group = label[self.n[pairs]]
            # A gang on a node without a group is not joined at this bandwidth.
            apart = pairs[group < 0]
            joined = pairs[group >= 0]
            if len(apart):
                used = rows_of(apart, len(self.j)) @ self.used
                of_gang = rows_of(rank[self.j[apart]], len(gangs)) @ level
                program.constrain(used + of_gang <= 1.0, name=f"in parts{b}")
            if len(joined):
                groups = int(label.max()) + 1
                number = rank[self.j[joined]] * groups + label[self.n[joined]]
                key, place = np.unique(number, return_inverse=True)
                inside = program.variables(len(key), name=f"inside{b}", upper=1.0)
                used = rows_of(joined, len(self.j)) @ self.used
                program.constrain(
                    used <= rows_of(place, len(key)) @ inside,
                    name=f"in group{b}",
                )
                parts = sum_by(key // groups, 1.0, len(gangs)) @ inside
                program.constrain(
                    parts + level * more_nodes <= 1.0 + more_nodes,
                    name=f"joined{b}",
                )
            total = level.sum() * value[b]
            self.bandwidth = total if self.bandwidth is None else self.bandwidth + total

    @property
    def moved(self) -> Expression:
        """GPUs given to running jobs that do not hold them."""
        R = self.problem.requests
        running = np.array([held.running for held in self.problem.held], np.float64)
        moved = (running * R.gpus)[None, :] @ self.place
        if len(self.keep_j):
            moved = moved - self.keep_weight[None, :] @ self.keep
        if len(self.part_pair):
            moved = moved - self._held_parts()[None, :] @ self.part
        return moved

    def _held_parts(self) -> FloatArray:
        """Number of jobs of a sharing request that hold each GPU which it can use."""
        weight = np.zeros(len(self.part_pair))
        request = self.j[self.part_pair]
        for j, held in enumerate(self.problem.held):
            for (node, index), count in zip(held.gpus.tolist(), held.weight.tolist(), strict=True):
                weight[(request == j) & (self.part_gpu == self.start[node] + index)] = count
        return weight

    # --- from a point to an assignment --------------------------------------------------------

    def read(self, x: FloatArray) -> Assignment:
        """The assignment of a point of the program."""
        gang = self.problem.requests.gpus[self.j[self.alone]]
        amount = np.zeros(len(self.j), np.int64)
        amount[self.alone] = gang * _whole(x, self.used)[self.alone]
        if len(self.several):
            amount[self.several] = _whole(x, self.whole)
        pieces: dict[int, Pieces] = {}
        for pair in np.flatnonzero(amount).tolist():
            piece = (int(self.n[pair]), int(amount[pair]))
            pieces.setdefault(int(self.j[pair]), []).append(piece)
        shared: dict[int, Pieces] = {}
        if len(self.part_pair):
            on = np.flatnonzero(_whole(x, self.part))
            shared = self._spots(self.j[self.part_pair[on]], self.part_gpu[on])
        kept: dict[int, Pieces] = {}
        if len(self.keep_j):
            on = np.flatnonzero(_whole(x, self.keep))
            kept = self._spots(self.keep_j[on], self.keep_gpu[on])
        gpus = {j: np.array(spots, np.int64) for j, spots in shared.items()}
        return with_identities(self.problem, pieces, gpus, kept)

    def _spots(self, request: IntArray, gpu: IntArray) -> dict[int, list[tuple[int, int]]]:
        """(node, index) of GPUs by request."""
        spots: dict[int, list[tuple[int, int]]] = {}
        node = self.gpu_node[gpu].tolist()
        index = self.gpu_index[gpu].tolist()
        for j, spot in zip(request.tolist(), zip(node, index, strict=True), strict=True):
            spots.setdefault(j, []).append(spot)
        return spots


def _whole(x: FloatArray, block: Expression) -> IntArray:
    """Values of integer columns."""
    assert block.variables is not None
    return np.round(x[block.variables.slice]).astype(np.int64)


def size(problem: Problem) -> int:
    """Upper bound on the columns of the program of a problem, without those of the bandwidth
    levels.
    """
    R = problem.requests
    N = problem.nodes
    pools = int(R.pool.max(initial=0)) + 1
    nodes = np.bincount(N.pool, minlength=pools)[R.pool]
    gpus = np.bincount(N.pool, N.gpus, pools).astype(np.int64)[R.pool]
    whole = np.where(R.span > 1, 2 * nodes, nodes)
    return int(np.where(R.share < 1.0, nodes + gpus, whole).sum())


@dataclass(frozen=True)
class Exact:
    """The result of the integer programs.

    Attributes
    ----------
    assignment : mapping or None
        The best one found; None if a limit was reached before any was found.
    proven : bool
        Whether it is proven optimal.
    """

    assignment: Assignment | None
    proven: bool


def solve_exactly(problem: Problem, start: Worth, bounds: Bounds, engine: Engine) -> Exact:
    """Most rows, then fewest nodes, then best bandwidth, then fewest moves, each with the optima
    before it fixed.

    A part of the objective for which the start meets its bound is fixed without a solve. A run that
    stops at a limit, or whose certificate does not hold, ends the search: the result is then the
    best assignment so far, without proof.
    """
    built = PlacementProgram(problem)
    program = built.program
    rows = built.place.sum()
    nodes = built.used.sum()
    best: Assignment | None = None
    worth = start

    def improve() -> bool:
        """Solve for the present objective; return whether its optimum is proven."""
        nonlocal best, worth
        outcome = engine.solve_linear(program)
        if outcome.x is None:
            return False
        found = built.read(outcome.x)
        worth = problem.worth(found)
        if best is None or worth.key < problem.worth(best).key:
            best = found
        return outcome.status is Status.OPTIMAL and outcome.certificate.ok

    most_rows = start.rows == bounds.rows
    if not most_rows:
        program.maximise(rows)
        if not improve():
            return Exact(best, False)
    program.constrain(rows >= float(worth.rows), name="most rows")
    if not (most_rows and start.nodes == bounds.nodes):
        program.minimise(nodes)
        if not improve():
            return Exact(best, False)
    program.constrain(nodes <= float(worth.nodes), name="fewest nodes")
    if built.bandwidth is not None:
        program.maximise(built.bandwidth)
        if not improve():
            return Exact(best, False)
        # Without slack, rounding might cut off the point that was found.
        least = worth.bandwidth * (1 - BANDWIDTH_SLACK)
        program.constrain(built.bandwidth >= least, name="best bandwidth")
    if any(held.running for held in problem.held):
        program.minimise(built.moved)
        if not improve():
            return Exact(best, False)
    return Exact(best, True)
