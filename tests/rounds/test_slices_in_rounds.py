"""Slices of GPUs (MIG) in rounds: what a plan runs on a GPU has a layout, round by round."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import optsched
from optsched.rounds import RoundPolicy, Scheduler

STARTS = {
    "1g.5gb": (1, range(7)),
    "2g.10gb": (2, (0, 2, 4)),
    "3g.20gb": (4, (0, 4)),
    "4g.20gb": (4, (0,)),
}
"""Memory slices of the profiles of an A100, and where they may start."""
POLICIES: dict[str, dict[str, Any]] = {
    "max-min": {"formulation": "max-min-fairness", "hysteresis": 0.0},
    "throughput": {"formulation": "max-throughput"},
    "ranked": {"ranking": "fcfs"},
}


def job(name: str, random: np.random.Generator) -> dict[str, Any]:
    """One or two slices to choose from, a share of a GPU, or whole GPUs."""
    kind = random.integers(6)
    if kind == 0:
        gpus = int(random.integers(1, 3))
        return {"id": name, "gpus": gpus, "throughput": {"a100": {str(gpus): 8.0 * gpus}}}
    if kind == 1:
        share = float(random.choice([0.25, 0.5]))
        return {"id": name, "options": [option(None, share)]}
    profiles = random.choice(list(STARTS), size=int(random.integers(1, 3)), replace=False)
    return {"id": name, "options": [option(str(one), STARTS[str(one)][0] / 8) for one in profiles]}


def option(profile: str | None, share: float) -> dict[str, Any]:
    document = {"pool": "a100", "gpus": 1, "share": share, "throughput": 8.0 * share}
    return document if profile is None else document | {"attributes": {"mig": profile}}


def document(jobs: list[dict[str, Any]], nodes: int = 2) -> dict[str, Any]:
    pool = {"name": "a100", "gpu": "A100-SXM4-40GB", "nodes": nodes, "gpus_per_node": 2}
    return {"format": "optsched-instance/1", "cluster": {"pools": [pool]}, "jobs": jobs}


def has_layout(profiles: list[str]) -> bool:
    """All starts of all slices are tried."""
    for starts in product(*(STARTS[profile][1] for profile in profiles)):
        taken = [
            start + number
            for profile, start in zip(profiles, starts, strict=True)
            for number in range(STARTS[profile][0])
        ]
        if len(taken) == len(set(taken)):
            return True
    return False


def running_in(plan: optsched.Plan) -> list[dict[str, Any]]:
    document = plan.to_document()
    return [entry for name in ("start", "keep", "move") for entry in document[name]]


def check(plan: optsched.Plan, jobs: dict[str, dict[str, Any]]) -> int:
    """How many GPUs the plan cuts; every one has a layout."""
    on_gpu: dict[str, list[str | None]] = {}
    for entry in running_in(plan):
        options = jobs[entry["job"]].get("options")
        if options is not None:
            chosen = options[entry.get("option", 0)]
            for gpu in entry["gpus"]:
                profile = chosen.get("attributes", {}).get("mig")
                on_gpu.setdefault(gpu, []).append(profile)
        else:
            assert not set(entry["gpus"]) & set(on_gpu)
    cut = [held for held in on_gpu.values() if any(held)]
    for held in cut:
        assert None not in held, held
        assert has_layout([profile for profile in held if profile]), held
    return len(cut)


@pytest.mark.property
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("policy", POLICIES)
def test_every_gpu_of_every_round_has_a_layout(policy: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    jobs = {f"j{number}": job(f"j{number}", random) for number in range(30)}
    waiting = list(jobs)
    first = [jobs[waiting.pop()] for _ in range(8)]
    scheduler = Scheduler(document(first), RoundPolicy(**POLICIES[policy]))
    cut = 0
    for turn in range(8):
        now = 300.0 * turn
        plan = scheduler.solve(now)
        assert plan.fallback is None
        cut += check(plan, jobs)
        running = [entry["job"] for entry in running_in(plan)]
        if running:
            scheduler.complete(str(random.choice(running)), now=now + 100.0)
        some = [jobs[waiting.pop()] for _ in range(min(3, len(waiting)))]
        if some:
            scheduler.submit(some, now=now + 100.0)
    assert cut > 4


def test_a_second_slice_goes_to_another_gpu() -> None:
    """A GPU has one start for 4g: where two are wanted, each has a GPU; the shares would fit on one."""
    wanted = [{"id": name, "options": [option("4g.20gb", 0.5)]} for name in ("a", "b", "c")]
    jobs = {each["id"]: each for each in wanted}
    scheduler = Scheduler(document(wanted, nodes=1), RoundPolicy(formulation="max-throughput"))
    plan = scheduler.solve(0.0)
    assert check(plan, jobs) == 2
    assert len(running_in(plan)) == 2
    assert "as slice 4g.20gb; no GPU is free for it" in plan.to_document()["hold"][0]["reason"]
    # One of 3g still finds room beside a 4g slice.
    more = {"id": "d", "options": [option("3g.20gb", 0.5)]}
    scheduler.submit([more], now=300.0)
    plan = scheduler.solve(360.0)
    assert check(plan, jobs | {"d": more}) == 2
    assert len(running_in(plan)) == 3
