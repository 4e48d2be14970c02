"""Running jobs that plans preempt or move within any hour."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from optsched.rounds import RoundState, Scheduler, Verdict

FOUR_JOBS_IN_TURNS: dict[str, Any] = {
    "format": "optsched-instance/1",
    "round": 360.0,
    "cluster": {"pools": [{"name": "v100", "nodes": 1, "gpus_per_node": 1}]},
    "jobs": [
        {"id": name, "steps": 1e9, "arrival": 0.0, "throughput": {"v100": 1.0}} for name in "abcd"
    ],
}


def stopped_in_each_round(scheduler: Scheduler, rounds: int) -> list[int]:
    stopped = []
    for number in range(rounds):
        plan = scheduler.solve(now=360.0 * number)
        stopped.append(
            int(((plan.verdict == Verdict.PREEMPT) | (plan.verdict == Verdict.MOVE)).sum())
        )
    return stopped


@pytest.mark.parametrize("limit", [0, 1, 3, None])
@pytest.mark.property
def test_no_hour_has_more_moves_than_the_policy_allows(limit: int | None) -> None:
    policy = {"hysteresis": 0.0, "moves_per_hour": limit}
    with Scheduler(FOUR_JOBS_IN_TURNS, policy) as scheduler:
        stopped = stopped_in_each_round(scheduler, 40)
    in_an_hour = [sum(stopped[start : start + 10]) for start in range(31)]
    if limit is None:
        assert max(in_an_hour) > 3
    else:
        assert max(in_an_hour) == limit


def test_moves_of_a_round_and_of_an_hour_are_both_bounded() -> None:
    policy = {"hysteresis": 0.0, "moves_per_hour": 3, "max_moves": 0}
    with Scheduler(FOUR_JOBS_IN_TURNS, policy) as scheduler:
        assert sum(stopped_in_each_round(scheduler, 10)) == 0


def test_the_moves_of_the_last_hour_outlive_a_file_and_a_crash(tmp_path: Path) -> None:
    policy = {"hysteresis": 0.0, "moves_per_hour": 2}
    journal = tmp_path / "journal"
    with Scheduler(FOUR_JOBS_IN_TURNS, policy, journal=journal, snapshot_every=4) as scheduler:
        stopped_in_each_round(scheduler, 9)
        state = scheduler.state
    assert sum(item.jobs for item in state.moves) == 2
    assert RoundState.from_document(state.to_document()).moves == state.moves
    with Scheduler.recover(journal) as recovered:
        assert recovered.state.moves == state.moves
