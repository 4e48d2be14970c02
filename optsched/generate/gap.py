"""The generalized assignment problem, types a to e of the literature."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from optsched.arrays import FloatArray, IntArray
from optsched.generate.generator import Generated, Generator, GeneratorOptions, SmallCount
from optsched.libraries import AssignmentProblem


class GapOptions(GeneratorOptions):
    jobs: SmallCount = Field(100, description="Jobs.")
    agents: int = Field(10, ge=1, le=1000, description="Agents, one resource each.")
    type: Literal["a", "b", "c", "d", "e"] = Field(
        "c", description="Distribution of the numbers; d and e are the hard ones."
    )
    objective: Literal["cost", "value"] = Field(
        "cost",
        description="cost: numbers to be minimised by gap, as the literature does; "
        "value: the same, to be maximised by multiple-choice.",
    )


def draw(options: GapOptions) -> tuple[IntArray, IntArray, FloatArray]:
    """Uses p_ij and costs c_ij, shape (agents, jobs), and capacities b_i, all whole.

    With U{l..h} a whole and U(l, h) a real number drawn evenly, n jobs and m agents::

        a   p ~ U{5..25},  c ~ U{10..50},  b_i = 0.6 (n / m) 15 + 0.4 R
            R = max_i sum of p_ij over the jobs j whose cheapest agent (the first of equals) is i
        b   as a,  b_i = 70 % of that of a
        c   as a,  b_i = 0.8 sum_j p_ij / m
        d   p ~ U{1..100},  c = 111 - p + U{-10..10},  b as c
        e   p = 1 - 10 ln U(0, 1],  c = 1000 / p - 10 U(0, 1),  b as c

    p and c of type e are rounded to whole numbers as in the published files, b is rounded down
    (nothing else fits).

    References
    ----------
    Types a to d: P. C. Chu and J. E. Beasley 1997, A genetic algorithm for the generalised
    assignment problem, after S. Martello and P. Toth 1981. Type e: M. Laguna, J. Kelly, J.
    Gonzalez-Velarde, F. Glover 1995, Tabu search for the multilevel generalized assignment problem.
    All five side by side: M. Yagiura, T. Ibaraki, F. Glover 2006, A path relinking approach with
    ejection chains for the generalized assignment problem.
    """
    random = options.random()
    n = options.jobs
    m = options.agents
    shape = (m, n)
    if options.type == "e":
        # 1 - U[0, 1) is in (0, 1]
        p = np.round(1.0 - 10.0 * np.log(1.0 - random.random(shape))).astype(np.int64)
        c = np.round(1000.0 / p - 10.0 * random.random(shape)).astype(np.int64)
    elif options.type == "d":
        p = random.integers(1, 100, shape, endpoint=True)
        c = 111 - p + random.integers(-10, 10, shape, endpoint=True)
    else:
        p = random.integers(5, 25, shape, endpoint=True)
        c = random.integers(10, 50, shape, endpoint=True)
    # Types c to e take their capacities from the mean use alone
    if options.type in ("a", "b"):
        cheapest = c.argmin(axis=0)
        R = np.bincount(cheapest, weights=p[cheapest, np.arange(n)], minlength=m).max()
        b = np.full(m, 0.6 * (n / m) * 15 + 0.4 * R)
        if options.type == "b":
            b *= 0.7
    else:
        b = 0.8 * p.sum(axis=1) / m
    # The slack undoes a product such as 0.7 * 30 = 20.999999999999996
    return (
        p,
        c,
        np.floor(b * (1 + 1e-12)),
    )


def gap(options: GapOptions) -> Generated:
    """Agents are resources of the cluster;
    each job has one option per agent, its use of the agent and its cost.

    Small instances of types b to e may have no assignment
    of all jobs, as their capacities come from averages.
    """
    p, c, b = draw(options)
    name = options.titled(f"gap-{options.type}-{options.jobs}x{options.agents}")
    return Generated(AssignmentProblem(c, p, b).instance(name, options.objective))


GAP = Generator(
    GapOptions,
    gap,
    "Generalized assignment, types a to e: each job to one agent of limited capacity.",
    lambda options: "gap" if options.objective == "cost" else "multiple-choice",
)
