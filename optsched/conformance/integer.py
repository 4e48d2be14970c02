"""Integer and mixed-integer programs with known answers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from optsched.arrays import FloatArray
from optsched.conformance.answers import KnownAnswer, program, random_matrix
from optsched.conformance.case import Subject, case, expect, expect_close, expect_refused
from optsched.program import LinearProgram
from optsched.solution.solution import Status
from optsched.solvers import Capability, Limits

INF = np.inf
WEIGHT: Sequence[float] = (12, 7, 11, 8, 9, 6, 5, 14)
VALUE: Sequence[float] = (24, 13, 23, 15, 16, 11, 9, 28)


def knapsack() -> LinearProgram:
    """8 items, capacity 26: 52 by enumeration; the relaxation reaches more."""
    return program(VALUE, [WEIGHT], upper=26, bounds=(0, 1), integer=True)


def covering() -> LinearProgram:
    """min x + y + z + 0.5 so that every pair of three has one:
    2.5, where halves would do with 2.
    """
    rows = [[1, 1, 0], [0, 1, 1], [1, 0, 1]]
    return program(
        [1, 1, 1],
        rows,
        lower=1,
        bounds=(0, 1),
        integer=True,
        maximise=False,
        offset=0.5,
    )


def equality() -> LinearProgram:
    """max x  s.t.  7x - 5y = 3, x, y <= 20: 14 at (14, 19), as the next solution is (19, 26)."""
    return program([1, 0], [[7, -5]], lower=3, upper=3, bounds=(0, 20), integer=True)


def negative() -> LinearProgram:
    """min 3x + 5y  s.t.  2x + 4y >= -7, -3 <= x, -2 <= y: -9 at (-3, 0); the relaxation has -10.25."""
    return program(
        [3, 5],
        [[2, 4]],
        lower=-7,
        bounds=([-3, -2], [4, 4]),
        integer=True,
        maximise=False,
    )


def fractional_bounds() -> LinearProgram:
    """max x + y with x <= 2.5, y between 0.5 and 1.5, x + y <= 3.9: 3 at (2, 1)."""
    return program([1, 1], [[1, 1]], upper=3.9, bounds=([0, 0.5], [2.5, 1.5]), integer=True)


def whole_from_fractions() -> LinearProgram:
    """max x + y  s.t.  2x + 2y <= 5, 1 <= x, y <= 3: 2; the relaxation has 2.5 at a vertex that rounds to 3."""
    return program([1, 1], [[2, 2]], upper=5, bounds=(1, 3), integer=True)


def infeasible() -> LinearProgram:
    """2x = 3 with integer x."""
    return program([1], [[2]], lower=3, upper=3, bounds=(0, 5), integer=True)


def infeasible_relaxation() -> LinearProgram:
    """x + y >= 3 with two columns of 0 or 1."""
    return program([1, 1], [[1, 1]], lower=3, bounds=(0, 1), integer=True)


def mixed() -> LinearProgram:
    """Open plants (cost 12 and 20)
    of capacity 6 and 10 to serve 9 at 1 and 0.5 each: 24.5, the second alone.
    """
    rows = [[1, 1, 0, 0], [1, 0, -6, 0], [0, 1, 0, -10]]
    return program(
        [1, 0.5, 12, 20],
        rows,
        lower=[9, -INF, -INF],
        upper=[INF, 0, 0],
        bounds=(0, [INF, INF, 1, 1]),
        integer=[False, False, True, True],
        maximise=False,
    )


def mixed_unbounded() -> LinearProgram:
    """max x + y  s.t.  x - y <= 0.5 with integer x <= 3 and y without a roof."""
    return program([1, 1], [[1, -1]], upper=0.5, bounds=(0, [3, INF]), integer=[True, False])


def near_ties() -> LinearProgram:
    """A knapsack of 15 items: 432,551 by enumeration, and six points less than 1e-4 below."""
    weight = np.round(100_000 * random_matrix(1, 15, 0))
    return program(
        (weight[0] + 10.0).tolist(),
        weight.tolist(),
        upper=weight.sum() // 2.0,
        bounds=(0, 1),
        integer=True,
    )


def hard_knapsacks(items: int = 200) -> LinearProgram:
    """Five strongly correlated knapsacks at once: an incumbent at once, its proof in hours."""
    # Values follow the weights, so that no item is better than others: that makes the proof long.
    weight = np.round(1000 * random_matrix(5, items, 0))
    value = weight.mean(axis=0) + 100.0
    return program(
        value.tolist(),
        weight.tolist(),
        upper=(weight.sum(axis=1) / 2).tolist(),
        bounds=(0, 1),
        integer=True,
    )


def market_split(items: int = 40) -> tuple[LinearProgram, FloatArray]:
    """Four equalities over 40 columns of 0 or 1, and a point that keeps them,
    which no search finds by itself.
    """
    random = np.random.default_rng(0)
    rows = random.integers(1, 100, (4, items)).astype(float)
    planted = (random.random(items) < 0.5).astype(float)
    sides = (rows @ planted).tolist()
    return program(
        [1] * items,
        rows.tolist(),
        lower=sides,
        upper=sides,
        bounds=(0, 1),
        integer=True,
    ), planted


@case("a point to start from is taken", Capability.INTEGER, Capability.START)
def start_is_used(subject: Subject) -> None:
    """Within one node nothing is found without the start;
    with it, the answer is at least as good.
    """
    lp, planted = market_split()
    session = subject.open(lp.arrays)
    session.set_start(planted)
    # One node: no more than the start, and what heuristics make of it.
    values = session.run(Limits(time=1.0, work=1))
    expect(
        values.x is not None, f"no point within one node, from a feasible start ({values.words})"
    )
    expect(
        lp.arrays.objective(planted) <= (values.objective or -INF) + 1e-6,
        "the answer is worse than the start",
    )


@case("a start changes no answer", Capability.INTEGER, Capability.START)
def start_changes_nothing(subject: Subject) -> None:
    """Neither a feasible start that is not optimal nor one that breaks the rows."""
    # One item fits and is not the best; all of them together are too heavy.
    for start in (np.eye(8)[0], np.ones(8)):
        session = subject.open(knapsack().arrays)
        session.set_start(start)
        expect_close(session.run(Limits()).objective, 52.0, "objective")


@case("a start of the wrong size is dropped with a reason", Capability.INTEGER, Capability.START)
def start_of_wrong_size(subject: Subject) -> None:
    """It must neither crash nor be taken in part."""
    session = subject.open(knapsack().arrays)
    session.set_start(np.ones(3))
    values = session.run(Limits())
    expect_close(values.objective, 52.0, "objective")
    expect(
        any("start dropped" in reason for reason in values.rebuilt),
        "Values.rebuilt does not say so",
    )


@case("integer programs are refused by a solver without them")
def integers_refused(subject: Subject) -> None:
    """A solver that claims no integers must not answer with fractions."""
    _refused_without(Capability.INTEGER, subject, knapsack())


@case("continuous programs are refused by a solver without them")
def continuous_refused(subject: Subject) -> None:
    """A solver that claims no continuous columns must not round them."""
    _refused_without(Capability.CONTINUOUS, subject, mixed())


def _refused_without(capability: Capability, subject: Subject, lp: LinearProgram) -> None:
    if subject.has(capability):
        return
    word = capability.value
    program = f"a program that needs {word!r} is answered"
    expect_refused(lambda: subject.run(lp.arrays), program, word, f"name {word!r}")


MILP = Capability.INTEGER
BOTH = (Capability.INTEGER, Capability.CONTINUOUS)

CASES = (
    *(
        answer.case(MILP)
        for answer in (
            KnownAnswer("knapsack", knapsack, 52.0),
            KnownAnswer("set cover", covering, 2.5),
            KnownAnswer("integer equality", equality, 14.0, x=[14, 19]),
            KnownAnswer("negative integers", negative, -9.0, x=[-3, 0]),
            KnownAnswer("fractional bounds of integers", fractional_bounds, 3.0, x=[2, 1]),
            KnownAnswer("rounding is not solving", whole_from_fractions, 2.0, x=[1, 1]),
            KnownAnswer("no gap is left by default", near_ties, 432_551.0),
            KnownAnswer("integer infeasible", infeasible, status=Status.INFEASIBLE),
            KnownAnswer(
                "integer infeasible relaxation", infeasible_relaxation, status=Status.INFEASIBLE
            ),
        )
    ),
    KnownAnswer("mixed", mixed, 24.5, x=[0, 9, 0, 1]).case(*BOTH),
    KnownAnswer("mixed unbounded", mixed_unbounded, status=Status.UNBOUNDED, may_stop=True).case(
        *BOTH
    ),
    start_is_used,
    start_changes_nothing,
    start_of_wrong_size,
    integers_refused,
    continuous_refused,
)
