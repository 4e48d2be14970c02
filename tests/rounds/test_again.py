"""A scheduler remembers what has not changed, and plans as if it remembered nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import optsched
from optsched.rounds import Scheduler

# When a plan is given again is private: it is counted.
from optsched.rounds.memory import PlannedRound

pytestmark = pytest.mark.property

POLICIES: tuple[dict[str, Any], ...] = (
    {"ranking": "fcfs"},
    {"ranking": "srtf", "patience": 3},
    {"ranking": "las"},
    {"ranking": "edf", "options": {"gpus": "fastest"}},
    {"ranking": "slack-first", "options": {"gpus": "deadline"}},
    {"ranking": "tiresias", "options": {"limits": [200.0, 900.0], "knob": 2.0}},
    {"ranking": "srtf", "fill": True},
    {"formulation": "max-min-fairness"},
)


def job(name: str, random: np.random.Generator) -> dict[str, Any]:
    gpus = int(random.choice([1, 1, 2, 4]))
    own: dict[str, Any] = {
        "id": name,
        "gpus": gpus,
        "steps": float(random.uniform(2e3, 2e4)),
        "throughput": {pool: gpus * float(random.uniform(1, 4)) for pool in ("a", "b")},
    }
    if random.random() < 0.1:
        own["preemptible"] = False
    if random.random() < 0.2:
        own["deadline"] = float(random.uniform(5e3, 9e3))
    return own


class Site:
    """A scheduler to which things happen now and then."""

    def __init__(self, policy: dict[str, Any], seed: int, pools: int) -> None:
        self.random = np.random.default_rng(seed)
        nodes = [{"name": name, "nodes": pools, "gpus_per_node": 4} for name in ("a", "b")]
        self.live = [f"j{row}" for row in range(10)]
        self.next = 10
        document = {
            "format": "optsched-instance/1",
            "round": 60.0,
            "cluster": {"pools": nodes},
            "jobs": [job(name, self.random) for name in self.live],
        }
        self.scheduler = Scheduler(document, policy, isolate=False)

    def happen(self, now: float) -> None:
        """At most one event; in most rounds none."""
        random, scheduler = self.random, self.scheduler
        match int(random.integers(0, 24)):
            case 0 | 1:
                scheduler.complete(self.live.pop(0), now=now)
            case 2 | 3:
                scheduler.submit(job(f"j{self.next}", random) | {"arrival": now + 100.0}, now=now)
                self.live.append(f"j{self.next}")
                self.next += 1
            case 4:
                scheduler.update(self.live[0], deadline=now + 90.0, now=now)
            case 5:
                scheduler.observe(self.live[0], steps=1e3, now=now)
            case 6:
                scheduler.node_down("a-0", now=now)
            case 7:
                scheduler.node_up("a-0", now=now)
            case 8:
                scheduler.reserve(f"r{now}", ["b-0"], now + 30.0, now + 150.0, now=now)


@pytest.mark.parametrize("pools", [1, 4], ids=["full", "idle"])
@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_plans_are_those_of_the_state_alone(
    policy: dict[str, Any], pools: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = []
    real = PlannedRound.plan_again

    def counted(*given: Any) -> Any:
        plan = real(*given)
        again.append(plan is not None)
        return plan

    monkeypatch.setattr(PlannedRound, "plan_again", counted)
    site = Site(policy, 3, pools)
    for number in range(45):
        now = 60.0 * number
        site.happen(now)
        plan = site.scheduler.solve(now, dry_run=True).to_document()
        alone = optsched.solve_round(optsched.rounds.advanced(site.scheduler.state, now))
        assert plan | {"timings": 0} == alone.to_document() | {"timings": 0}
        site.scheduler.solve(now)
    # Allocations are kept by simulations alone. On a full cluster orders may change each round.
    assert any(again) or pools == 1 or "formulation" in policy
    assert not any(again) or "ranking" in policy


def test_another_policy_makes_its_own_columns() -> None:
    """AlloX counts on nodes that come later, and plans with columns of its own."""
    site = Site({"ranking": "fcfs"}, 5, 2)
    for number, policy in enumerate(({"ranking": "srtf"}, {"formulation": "allox"}) * 2):
        now = 60.0 * number
        site.scheduler.set_policy(policy, now=now)
        for later in (0.0, 20.0):
            state = optsched.rounds.advanced(site.scheduler.state, now + later)
            alone = optsched.solve_round(state).to_document()
            plan = site.scheduler.solve(now + later).to_document()
            assert plan | {"timings": 0} == alone | {"timings": 0}
