"""The integer program of a placement problem."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from optsched.arrays import FloatArray, IntArray, ranges
from optsched.placement.problem import ROUNDING, Problem
from optsched.program import LinearProgram
from optsched.program.linear import Expression


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


def sum_by(group: IntArray, amount: FloatArray | float, groups: int) -> sp.csr_matrix:
    """Matrix that adds up what is in each group, times an amount; shape (groups, entries)."""
    each = np.broadcast_to(np.asarray(amount, np.float64), len(group))
    return sp.csr_matrix((each, (group, np.arange(len(group)))), shape=(groups, len(group)))


def rows_of(chosen: IntArray, width: int) -> sp.csr_matrix:
    """Matrix that chooses entries out of ``width``; shape (chosen, width)."""
    return sp.csr_matrix(
        (np.ones(len(chosen)), (np.arange(len(chosen)), chosen)), shape=(len(chosen), width)
    )
