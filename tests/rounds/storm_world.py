"""A cluster under a storm of events: a seeded generator, and what it knows of the cluster by itself."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from refusals import stated
from storm_rules import Facts, Node, Place, broken, displaced, strained

from optsched.errors import InvalidInput, UsageError
from optsched.instance import Instance
from optsched.rounds import Plan, Scheduler

ROUND = 60.0
WORKLOADS: dict[str, Any] = {
    "small": {"throughput": {"v100": 4.0, "k80": 1.0}, "demand": {"cpu": 2.0, "memory": 10.0}},
    "light": {"throughput": {"v100": 3.0, "k80": 2.5}, "demand": {"cpu": 1.0}},
    "wide": {
        "throughput": {
            "v100": {"1": 3.0, "2": 5.5, "4": {"1": 10.0, "2": 8.0}, "8": {"2": 15.0, "3": 12.0}},
            "k80": {"1": 1.0, "2": {"1": 1.9}, "4": {"2": 3.0}},
        },
        "demand": {"cpu": 4.0, "memory": 30.0},
    },
}
PAIRS = [
    ("small", "light", "v100", [2.5, 2.0]),
    ("light", "light", "k80", [1.5, 1.5]),
    ("small", "small", "v100", [2.2, 2.2]),
]
NODES = {"v100": ["v0", "v1", "v2"], "k80": ["k0", "k1"]}


def cluster() -> dict[str, Any]:
    """Two pools whose nodes differ."""
    return {
        "pools": [
            {
                "name": "v100",
                "nodes": [{"name": name, "gpus": 4, "cpus": 14, "memory": 90} for name in NODES["v100"]],
                "cost_per_gpu_hour": 2.5,
            },
            {
                "name": "k80",
                "nodes": [{"name": "k0", "gpus": 2, "cpus": 6}, {"name": "k1", "gpus": 4, "cpus": 12}],
                "cost_per_gpu_hour": 0.5,
            },
        ],
        "resources": [{"name": "licences", "capacity": 3}],
    }  # fmt: skip


def document(**more: Any) -> dict[str, Any]:
    """The instance before the storm."""
    return {
        "format": "optsched-instance/1",
        "name": "storm",
        "round": ROUND,
        "now": 0.0,
        "cluster": cluster(),
        "workloads": WORKLOADS,
        "tenants": [{"name": "red", "weight": 2.0}, {"name": "blue", "policy": "fifo"}],
        "colocation": [
            {"workloads": [a, b], "pool": pool, "gpus": 1, "throughput": rates} for a, b, pool, rates in PAIRS
        ],
        "jobs": [],
        **more,
    }  # fmt: skip


def facts() -> Facts:
    """What the storm knows at first."""
    nodes = {
        node["name"]: Node(pool["name"], node["gpus"], node.get("cpus"), node.get("memory"))
        for pool in cluster()["pools"]
        for node in pool["nodes"]
    }
    pairs: dict[frozenset[str], set[tuple[str, int]]] = {}
    for a, b, pool, _ in PAIRS:
        pairs.setdefault(frozenset((a, b)), set()).add((pool, 1))
    return Facts(nodes, WORKLOADS, pairs)


class Storm:
    """Random events against a scheduler; every plan is checked.

    With ``policies`` to choose from, events also change the policy, the side constraints, tenants
    and workloads.
    """

    def __init__(
        self,
        seed: int,
        policy: dict[str, Any],
        crowd: int = 14,
        policies: Sequence[dict[str, Any]] = (),
        **given: Any,
    ) -> None:
        self.policies = policies
        self.tenants = {"red", "blue"}
        self.random = random.Random(seed)
        self.policy, self.crowd = policy, crowd
        self.facts = facts()
        options = {"isolate": False, "clock": lambda: self.facts.now} | given.pop("options", {})
        self.scheduler = Scheduler(Instance.from_document(document(**given)), policy, **options)
        self.running: dict[str, Place] = {}
        self.plan: Plan | None = None
        self.number = 0
        self.made = 0
        self.fallbacks: list[str] = []
        self.moved = 0

    # --- rounds -----------------------------------------------------------------------------------------------------

    def rounds(self, count: int) -> None:
        """So many rounds, each after some events."""
        for _ in range(count):
            for _ in range(self.random.choice((0, 1, 1, 2, 3, 5))):
                self.event()
            self.time_passes()
            self.solve()

    def time_passes(self) -> None:
        """Mostly a round; now and then less, much more, or back."""
        step = self.random.choices((ROUND, 1.0, 0.0, 3e7, -500.0), (90, 4, 2, 1, 3))[0]
        self.told = self.facts.now + step
        self.facts.now = max(self.told, self.facts.now)

    def solve(self) -> Plan:
        """Plan a round and check everything."""
        state = self.scheduler.state
        table, pools = state.instance.jobs_table, state.instance.cluster.pools
        known = {
            table.names[job]: (pools[row].name, gpus)
            for job, (row, gpus, _) in table.running.items()
        }
        assert known == self.running
        if self.random.random() < 0.05:
            dry = self.scheduler.solve(self.told, dry_run=True).to_document()
            assert self.scheduler.state is state
        else:
            dry = None
        plan = self.scheduler.solve(self.told)
        if dry is not None:
            assert {**dry, "timings": 0} == {**plan.to_document(), "timings": 0}
        wrong = broken(self.facts, self.running, state, plan, self.plan)
        self.facts.strained |= strained(self.facts, self.running, self.facts.now + ROUND)
        moved = displaced(self.facts, self.running, plan)
        self.moved += len(moved)
        most = self.policy.get("max_moves")
        if most is not None and "patience" not in self.policy and len(moved) > most:
            wrong.append(f"{moved} are stopped or moved, {most} may be")
        assert not wrong, f"round {plan.round}: " + "; ".join(wrong)
        if plan.fallback is not None:
            late = any(own["kind"] == "deadlines" for own in self.policy.get("constraints", ()))
            assert self.facts.strained or late or "cannot be preempted" not in plan.fallback, (
                plan.fallback
            )
            self.fallbacks.append(plan.fallback)
        self.running = {
            item.job: (item.pool, item.gpus)
            for item in (*plan.start, *plan.keep, *plan.move)
            if item.gpus
        }  # type: ignore[misc]
        self.plan = plan
        return plan

    # --- events -----------------------------------------------------------------------------------------------------

    def event(self) -> None:
        """One event, of any kind."""
        kinds: list[tuple[Callable[[], None], int]] = [
            (self.submit, 30 if len(self.facts.jobs) < self.crowd else 6), (self.leave, 12), (self.observe, 10),
            (self.nodes, 8), (self.reserve, 3), (self.release, 3), (self.resize, 2), (self.update, 5),
            (self.stopped, 2), (self.absurd, 10),
        ]  # fmt: skip
        if self.policies:
            kinds += [
                (kind, 4)
                for kind in (self.new_policy, self.constraints, self.new_tenants, self.workloads)
            ]
        self.random.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])[0]()

    def submit(self) -> None:
        jobs = [self.job() for _ in range(self.random.choice((1, 1, 1, 2, 4)))]
        self.scheduler.submit(jobs)
        for job in jobs:
            self.facts.jobs[job["id"]] = {"steps": 1.0, **job}

    def job(self) -> dict[str, Any]:
        """A job of any kind."""
        r = self.random
        self.made += 1
        job: dict[str, Any] = {
            "id": f"j{self.made}",
            "steps": r.choice((1e3, 1e4, 1e6)),
            "weight": r.choice((1.0, 1.0, 3.0)),
        }
        kind = r.choice(
            (
                "workload",
                "workload",
                "workload",
                "wide",
                "wide",
                "elastic",
                "own",
                "options",
                "shares",
                "bare",
            )
        )
        if kind == "workload":
            job["workload"] = r.choice(("small", "light"))
        elif kind == "wide":
            job |= {"workload": "wide", "gpus": r.choice((1, 2, 4, 8))}
        elif kind == "elastic":
            job |= {
                "workload": "wide",
                "gpus": r.choice(
                    ({"min": 1, "max": 8, "levels": [1, 2, 4, 8]}, {"min": 1, "max": 4})
                ),
            }
        elif kind == "own":
            gang = r.choice((1, 2, 3))
            job |= {"gpus": gang, "throughput": {"v100": 2.0 * gang, "k80": 1.0 * gang}}
        elif kind == "options":
            job["options"] = [
                {
                    "pool": "v100",
                    "gpus": 2,
                    "throughput": 5.0,
                    "uses": {"cpu": 6.0},
                    "value": 2.0,
                    "cost": 1.0,
                },
                {"pool": "k80", "gpus": 1, "throughput": 2.0, "value": 1.0},
            ]
        elif kind == "shares":
            job["options"] = [
                {"pool": "v100", "gpus": 1, "share": r.choice((0.25, 0.5)), "throughput": 1.5}
            ]
        else:
            job["options"] = [
                {"pool": None, "throughput": 1.0, "uses": {"licences": r.choice((1.0, 2.0))}}
            ]
        if r.random() < 0.15:
            job["preemptible"] = False
        if r.random() < 0.3:
            job["tenant"] = r.choice(("red", "blue"))
        if r.random() < 0.3:
            job["restart_cost"] = r.choice((5.0, 30.0, 200.0))
        if r.random() < 0.15:
            job["deadline"] = self.facts.now + r.choice((50.0, 600.0, 1e5))
            job["deadline_kind"] = r.choice(("hard", "soft", "soft"))
        if r.random() < 0.1 and self.facts.jobs:
            job["after"] = r.sample(sorted(self.facts.jobs), 1)
        if r.random() < 0.05:
            job["arrival"] = self.facts.now - r.choice((0.0, 30.0, -90.0))
            if "deadline" in job:
                job["deadline"] += 100.0
        return job

    def leave(self) -> None:
        if not self.facts.jobs:
            return
        name = self.random.choice(sorted(self.facts.jobs))
        (self.scheduler.complete if self.random.random() < 0.7 else self.scheduler.cancel)(name)
        del self.facts.jobs[name]
        self.running.pop(name, None)

    def observe(self) -> None:
        if not self.facts.jobs:
            return
        name = self.random.choice(sorted(self.facts.jobs))
        job = self.facts.jobs[name]
        steps = self.random.choice((0.0, 0.5, 0.9, 1.0)) * job["steps"]
        rate = self.random.choice((0.01, 1.0, 2.5, 1e6))
        if self.random.random() < 0.5:
            self.scheduler.observe(name, steps=steps)
            job["steps_done"] = steps
        else:
            self.scheduler.observe(name, throughput=rate)

    def nodes(self) -> None:
        name = self.random.choice(sorted(self.facts.nodes))
        state = self.random.choice(("down", "drain", "up", "up", "up"))
        {
            "down": self.scheduler.node_down,
            "drain": self.scheduler.node_drain,
            "up": self.scheduler.node_up,
        }[state](name)
        self.facts.nodes[name].state = state
        if state == "down":
            self.lost(lambda gpu: gpu.rpartition("/")[0] == name)

    def lost(self, gone: Callable[[str], bool]) -> None:
        """Jobs that hold such a GPU have stopped."""
        self.running = {
            job: (pool, gpus)
            for job, (pool, gpus) in self.running.items()
            if not any(map(gone, gpus))
        }

    def reserve(self) -> None:
        self.number += 1
        some = tuple(self.random.sample(sorted(self.facts.nodes), 2))
        start = self.facts.now + self.random.choice((-10.0, 30.0, 200.0))
        end = start + self.random.choice((20.0, 120.0, 900.0))
        self.scheduler.reserve(f"r{self.number}", some, start, end)
        self.facts.reservations[f"r{self.number}"] = (some, start, end)

    def release(self) -> None:
        if self.facts.reservations:
            name = self.random.choice(sorted(self.facts.reservations))
            self.scheduler.release(name)
            del self.facts.reservations[name]

    def resize(self) -> None:
        what = self.random.choice(("v100", "k80", "licences", "v100.cpu"))
        sign = self.random.choice((1.0, -1.0))
        amount = sign * {"v100": 2.0, "k80": 1.0, "licences": 1.0, "v100.cpu": 2.0}[what]
        if len(self.facts.nodes) > 9 and sign > 0 and what in ("v100", "k80"):
            return
        try:
            self.scheduler.resize({what: amount})
        except UsageError:
            assert amount < 0 or what == "v100.cpu"
            return
        self.facts.shrunk |= amount < 0
        states = {name: node.state for name, node in self.facts.nodes.items()}
        self.facts.nodes = {
            pool.node_name(row): Node(
                pool.name, int(pool.node_gpus[row]), *(
                    None if math.isnan(value) else value
                    for value in (float(pool.node_cpus[row]), float(pool.node_memory[row]))
                ), states.get(pool.node_name(row), "up"),
            )
            for pool in self.scheduler.instance.cluster.pools
            for row in range(len(pool.node_gpus))
        }  # fmt: skip

        def gone(gpu: str) -> bool:
            node, _, index = gpu.rpartition("/")
            return node not in self.facts.nodes or int(index) >= self.facts.nodes[node].gpus

        self.lost(gone)

    def update(self) -> None:
        if not self.facts.jobs:
            return
        name = self.random.choice(sorted(self.facts.jobs))
        change: dict[str, Any] = self.random.choice(
            (
                {"weight": 5.0},
                {"preemptible": True},
                {"preemptible": False},
                {"restart_cost": 90.0},
                {"steps": 1e7},
            )
        )
        self.scheduler.update(name, **change)
        self.facts.jobs[name] |= change
        self.facts.strained |= name in self.running and change.get("preemptible") is False

    def new_policy(self) -> None:
        policy = self.random.choice(self.policies)
        if self._changed(lambda: self.scheduler.set_policy(policy)):
            self.policy = policy

    def constraints(self) -> None:
        some: list[list[dict[str, Any]]] = [
            [],
            [{"kind": "quota", "tenant": "blue", "gpus": 2}],
            [{"kind": "minimum-service", "fraction": 0.9}],
            [{"kind": "deadlines", "give_way": "shortfall", "soft": True}],
        ]
        chosen = self.random.choice(some)
        self._changed(lambda: self.scheduler.set_constraints(chosen))

    def _changed(self, change: Callable[[], None]) -> bool:
        """Whether a change of the rules is taken; rules and plans refuse side constraints."""
        before = self.scheduler.state
        try:
            change()
        except UsageError as error:
            assert stated("constraints: found rows").holds(error)
            assert self.scheduler.state is before
            return False
        return True

    def new_tenants(self) -> None:
        """Green comes and goes; its only job keeps it here."""
        if "green" in self.tenants and self.random.random() < 0.5:
            if any(job.get("tenant") == "green" for job in self.facts.jobs.values()):
                with pytest.raises(InvalidInput):
                    self.scheduler.set_tenants(remove=["green"])
                return
            self.scheduler.set_tenants(remove=["green"])
            self.tenants.remove("green")
            return
        weight = self.random.choice((0.5, 1.0, 4.0))
        policy = self.random.choice(("fifo", "fairness"))
        names = ("red", "green") if len(self.facts.jobs) % 2 else ("green",)
        self.scheduler.set_tenants(
            [{"name": name, "weight": weight, "policy": policy} for name in names]
        )
        self.tenants.add("green")
        job = {"id": f"green {self.made}", "workload": "small", "tenant": "green", "steps": 1e4}
        if job["id"] not in self.facts.jobs:
            self.scheduler.submit(job)
            self.facts.jobs[job["id"]] = job

    def workloads(self) -> None:
        """Rates come and go, and needs grow beyond what runs."""
        name = self.random.choice(("small", "light"))
        rates = {"v100": self.random.choice((2.0, 6.0)), "k80": self.random.choice((1.0, 3.0))}
        # Not where a co-location entry has rates: a pair runs there without any others.
        if name == "small" and self.random.random() < 0.3:
            del rates["k80"]
        cpus = self.random.choice((1.0, 2.0, 5.0))
        new = {name: {"throughput": rates, "demand": {"cpu": cpus}}}
        self.scheduler.set_workloads(new)
        self.facts.workloads = {**self.facts.workloads, **new}
        self.facts.shrunk = self.facts.strained = True

    def stopped(self) -> None:
        if self.running:
            name = self.random.choice(sorted(self.running))
            self.scheduler.stopped(name)
            del self.running[name]

    def absurd(self) -> None:
        """What makes no sense is refused, and changes nothing."""
        s, r = self.scheduler, self.random
        state, name = s.state, r.choice(sorted(self.facts.jobs) or ["nobody"])
        node = r.choice(sorted(self.facts.nodes))
        first = {"id": "x", "throughput": {"v100": 1.0}}
        tries: list[Callable[[], None]] = [
            lambda: s.observe(name, throughput=math.nan),
            lambda: s.observe(name, throughput=-1.0),
            lambda: s.observe(name, throughput=1e300),
            lambda: s.observe(name, throughput=math.inf),
            lambda: s.observe(name, throughput=0.0),
            lambda: s.observe(name, steps=math.nan),
            lambda: s.observe(name, steps=-1.0),
            lambda: s.observe(name, steps=1e300),
            lambda: s.observe(name, steps=1e9),
            lambda: s.observe("nobody", steps=1.0),
            lambda: s.cancel("nobody"),
            lambda: s.complete(name, name),
            lambda: s.stopped("nobody"),
            lambda: s.node_down("nowhere"),
            lambda: s.node_up(node, "nowhere"),
            lambda: s.reserve("r", [node], 10.0, 10.0),
            lambda: s.reserve("r", ["nowhere"], 0.0, 10.0),
            lambda: s.reserve("r", [node], math.nan, 10.0),
            lambda: s.release("nothing"),
            lambda: s.resize({"v100": math.nan}),
            lambda: s.resize({"v100": -1e6}),
            lambda: s.resize({"v100": 0.5}),
            lambda: s.resize({"nothing": 1.0}),
            lambda: s.update(name, weight=-1.0),
            lambda: s.update(name),
            lambda: s.update("nobody", weight=1.0),
            lambda: s.update(name, colour="red"),
            lambda: s.submit([first, first]),
            lambda: s.submit({**first, "steps": math.nan}),
            lambda: s.submit({**first, "gpus": 0}),
            lambda: s.submit({**first, "after": ["nobody"]}),
            lambda: s.submit({**first, "tenant": "white"}),
            lambda: s.submit({"id": "x", "throughput": {"t4": 1.0}}),
            lambda: s.submit({"id": "x", "workload": "none"}),
            lambda: s.submit({**first, "deadline": self.facts.now - 1.0}),
            lambda: s.cancel(now=math.nan),
            lambda: s.observe(name, steps=1.0, now=math.inf),
        ]
        if self.policies:
            tries += [
                lambda: s.set_policy({"formulation": "none"}),
                lambda: s.set_policy({"max_moves": -1}),
                lambda: s.set_constraints([{"kind": "quota", "tenant": "white", "gpus": 1}]),
                lambda: s.set_tenants([{"name": "red", "weight": 0.0}]),
                lambda: s.set_tenants(remove=["white"]),
                lambda: s.set_workloads({"small": {"throughput": {"t4": 1.0}}}),
                lambda: s.set_workloads(remove=["small"]),  # co-location entries name it
            ]
        absurd = r.choice(tries)
        with pytest.raises((InvalidInput, UsageError)):
            absurd()
        assert s.state is state
