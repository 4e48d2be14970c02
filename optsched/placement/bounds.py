"""Bounds on placements: the most rows that can be placed, and the fewest nodes that they span."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from optsched.arrays import EMPTY, FloatArray, IntArray, group_rows, ranges
from optsched.arrays.matrices import sum_by
from optsched.placement.problem import Bounds, Problem, Worth, largest_of_groups
from optsched.placement.shares import dual_feasible
from optsched.program import Expression, LinearProgram
from optsched.solving.engine import Engine

COLUMNS = 20_000
"""Columns up to which the linear program of the pieces is solved."""
STEPS = 8
"""Dual feasible functions per class of nodes."""
EXACT = 1e-6
"""Relative slack when a bound on a whole number is rounded: rounding errors must not cut it off."""


def bounds(problem: Problem, worth: Worth, engine: Engine) -> Bounds:
    """Bounds for a placement of this worth:
    on its rows, and on the nodes of any placement of as many rows.

    The cheap bounds count the requests that fit alone, and the nodes that each of them needs alone.
    Where a gap is left, the linear program of `_Pieces` is solved.
    """
    fewest = np.sort(problem.fewest[problem.fewest > 0])
    cheap = Bounds(len(fewest), int(fewest[: worth.rows].sum()))
    if worth.rows == cheap.rows and worth.nodes == cheap.nodes:
        return cheap
    pieces = _Pieces.of(problem)
    if pieces is None:
        return cheap
    rows = cheap.rows if worth.rows == cheap.rows else pieces.most_rows(engine)
    nodes = cheap.nodes if worth.nodes == cheap.nodes else pieces.fewest_nodes(worth.rows, engine)
    return Bounds(
        min(cheap.rows, max(rows, worth.rows)),
        max(cheap.nodes, min(nodes, worth.nodes)),
    )


@dataclass(frozen=True)
class _Pieces:
    """A relaxation: the number of pieces of each size that gangs of a type have on nodes of a
    class.

        y[t,c,m]  pieces of m GPUs of type t (g_t GPUs, share s_t, n_t requests) on class c (N_c nodes with room G_c)
        z[t]      requests of type t placed, 0 <= z <= n

        size      sum_cm m y[t,c,m]  ==  g_t z_t
        span      fewest_t z_t  <=  sum_cm y[t,c,m]  <=  k_t z_t
        own       sum_tm m need_tr y[t,c,m]  <=  N_c cap_cr                 GPUs (need s_t), CPUs, memory
        packing   sum_tm u_k(m s_t / G_c) y[t,c,m]  <=  N_c                 k = 1 .. 8

    where u_k(x) = x if (k + 1) x is whole, else floor((k + 1) x) / k is a dual feasible function:
    sizes that fit into one node still add up to at most 1 after it (S. Fekete, J. Schepers, "New
    classes of fast lower bounds for bin packing problems", 2001). For example, u_1 counts pieces of
    more than half a node, of which a node holds at most one.
    """

    problem: Problem
    first: IntArray
    count: IntArray
    node: IntArray
    nodes: IntArray
    type_: IntArray
    class_: IntArray
    size: IntArray

    @classmethod
    def of(cls, problem: Problem) -> _Pieces | None:
        """The columns, or None if there are too many."""
        R = problem.requests
        N = problem.nodes
        # Types of equal requests and classes of equal nodes keep the program small on large
        # clusters.
        types = problem.alike
        placeable = np.flatnonzero(problem.fewest[types.first] > 0)
        first = types.first[placeable]
        differences = _further_differences(problem)
        classes = group_rows([N.pool, N.gpus, *N.own.T, *N.member, *differences], len(N))
        types_of = []
        classes_of = []
        most = []
        for t, j in enumerate(first.tolist()):
            at_most = np.zeros(len(N), np.int64)
            at_most[problem.of_pool(j)] = np.minimum(problem.at_most(j), R.gpus[j])
            sizes = at_most[classes.first]
            able = np.flatnonzero(sizes > 0)
            types_of.append(np.full(len(able), t, np.int64))
            classes_of.append(able)
            most.append(sizes[able])
        length = np.concatenate([*most, EMPTY])
        if length.sum() > COLUMNS or not len(length):
            return None
        return cls(
            problem,
            first,
            types.count[placeable],
            classes.first,
            classes.count,
            np.repeat(np.concatenate(types_of), length),
            np.repeat(np.concatenate(classes_of), length),
            ranges(1, length),
        )

    def most_rows(self, engine: Engine) -> int:
        """Upper bound on the number of placed requests."""
        program, _, z = self._program()
        program.maximise(z.sum())
        bound = _proven(engine, program)
        return int(self.count.sum()) if bound is None else math.floor(bound * (1 + EXACT))

    def fewest_nodes(self, rows: int, engine: Engine) -> int:
        """Lower bound on the nodes that this number of placed requests spans."""
        program, y, z = self._program()
        program.constrain(z.sum() >= float(rows), name="rows")
        program.minimise(y.sum())
        bound = _proven(engine, program)
        return 0 if bound is None else math.ceil(bound * (1 - EXACT))

    def _program(self) -> tuple[LinearProgram, Expression, Expression]:
        R = self.problem.requests
        N = self.problem.nodes
        t = self.type_
        c = self.class_
        m = self.size.astype(np.float64)
        j = self.first[t]
        program = LinearProgram()
        most = np.minimum(self.count[t] * R.gpus[j] / m, self.count[t] * R.span[j])
        y = program.variables(len(m), name="pieces", implied=(0.0, most))
        z = program.variables(len(self.first), name="placed", upper=self.count)
        of_type = sum_by(t, np.ones(len(m)), len(self.first))
        fewest = self.problem.fewest[self.first]
        span = R.span[self.first]
        program.constrain(
            sum_by(t, m, len(self.first)) @ y == z * R.gpus[self.first],
            name="size",
        )
        program.constrain(of_type @ y >= z * fewest, name="fewest")
        program.constrain(of_type @ y <= z * span, name="span")
        amount = m * R.share[j]
        gpus = N.room[self.node].sum(axis=1)
        self._own(program, y, "gpus", amount, gpus)
        for place, name in enumerate(("cpu", "memory")):
            self._own(program, y, name, m * R.need[j, place], N.own[self.node, place])
        for k in range(1, STEPS + 1):
            packed = dual_feasible(amount / gpus[c], k)
            program.constrain(
                sum_by(c, packed, len(self.nodes)) @ y <= self.nodes,
                name=f"packing{k}",
            )
        return program, y, z

    def _own(
        self,
        program: LinearProgram,
        y: Expression,
        name: str,
        amount: FloatArray,
        has: FloatArray,
    ) -> None:
        limited = np.flatnonzero(np.isfinite(has))
        if len(limited):
            used = sum_by(self.class_, amount, len(self.nodes))[limited]
            program.constrain(used @ y <= has[limited] * self.nodes[limited], name=name)


def _further_differences(problem: Problem) -> list[IntArray | FloatArray]:
    """Further keys that tell nodes apart: the free shares of their GPUs where some GPUs are held,
    and the sets of nodes that are closed to some request.
    """
    nodes = problem.nodes
    room = [] if (nodes.free == nodes.gpus).all() else list(np.sort(nodes.room, axis=1).T)
    closed = {part.tobytes(): part for part in problem.closed if len(part)}
    return [
        *room,
        *(np.bincount(part, minlength=len(nodes)).astype(np.int64) for part in closed.values()),
    ]


def _proven(engine: Engine, program: LinearProgram) -> float | None:
    """The dual bound of a linear program; None where the run was stopped before it had one."""
    outcome = engine.solve_linear(program)
    return outcome.bound if outcome.bound_source == "dual" else None


def most_bandwidth(problem: Problem) -> float:
    """Upper bound on the sum of bottleneck bandwidths: each gang as if no other were placed."""
    R, alike = problem.requests, problem.alike
    gang = (R.gpus > 1) & (problem.fewest > 0)
    kinds = np.flatnonzero(gang[alike.first])
    each = [_best_bottleneck(problem, request) for request in alike.first[kinds].tolist()]
    return math.fsum(np.array(each) * alike.count[kinds])


def _best_bottleneck(problem: Problem, request: int) -> float:
    """The best bottleneck bandwidth of one gang if no other is placed."""
    most = problem.at_most(request)
    R, links = problem.requests, problem.links
    labels = links.label[:, problem.of_pool(request)]
    for bandwidth, label in zip(links.bandwidth.tolist(), labels, strict=True):
        _, reach = largest_of_groups(label, most, int(R.span[request]))
        if (reach >= R.gpus[request]).any():
            return float(bandwidth)
    return 0.0
