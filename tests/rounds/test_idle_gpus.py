"""No GPU idles while a job waits or runs slower: rules R1 and R2 of `optsched.rounds.idle`, by brute force."""

from __future__ import annotations

import random
from typing import Any

import pytest
from idle_rules import World, idle_gpus

import optsched
from optsched.rounds import Scheduler

pytestmark = pytest.mark.property

ROUND = 60.0
AGNOSTIC = {"agnostic": True}
REFERENCE = {"agnostic": True, "reference_pool": "p0"}
POLICIES: dict[str, dict[str, Any]] = {
    "max-min": {"formulation": "max-min-fairness", "hysteresis": 0.5},
    "max-min agnostic": {"formulation": "max-min-fairness", "options": AGNOSTIC},
    "water-filling": {"formulation": "water-filling", "hysteresis": 0.0},
    "water-filling agnostic": {"formulation": "water-filling", "options": AGNOSTIC},
    "max-throughput": {"formulation": "max-throughput", "max_moves": 1},
    "makespan": {"formulation": "makespan", "max_moves": 0},
    "makespan agnostic": {"formulation": "makespan", "options": REFERENCE},
    "finish-time-fairness": {"formulation": "finish-time-fairness", "patience": 3},
    "isolated": {"formulation": "isolated"},
    "drf": {"formulation": "drf"},
    "proportional-fairness": {"formulation": "proportional-fairness"},
    "fifo filled": {"formulation": "fifo", "fill": True},
    "fcfs": {"ranking": "fcfs"},
    "srtf": {"ranking": "srtf"},
    "las": {"ranking": "las", "max_moves": 2},
    "2d-las": {"ranking": "2d-las", "patience": 4},
    "tiresias": {"ranking": "tiresias"},
    "srtf fastest": {"ranking": "srtf", "options": {"gpus": "fastest"}},
    "priority": {"ranking": "priority"},
    "edf": {"ranking": "edf"},
}


class Storm:
    """A small cluster under random events, each round of which is checked."""

    def __init__(self, seed: int, policy: dict[str, Any]) -> None:
        self.random = r = random.Random(seed)
        self.policy = policy
        nodes = {}
        pools = []
        left = 6
        scarce = r.random() < 0.4
        for number in range(r.choice((1, 2, 2, 3, 3))):
            cpus = r.choice((2.0, 4.0, 6.0)) if scarce else 99.0
            documents = []
            for row in range(r.choice((1, 2))):
                count = min(r.choice((1, 1, 2, 3)), left)
                if count:
                    left -= count
                    nodes[f"n{number}{row}"] = (f"p{number}", count, cpus)
                    documents.append({"name": f"n{number}{row}", "gpus": count, "cpus": cpus})
            if documents:
                pools.append({"name": f"p{number}", "nodes": documents, "gpus_per_node": 1})
        self.pools = [pool["name"] for pool in pools]
        self.world = World(nodes, {})
        self.workloads = {f"w{cpu}": {"demand": {"cpu": float(cpu)}} for cpu in (0, 1, 2)}
        instance = optsched.Instance.from_document(
            {
                "format": "optsched-instance/1", "now": 0.0, "round": ROUND, "jobs": [],
                "workloads": self.workloads, "cluster": {"pools": pools},
            }  # fmt: skip
        )
        self.scheduler = Scheduler(instance, policy, isolate=False)
        self.now = 0.0
        self.made = 0
        self.moves = 0
        self.wrong: list[str] = []

    def job(self) -> dict[str, Any]:
        r = self.random
        self.made += 1
        speed = {pool: r.choice((1.0, 1.0, 2.0, 4.0)) for pool in self.pools}
        size = r.choice((1, 1, 1, 2, 2, 3))
        elastic = r.random() < 0.25
        rates: dict[str, Any] = {}
        for pool, one in speed.items():
            if rates and r.random() < 0.15:
                continue
            if elastic:
                rates[pool] = {"1": one, "2": {"1": 1.7 * one}, "3": {"1": 2.1 * one, "2": 1.8 * one}}
            elif size > 1:
                slower = {"2": 0.7 * size * one} if r.random() < 0.5 else {}
                rates[pool] = {str(size): {"1": size * one, **slower}}
            else:
                rates[pool] = one
        cpu = r.choice((0, 1, 2))
        name = f"j{self.made}"
        self.world.cpus[name] = float(cpu)  # type: ignore[index]
        job: dict[str, Any] = {
            "id": name, "steps": r.choice((300.0, 2000.0, 1e5)), "workload": f"w{cpu}",
            "gpus": {"min": 1, "max": 3, "levels": [1, 2, 3]} if elastic else size,
            "throughput": rates,
            "weight": r.choice((1.0, 2.0)), "restart_cost": r.choice((0.0, 5.0, 40.0, 300.0)),
        }  # fmt: skip
        if r.random() < 0.1:
            job["preemptible"] = False
        return job

    def events(self) -> None:
        r = self.random
        jobs = self.world.jobs
        for name in sorted(jobs):
            if r.random() < 0.15:
                self.scheduler.complete(name, now=self.now)
                del jobs[name]
        while len(jobs) < 6 and r.random() < 0.6:
            job = self.job()
            self.scheduler.submit(job, now=self.now)
            jobs[job["id"]] = job
        for name in sorted(self.world.nodes):
            if r.random() < 0.06:
                closed = name in self.world.closed
                (self.scheduler.node_up if closed else self.scheduler.node_drain)(name, now=self.now)
                self.world.closed ^= {name}

    def round(self) -> None:
        self.events()
        state = self.scheduler.state
        plan = self.scheduler.solve(now=self.now)
        assert plan.fallback is None or "reference pool" in plan.fallback, plan.fallback
        table = plan.instance.jobs_table
        left = {name: float(table.steps_left[table.names.index(name)]) for name in self.world.jobs}
        most = self.policy.get("max_moves")
        least = "ranking" in self.policy and "gpus" not in self.policy.get("options", {})
        found = idle_gpus(
            self.world, plan, left, least=least, moves=most is None or self.moved(plan) < most
        )
        self.wrong += [f"round {plan.number}: {words}" for words in found]
        self.moves += len(plan.move)
        self.world.follow(plan)
        self.now += ROUND
        assert state is not None

    def moved(self, plan: Any) -> int:
        """Jobs that were stopped or moved, whatever the reason."""
        return len(plan.move) + len(plan.preempt)


def weathered(seed: int, policy: dict[str, Any], rounds: int = 12) -> Storm:
    storm = Storm(seed, policy)
    for _ in range(rounds):
        storm.round()
    storm.scheduler.close()
    return storm


@pytest.mark.parametrize("policy", POLICIES)
def test_no_gpu_idles_in_storms(policy: str) -> None:
    for seed in range(15):
        storm = weathered(seed, POLICIES[policy])
        assert not storm.wrong, (seed, storm.wrong)
