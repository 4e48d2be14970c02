"""The rounding of Lenstra, Shmoys and Tardos: within twice the optimum, its bound shown by prices, its parts alone."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_instances import machines, verified

import optsched
from optsched.errors import UsageError
from optsched.program.relaxed_makespan import relaxed_makespan
from optsched.program.slot_rounding import cut, whole_jobs

pytestmark = pytest.mark.oracle

REFERENCE = [[6, 3], [4, 8], [5, 5], [9, 2]]
seeds = st.integers(0, 2**32 - 1)


def rounded(instance: optsched.Instance) -> optsched.Solution:
    solution = verified(optsched.solve(instance, "makespan-unrelated", program="rounding"))
    assert solution.objective <= 2 * solution.bound * (1 + 1e-9)
    assert "at most 2 times the optimum" in solution.notes
    return solution


def best_makespan(p: np.ndarray) -> float:
    jobs, count = p.shape
    return min(
        max(sum(p[j, i] for j, at in enumerate(choice) if at == i) for i in range(count))
        for choice in itertools.product(range(count), repeat=jobs)
    )


def test_reference() -> None:
    solution = rounded(machines(REFERENCE))
    assert (solution.objective, solution.bound) == (10.0, 7.0)
    assert solution.status == "feasible" and solution.certificate.proof == "dual"
    assert optsched.verify(solution).bound == "verified"


@given(seed=seeds, whole=st.booleans())
@settings(max_examples=40, deadline=None)
def test_it_is_within_twice_the_optimum(seed: int, whole: bool) -> None:
    random = np.random.default_rng(seed)
    shape = int(random.integers(1, 7)), int(random.integers(1, 4))
    p = random.integers(1, 20, shape).astype(float) if whole else random.uniform(1, 20, shape)
    solution, best = rounded(machines(p.tolist())), best_makespan(p)
    assert solution.bound <= best * (1 + 1e-9) and best <= solution.objective * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_equal_jobs_on_pools_of_several_machines(seed: int) -> None:
    random = np.random.default_rng(seed)
    builder = optsched.InstanceBuilder()
    pools = [
        builder.add_pool(f"p{i}", nodes=1, gpus_per_node=int(random.integers(1, 4)))
        for i in range(2)
    ]
    for kind in range(3):
        durations = random.integers(1, 15, 2).tolist()
        for copy in range(int(random.integers(1, 4))):
            options = [
                {"pool": pool, "gpus": 1, "duration": duration}
                for pool, duration in zip(pools, durations, strict=True)
            ]
            builder.add_job(f"{kind}-{copy}", options=options)
    instance = builder.instance()
    exact = optsched.solve(instance, "makespan-unrelated", program="assignment")
    solution = rounded(instance)
    assert solution.bound <= exact.objective <= solution.objective


def test_what_the_assignment_refuses_is_refused() -> None:
    builder = optsched.InstanceBuilder()
    pool = builder.add_pool("p", nodes=1, gpus_per_node=2)
    builder.add_job("a", options=[{"pool": pool, "gpus": 2, "duration": 3}])
    with pytest.raises(
        UsageError, match="program=rounding: some configuration takes more than one"
    ):
        optsched.solve(builder.instance(), "makespan-unrelated", program="rounding")


def test_a_schedule_that_breaks_the_guarantee_is_found() -> None:
    """All jobs on the slow machine: a feasible schedule, but more than twice as long as the bound."""
    instance = machines([[1, 9], [1, 9], [1, 9]])
    document = rounded(instance).to_document()
    for number, row in enumerate(document["schedule"]):
        row |= {"pool": "m1", "option": 1, "start": 9.0 * number, "end": 9.0 * (number + 1)}
    found = optsched.verify(instance, document)
    messages = [finding.message for finding in found.findings if finding.field == "objective"]
    assert any("27 is more than 2 times the bound 3.0" in message for message in messages)


# --- the parts -----------------------------------------------------------------------------------------------------


@given(seed=seeds)
@settings(max_examples=60, deadline=None)
def test_the_least_time_against_all_thresholds(seed: int) -> None:
    """T* by trying every makespan that durations and loads allow, each by a linear program."""
    from scipy.optimize import linprog

    random = np.random.default_rng(seed)
    n, m = int(random.integers(1, 6)), int(random.integers(1, 4))
    p = random.integers(1, 12, (n, m)).astype(float)
    owner, resource = np.repeat(np.arange(n), m), np.tile(np.arange(m), n)
    found = relaxed_makespan(p.ravel(), owner, resource, np.ones(n), np.ones(m, np.int64))

    def least(limit: float) -> float:
        rows = np.kron(np.ones(n), np.eye(m)) * p.ravel()
        each = np.kron(np.eye(n), np.ones(m))
        best = linprog(
            np.append(np.zeros(n * m), 1.0),
            A_ub=np.hstack([rows, -np.ones((m, 1))]),
            b_ub=np.zeros(m),
            A_eq=np.hstack([each, np.zeros((n, 1))]),
            b_eq=np.ones(n),
            bounds=[*((0, 1 if d <= limit else 0) for d in p.ravel()), (0, None)],
        )
        return float(best.fun) if best.success else np.inf

    expected = min(max(limit, least(limit)) for limit in np.unique(p))
    assert found.bound == pytest.approx(expected, rel=1e-7)
    assert found.bound <= expected * (1 + 1e-12) and found.longest <= expected
    assert (p.ravel()[found.x > 1e-9] <= found.longest).all()


@given(seed=seeds)
@settings(max_examples=60, deadline=None)
def test_slots_add_at_most_the_largest_job_and_no_cost(seed: int) -> None:
    random = np.random.default_rng(seed)
    n, m = int(random.integers(1, 8)), int(random.integers(1, 5))
    share = random.dirichlet(np.full(m, 0.4), n)
    job, machine = np.repeat(np.arange(n), m), np.tile(np.arange(m), n)
    size, cost = random.uniform(1, 9, n * m), random.uniform(-5, 5, n * m)
    amount = share.ravel()
    chosen = whole_jobs(amount, job, machine, size, cost)
    assert np.array_equal(job[chosen], np.arange(n))
    assert cost[chosen].sum() <= amount @ cost + 1e-6
    given_load = np.bincount(machine, amount * size, minlength=m)
    load = np.bincount(machine[chosen], size[chosen], minlength=m)
    largest = np.zeros(m)
    np.maximum.at(largest, machine, np.where(amount > 0, size, 0.0))
    assert (load <= given_load + largest + 1e-6).all()


def test_rows_are_cut_at_multiples() -> None:
    pieces = cut(np.array([1.5, 1.0, 0.5]), np.array([0, 0, 1]), np.array([2.0, 2.0, 2.0]))
    assert pieces.row.tolist() == [0, 1, 1, 2] and pieces.unit.tolist() == [0, 0, 1, 0]
    assert pieces.amount.tolist() == pytest.approx([1.5, 0.5, 0.5, 0.5])
