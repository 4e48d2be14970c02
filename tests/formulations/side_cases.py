"""Instances for side constraints, and their programs written by hand: dense, job by job, from the document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.optimize as so

import optsched
from optsched import Instance, Solution

POOLS = ("a", "b")


def six_jobs(**more: Any) -> dict[str, Any]:
    """Four GPUs of a at 3 USD/h and 300 W (60 idle), four of b at 1 USD/h and 100 W (20 idle); six jobs of 1 GPU."""
    pools = [
        {
            "name": name,
            "nodes": 2,
            "gpus_per_node": 2,
            "cost_per_gpu_hour": cost,
            "watts_per_gpu": w,
            "watts_idle": v,
        }
        for name, cost, w, v in (("a", 3.0, 300.0, 60.0), ("b", 1.0, 100.0, 20.0))
    ]
    jobs = [
        {
            "id": f"j{i}",
            "workload": "w" if i < 3 else "u",
            "tenant": "vision" if i % 2 else "language",
        }
        for i in range(6)
    ]
    fast = {"w": 3.0, "u": 2.0}
    return {
        "format": "optsched-instance/1",
        "cluster": {"pools": pools},
        "workloads": {
            name: {"throughput": {"a": {"1": rate}, "b": {"1": 1.0}}} for name, rate in fast.items()
        },
        "tenants": [{"name": "vision"}, {"name": "language"}, {"name": "empty"}],
        "jobs": jobs,
        **more,
    }


def solve(*constraints: Any, formulation: str = "max-throughput", **more: Any) -> Solution:
    """A certified and verified solution of the six jobs, with parts of the document replaced."""
    solution = optsched.solve(
        Instance.from_document(six_jobs(**more)), formulation, constraints=constraints
    )
    assert solution.ok
    assert optsched.verify(solution.instance, solution.to_document()).ok
    return solution


def running(*held: tuple[str, str, int]) -> list[dict[str, Any]]:
    """Elastic jobs (workload ``e``) that run in a pool on so many GPUs."""
    made = []
    taken: dict[str, int] = {}
    for name, pool, count in held:
        start = taken.get(pool, 0)
        taken[pool] = start + count
        gpus = [f"{pool}-{slot // 2}/{slot % 2}" for slot in range(start, start + count)]
        made.append(
            {
                "id": name,
                "workload": "e",
                "gpus": {"min": 1, "max": 2},
                "running": {"pool": pool, "gpus": gpus},
            }
        )
    return made


ELASTIC = {"e": {"throughput": {"a": {"1": 2.0, "2": 3.0}, "b": {"1": 1.0, "2": 1.5}}}}
"""Workloads in which more GPUs, and those of a, are faster."""


def random_document(seed: int, jobs: int = 7) -> dict[str, Any]:
    """Two pools, jobs that repeat, gangs, elastic jobs, options, pairs that share GPUs, tenants, jobs that run now."""
    random = np.random.default_rng(seed)
    pools = [
        {"name": name, "nodes": 2, "gpus_per_node": int(random.integers(2, 4)), "cost_per_gpu_hour": cost,
         "watts_per_gpu": watts, "watts_idle": idle}
        for name, cost, watts, idle in (("a", 3.0, 300.0, 60.0), ("b", 1.0, 150.0, 20.0))
    ]  # fmt: skip
    workloads, made = {}, []
    for name in ("x", "y", "z"):
        fast = random.lognormal(0.5, 0.5, 2)
        counts = {"x": ("1",), "y": ("1", "2"), "z": ("2",)}[name]
        workloads[name] = {
            "throughput": {
                pool: {count: float(fast[j] * int(count) ** 0.8) for count in counts}
                for j, pool in enumerate(POOLS)
            }
        }
    for number in range(jobs):
        name = str(random.choice(["x", "x", "y", "z"]))
        job: dict[str, Any] = {
            "id": f"j{number}",
            "workload": name,
            "steps": float(random.choice([100, 250])),
        }
        job["gpus"] = {"x": 1, "y": {"min": 1, "max": 2}, "z": 2}[name]
        job["weight"] = float(random.choice([1.0, 2.0]))
        if random.random() < 0.8:
            job["tenant"] = str(random.choice(["s", "t"]))
        if random.random() < 0.4:
            pool, held = int(random.integers(2)), 2 if name == "z" else 1
            job["running"] = {
                "pool": POOLS[pool],
                "gpus": [f"{POOLS[pool]}-0/{i}" for i in range(held)],
            }
        made.append(job)
    made.append(
        {"id": "o", "workload": "own", "steps": 100.0, "tenant": "s",
         "options": [{"pool": "a", "gpus": 1, "share": 0.5, "throughput": 0.7},
                     {"pool": "b", "gpus": 2, "throughput": 2.5}]}
    )  # fmt: skip
    workloads["own"] = {}
    base = {name: workloads[name]["throughput"] for name in ("x", "z")}
    pairs = [
        {
            "workloads": [name, name],
            "pool": pool,
            "gpus": int(count),
            "throughput": [0.7 * base[name][pool][count]] * 2,
        }
        for name, count in (("x", "1"), ("z", "2"))
        for pool in POOLS
    ]
    return {
        "format": "optsched-instance/1", "cluster": {"pools": pools}, "workloads": workloads, "colocation": pairs,
        "tenants": [{"name": "s"}, {"name": "t"}], "jobs": made,
    }  # fmt: skip


@dataclass
class Column:
    """One or two jobs on GPUs of a pool: ``held`` is GPUs x share."""

    jobs: tuple[int, ...]
    rates: tuple[float, ...]
    pool: str
    gpus: int
    held: float


class ByHand:
    """The programs of a document, written from the definitions."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document, self.jobs = document, document["jobs"]
        self.pools = {pool["name"]: pool for pool in document["cluster"]["pools"]}
        self.size = {
            name: pool["nodes"] * pool["gpus_per_node"] for name, pool in self.pools.items()
        }
        self.columns = [
            column for number in range(len(self.jobs)) for column in self._alone(number)
        ]
        for first in range(len(self.jobs)):
            for second in range(first + 1, len(self.jobs)):
                self.columns += self._together(first, second)
        self.rate = np.zeros((len(self.jobs), len(self.columns)))
        self.takes_part = np.zeros_like(self.rate)
        for c, column in enumerate(self.columns):
            for job, rate in zip(column.jobs, column.rates, strict=True):
                self.rate[job, c], self.takes_part[job, c] = rate, 1.0
        self.barred = np.zeros(len(self.columns), bool)
        self.rows: list[tuple[np.ndarray, float]] = []  # row @ x <= side
        self.rows += [(row, 1.0) for row in self.takes_part]
        for name, size in self.size.items():
            self.rows.append(
                (np.array([column.held * (column.pool == name) for column in self.columns]), size)
            )

    def _alone(self, number: int) -> list[Column]:
        job = self.jobs[number]
        if "options" in job:
            return [
                Column(
                    (number,),
                    (o["throughput"],),
                    o["pool"],
                    o["gpus"],
                    o["gpus"] * o.get("share", 1.0),
                )
                for o in job["options"]
            ]
        table = self.document["workloads"][job["workload"]]["throughput"]
        return [
            Column((number,), (rate,), pool, int(count), float(count))
            for pool, rates in table.items()
            for count, rate in rates.items()
        ]

    def _together(self, first: int, second: int) -> list[Column]:
        names = [self.jobs[job]["workload"] for job in (first, second)]
        return [
            Column(
                (first, second),
                tuple(entry["throughput"]),
                entry["pool"],
                entry["gpus"],
                float(entry["gpus"]),
            )
            for entry in self.document["colocation"]
            if entry["workloads"] == names
        ]

    # --- side constraints ------------------------------------------------------------------------------------------

    def add(self, constraint: dict[str, Any]) -> None:
        """Rows of a side constraint, from its definition."""
        getattr(self, constraint["kind"].replace("-", "_"))(constraint)

    def _per_column(self, amount: Any) -> np.ndarray:
        return np.array([float(amount(column)) for column in self.columns])

    def _part(self, column: Column, tenant: str | None) -> float:
        theirs = [tenant is None or self.jobs[job].get("tenant") == tenant for job in column.jobs]
        return sum(theirs) / len(theirs)

    def _meant(self, constraint: dict[str, Any]) -> list[int]:
        return [
            number
            for number, job in enumerate(self.jobs)
            if job["id"] in (constraint.get("jobs") or [job["id"]])
            and constraint.get("tenant") in (None, job.get("tenant"))
            and constraint.get("workload") in (None, job["workload"])
        ]

    def budget(self, wanted: dict[str, Any]) -> None:
        price = self._per_column(
            lambda c: (
                self._part(c, wanted.get("tenant"))
                * c.held
                * self.pools[c.pool]["cost_per_gpu_hour"]
            )
        )
        self.rows.append((price, wanted["limit"]))

    def power(self, wanted: dict[str, Any]) -> None:
        idle, names = wanted.get("idle", True), wanted.get("pools") or list(self.pools)
        rest = {name: pool["watts_idle"] if idle else 0.0 for name, pool in self.pools.items()}
        draw = self._per_column(
            lambda c: (
                c.held * (self.pools[c.pool]["watts_per_gpu"] - rest[c.pool])
                if c.pool in names
                else 0.0
            )
        )
        self.rows.append(
            (draw, wanted["limit"] - sum(rest[name] * self.size[name] for name in names))
        )

    def _gpus(self, wanted: dict[str, Any]) -> tuple[np.ndarray, float]:
        names = wanted.get("pools") or list(self.pools)
        held = self._per_column(
            lambda c: self._part(c, wanted["tenant"]) * c.held if c.pool in names else 0.0
        )
        share = wanted.get("share")
        return held, wanted["gpus"] if share is None else share * sum(
            self.size[name] for name in names
        )

    def quota(self, wanted: dict[str, Any]) -> None:
        self.rows.append(self._gpus(wanted))

    def minimum_share(self, wanted: dict[str, Any]) -> None:
        held, gpus = self._gpus(wanted)
        if wanted.get("up_to_demand", True):
            most = [
                max(
                    amount
                    for column, amount in zip(self.columns, held, strict=True)
                    if column.jobs == (number,)
                )
                for number, job in enumerate(self.jobs)
                if job.get("tenant") == wanted["tenant"]
            ]
            gpus = min(gpus, sum(most))
        self.rows.append((-held, -gpus))

    def _named(self, wanted: dict[str, Any]) -> np.ndarray:
        pools, gpus = wanted.get("pools"), wanted.get("gpus")
        return np.array(
            [(not pools or c.pool in pools) and (not gpus or c.gpus in gpus) for c in self.columns],
            bool,
        )

    def pinned(self, wanted: dict[str, Any]) -> None:
        self.barred |= self.takes_part[self._meant(wanted)].any(axis=0) & ~self._named(wanted)

    def forbidden(self, wanted: dict[str, Any]) -> None:
        self.barred |= self.takes_part[self._meant(wanted)].any(axis=0) & self._named(wanted)

    def minimum_service(self, wanted: dict[str, Any]) -> None:
        for job in self._meant(wanted):
            if wanted.get("of", "time") == "time":
                self.rows.append((-self.takes_part[job], -wanted["fraction"]))
            else:
                self.rows.append((-self.rate[job], -wanted["fraction"] * self.isolated(job)))

    def moves(self, wanted: dict[str, Any]) -> None:
        stay, running = np.zeros(len(self.columns)), 0
        for number, job in enumerate(self.jobs):
            if "running" not in job:
                continue
            running += 1
            now = job["running"]
            mine = self.takes_part[number] * [
                c.pool == now["pool"]
                and (not wanted.get("gpus", True) or c.gpus == len(now["gpus"]))
                for c in self.columns
            ]
            stay += mine
            if wanted.get("keep") is not None:
                self.rows.append((-mine, -wanted["keep"]))
        if wanted.get("limit") is not None:
            self.rows.append((-stay, wanted["limit"] - running))

    # --- formulations ----------------------------------------------------------------------------------------------

    def smallest(self, job: int, pool: str) -> Column | None:
        """The column of a job alone with the fewest GPUs on a pool."""
        mine = [column for column in self.columns if column.jobs == (job,) and column.pool == pool]
        return min(mine, key=lambda column: column.gpus, default=None)

    def isolated(self, job: int) -> float:
        """steps/s with a slice of 1/n of every pool."""
        here = {pool: self.smallest(job, pool) for pool in self.pools}
        gang = min(column.gpus for column in here.values() if column is not None)
        share = {
            pool: self.size[pool] / (len(self.jobs) * (gang if column is None else column.held))
            for pool, column in here.items()
        }
        over = max(1.0, sum(share.values()))
        return sum(
            column.rates[0] * share[pool] / over
            for pool, column in here.items()
            if column is not None
        )

    def proportional(self, job: int) -> float:
        """Mean rate over the GPUs of the cluster."""
        here = {pool: self.smallest(job, pool) for pool in self.pools}
        rates = [
            0.0 if column is None else column.rates[0] * self.size[pool]
            for pool, column in here.items()
        ]
        return sum(rates) / sum(self.size.values())

    def gang(self, job: int) -> int:
        return min(column.gpus for column in self.columns if column.jobs == (job,))

    @property
    def stranded(self) -> bool:
        """Whether some job has no column left."""
        return bool(((self.takes_part * ~self.barred).sum(axis=1) == 0).any())

    def solve(self, formulation: str) -> float | None:
        """The optimum, None if there is none."""
        if self.stranded:
            return None
        if formulation == "proportional-fairness":
            return self._welfare()
        jobs, columns = self.rate.shape
        weight = np.array([job.get("weight", 1.0) for job in self.jobs])
        A = np.array([np.append(row, 0.0) for row, _ in self.rows])
        b = np.array([side for _, side in self.rows])
        if formulation == "max-throughput":
            cost = np.append(-self.rate.sum(axis=0), 0.0)
        else:
            unit = np.array([job["steps"] for job in self.jobs])
            if formulation == "max-min-fairness":
                unit = np.array(
                    [weight[i] * self.proportional(i) / self.gang(i) for i in range(jobs)]
                )
            A = np.vstack([A, np.hstack([-self.rate / unit[:, np.newaxis], np.ones((jobs, 1))])])
            b, cost = np.append(b, np.zeros(jobs)), np.append(np.zeros(columns), -1.0)
        bounds = [(0, 0 if barred else None) for barred in self.barred] + [
            (0, 0 if cost[-1] == 0 else None)
        ]
        result = so.linprog(cost, A, b, bounds=bounds)
        if result.status == 2:
            return None
        assert result.status == 0, result.message
        return 1.0 / -result.fun if formulation == "makespan" else -result.fun

    def _welfare(self) -> float | None:
        import cvxpy as cp

        x = cp.Variable(len(self.columns), nonneg=True)
        prop = np.array([self.proportional(job) for job in range(len(self.jobs))])
        weight = np.array([job.get("weight", 1.0) for job in self.jobs])
        level = (self.rate / prop[:, np.newaxis]) @ x
        rows = [
            np.array([row for row, _ in self.rows]) @ x <= np.array([side for _, side in self.rows])
        ]
        rows += [x[np.flatnonzero(self.barred)] == 0] if self.barred.any() else []
        problem = cp.Problem(cp.Maximize(weight @ cp.log(level)), rows)
        problem.solve(solver=cp.CLARABEL)
        return float(problem.value) if problem.status in ("optimal", "optimal_inaccurate") else None


def random_constraints(seed: int, document: dict[str, Any]) -> list[dict[str, Any]]:
    """Two or three side constraints, mostly such that they can be met."""
    random = np.random.default_rng(seed + 10**6)
    names = [job["id"] for job in document["jobs"]]
    some = [str(name) for name in random.choice(names, 3, replace=False)]
    tenant = str(random.choice(["s", "t"]))
    whom = [
        {"jobs": some},
        {"tenant": tenant},
        {"workload": "y"},
        {"tenant": tenant, "jobs": some},
    ][random.integers(4)]
    choices: list[dict[str, Any]] = [
        {"kind": "budget", "limit": float(random.uniform(4, 12))},
        {"kind": "budget", "limit": float(random.uniform(1, 6)), "tenant": tenant},
        {"kind": "power", "limit": float(random.uniform(700, 1600))},
        {"kind": "power", "limit": float(random.uniform(300, 1200)), "idle": False, "pools": ["a"]},
        {"kind": "quota", "tenant": tenant, "gpus": float(random.uniform(1, 4))},
        {
            "kind": "quota",
            "tenant": tenant,
            "share": float(random.uniform(0.1, 0.5)),
            "pools": ["b"],
        },
        {"kind": "minimum-share", "tenant": tenant, "share": float(random.uniform(0.2, 0.7))},
        {
            "kind": "minimum-share",
            "tenant": tenant,
            "gpus": float(random.uniform(0, 6)),
            "up_to_demand": False,
        },
        {"kind": "pinned", "pools": [str(random.choice(POOLS))], **whom},
        {"kind": "forbidden", "pools": ["a"], "gpus": [2], **whom},
        {"kind": "forbidden", "gpus": [int(random.integers(1, 3))], "workload": "y"},
        {"kind": "minimum-service", "fraction": float(random.uniform(0.1, 0.7))},
        {"kind": "minimum-service", "fraction": float(random.uniform(0.3, 1.1)), "of": "isolated"},
        {"kind": "minimum-service", "fraction": float(random.uniform(0.3, 0.9)), **whom},
        {"kind": "moves", "limit": float(random.uniform(0, 3)), "gpus": bool(random.integers(2))},
        {"kind": "moves", "keep": float(random.uniform(0.1, 0.6)), "limit": 3.0},
    ]
    count = int(random.integers(2, 4))
    return [choices[row] for row in random.choice(len(choices), count, replace=False)]
