"""Running jobs move to faster GPUs where it pays and these are idle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import optsched
from optsched import solve_round
from optsched.errors import InvalidInput, ReplayDiffers, UsageError
from optsched.registry import names
from optsched.rounds import Plan, RoundPolicy, RoundState

# Private names: single rules and files of a round, without a scheduler
from optsched.rounds.idle import seconds_saved

Document = dict[str, Any]


def test_seconds_saved_by_hand() -> None:
    """100 s at 1 step/s, or 25 s at 4 steps/s after a restart of 30 s."""
    steps, one = np.full(6, 100.0), np.ones(6)
    there = np.array([4.0, 4.0, 1.0, 0.5, 4.0, 1.0 + 1e-12])
    cost = np.array([30.0, 80.0, 0.0, 0.0, 75.0, 0.0])
    saved = seconds_saved(steps, one, there, delay_there=cost)
    assert saved[0] == pytest.approx(45.0)
    assert saved[1] == pytest.approx(-5.0)
    assert (
        saved[2:] <= 0
    ).all()  # as fast, slower, not worth the restart, faster by rounding alone
    assert seconds_saved(steps, one, there, delay=10.0, delay_there=cost)[0] == pytest.approx(55.0)
    assert (seconds_saved(steps, 0 * one, there) == 0).all()  # it does not run
    with np.errstate(invalid="raise"):
        assert (seconds_saved(steps, 0 * one, 0 * one) == 0).all()  # nor would it there


def job(name: str, pool: str | None = None, held: tuple[str, ...] = (), **more: Any) -> Document:
    """A job that runs four times as fast on the pool ``fast``; by default it needs 1000 s on ``slow``."""
    given: Document = {
        "id": name,
        "steps": 1000.0,
        "throughput": {"fast": 4.0, "slow": 1.0},
        "arrival": 0.0,
        **more,
    }
    return (
        given
        if pool is None
        else {**given, "running": {"pool": pool, "gpus": list(held), "since": 0.0}}
    )


def planned(
    jobs: list[Document],
    options: Document | None = None,
    nodes: tuple[int, ...] = (1,),
    **more: Any,
) -> Plan:
    """The plan of jobs on fast nodes with so many GPUs and one slow node of four."""
    fast = {
        "name": "fast",
        "nodes": [{"name": f"f{row}", "gpus": count} for row, count in enumerate(nodes)],
    }
    slow = {"name": "slow", "nodes": [{"name": "s", "gpus": 4}]}
    document = {
        "format": "optsched-instance/1", "now": 10.0, "round": 60.0, "jobs": jobs,
        "cluster": {"pools": [{**pool, "gpus_per_node": 1} for pool in (fast, slow)]},
    }  # fmt: skip
    policy = RoundPolicy(**{"ranking": "fcfs", "options": options or {}, **more})
    plan = solve_round(RoundState.first(optsched.Instance.from_document(document), policy))
    assert plan.fallback is None
    return plan


def places(plan: Plan) -> dict[str, tuple[str, ...]]:
    found = plan.instance.jobs_table.names
    return {found[row]: gpus for row, (_, gpus, _) in plan.running.items()}


def test_a_job_moves_to_an_idle_faster_pool() -> None:
    plan = planned([job("a", "slow", ("s/0",))])
    assert places(plan) == {"a": ("f0/0",)}
    (move,) = plan.move
    assert move.reason == "it ends 750 s sooner on faster GPUs of fast, the restart counted"
    assert places(planned([job("a", "slow", ("s/0",))], {"moves": "published"})) == {"a": ("s/0",)}


def test_a_job_that_starts_has_nothing_to_restart() -> None:
    """One of three jobs starts on the slow GPUs and gets the fast one within the same round."""
    jobs = [job(name) for name in "abc"]
    plan = planned(jobs, formulation="max-min-fairness", ranking=None)
    assert len(plan.start) == 3 and "f0/0" in {gpu for item in plan.start for gpu in item.gpus}
    assert [item.reason for item in plan.start] == [""] * 3


def test_it_stays_where_the_restart_costs_more_than_the_move_saves() -> None:
    assert places(planned([job("a", "slow", ("s/0",), restart_cost=749.0)])) == {"a": ("f0/0",)}
    assert places(planned([job("a", "slow", ("s/0",), restart_cost=751.0)])) == {"a": ("s/0",)}


def test_no_running_job_is_stopped_for_a_move() -> None:
    """The first job in the order stays on the slow GPU: the fast one is held by the last."""
    plan = planned([job("a", "slow", ("s/0",)), job("b", "fast", ("f0/0",), arrival=5.0)])
    assert not plan.move
    assert places(
        planned(
            [job("a", "slow", ("s/0",)), job("b", "fast", ("f0/0",), arrival=5.0)],
            {"gpus": "fastest"},
        )
    )["a"] == ("f0/0",)


def test_jobs_before_it_in_the_order_choose_first() -> None:
    plan = planned([job("a", "slow", ("s/0",), arrival=5.0), job("b")])
    assert places(plan) == {"a": ("s/0",), "b": ("f0/0",)}
    plan = planned([job("a", "slow", ("s/0",)), job("b", arrival=5.0)])
    assert places(plan)["a"] == ("f0/0",)
    assert "b" in places(plan)


def test_one_that_has_starved_chooses_first() -> None:
    jobs = [job("a", "slow", ("s/0",), arrival=-900.0), job("b", arrival=-800.0)]
    assert places(planned(jobs))["a"] == ("f0/0",)
    assert places(planned(jobs, patience=5))["b"] == ("f0/0",)


def test_the_best_of_the_idle_gpus_go_to_the_first_in_the_order() -> None:
    running = [
        job(name, "slow", (f"s/{row}",), arrival=float(-row)) for row, name in enumerate("abcd")
    ]
    plan = planned(running, nodes=(1, 1))
    assert {name for name, gpus in places(plan).items() if gpus[0].startswith("f")} == {"c", "d"}
    assert len(plan.keep) == 2


def test_a_gang_stays_where_the_faster_gpus_are_free_but_scattered() -> None:
    jobs = [
        job("gang", "slow", ("s/0", "s/1"), gpus=2),
        job("b", "fast", ("f0/0",), arrival=5.0),
        job("c", "fast", ("f1/0",), arrival=6.0),
    ]
    plan = planned(jobs, nodes=(2, 2))
    assert len(plan.keep) == 3
    assert places(planned(jobs[:2], nodes=(2, 2)))["gang"] == ("f1/0", "f1/1")


@pytest.mark.parametrize(
    "more",
    [{"max_moves": 0}, {"constraints": ({"kind": "pinned", "jobs": ["a"], "pools": ["slow"]},)}],
)
def test_limits_of_the_policy_hold(more: Document) -> None:
    assert places(planned([job("a", "slow", ("s/0",))], **more)) == {"a": ("s/0",)}


def test_a_job_that_cannot_be_preempted_stays() -> None:
    assert places(planned([job("a", "slow", ("s/0",), preemptible=False)])) == {"a": ("s/0",)}


# --- names ---------------------------------------------------------------------------------------------------------


def test_no_ranking_has_the_name_of_a_formulation() -> None:
    assert not set(names("ranking")) & set(names("formulation"))


def test_a_stored_policy_with_the_former_name_of_a_ranking() -> None:
    """``fifo`` is the formulation; states and policies of before may call the ranking fcfs so."""
    assert RoundPolicy(ranking="fifo").ranking == "fcfs"
    assert RoundPolicy(formulation="fifo").formulation == "fifo"
    instance = optsched.load("@quickstart")
    document = RoundState.first(
        instance, RoundPolicy(ranking="fcfs", options={"strict": True})
    ).to_document()
    document["policy"]["ranking"] = "fifo"
    told = {"strict": True, "moves": "paying"}
    assert RoundState.from_document(document).policy == RoundPolicy(ranking="fcfs", options=told)


# --- policies that were kept before rankings had the option ``moves`` -------------------------------------------------


def two_pools() -> Document:
    """Job b starts on the slow pool, as a has the fast one; when a is done it pays to move b."""
    return {
        "format": "optsched-instance/1", "now": 0.0, "round": 60.0,
        "jobs": [job("a", steps=200.0), job("b", steps=10_000.0)],
        "cluster": {"pools": [{"name": name, "nodes": 1, "gpus_per_node": 1} for name in ("fast", "slow")]},
    }  # fmt: skip


@pytest.mark.parametrize("name", ["fcfs", "fifo", "first-come-first-served"])
def test_a_policy_that_was_kept_without_moves_keeps_its_rule(name: str) -> None:
    document = RoundState.first(
        optsched.load("@quickstart"), RoundPolicy(ranking="fcfs")
    ).to_document()
    assert document["policy"]["options"] == {"moves": "paying"}
    assert RoundState.from_document(document).policy.made_ranking().moves == "paying"
    for options in ({}, {"options": {}}, {"options": {"strict": True}}):
        document["policy"] = {"ranking": name, **options}
        read = RoundState.from_document(document)
        assert read.policy.made_ranking().moves == "published"
        assert RoundState.from_document(read.to_document()).policy == read.policy
    assert RoundPolicy(ranking="fcfs").made_ranking().moves == "paying"


def test_a_kept_policy_that_is_none_is_refused() -> None:
    document = RoundState.first(optsched.load("@quickstart")).to_document()
    for policy, error in (
        ("fcfs", InvalidInput),
        ({"ranking": 1}, InvalidInput),
        ({"ranking": "no"}, UsageError),
    ):
        with pytest.raises(error, match=r"policy|ranking"):
            RoundState.from_document({**document, "policy": policy})


@pytest.mark.parametrize("moves", ["paying", "published"])
def test_a_journal_of_before_is_recovered_by_its_rule(
    tmp_path: Path, moves: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One whose policy lacks ``moves`` is of ``published``; planned again, plans of another are others."""
    without = {"ranking": "fcfs"}
    monkeypatch.setattr("optsched.rounds.recovery.policy_document", lambda policy: without)
    instance = optsched.Instance.from_document(two_pools())
    policy = {**without, "options": {"moves": moves}}
    with optsched.Scheduler(
        instance, policy, clock=lambda: 0.0, journal=tmp_path / "j", isolate=False
    ) as scheduler:
        scheduler.solve(now=0.0)
        scheduler.complete("a", now=50.0)
        moved = bool(scheduler.solve(now=60.0).move)
    assert moved == (moves == "paying")
    if moved:
        with pytest.raises(ReplayDiffers):
            optsched.replay(tmp_path / "j", 1)
        return
    with optsched.Scheduler.recover(tmp_path / "j", isolate=False) as again:
        assert again.state.policy.made_ranking().moves == "published"


def test_a_journal_of_now_is_recovered_by_its_rule(tmp_path: Path) -> None:
    instance = optsched.Instance.from_document(two_pools())
    policy = {"ranking": "fcfs"}
    with optsched.Scheduler(
        instance, policy, clock=lambda: 0.0, journal=tmp_path / "j", isolate=False
    ) as scheduler:
        scheduler.solve(now=0.0)
        scheduler.complete("a", now=50.0)
        assert scheduler.solve(now=60.0).move
    with optsched.Scheduler.recover(tmp_path / "j", isolate=False) as again:
        assert again.state.policy.made_ranking().moves == "paying"
