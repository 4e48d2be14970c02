"""The laws: times, values, what fits, and the inner problem against the full grid and a geometric program."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parameter_server_cases import REFERENCE, Job, random_job

# Private names: the steps by which laws become columns
from optsched.performance.parameter_server import ParameterServers

pytestmark = pytest.mark.property

seeds = st.integers(0, 2**32 - 1)
few = settings(max_examples=60, deadline=None)


def laws_of(*jobs: Job, asynchronous: bool = False, capacity: float = 1e9) -> ParameterServers:
    """The laws of some jobs, as arrays; of asynchronous ones theta is (a, b, c, d)."""
    resources = len(jobs[0].limit)
    terms = [
        (job.theta[0], job.theta[2], 0, 0, 0, job.theta[1], job.theta[3])
        if asynchronous
        else (*job.theta, 0, 0)
        for job in jobs
    ]
    return ParameterServers(
        workload=np.arange(len(jobs)),
        terms=np.array(terms, np.float64),
        names=tuple(f"r{row}" for row in range(resources)),
        pool_of=np.full(resources, -1),
        worker=np.array([job.worker for job in jobs], np.float64),
        server=np.array([job.server for job in jobs], np.float64),
        limit=np.array([job.limit for job in jobs], np.float64),
        capacity=np.full(resources, capacity),
        value=np.array([job.sigmoid for job in jobs], np.float64),
        constant=np.zeros(len(jobs), bool),
    )


def one(theta: tuple[float, ...], limit: float = 20.0) -> Job:
    """Workers use the first resource, servers the second; up to ``limit`` of each."""
    return Job(theta, (1, 0), (0, 1), (limit, limit), 1, (1, 1, 1))


def test_reference_optima() -> None:
    w, p, t = laws_of(*REFERENCE.jobs).fastest()
    assert list(zip(w, p, strict=True)) == [(6, 6), (4, 6), (8, 4), (5, 6)]
    assert t == pytest.approx([7.3, 98 / 15, 6.785, 4.62], rel=1e-12)
    laws = laws_of(*REFERENCE.jobs)
    value = laws.utility(np.arange(4), t * [job.steps for job in REFERENCE.jobs])
    assert value == pytest.approx([35.028357, 41.279563, 23.358381, 46.334369], abs=1e-6)


@few
@given(seed=seeds)
def test_the_inner_problem_is_exact(seed: int) -> None:
    random = np.random.default_rng(seed)
    jobs = [random_job(random) for _ in range(3)]
    laws = laws_of(*jobs)
    w, p, t = laws.fastest()
    for row, job in enumerate(jobs):
        assert (int(w[row]), int(p[row])) in set(job.pairs())
        assert t[row] * job.steps == pytest.approx(job.best(), rel=1e-12)
        assert job.tau(int(w[row]), int(p[row])) == pytest.approx(job.best(), rel=1e-12)


@few
@given(seed=seeds)
def test_the_asynchronous_inner_problem_is_exact(seed: int) -> None:
    random = np.random.default_rng(seed)
    job = random_job(random)
    a, b, c, d, _ = job.theta
    laws = laws_of(job, asynchronous=True)
    w, p, t = laws.fastest()
    grid = {(x, y): (a + b * x / y + c * x + d * y) / x for x, y in job.pairs()}
    assert t[0] == pytest.approx(min(grid.values()), rel=1e-12)
    assert grid[int(w[0]), int(p[0])] == pytest.approx(t[0], rel=1e-12)


@few
@given(seed=seeds)
def test_pairs_are_those_inside_the_limit(seed: int) -> None:
    random = np.random.default_rng(seed)
    jobs = [random_job(random) for _ in range(4)]
    laws = laws_of(*jobs)
    law, w, p = laws.pairs()
    assert list(zip(law, w, p, strict=True)) == [
        (row, *pair) for row, job in enumerate(jobs) for pair in job.pairs()
    ]
    assert laws.count_pairs().tolist() == [len(list(job.pairs())) for job in jobs]
    assert laws.step_seconds(law, w, p) * [jobs[row].steps for row in law] == pytest.approx(
        [jobs[row].tau(x, y) for row, x, y in zip(law, w, p, strict=True)], rel=1e-12
    )


def test_amounts_that_no_float_has_fit_as_they_should() -> None:
    laws = laws_of(Job((1, 0, 0, 0, 0), (0.1, 0), (0, 0.7), (0.3, 2.1), 1, (1, 1, 1)))
    assert laws.most_workers.tolist() == [3]
    assert laws.most_servers(np.array([0]), np.array([3])).tolist() == [3]


def test_rounding_at_the_edge_of_the_slack() -> None:
    """A fourth worker just fits beside one server, but then the server doesn't fit beside four workers."""
    laws = laws_of(Job((1, 0, 0, 0, 1), (0.1,), (1.1,), (1.4999999985,), 1, (1, 1, 1)))
    assert laws.most_workers.tolist() == [4]
    assert laws.count_pairs().tolist() == [3]
    with np.errstate(all="raise"):
        assert [column.tolist() for column in laws.fastest()[:2]] == [[3], [1]]


def test_the_capacity_is_a_limit_too() -> None:
    laws = laws_of(one((10, 0, 0, 0, 0)), capacity=7)
    assert laws.fastest()[0].tolist() == [7]
    assert laws.count_pairs().tolist() == [49]


def test_nothing_fits() -> None:
    laws = laws_of(one((10, 0, 0, 0, 0), limit=0.5), one((10, 0, 0, 0, 0), limit=2))
    w, p, t = laws.fastest()
    assert (w.tolist(), p.tolist()) == ([0, 2], [0, 1])
    assert math.isinf(t[0]) and t[1] == 5
    assert laws.count_pairs().tolist() == [0, 4]


def test_without_cost_every_worker_is_used() -> None:
    assert laws_of(one((10, 1, 0, 0, 0))).fastest()[0].tolist() == [20]


@pytest.mark.parametrize(("a", "d"), [(30, 0.5), (10, 2.0), (3, 0.001), (0.01, 1.0)])
def test_workers_that_cost_time(a: float, d: float) -> None:
    ideal = math.sqrt(a / d)
    near = {min(max(whole, 1), 20) for whole in (math.floor(ideal), math.ceil(ideal))}
    w, _, t = laws_of(one((a, 0, 0, d, 0))).fastest()
    assert t[0] == pytest.approx(min(a / n + d * n for n in near))
    assert w[0] in near


@pytest.mark.parametrize(("c", "e", "servers"), [(1, 0, 20), (0, 1, 1), (0, 0, 1)])
def test_servers_where_one_of_their_costs_is_missing(c: float, e: float, servers: int) -> None:
    assert laws_of(one((10, 0, c, 0, e))).fastest()[1].tolist() == [servers]


@few
@given(seed=seeds)
def test_a_larger_limit_is_never_slower(seed: int) -> None:
    random = np.random.default_rng(seed)
    job = random_job(random)
    more = Job(
        job.theta,
        job.worker,
        job.server,
        [v + random.integers(0, 3) for v in job.limit],
        1,
        job.sigmoid,
    )
    assert laws_of(more).fastest()[2][0] <= laws_of(job).fastest()[2][0] * (1 + 1e-12)


def test_the_value_never_grows_and_never_overflows() -> None:
    laws = laws_of(*REFERENCE.jobs)
    tau = np.concatenate([np.linspace(0, 500, 101), [1e300]])
    for row, job in enumerate(REFERENCE.jobs):
        value = laws.utility(np.full(len(tau), row), tau)
        assert (np.diff(value) <= 0).all()
        assert value[:-1] == pytest.approx([job.mu(x) for x in tau[:-1]], rel=1e-12)
        assert value[-1] == 0


@pytest.mark.parametrize("row", range(4))
def test_a_geometric_program_bounds_the_inner_problem(row: int) -> None:
    """The relaxation to real w, p >= 1 is a geometric program; the whole optimum is above and near."""
    cp = pytest.importorskip("cvxpy")
    job = REFERENCE.jobs[row]
    a, b, c, d, e = job.theta
    w, p = cp.Variable(pos=True), cp.Variable(pos=True)
    held = [
        sum(amount * count for amount, count in ((o, w), (g, p)) if amount > 0) <= v
        for o, g, v in zip(job.worker, job.server, job.limit, strict=True)
    ]
    problem = cp.Problem(
        cp.Minimize(a / w + b + c * w / p + d * w + e * p), [w >= 1, p >= 1, *held]
    )
    assert problem.is_dgp()
    problem.solve(gp=True, solver="CLARABEL")
    exact = laws_of(job).fastest()[2][0]
    assert problem.value == pytest.approx([7.3, 6.533333, 6.785, 4.578095][row], abs=1e-5)
    assert problem.value <= exact * (1 + 1e-6) and exact <= 1.07 * problem.value


def test_all_small_cases_of_floor_and_ceil() -> None:
    """A grid of coefficients where the ideal number of servers falls on, between and beyond whole numbers."""
    jobs = [one((5, 0, c, 0.1, e), limit=4) for c, e in product((0, 0.1, 1, 4, 9), (0, 0.1, 1, 4))]
    _, _, t = laws_of(*jobs).fastest()
    assert t == pytest.approx([job.best() for job in jobs], rel=1e-12)
