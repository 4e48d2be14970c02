"""No GPU idles while a job waits or runs slower: rules R1 and R2 of `optsched.rounds.idle`, by brute force."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
from blocks import first_of
from idle_rules import World, idle_gpus

import optsched
from optsched.rounds import RoundPolicy, RoundState, Scheduler

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
    "edf deadline": {"ranking": "edf", "options": {"gpus": "deadline", "late": "hopeless"}},
}


KNOWN = ("reference pool", "expected a rate")
"""Fallbacks where all jobs are refused: no rate on the reference pool, or on what a partner has left them."""
PACKED = ("max-min", "max-min agnostic", "max-throughput", "finish-time-fairness", "drf")
"""Policies of which jobs may share GPUs."""


STOPS: list[dict[str, Any]] = [
    {},
    {"grace_time": 20.0},
    {"checkpoint_interval": 25.0},
    {"grace_time": 90.0, "checkpoint_interval": 200.0},
]
"""What a stop costs by the policy; a grace time is also longer than a round."""


TENANTS = ("red", "blue", "green")
CONSTRAINTS = (
    {"kind": "quota", "tenant": "red", "gpus": 2},
    {"kind": "pinned", "tenant": "blue", "level": "rack"},
)
"""Of storms with racks. A ranking keeps no quotas."""


class Storm:
    """A small cluster under random events, each round of which is checked.

    Parameters
    ----------
    seed : int
    policy : dict
    pairs : float, optional
        Rate at which jobs may share GPUs.
    racks : bool
        Whether gangs have rates by rack, and tenants their limits.
    """

    def __init__(
        self, seed: int, policy: dict[str, Any], pairs: float | None = None, racks: bool = False
    ) -> None:
        self.random = r = random.Random(seed)
        stops = STOPS[seed % len(STOPS)]
        self.policy = policy = {**policy, **stops}
        self.tenants = TENANTS if racks else ()
        limits = CONSTRAINTS[:0] if not racks else CONSTRAINTS["ranking" in policy :]
        nodes = {}
        pools = []
        left = 6
        scarce = r.random() < 0.4
        for number in range(r.choice((1, 2)) if racks else r.choice((1, 2, 2, 3, 3))):
            cpus = r.choice((2.0, 4.0, 6.0)) if scarce else 99.0
            documents = []
            for row in range(4 if racks else r.choice((1, 2))):
                count = min(r.choice((1, 1, 2, 3)), left)
                if count:
                    left -= count
                    nodes[f"n{number}{row}"] = (f"p{number}", count, cpus)
                    documents.append({"name": f"n{number}{row}", "gpus": count, "cpus": cpus})
            if documents:
                pools.append({"name": f"p{number}", "nodes": documents, "gpus_per_node": 1})
        self.pools = [pool["name"] for pool in pools]
        # Each two nodes of a pool are a rack.
        of_rack: dict[str, list[str]] = {}
        for name in nodes if racks else ():
            of_rack.setdefault(f"{name[:-1]}{int(name[-1]) // 2}", []).append(name)
        # Each workload has restart costs by pool, or by pool and GPUs; the first has none.
        costs = [{}, dict.fromkeys(self.pools, 30.0), {self.pools[0]: {"1": 4.0, "3": 100.0}}]
        self.workloads = {
            f"w{cpu}": {"demand": {"cpu": float(cpu)}, "restart_cost": cost if stops else {}}
            for cpu, cost in enumerate(costs)
        }
        restarts = {name: own["restart_cost"] for name, own in self.workloads.items()}
        self.world = World(
            nodes,
            {},
            grace=stops.get("grace_time", 0.0),
            every=stops.get("checkpoint_interval", 0.0),
            restarts=restarts,  # type: ignore[arg-type]
            racks={name: rack for rack, names in of_rack.items() for name in names},
            quotas={item["tenant"]: 2.0 for item in limits if item["kind"] == "quota"},
            in_rack=frozenset(item["tenant"] for item in limits if item["kind"] == "pinned"),  # type: ignore[arg-type]
        )
        instance = optsched.Instance.from_document(
            {
                "format": "optsched-instance/1",
                "now": 0.0,
                "round": ROUND,
                "jobs": [],
                "workloads": self.workloads,
                "cluster": {"pools": pools} | ({"levels": {"rack": of_rack}} if racks else {}),
                "tenants": [{"name": name} for name in self.tenants],
                "constraints": limits,
                "colocation": self.pairs(pairs),
            }
        )
        self.scheduler = Scheduler(instance, policy, isolate=False)
        self.now = 0.0
        self.made = 0
        self.moves = 0
        self.shared = 0
        self.wrong: list[str] = []

    def pairs(self, rate: float | None) -> list[dict[str, Any]]:
        """Any two jobs may share one or two GPUs at this rate of each, slower than any job alone."""
        return [
            {"workloads": both, "pool": pool, "gpus": gpus, "throughput": [rate, rate]}
            for both in itertools.combinations_with_replacement(sorted(self.workloads), 2)
            for pool in self.pools
            for gpus in (1, 2)
            if rate is not None
        ]

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
                rates[pool] = {
                    "1": one,
                    "2": {"1": 1.7 * one},
                    "3": {"1": 2.1 * one, "2": 1.8 * one},
                }
            elif size > 1 and self.tenants:
                # In one rack or anywhere, for some also on one node.
                own = {"rack": 0.8 * size * one, "cluster": 0.5 * size * one}
                own |= {"1": size * one} if r.random() < 0.5 else {}
                rates[pool] = {str(size): own}
            elif size > 1:
                slower = {"2": 0.7 * size * one} if r.random() < 0.5 else {}
                rates[pool] = {str(size): {"1": size * one, **slower}}
            else:
                rates[pool] = one
        cpu = r.choice((0, 1, 2))
        name = f"j{self.made}"
        self.world.cpus[name] = float(cpu)  # type: ignore[index]
        job: dict[str, Any] = {
            "id": name,
            "steps": r.choice((300.0, 2000.0, 1e5)),
            "workload": f"w{cpu}",
            "gpus": {"min": 1, "max": 3, "levels": [1, 2, 3]} if elastic else size,
            "throughput": rates,
            "weight": r.choice((1.0, 2.0)),
            "restart_cost": r.choice((0.0, 5.0, 40.0, 300.0)),
        }
        if r.random() < 0.1:
            job["preemptible"] = False
        if self.tenants:
            job["tenant"] = r.choice(self.tenants)
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
                (self.scheduler.node_up if closed else self.scheduler.node_drain)(
                    name, now=self.now
                )
                self.world.closed ^= {name}

    def round(self) -> None:
        self.events()
        plan = self.scheduler.solve(now=self.now)
        assert plan.fallback is None or any(w in plan.fallback for w in KNOWN), plan.fallback
        table = plan.instance.jobs_table
        left = {name: float(table.steps_left[table.names.index(name)]) for name in self.world.jobs}
        most = self.policy.get("max_moves")
        least = "ranking" in self.policy and "gpus" not in self.policy.get("options", {})
        found = idle_gpus(
            self.world, plan, left, least=least, moves=most is None or self.moved(plan) < most
        )
        # A round that falls back knows nothing of jobs that the formulation refused.
        self.wrong += [f"round {plan.round}: {words}" for words in found if not plan.fallback]
        bounded = plan.throughput
        if bounded is not None and bounded.bound is not None:
            assert bounded.reached <= bounded.bound * (1 + 1e-9)
        self.moves += len(plan.move)
        running = [item.gpus for item in (*plan.start, *plan.keep, *plan.move)]
        self.shared += len(running) - len(set(running))
        # Under a formulation, claims move jobs too, which then may go on to better GPUs.
        vain = self.world.moves_in_vain(plan, left) if "ranking" in self.policy else []
        found = [*vain, *self.world.follow(plan)]
        self.wrong += [f"round {plan.round}: {words}" for words in found]
        # Also before the grace time of the last round is over.
        self.now += self.random.choice((ROUND, ROUND, ROUND, 10.0))

    def moved(self, plan: Any) -> int:
        """Jobs that were stopped or moved, whatever the reason."""
        return len(plan.move) + len(plan.preempt)


def weathered(
    seed: int,
    policy: dict[str, Any],
    rounds: int = 12,
    pairs: float | None = None,
    racks: bool = False,
) -> Storm:
    storm = Storm(seed, policy, pairs, racks)
    for _ in range(rounds):
        storm.round()
    return storm


@pytest.mark.parametrize("block", first_of(3, blocks=1))
@pytest.mark.parametrize("policy", POLICIES)
def test_no_gpu_idles_in_storms(policy: str, block: int) -> None:
    for seed in range(5 * block, 5 * block + 5):
        storm = weathered(seed, POLICIES[policy])
        assert not storm.wrong, (seed, storm.wrong)


@pytest.mark.parametrize("block", first_of(3, blocks=1))
@pytest.mark.parametrize("policy", PACKED)
def test_no_gpu_idles_while_jobs_share_others(policy: str, block: int) -> None:
    shared = 0
    for seed in range(5 * block, 5 * block + 5):
        storm = weathered(seed, POLICIES[policy], pairs=0.9)
        assert not storm.wrong, (seed, storm.wrong)
        shared += storm.shared
    assert shared


RULES = ("isolated", "fifo filled")
"""Policies that take no side constraints."""


@pytest.mark.parametrize("block", first_of(2, blocks=1))
@pytest.mark.parametrize("policy", [name for name in POLICIES if name not in RULES])
def test_no_gpu_idles_in_racks(policy: str, block: int) -> None:
    for seed in range(4 * block, 4 * block + 4):
        storm = weathered(seed, POLICIES[policy], racks=True)
        assert not storm.wrong, (seed, storm.wrong)


@pytest.mark.parametrize("seed", range(10))
def test_jobs_that_take_the_most_gpus_do_not_go_to_and_fro(seed: int) -> None:
    """Without events nobody moves from the third round on."""
    storm = weathered(seed, {"ranking": "fcfs", "options": {"gpus": "most"}}, rounds=5)
    plans = []
    with storm.scheduler as cluster:
        for _ in range(6):
            plans.append(cluster.solve(now=storm.now))
            storm.now += ROUND
    assert not any(plan.move or plan.preempt for plan in plans[2:])


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ({"formulation": "fifo"}, "waits"),
        ({"formulation": "max-min-fairness", "options": AGNOSTIC, "fill": False}, "ends after"),
        ({"ranking": "srtf", "options": {"moves": "published"}}, "ends after"),
    ],
)
def test_the_checker_finds_idle_gpus_where_the_rule_is_off(
    policy: dict[str, Any], words: str
) -> None:
    storms = (weathered(seed, policy) for seed in range(40))
    assert any(words in found for storm in storms for found in storm.wrong)


# --- by hand ----------------------------------------------------------------------------------------------------------


def scheduler(policy: dict[str, Any], jobs: int, restart_cost: float) -> Scheduler:
    """Jobs without end, four times as fast on two GPUs as on the other two."""
    pools = [{"name": name, "nodes": 1, "gpus_per_node": 2} for name in ("slow", "fast")]
    rates = {"fast": 4.0, "slow": 1.0}
    documents = [
        {"id": f"j{row}", "steps": 1e7, "throughput": rates, "restart_cost": restart_cost}
        for row in range(jobs)
    ]
    instance = optsched.Instance.from_document(
        {
            "format": "optsched-instance/1",
            "now": 0.0,
            "round": ROUND,
            "jobs": documents,
            "cluster": {"pools": pools},
        }
    )
    return Scheduler(instance, policy, isolate=False)


@pytest.mark.parametrize(
    "policy",
    [
        {"formulation": "max-min-fairness", "options": AGNOSTIC, "hysteresis": 0.0},
        {"formulation": "water-filling", "options": AGNOSTIC},
        {"formulation": "isolated", "hysteresis": 0.0},
        {"formulation": "makespan", "options": {"agnostic": True, "reference_pool": "slow"}},
        {"ranking": "las"},
    ],
)
def test_nobody_goes_to_and_fro_in_fifty_rounds(policy: dict[str, Any]) -> None:
    """Two jobs and two fast GPUs: whatever the allocation says, both stay on these from the first round on."""
    with scheduler(policy, 2, restart_cost=30.0) as cluster:
        for number in range(50):
            plan = cluster.solve(now=number * ROUND)
            assert not plan.move and not plan.preempt
            assert [item.pool for item in (*plan.start, *plan.keep)] == ["fast", "fast"]
        owed = plan.ledger.deficit[plan.ledger.fraction > 0]
        # Time on the fast GPUs counts for the slow ones: nobody is owed ever more.
        assert (owed <= 4 * ROUND).all()


def sharing(policy: dict[str, Any], *, slow: float, together: float) -> Scheduler:
    """Two jobs on one fast and one slow GPU; both may share the fast one."""
    pools = [{"name": name, "nodes": 1, "gpus_per_node": 1} for name in ("slow", "fast")]
    job = {
        "steps": 1e7,
        "workload": "w",
        "throughput": {"fast": 4.0, "slow": slow},
        "restart_cost": 30.0,
    }
    instance = optsched.Instance.from_document(
        {
            "format": "optsched-instance/1",
            "now": 0.0,
            "round": ROUND,
            "workloads": {"w": {"throughput": {}}},
            "tenants": [{"name": "red"}],
            "jobs": [{"id": "j0", "tenant": "red", **job}, {"id": "j1", **job}],
            "cluster": {"pools": pools},
            "colocation": [
                {"workloads": ["w", "w"], "pool": "fast", "gpus": 1, "throughput": [together] * 2}
            ],
        }
    )
    return Scheduler(instance, policy, isolate=False)


def test_jobs_that_claim_a_gpu_together_run_apart_as_long_as_another_one_is_idle() -> None:
    policy = {"formulation": "max-min-fairness", "options": AGNOSTIC, "hysteresis": 0.0}
    with sharing(policy, slow=2.0, together=1.9) as cluster:
        for number in range(50):
            plan = cluster.solve(now=number * ROUND)
            assert not plan.move and not plan.preempt
            assert len({item.gpus for item in (*plan.start, *plan.keep)}) == 2
        claims = plan.ledger.fraction > 0
        assert (plan.ledger.partner[claims] >= 0).any(), "no claim is shared"
        # Time that both ran alone counts for what they claim together.
        assert (plan.ledger.deficit[claims] <= 4 * ROUND).all()


def test_no_job_leaves_another_that_may_not_have_the_gpu_for_itself() -> None:
    """Half a GPU is what the tenant may have: the job must share it, though another GPU is idle."""
    quota = {"kind": "quota", "tenant": "red", "gpus": 0.5}
    policy = {
        "formulation": "max-throughput",
        "options": {"integral": True},
        "constraints": [quota],
    }
    with sharing(policy, slow=3.5, together=3.0) as cluster:
        for number in range(3):
            plan = cluster.solve(now=number * ROUND)
            running = (*plan.start, *plan.keep)
            assert [item.gpus for item in running] == [("fast-0/0",)] * 2


def test_a_job_comes_back_only_when_another_one_claims_the_gpus() -> None:
    """Of three jobs two have the fast GPUs at any time, and they take turns."""
    policy = {"formulation": "max-min-fairness", "options": AGNOSTIC, "hysteresis": 0.0}
    with scheduler(policy, 2, restart_cost=0.0) as cluster:
        for number in range(5):
            plan = cluster.solve(now=number * ROUND)
        cluster.submit({"id": "new", "steps": 1e7, "throughput": {"fast": 4.0}}, now=5 * ROUND)
        plan = cluster.solve(now=5 * ROUND)
        assert {item.job: item.pool for item in plan.start} == {"new": "fast"}
        assert [item.pool for item in plan.move] == ["slow"]
        assert len(plan.keep) == 1


def test_a_job_moves_to_gpus_that_become_idle_where_that_pays() -> None:
    policy = {"formulation": "isolated", "hysteresis": 1e6}
    for cost, moves in ((0.0, 1), (1e6, 1), (1e7, 0)):
        with scheduler(policy, 3, cost) as cluster:
            first = cluster.solve(now=0.0)
            fast = [item.job for item in first.start if item.pool == "fast"]
            assert len(first.start) == 3 and len(fast) == 2
            cluster.complete(fast[0], now=ROUND)
            plan = cluster.solve(now=ROUND)
            assert len(plan.move) == moves


def test_leftovers_go_to_whoever_gains_most() -> None:
    """One fast GPU idles: the job that gains a factor of 4 there goes before those that gain little."""
    pools = [
        {"name": "fast", "nodes": 1, "gpus_per_node": 1},
        {"name": "slow", "nodes": 1, "gpus_per_node": 3},
    ]
    rates = ({"fast": 1.2, "slow": 1.0}, {"fast": 4.0, "slow": 1.0}, {"fast": 2.0, "slow": 1.0})
    jobs = [
        {
            "id": f"j{row}",
            "steps": 1e7,
            "throughput": rate,
            "running": {"pool": "slow", "gpus": [f"slow-0/{row}"], "since": 0.0},
        }
        for row, rate in enumerate(rates)
    ]
    document = {
        "format": "optsched-instance/1",
        "now": 10.0,
        "round": ROUND,
        "jobs": jobs,
        "cluster": {"pools": pools},
    }
    state = RoundState.first(optsched.Instance.from_document(document), RoundPolicy(ranking="fcfs"))
    plan = optsched.solve_round(state)
    assert [item.job for item in plan.move] == ["j0"], "a ranking goes by its order"
    state = RoundState.first(
        optsched.Instance.from_document(document),
        RoundPolicy(formulation="isolated", hysteresis=100.0),
    )
    plan = optsched.solve_round(state)
    assert [item.job for item in plan.move] == ["j1"]


# --- the throughput of a round ---------------------------------------------------------------


def test_the_throughput_of_a_round_and_its_bound_by_hand() -> None:
    """Two of three jobs at their best rates and one at a quarter of it: no three jobs can do better."""
    with scheduler({"formulation": "max-min-fairness"}, 3, restart_cost=0.0) as cluster:
        throughput = cluster.solve(now=0.0).throughput
    assert throughput is not None
    assert throughput.reached == pytest.approx(2.25)
    assert throughput.bound == pytest.approx(2.25)


def test_the_bound_does_not_see_nodes() -> None:
    """Three gangs of two GPUs have room on six GPUs, but not on two nodes of three."""
    jobs = [
        {"id": name, "steps": 1e6, "gpus": 2, "throughput": {"p": {"2": {"1": 4.0}}}}
        for name in "abc"
    ]
    document = {
        "format": "optsched-instance/1",
        "round": ROUND,
        "jobs": jobs,
        "cluster": {"pools": [{"name": "p", "nodes": 2, "gpus_per_node": 3}]},
    }
    plan = optsched.solve_round(RoundState.first(optsched.Instance.from_document(document)))
    assert plan.to_document()["throughput"] == pytest.approx({"reached": 2.0, "bound": 3.0})
