"""The exact placement: the integer program solved once for each part of the objective."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optsched.arrays import FloatArray, IntArray
from optsched.placement.bounds import Bounds
from optsched.placement.identities import with_identities
from optsched.placement.problem import Assignment, Problem, Worth
from optsched.placement.program import PlacementProgram
from optsched.program.linear import Expression
from optsched.solution.solution import Status
from optsched.solving.engine import Engine

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
