"""Allocation programs with known answers, for back-ends that take them as they are."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from optsched.candidates.compile import compile
from optsched.conformance.case import Subject, case, expect, expect_close
from optsched.errors import SolverUnavailable
from optsched.instance import Instance
from optsched.performance.table import TableModel
from optsched.program import AllocationProgram, Minimum
from optsched.solution.solution import Status
from optsched.solution.values import Termination
from optsched.solvers import Capability, Progress

ALONE = Capability.ALLOCATION


def allocation(
    throughput: ArrayLike,
    gpus: ArrayLike = 1,
    pools: ArrayLike = (1.0,),
    copies: int = 1,
    integral: bool = False,
) -> AllocationProgram:
    """maximise the smallest throughput of jobs on pools of so many GPUs."""
    rates = np.repeat(np.asarray(throughput, np.float64), copies, axis=0)
    sizes = np.asarray(pools).ravel()
    instance = Instance.from_arrays(
        pools={f"pool{j}": int(size) for j, size in enumerate(sizes)}, throughput=rates,
        gpus=np.repeat(np.broadcast_to(gpus, len(rates) // copies), copies),
    )  # fmt: skip
    classes = compile(instance, TableModel(instance.rates, instance)).classes(frozenset())
    return AllocationProgram(
        classes, Minimum(), sp.csr_matrix(classes.throughput), integral=integral
    )


def scattered(jobs: int = 400, pools: int = 4) -> AllocationProgram:
    """Jobs of which no two are alike, on too few GPUs."""
    random = np.random.default_rng(5)
    rates = random.lognormal(0.0, 1.0, (jobs, pools)) * (random.random((jobs, pools)) > 0.1)
    rates[:, 0] += 0.5
    return allocation(rates, random.choice([1, 2, 4], jobs), np.full(pools, max(4, jobs // 40)))


def _solved(subject: Subject, program: AllocationProgram, value: float, name: str) -> None:
    outcome = subject.engine().solve_allocation(program)
    expect(outcome.certificate.ok, f"{name}: {'; '.join(outcome.certificate.problems)}")
    expect(outcome.status is Status.OPTIMAL, f"{name}: status {outcome.status}, expected optimal")
    expect_close(outcome.value, value, name)


@case("smallest levels that are known", ALONE)
def known(subject: Subject) -> None:
    """One pool, two pools, gangs, a level that one slow job holds, jobs that can have nothing."""
    _solved(subject, allocation([[1.0], [1.0], [1.0]]), 1.0 / 3.0, "three alike on one GPU")
    _solved(subject, allocation([[1.0], [2.0]]), 2.0 / 3.0, "one is twice as fast")
    _solved(
        subject,
        allocation([[2.0, 1.0], [1.0, 2.0]], pools=(1, 1)),
        2.0,
        "each has its own best pool",
    )
    _solved(
        subject, allocation([[3.0, 1.0], [3.0, 1.0]], pools=(1, 1)), 2.0, "half of the time on each"
    )
    _solved(
        subject, allocation([[4.0], [4.0]], gpus=[2, 1], pools=(2,)), 4.0 / 1.5, "a gang takes two"
    )
    _solved(
        subject,
        allocation([[1e-6], [5.0]], pools=(8,)),
        1e-6,
        "a slow job holds the level, and prices are 0",
    )
    _solved(
        subject,
        allocation([[1e6, 1e-6], [1e6, 1e-6]], pools=(1, 1)),
        5e5 + 5e-7,
        "rates of twelve magnitudes",
    )
    _solved(subject, allocation([[1.0], [2.0], [4.0], [8.0]]), 1.0 / 1.875, "proportional rows")


@case("jobs of which no two are alike", ALONE)
def different(subject: Subject) -> None:
    """The bound from the duals is the value, to 1e-9."""
    outcome = subject.engine().solve_allocation(scattered())
    expect(
        outcome.certificate.ok and outcome.status is Status.OPTIMAL,
        "; ".join(outcome.certificate.problems),
    )
    assert outcome.bound is not None and outcome.value is not None
    gap = abs(outcome.bound - outcome.value) / outcome.value
    expect(gap <= 1e-9, f"a gap of {gap:.2g}, expected at most 1e-9")


@case("allocations: the same program gives the same bytes", ALONE)
def deterministic(subject: Subject) -> None:
    """Twice."""
    points = [subject.engine().solve_allocation(scattered()).values.x for _ in range(2)]
    expect(
        points[0] is not None
        and points[1] is not None
        and points[0].tobytes() == points[1].tobytes(),
        "they differ",
    )


@case("allocations: a stopped run keeps what it has", ALONE)
def stopped(subject: Subject) -> None:
    """After one iteration: a feasible point and a bound that it is not above, and no claim of an optimum."""
    outcome = subject.engine(work=1).solve_allocation(scattered())
    expect(outcome.certificate.ok, "; ".join(outcome.certificate.problems))
    expect(
        outcome.values.termination is Termination.WORK_LIMIT,
        f"termination {outcome.values.termination}",
    )
    if outcome.value is not None and outcome.bound is not None:
        expect(
            outcome.value <= outcome.bound * (1.0 + 1e-9),
            f"{outcome.value} is above the bound {outcome.bound}",
        )


@case("allocations: progress is told", ALONE, Capability.PROGRESS)
def progress(subject: Subject) -> None:
    """In the units of the objective, where it takes so long that anything is told."""
    events: list[Progress] = []
    outcome = subject.engine(on_progress=events.append).solve_allocation(scattered(20_000, 8))
    for event in events:
        expect(
            event.bound is None or event.bound >= (outcome.value or 0.0) * (1.0 - 1e-9),
            "a bound below the optimum",
        )


@case("allocations of whole jobs are refused by who does not take them", ALONE)
def whole(subject: Subject) -> None:
    """Before anything is solved, in words."""
    program = allocation([[1.0], [2.0]], integral=True)
    if subject.solver.refuses(program) is None:
        return
    try:
        subject.engine().solve_allocation(program)
    except SolverUnavailable as error:
        expect("whole" in str(error), f"the refusal does not say that jobs are whole: {error}")
        return
    expect(False, "jobs are whole, and it is answered")


CASES = (known, different, deterministic, stopped, progress, whole)
