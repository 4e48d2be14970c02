"""Water filling by brute force: dense programs of scipy, one for each stage and one for each job that might rise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.optimize as so

from optsched import Instance

FloatArray = np.ndarray
EXACT = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
SLACK, SATURATED = 1e-9, 1e-6


@dataclass
class Case:
    """An instance as plain numbers: everything that the reference needs, and nothing of what the engine makes of it.

    ``pairs`` are (job, job, pool, rate, rate); pairs of one size only.
    """

    capacity: Sequence[int]
    rate: FloatArray
    gang: FloatArray
    weight: FloatArray
    tenant: FloatArray
    tenants: Sequence[Mapping[str, Any]] = ()
    pairs: Sequence[tuple[int, int, int, float, float]] = ()
    steps: FloatArray | float = 1.0
    deadline: FloatArray | None = None
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def jobs(self) -> int:
        return len(self.rate)

    def instance(self) -> Instance:
        pools = [f"p{j}" for j in range(len(self.capacity))]
        return Instance.from_arrays(
            pools=dict(zip(pools, map(int, self.capacity), strict=True)),
            throughput=self.rate,
            gpus=self.gang,
            weight=self.weight,
            tenant=self.tenant if self.tenants else None,
            tenants=list(self.tenants),
            steps=self.steps,
            deadline=np.inf if self.deadline is None else self.deadline,
            colocation=[
                {
                    "jobs": [f"j{a}", f"j{b}"],
                    "pool": pools[j],
                    "gpus": int(self.gang[a]),
                    "throughput": [first, second],
                }
                for a, b, j, first, second in self.pairs
            ],
            **self.more,
        )

    # --- the polyhedron ----------------------------------------------------------------------------------------------

    def columns(self) -> list[tuple[dict[int, float], int, float]]:
        """(rate of each job in it, pool, GPUs) of every column that can run."""
        alone = [
            ({i: self.rate[i, j]}, j, self.gang[i])
            for i in range(self.jobs)
            for j in range(len(self.capacity))
            if self.rate[i, j] > 0 and self.gang[i] <= self.capacity[j]
        ]
        shared = [
            ({a: ra, b: rb}, j, self.gang[a])
            for a, b, j, ra, rb in self.pairs
            if self.gang[a] <= self.capacity[j]
        ]
        return alone + shared

    def placed(self) -> list[int]:
        """Jobs that have a column of their own."""
        return sorted({i for rates, _, _ in self.columns() if len(rates) == 1 for i in rates})

    def proportional(self) -> FloatArray:
        """prop of each job, over the pools where it can run."""
        capacity = np.asarray(self.capacity, float)
        runs = (self.rate > 0) & (self.gang[:, None] <= capacity)
        return (self.rate * runs) @ capacity / capacity.sum()

    def throughput(self) -> FloatArray:
        """Steps/s of each job in each column."""
        columns, T = self.columns(), np.zeros((self.jobs, len(self.columns())))
        for c, (rates, _, _) in enumerate(columns):
            for i, rate in rates.items():
                T[i, c] = rate
        return T

    def polyhedron(self) -> tuple[FloatArray, FloatArray]:
        """A x <= b: time, capacity and deadlines."""
        columns = self.columns()
        time = np.array([[float(i in rates) for rates, _, _ in columns] for i in range(self.jobs)])
        usage = np.array(
            [[gpus * (pool == j) for _, pool, gpus in columns] for j in range(len(self.capacity))]
        )
        A, b = [time, usage], [np.ones(self.jobs), np.asarray(self.capacity, float)]
        if self.deadline is not None:
            due = np.flatnonzero(np.isfinite(self.deadline))
            A.append(-self.throughput()[due])
            b.append(-np.broadcast_to(self.steps, self.jobs)[due] / self.deadline[due])
        return np.vstack(A), np.concatenate(b)

    def normalised(self) -> FloatArray:
        """nt as a matrix over the columns."""
        prop = self.proportional()
        return self.throughput() / np.where(prop > 0, prop, 1.0)[:, None]


def best(cost: FloatArray, A: FloatArray, b: FloatArray) -> tuple[float, FloatArray]:
    """Maximum of cost x, and a point where it is."""
    size = np.maximum(np.abs(A).max(axis=1), 1e-300)
    result = so.linprog(-cost, A / size[:, None], b / size, method="highs", options=EXACT)
    assert result.status == 0, result.message
    return -result.fun, result.x


def rates(case: Case, frozen: FloatArray) -> FloatArray:
    """Rate at which every job rises on the common clock."""
    rate = case.weight / case.gang
    for e, tenant in enumerate(case.tenants):
        of_tenant = np.flatnonzero((case.tenant == e) & ~frozen)
        if tenant.get("policy", "fairness") == "fifo":
            rate[case.tenant == e] = 0.0
            if len(of_tenant):
                first = of_tenant[0]
                rate[first] = tenant.get("weight", 1.0) / case.gang[first]
        else:
            share = case.weight[of_tenant].sum()
            rate[of_tenant] = (
                tenant.get("weight", 1.0) * case.weight[of_tenant] / share / case.gang[of_tenant]
            )
    return np.where(frozen, 0.0, rate)


def filled(case: Case, levels: FloatArray | None = None) -> FloatArray:
    """The level of every job that water filling gives."""
    levels = case.normalised() if levels is None else levels
    A, b = case.polyhedron()
    L = np.zeros(case.jobs)
    frozen = np.array([i not in case.placed() for i in range(case.jobs)])
    while not frozen.all():
        rate = rates(case, frozen)
        rows = np.block([[A, np.zeros((len(A), 1))], [-levels, rate[:, None]]])
        sides = np.concatenate([b, SLACK - L])
        rise, _ = best(np.append(np.zeros(A.shape[1]), 1.0), rows, sides)
        L = L + rate * max(rise, 0.0)
        before = frozen.copy()
        for i in np.flatnonzero(rate > 0):  # can this job rise while nobody falls?
            most, _ = best(
                levels[i],
                np.vstack([A, -np.delete(levels, i, 0)]),
                np.append(b, SLACK - np.delete(L, i)),
            )
            frozen[i] = most <= L[i] + SATURATED * max(levels[i].max(), 1e-30)
        assert (frozen & ~before).any()
    return L


def random_case(seed: int, jobs: int, **kinds: bool) -> Case:
    """A crowded cluster; ``gangs``, ``weights``, ``pairs``, ``tenants``, ``zeros``, ``twins``, ``deadlines``."""
    random = np.random.default_rng(seed)
    pools = int(random.integers(1, 4))
    rate = random.lognormal(0, 1, (jobs, pools))
    if kinds.get("zeros"):
        zero = random.random((jobs, pools)) < 0.4
        zero[np.arange(jobs), random.integers(0, pools, jobs)] = False
        rate[zero] = 0.0
    gang = random.choice([1, 1, 2, 4], jobs) if kinds.get("gangs") else np.ones(jobs, int)
    weight = random.choice([1.0, 2.0, 5.0], jobs) if kinds.get("weights") else np.ones(jobs)
    if kinds.get("twins"):
        kind = random.integers(0, max(jobs // 2, 1), jobs)
        rate, gang, weight = rate[kind], gang[kind], weight[kind]
    capacity = random.integers(4, 7, pools) if kinds.get("gangs") else random.integers(1, 4, pools)
    tenants: list[dict[str, Any]] = []
    tenant = np.full(jobs, -1)
    if kinds.get("tenants"):
        policies = random.choice(["fairness", "fifo"], random.integers(1, 4))
        tenants = [
            {"name": f"t{e}", "weight": float(random.choice([1, 2, 3])), "policy": str(policy)}
            for e, policy in enumerate(policies)
        ]
        tenant = random.integers(-1 if random.random() < 0.5 else 0, len(tenants), jobs)
    pairs = []
    if kinds.get("pairs"):
        for a in range(jobs):
            for b in range(a + 1, jobs):
                for j in range(pools):
                    if gang[a] == gang[b] and rate[a, j] * rate[b, j] > 0 and random.random() < 0.5:
                        share = random.uniform(0.3, 0.95, 2)
                        pairs.append(
                            (a, b, j, float(rate[a, j] * share[0]), float(rate[b, j] * share[1]))
                        )
    case = Case(capacity, rate, gang, weight, tenant, tenants, pairs)
    if kinds.get("deadlines"):
        keep = 0.7 * (case.throughput() @ even(case))
        deadline = np.where(random.random(jobs) < 0.4, 100.0, np.inf)
        deadline[keep <= 0] = np.inf
        case.steps, case.deadline = np.maximum(keep, 0.01) * 100.0, deadline
    return case


def even(case: Case) -> FloatArray:
    """Every job spread evenly over its own columns, all scaled down into capacity."""
    columns = case.columns()
    own = np.array([len(rates) == 1 for rates, _, _ in columns])
    owner = np.array([next(iter(rates)) for rates, _, _ in columns])
    x = own / np.maximum(np.bincount(owner[own], minlength=case.jobs), 1)[owner]
    A, b = case.polyhedron() if case.deadline is None else (None, None)
    return x / max(1.0, float((A @ x / b).max()))
