"""Dominant resource fairness: the published example, brute force, and the four properties of the paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from unittest import mock

import filling_reference
import numpy as np
import pytest
from filling_reference import Case, best, filled, random_case

import optsched
from optsched import Instance, Solution

pytestmark = pytest.mark.property

NAME = "drf"
FloatArray = np.ndarray


def solve(instance: Instance, **options: Any) -> Solution:
    """Solved, certified, and verified from its file."""
    solution = optsched.solve(instance, NAME, **options)
    assert solution.ok and solution.status == "optimal", solution.certificate
    report = optsched.verify(instance, solution.to_document())
    assert report.ok and report.bound == "verified", report
    return solution


def shares(solution: Solution) -> FloatArray:
    """Dominant share of every job."""
    return np.array(
        [
            solution.figures["dominant share"].get(name, 0.0)
            for name in solution.instance.jobs_table.names
        ]
    )


def fractions(solution: Solution) -> FloatArray:
    """Fraction of the time that every job runs, by job."""
    held = dict.fromkeys(solution.instance.jobs_table.names, 0.0)
    for row in solution.to_document()["allocation"]:
        for job in row.get("jobs") or [row["job"]]:
            held[job] += row["fraction"]
    return np.array(list(held.values()))


def users(demand: FloatArray, capacity: FloatArray, **more: Any) -> Instance:
    """One job per user that would take ``demand`` if it ran all the time; GPUs are never short."""
    names = [f"resource {r}" for r in range(len(capacity))]
    return Instance.from_arrays(
        pools={"gpus": 10_000},
        workload=np.arange(len(demand)),
        workloads={
            f"user {i}": {
                "throughput": {"gpus": {"1": 1.0}},
                "demand": dict(zip(names, row, strict=True)),
            }
            for i, row in enumerate(demand.tolist())
        },
        resources=[
            {"name": name, "kind": "renewable", "capacity": c}
            for name, c in zip(names, capacity.tolist(), strict=True)
        ],
        **more,
    )


def drf(demand: FloatArray, capacity: FloatArray, **more: Any) -> FloatArray:
    """Tasks of each user, in units of its demand: a user alone could fill the cluster, and asks for that."""
    whole = 1.0 / (demand / capacity).max(axis=1)
    return fractions(solve(users(demand * whole[:, None], capacity, **more))) * whole


def random_users(seed: int) -> tuple[FloatArray, FloatArray]:
    random = np.random.default_rng(seed)
    count, resources = int(random.integers(2, 6)), int(random.integers(1, 5))
    return random.lognormal(0, 1, (count, resources)), random.uniform(5, 50, resources)


# --- the published example -------------------------------------------------------------------------------------------

CAPACITY = np.array([9.0, 18.0])
TASKS = np.array([[1.0, 4.0], [3.0, 1.0]])


@pytest.mark.parametrize("tasks", [6, 12])
def test_three_and_two_tasks_with_two_thirds_each(tasks: int) -> None:
    """Ghodsi et al., section 4.1: <9 CPU, 18 GB>, tasks <1 CPU, 4 GB> of user A and <3 CPU, 1 GB> of user B."""
    names = ("cores", "ram")
    instance = Instance.from_arrays(
        pools={"gpus": 1000},
        workload=np.repeat([0, 1], tasks),
        workloads={
            user: {"throughput": {"gpus": {"1": 1.0}}, "demand": dict(zip(names, row, strict=True))}
            for user, row in zip("AB", TASKS.tolist(), strict=True)
        },
        resources=[
            {"name": name, "kind": "renewable", "capacity": c}
            for name, c in zip(names, CAPACITY.tolist(), strict=True)
        ],
        tenant=np.repeat([0, 1], tasks),
        tenants=[{"name": "A"}, {"name": "B"}],
    )
    for classes in (True, False):
        solution = solve(instance, classes=classes)
        running, share = fractions(solution), shares(solution)
        assert running[:tasks].sum() == pytest.approx(3.0) and running[
            tasks:
        ].sum() == pytest.approx(2.0)
        assert share[:tasks].sum() == pytest.approx(2 / 3) and share[tasks:].sum() == pytest.approx(
            2 / 3
        )


@pytest.mark.parametrize("solver", ["highs", "clarabel", "glop"])
def test_the_example_with_one_job_per_user(solver: str) -> None:
    """A asks for nine tasks' worth of CPUs at most 4.5 of memory: jobs are whole users here."""
    solution = solve(users(TASKS * np.array([[4.5], [3.0]]), CAPACITY), solver=solver)
    assert fractions(solution) * [4.5, 3.0] == pytest.approx([3.0, 2.0])
    assert shares(solution) == pytest.approx([2 / 3, 2 / 3])


def test_weights_scale_dominant_shares() -> None:
    """Weights 2 : 1 on the example: shares 2 s and s, until the memory is full: 4 * 9 s + 3 s = 18."""
    tasks = drf(TASKS, CAPACITY, weight=np.array([2.0, 1.0]))
    assert tasks == pytest.approx([9 * 18 / 39, 3 * 18 / 39])
    third = drf(np.vstack([TASKS, TASKS[:1]]), CAPACITY, weight=np.array([0.5, 1.0, 0.5]))
    assert third == pytest.approx([1.5, 2.0, 1.5])


# --- brute force -----------------------------------------------------------------------------------------------------


@dataclass
class Demanding(Case):
    """Jobs that take so much of further resources of the cluster per GPU."""

    demand: FloatArray | None = None
    supply: FloatArray | None = None

    def polyhedron(self) -> tuple[FloatArray, FloatArray]:
        A, b = super().polyhedron()
        columns = self.columns()
        rows = [
            [sum(self.demand[i, r] for i in rates) * gpus for rates, _, gpus in columns]
            for r in range(len(self.supply))
        ]
        return np.vstack([A, rows]), np.append(b, self.supply)

    def shares(self) -> FloatArray:
        """Dominant share of one unit of every column, by job."""
        total = float(np.sum(self.capacity))
        levels = np.zeros((self.jobs, len(self.columns())))
        for c, (rates, _, gpus) in enumerate(self.columns()):
            for i in rates:
                levels[i, c] = gpus * max(1.0 / total, float((self.demand[i] / self.supply).max()))
        return levels

    def instance(self) -> Instance:
        pools = [f"p{j}" for j in range(len(self.capacity))]
        names = [f"r{r}" for r in range(len(self.supply))]
        self.more = {
            "resources": [
                {"name": name, "kind": "renewable", "capacity": c}
                for name, c in zip(names, self.supply.tolist(), strict=True)
            ]
        }
        workloads = {
            f"w{i}": {
                "throughput": {
                    pool: {str(self.gang[i]): rate}
                    for pool, rate in zip(pools, self.rate[i].tolist(), strict=True)
                },
                "demand": dict(zip(names, self.demand[i].tolist(), strict=True)),
            }
            for i in range(self.jobs)
        }
        return Instance.from_arrays(
            pools=dict(zip(pools, map(int, self.capacity), strict=True)), gpus=self.gang, weight=self.weight,
            tenant=self.tenant if self.tenants else None, tenants=list(self.tenants), workload=np.arange(self.jobs),
            workloads=workloads, **self.more,
        )  # fmt: skip


@pytest.mark.parametrize("seed", range(12))
def test_shares_are_those_of_brute_force(seed: int) -> None:
    base = random_case(seed, 6, gangs=True, zeros=True, weights=True, tenants=seed % 2 == 1)
    random = np.random.default_rng(seed)
    case = Demanding(
        **{**vars(base), "demand": random.lognormal(0, 1, (6, 2)), "supply": np.array([8.0, 12.0])}
    )
    case.demand[random.random((6, 2)) < 0.2] = 0.0
    case.demand *= (
        0.9
        * np.minimum(1.0, (case.supply / 4 / np.maximum(case.demand, 1e-9)).min(axis=1))[:, None]
    )
    expected = drf_levels(case)
    for classes in (True, False):
        found = shares(
            solve(case.instance(), solver=("highs", "clarabel", "glop")[seed % 3], classes=classes)
        )
        assert found == pytest.approx(expected, abs=1e-7 * expected.max())


def drf_levels(case: Demanding) -> FloatArray:
    """Brute force, where a job rises at its weight whatever its gang."""
    plain = filling_reference.rates
    with mock.patch.object(
        filling_reference, "rates", lambda case, frozen: plain(case, frozen) * case.gang
    ):
        return filled(case, case.shares())


def test_one_resource_is_max_min() -> None:
    """Only GPUs, of two pools that are alike: GPUs are shared by weight, up to the gang of each job."""
    gang, weight = np.array([1, 2, 4, 1, 8]), np.array([1.0, 1.0, 2.0, 5.0, 1.0])
    instance = Instance.from_arrays(
        pools={"a": 8}, throughput=np.ones((5, 1)), gpus=gang, weight=weight
    )
    held = shares(solve(instance)) * 8
    c = (8 - 1) / (1 + 1 + 2 + 1)  # the fourth job has all that it can use, one GPU
    expected = np.minimum(gang, weight * c)
    rest = 8 - expected[[0, 3]].sum()
    assert held == pytest.approx([1.0, rest / 4, rest / 2, 1.0, rest / 4])


def test_shares_of_gpus_are_of_the_whole_cluster() -> None:
    """The dominant share counts GPUs of all pools together; the throughput decides where they are."""
    instance = Instance.from_arrays(
        pools={"a": 2, "b": 2}, throughput=[[9.0, 1.0], [1.0, 9.0]], gpus=2
    )
    solution = solve(instance)
    assert shares(solution) == pytest.approx([0.5, 0.5])
    assert list(solution.throughput.values()) == pytest.approx([9.0, 9.0])


@pytest.mark.parametrize("cpus", [910, None])
def test_shares_of_cpus_are_of_all_pools_that_state_them(cpus: int | None) -> None:
    """Pool q has nothing for these jobs, so that its CPUs have no row in the program."""
    jobs = [{"id": f"{name}{i}", "workload": name} for name in "ab" for i in range(10)]
    nodes = {"nodes": 1, "gpus_per_node": 10}
    pools = [
        {"name": "p", **nodes, "cpus_per_node": 90},
        {"name": "q", **nodes, "cpus_per_node": cpus},
    ]
    document = {
        "format": "optsched-instance/1",
        "cluster": {"pools": pools},
        "workloads": {
            "a": {"throughput": {"p": 1.0}, "demand": {"cpu": 9}},
            "b": {"throughput": {"p": 1.0}, "demand": {"cpu": 1}},
        },
        "jobs": jobs,
    }
    solution = solve(Instance.from_document(document))
    # All the time is 1 / 20 of the GPUs, for jobs of a at least 9 of the CPUs, and p has 10 GPUs.
    of_a, of_b = max(1 / 20, 9 / (90 + (cpus or 0))), 1 / 20
    assert shares(solution) == pytest.approx([1 / (1 / of_a + 1 / of_b)] * 20)


def test_two_jobs_on_the_same_gpus_count_for_half_of_them() -> None:
    pair = {"jobs": ["j0", "j1"], "pool": "a", "gpus": 1, "throughput": [0.8, 0.7]}
    instance = Instance.from_arrays(pools={"a": 1}, throughput=[[1.0], [1.0]], colocation=[pair])
    solution = solve(instance)
    assert shares(solution) == pytest.approx([0.5, 0.5])
    assert list(solution.throughput.values()) == pytest.approx([0.8, 0.7])


def test_a_queue_of_tasks_is_served_in_order() -> None:
    demand = np.array([[3.0], [3.0], [3.0], [3.0]])
    queue = {
        "tenant": np.array([0, 0, 0, 1]),
        "tenants": [{"name": "q", "policy": "fifo"}, {"name": "f"}],
    }
    found = shares(solve(users(demand, np.array([9.0]), **queue)))
    assert found == pytest.approx([1 / 3, 1 / 3, 0.0, 1 / 3], abs=1e-9)
    flat = shares(solve(users(demand, np.array([9.0]), **queue), tenants=False))
    assert flat == pytest.approx([0.25] * 4)


# --- the four properties ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(10))
def test_sharing_incentive_envy_freeness_and_pareto_efficiency(seed: int) -> None:
    demand, capacity = random_users(seed)
    tasks = drf(demand, capacity)
    slice_of_the_cluster = (capacity / len(demand) / demand).min(axis=1)
    assert (tasks >= slice_of_the_cluster * (1 - 1e-7)).all()
    for user, asks in enumerate(demand):
        for other, others in enumerate(demand):
            with_the_other_bundle = tasks[other] * (others / asks).min()
            assert with_the_other_bundle <= tasks[user] * (1 + 1e-7)
    most, _ = best(
        np.ones(len(tasks)),
        np.vstack([demand.T, -np.eye(len(tasks))]),
        np.append(capacity, -tasks * (1 - 1e-9)),
    )
    assert most <= tasks.sum() * (1 + 1e-6)


@pytest.mark.parametrize("seed", [0, 1, pytest.param(2, marks=pytest.mark.study)])
def test_no_misreport_runs_more_tasks(seed: int) -> None:
    """Whatever a user says that it needs, the bundle it gets holds no more of its real tasks."""
    demand, capacity = random_users(seed + 50)
    honest, random = drf(demand, capacity), np.random.default_rng(seed)
    gained = 0.0
    for user in range(len(demand)):
        for lie in range(4):
            said = demand.copy()
            if lie % 2:
                said[user] *= random.lognormal(0, 1, len(capacity))
            else:
                said[user, random.integers(0, len(capacity))] *= random.choice([0.3, 0.9, 1.1, 3.0])
            bundle = drf(said, capacity)[user] * said[user]
            gained = max(gained, (bundle / demand[user]).min() / honest[user] - 1)
    assert gained <= 1e-7
