"""The state of a scheduler is all that its next plan depends on, what its performance model has learnt included."""

from __future__ import annotations

import json
from pathlib import Path

from documents import instance_document

import optsched
from optsched.rounds import RoundState

POOL = {"name": "v100", "nodes": 1, "gpus_per_node": 1}
DOCUMENT = instance_document(
    [POOL],
    [
        {"id": "a", "workload": "A", "steps": 1e5},
        {"id": "b", "workload": "B", "steps": 1e5},
    ],
    round=360,
    performance={"model": "online", "of": {"model": "table"}},
    workloads={"A": {"throughput": {"v100": 10.0}}, "B": {"throughput": {"v100": 9.0}}},
)
POLICY = {"formulation": "max-throughput", "hysteresis": 0}


def runs(plan: optsched.Plan) -> list[str]:
    return [item.job for item in (*plan.start, *plan.keep)]


def test_a_state_plans_what_its_scheduler_plans(tmp_path: Path) -> None:
    with optsched.Scheduler(
        optsched.Instance.from_document(DOCUMENT), POLICY, isolate=False, journal=tmp_path / "j"
    ) as made:
        assert runs(made.solve(now=0)) == ["a"]
        assert made.state is made.state
        made.observe("a", throughput=1e-3, now=0)
        state, document = (
            made.state,
            json.loads(json.dumps(made.state.to_document(), allow_nan=False)),
        )
        given = [optsched.solve_round(state), optsched.solve_round(document), made.solve(now=0)]
    assert [runs(plan) for plan in given] == [["b"]] * 3
    assert len({plan.id for plan in given}) == 1
    with optsched.Scheduler.recover(tmp_path / "j", isolate=False) as again:
        assert again.state.to_document() == made.state.to_document()


def test_the_state_of_a_model_that_does_not_learn_is_the_one_that_lives() -> None:
    plain = {**DOCUMENT, "performance": {"model": "table"}}
    made = optsched.Scheduler(optsched.Instance.from_document(plain), POLICY, isolate=False)
    made.observe("a", throughput=1e-3, now=0)
    assert made.state.instance.performance == {"model": "table"}
    assert (
        RoundState.from_document(made.state.to_document()).to_document() == made.state.to_document()
    )
