"""Smallest levels and totals of utilities with known optima,
for back-ends that take allocation programs.

Every optimum is derived by hand; the words of each program say how.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from optsched.candidates.compile import compile
from optsched.conformance.case import (
    Case,
    Skipped,
    Subject,
    case,
    expect,
    expect_certified,
    expect_close,
    expect_refused,
    expect_same_bytes,
    expect_termination,
)
from optsched.instance import Instance
from optsched.performance.table import TableModel
from optsched.program import AllocationProgram, Minimum, Total
from optsched.solution import Status, Termination
from optsched.solvers import Capability, Progress

ALONE = Capability.ALLOCATION
LINEAR, LOG = 1.0, 0.0
"""Exponents: a total of levels, and of their logarithms; all others are powers v^e / e."""
SMALLEST = float("-inf")
"""In the place of an exponent: the smallest level."""


@dataclass(frozen=True)
class KnownOptimum:
    """A program and its optimum.

    Attributes
    ----------
    words : str
        What it is, and why that is its optimum.
    program : AllocationProgram
    optimum : float
    scale : float
        Size of the terms that are summed: the optimum may be 0.
    """

    words: str
    program: AllocationProgram
    optimum: float
    scale: float = 1.0


def on(instance: Instance, exponent: float) -> AllocationProgram:
    """The total of w v^e / e over all jobs of an instance, v their throughput;
    or the smallest throughput.
    """
    # The utility reads weights: jobs that differ in them are different classes.
    classes = compile(instance, TableModel(instance.rates, instance)).classes(frozenset({"weight"}))
    function = {LINEAR: "linear", LOG: "log"}.get(exponent, "power")
    utility = Minimum() if exponent == SMALLEST else Total(classes.weight, function, exponent)
    return AllocationProgram(classes, utility, sp.csr_matrix(classes.throughput))


def table(
    exponent: float,
    rates: ArrayLike,
    pools: Sequence[int] = (1,),
    gpus: Any = 1,
    weight: Any = 1.0,
) -> AllocationProgram:
    """Jobs with a rate in each pool."""
    found = np.asarray(rates, np.float64).reshape(-1, len(pools))
    count = len(found)
    return on(
        Instance.from_arrays(
            pools={f"pool{j}": size for j, size in enumerate(pools)},
            throughput=found,
            gpus=np.broadcast_to(gpus, count),
            weight=np.broadcast_to(np.asarray(weight, np.float64), count),
        ),
        exponent,
    )


def allocation(
    throughput: ArrayLike,
    gpus: ArrayLike = 1,
    pools: ArrayLike = (1,),
    copies: int = 1,
    integral: bool = False,
) -> AllocationProgram:
    """The smallest throughput of jobs, so many copies of each, on pools of so many GPUs."""
    rates = np.repeat(np.asarray(throughput, np.float64), copies, axis=0)
    each = np.repeat(np.broadcast_to(gpus, len(rates) // copies), copies)
    sizes = [int(size) for size in np.asarray(pools).ravel()]
    return replace(table(SMALLEST, rates, sizes, each), integral=integral)


def scattered(jobs: int = 400, pools: int = 4) -> AllocationProgram:
    """Jobs of which no two are alike, on too few GPUs."""
    random = np.random.default_rng(5)
    rates = random.lognormal(0.0, 1.0, (jobs, pools)) * (random.random((jobs, pools)) > 0.1)
    # Every job can run in the first pool: no level is bound to be 0.
    rates[:, 0] += 0.5
    return allocation(rates, random.choice([1, 2, 4], jobs), np.full(pools, max(4, jobs // 40)))


def licensed(exponent: float, jobs: int, licences: float) -> AllocationProgram:
    """Jobs on enough GPUs, each with 2 steps/s, or 5 as long as it holds a licence."""
    plain = {"pool": "p", "gpus": 1, "throughput": 2.0}
    fast = {"pool": "p", "gpus": 1, "throughput": 5.0, "uses": {"licence": 1.0}}
    return _document(
        exponent,
        [{"id": f"j{k}", "options": [plain, fast]} for k in range(jobs)],
        {"name": "licence", "kind": "consumable", "capacity": licences},
        gpus=max(jobs, 1),
    )


def elastic(exponent: float, jobs: int, gpus: int) -> AllocationProgram:
    """Jobs with 1, 1.5 and 2 steps/s on 1, 2 and 4 GPUs of one pool."""
    rates = ((1, 1.0), (2, 1.5), (4, 2.0))
    options = [{"pool": "p", "gpus": held, "throughput": rate} for held, rate in rates]
    return _document(
        exponent,
        [{"id": f"j{k}", "options": options} for k in range(jobs)],
        None,
        gpus=gpus,
    )


def _document(
    exponent: float,
    jobs: list[dict[str, Any]],
    resource: Any,
    gpus: int,
) -> AllocationProgram:
    cluster = {"pools": [{"name": "p", "nodes": 1, "gpus_per_node": gpus}]}
    if resource is not None:
        cluster["resources"] = [resource]
    return on(
        Instance.from_document({"format": "optsched-instance/1", "cluster": cluster, "jobs": jobs}),
        exponent,
    )


def per_cost(program: AllocationProgram, price: Sequence[float]) -> AllocationProgram:
    """With the levels of each pool divided by its price."""
    each = np.asarray(price)[program.classes.pool]
    return replace(program, levels=sp.csr_matrix(program.levels @ sp.diags_array(1.0 / each)))


def without_level(program: AllocationProgram, row: int) -> AllocationProgram:
    """With levels of 0 in one row: a class that can run, and gets nothing from it."""
    keep = np.ones(len(program.classes))
    keep[row] = 0.0
    return replace(program, levels=sp.csr_matrix(sp.diags_array(keep) @ program.levels))


def linear() -> list[KnownOptimum]:
    """Totals of throughputs, which go to whom they are worth most."""
    # On one pool GPUs go to the jobs with the largest w r per GPU, each for all its time at most.
    return [
        KnownOptimum(
            "one GPU: the fastest has it all the time", table(LINEAR, [1.0, 2.0, 4.0]), 4.0
        ),
        KnownOptimum(
            "one job: its best pool, for it cannot be in both",
            table(LINEAR, [[3.0, 5.0]], (1, 1)),
            5.0,
        ),
        KnownOptimum(
            "two GPUs, two jobs: 3 + 2 beats 1 + 2",
            table(LINEAR, [[3.0, 1.0], [2.0, 2.0]], (1, 1)),
            5.0,
        ),
        KnownOptimum("equal rows: however they share", table(LINEAR, [2.0, 2.0, 2.0]), 2.0),
        KnownOptimum(
            "proportional rows: the largest on the faster pool",
            table(LINEAR, [[1.0, 2.0], [2.0, 4.0], [4.0, 8.0]], (1, 1)),
            10.0,
        ),
        KnownOptimum(
            "weights: 3 x 1 beats 1 x 2", table(LINEAR, [1.0, 2.0], weight=[3.0, 1.0]), 3.0
        ),
        KnownOptimum(
            "a gang of two has what one GPU leaves: half of its time",
            table(LINEAR, [3.0, 2.0], (2,), gpus=[2, 1]),
            3.5,
        ),
        KnownOptimum(
            "room for all: the sum of the best",
            table(LINEAR, [[1.0, 2.0], [5.0, 3.0]], (4, 4)),
            7.0,
        ),
        KnownOptimum(
            "a rate of 0 in a pool: 3 + 1, not 3 + 0",
            table(LINEAR, [[0.0, 1.0], [3.0, 4.0]], (1, 1)),
            4.0,
        ),
        KnownOptimum(
            "rates of twelve magnitudes",
            table(LINEAR, [1e6, 1e-6], (2,)),
            1e6 + 1e-6,
            1e6,
        ),
        KnownOptimum(
            "a job of no worth beside one", without_level(table(LINEAR, [1.0, 2.0], (2,)), 0), 2.0
        ),
        KnownOptimum(
            "per cost: 6 / 3 in one pool, 4 / 1 in the other",
            per_cost(table(LINEAR, [[6.0, 4.0], [6.0, 2.0]], (1, 1)), [3.0, 1.0]),
            6.0,
        ),
        KnownOptimum("one licence: one job has 5, the others 2", licensed(LINEAR, 4, 1.0), 11.0),
        KnownOptimum("no licence at all: everybody has 2", licensed(LINEAR, 4, 0.0), 8.0),
        KnownOptimum("half a licence is half of what it adds", licensed(LINEAR, 1, 0.5), 3.5),
        KnownOptimum("two GPUs each, which add .5 each", elastic(LINEAR, 2, 4), 3.0),
        KnownOptimum("of three GPUs two are first ones", elastic(LINEAR, 2, 3), 2.5),
        KnownOptimum("eight GPUs: nobody takes more than four", elastic(LINEAR, 2, 12), 4.0),
    ]


def proportional() -> list[KnownOptimum]:
    """Sums of logarithms, in which equal weights have equal shares."""
    # One GPU is shared as the weights are: the optimum is sum w ln(r w / sum of w).
    ln = np.log
    return [
        KnownOptimum("one job: its best pool", table(LOG, [[3.0, 5.0]], (1, 1)), ln(5.0)),
        KnownOptimum("equal rows: a fifth each", table(LOG, np.ones(5)), -5 * ln(5.0), 5.0),
        KnownOptimum(
            "one GPU: equal shares, whatever the rates",
            table(LOG, [1.0, 2.0, 4.0]),
            3 * ln(2.0 / 3.0),
            3.0,
        ),
        KnownOptimum(
            "one GPU: shares as the weights",
            table(LOG, np.ones(3), weight=[1.0, 2.0, 5.0]),
            ln(1 / 8) + 2 * ln(1 / 4) + 5 * ln(5 / 8),
            8.0,
        ),
        KnownOptimum(
            "each on its own pool",
            table(LOG, [[2.0, 1.0], [1.0, 2.0]], (1, 1)),
            2 * ln(2.0),
            2.0,
        ),
        KnownOptimum(
            "the same two pools: half of each",
            table(LOG, [[3.0, 1.0], [3.0, 1.0]], (1, 1)),
            2 * ln(2.0),
            2.0,
        ),
        KnownOptimum(
            "room for all: 0, a sum of terms that are 0",
            table(LOG, [1.0, 1.0], (8,)),
            0.0,
            2.0,
        ),
        KnownOptimum(
            "room for all: 0, as ln 4 and ln 1/4 cancel",
            table(LOG, [4.0, 0.25], (8,)),
            0.0,
            3.0,
        ),
        KnownOptimum(
            "a gang of two pays twice, and has half of its time",
            table(LOG, [1.0, 1.0], (2,), gpus=[2, 1]),
            -ln(2.0),
            2.0,
        ),
        KnownOptimum(
            "a job at its limit of time leaves the rest to other jobs",
            table(LOG, np.ones(3), (2,), weight=[1.0, 1.0, 4.0]),
            -2 * ln(2.0),
            6.0,
        ),
        # The logarithms cancel: what may be off is measured by their size, not by that of the sum.
        KnownOptimum(
            "rates of twelve magnitudes: shares do not depend on them",
            table(LOG, [1e6, 1e-6]),
            -2 * ln(2.0),
            30.0,
        ),
        KnownOptimum(
            "a pool that is nobody's",
            table(LOG, [[1.0, 0.0], [1.0, 0.0]], (1, 1)),
            -2 * ln(2.0),
            2.0,
        ),
        KnownOptimum(
            "one licence in turns: the sum of levels is 7, its half the best",
            licensed(LOG, 2, 1.0),
            2 * ln(3.5),
            2.0,
        ),
        KnownOptimum("two GPUs each", elastic(LOG, 2, 4), 2 * ln(1.5), 2.0),
        KnownOptimum(
            "one and a half GPUs each: half of the time two",
            elastic(LOG, 2, 3),
            2 * ln(1.25),
            2.0,
        ),
    ]


def alpha_fair() -> list[KnownOptimum]:
    """Sums of powers v^e / e; of one GPU the shares are in proportion to r^(e / (1 - e))."""
    # On one GPU the optimum is S^(1 - e) / e, where S is the sum of (w r^e)^(1 / (1 - e)).
    return [
        KnownOptimum(
            "e = -1, equal rows: a third each, 3 x -3",
            table(-1.0, np.ones(3)),
            -9.0,
            9.0,
        ),
        KnownOptimum("e = -1: -(sum of r^-1/2)^2", table(-1.0, [1.0, 4.0, 16.0]), -3.0625, 3.0),
        KnownOptimum("e = 1/2: 2 sqrt(sum of r)", table(0.5, [1.0, 3.0, 5.0]), 6.0, 6.0),
        KnownOptimum(
            "e = 1/2, weights: 2 sqrt(sum of w^2 r)",
            table(0.5, [1.0, 2.0], weight=[1.0, 2.0]),
            6.0,
            6.0,
        ),
        KnownOptimum(
            "e = -4, equal rows: a half each, 2 x -(2^4) / 4",
            table(-4.0, [1.0, 1.0]),
            -8.0,
            8.0,
        ),
        KnownOptimum("e = -1, one job", table(-1.0, [[2.0, 4.0]], (1, 1)), -0.25),
        KnownOptimum(
            "e = 1/2, the same two pools: half of each",
            table(0.5, [[3.0, 1.0], [3.0, 1.0]], (1, 1)),
            4 * np.sqrt(2.0),
            4.0,
        ),
        KnownOptimum(
            "e = 1/2, a job of no worth",
            without_level(table(0.5, [1.0, 4.0], (2,)), 0),
            4.0,
            4.0,
        ),
        KnownOptimum("e = -1, room for all", table(-1.0, [[1.0, 2.0], [4.0, 3.0]], (4, 4)), -0.75),
        KnownOptimum("e = -1, one licence in turns: 3.5 each", licensed(-1.0, 2, 1.0), -2 / 3.5),
        KnownOptimum(
            "e = 1/2, one and a half GPUs each: 1.25",
            elastic(0.5, 2, 3),
            4 * np.sqrt(1.25),
            4.0,
        ),
    ]


def levels() -> list[KnownOptimum]:
    """The smallest level: one pool, two pools, gangs, and a level that one slow job holds."""
    # A level t takes t s / r GPUs of each job: on one pool of W GPUs it is W over the sum of s / r.
    return [
        KnownOptimum("three alike on one GPU", table(SMALLEST, np.ones(3)), 1.0 / 3.0),
        KnownOptimum("one is twice as fast", table(SMALLEST, [1.0, 2.0]), 2.0 / 3.0),
        KnownOptimum(
            "each has its own best pool", table(SMALLEST, [[2.0, 1.0], [1.0, 2.0]], (1, 1)), 2.0
        ),
        KnownOptimum(
            "half of the time on each", table(SMALLEST, [[3.0, 1.0], [3.0, 1.0]], (1, 1)), 2.0
        ),
        KnownOptimum("a gang takes two", table(SMALLEST, [4.0, 4.0], (2,), gpus=[2, 1]), 4.0 / 1.5),
        KnownOptimum(
            "a slow job holds the level, and prices are 0",
            table(SMALLEST, [1e-6, 5.0], (8,)),
            1e-6,
            1e-6,
        ),
        KnownOptimum(
            "rates of twelve magnitudes",
            table(SMALLEST, [[1e6, 1e-6], [1e6, 1e-6]], (1, 1)),
            5e5 + 5e-7,
        ),
        KnownOptimum("proportional rows", table(SMALLEST, [1.0, 2.0, 4.0, 8.0]), 1.0 / 1.875),
    ]


def smallest() -> list[KnownOptimum]:
    """The smallest level, of degenerate data."""
    return [
        KnownOptimum("one job", table(SMALLEST, [[3.0, 5.0]], (1, 1)), 5.0),
        KnownOptimum("equal rows: a fifth each", table(SMALLEST, np.ones(5)), 0.2),
        KnownOptimum(
            "a job that can have nothing", without_level(table(SMALLEST, [1.0, 2.0]), 0), 0.0
        ),
        KnownOptimum(
            "a pool that is nobody's", table(SMALLEST, [[1.0, 0.0], [1.0, 0.0]], (1, 1)), 0.5
        ),
        KnownOptimum("one licence in turns: 7 / 2", licensed(SMALLEST, 2, 1.0), 3.5),
        KnownOptimum("no licence at all", licensed(SMALLEST, 3, 0.0), 2.0),
        KnownOptimum("two GPUs each", elastic(SMALLEST, 2, 4), 1.5),
        KnownOptimum(
            "one and a half GPUs each: half of the time two", elastic(SMALLEST, 2, 3), 1.25
        ),
    ]


def _known(name: str, programs: Callable[[], list[KnownOptimum]], relative: float) -> Case:
    """The case that value and bound of every program are its optimum."""

    def check(subject: Subject) -> None:
        every = programs()
        # A back-end may take some sorts of programs and refuse others.
        taken = [known for known in every if subject.solver.refuses(known.program) is None]
        if not taken:
            raise Skipped(f"refuses them all: {subject.solver.refuses(every[0].program)}")
        for known in taken:
            outcome = subject.engine().solve_directly(known.program)
            expect_certified(outcome, known.words, Status.OPTIMAL)
            # An optimum of 0 may be a sum of terms that cancel.
            allowed = relative * max(abs(known.optimum), known.scale)
            expect_close(outcome.value, known.optimum, known.words, absolute=allowed)
            expect_close(outcome.bound, known.optimum, f"{known.words}: bound", absolute=allowed)

    return Case(name, check, frozenset({ALONE}))


@case("jobs of which no two are alike", ALONE)
def different(subject: Subject) -> None:
    """The bound from the duals is the value, to 1e-9."""
    outcome = subject.engine().solve_directly(scattered())
    expect_certified(outcome, "", Status.OPTIMAL)
    assert outcome.bound is not None and outcome.value is not None
    gap = abs(outcome.bound - outcome.value) / outcome.value
    expect(gap <= 1e-9, f"a gap of {gap:.2g}, expected at most 1e-9")


@case("allocations: the same program gives the same bytes", ALONE)
def deterministic(subject: Subject) -> None:
    """Two runs of one program, bit by bit."""
    expect_same_bytes(*(subject.engine().solve_directly(scattered()).values for _ in range(2)))


@case("allocations: a stopped run keeps what it has", ALONE)
def stopped(subject: Subject) -> None:
    """After one iteration: a feasible point and a bound that it is not above,
    and no claim of an optimum.
    """
    # One iteration solves no program with so many different jobs.
    outcome = subject.engine(work=1).solve_directly(scattered())
    expect_certified(outcome)
    expect_termination(outcome.values, Termination.WORK_LIMIT)
    if outcome.value is not None and outcome.bound is not None:
        expect(
            outcome.value <= outcome.bound * (1.0 + 1e-9),
            f"{outcome.value} is above the bound {outcome.bound}",
        )


@case("allocations: progress is reported", ALONE, Capability.PROGRESS)
def progress(subject: Subject) -> None:
    """In the units of the objective, where it takes so long that there is progress."""
    events: list[Progress] = []
    # Large enough that there is something to report before the end.
    outcome = subject.engine(on_progress=events.append).solve_directly(scattered(20_000, 8))
    for event in events:
        expect(
            event.bound is None or event.bound >= (outcome.value or 0.0) * (1.0 - 1e-9),
            "a bound below the optimum",
        )


@case("allocations of whole jobs are refused by a solver without them", ALONE)
def whole(subject: Subject) -> None:
    """Before anything is solved, in words."""
    program = allocation([[1.0], [2.0]], integral=True)
    if subject.solver.refuses(program) is None:
        return
    expect_refused(
        lambda: subject.engine().solve_directly(program),
        "jobs are whole, and it is answered",
        "whole",
        "say that jobs are whole",
    )


@case("a sum of logarithms of nothing is refused, or reported as what it is", ALONE)
def worthless(subject: Subject) -> None:
    """A job that can have nothing is worth minus infinity: no answer is an optimum of that."""
    program = without_level(table(LOG, [1.0, 2.0]), 0)
    if subject.solver.refuses(program) is None:
        outcome = subject.engine().solve_directly(program)
        expect(
            outcome.status is not Status.OPTIMAL,
            f"an optimum of {outcome.value}, where a job has nothing",
        )


CASES = (
    _known("smallest levels that are known", levels, 1e-9),
    different,
    deterministic,
    stopped,
    progress,
    whole,
    _known("smallest levels of degenerate data", smallest, 1e-9),
    _known("total throughputs that are known", linear, 1e-9),
    _known("sums of logarithms that are known", proportional, 1e-8),
    _known("sums of powers that are known", alpha_fair, 1e-8),
    worthless,
)
