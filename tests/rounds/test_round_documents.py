"""States and plans as documents: exact, versioned, and lenient towards jobs that have gone."""

from __future__ import annotations

import copy
import json
import random
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from refusals import refuses

import optsched
from optsched.errors import UsageError
from optsched.rounds import Reservation, RoundState, advanced, followed

# Private names: single rules and files of a round, without a scheduler
from optsched.rounds.ledger import Ledger, Service
from optsched.rounds.plan_document import plan_schema
from optsched.rounds.policy import policy_document
from optsched.rounds.state import state_schema


def after(
    rounds: int, source: str = "@quickstart", policy: dict[str, Any] | None = None
) -> RoundState:
    """The state after some rounds, the next one about to begin."""
    state = RoundState.first(optsched.load(source), optsched.RoundPolicy(**(policy or {})))
    for _ in range(rounds):
        state = followed(state, optsched.solve_round(state))
        state = advanced(state, state.now + state.instance.round)
    return state


@pytest.fixture(scope="module")
def third() -> dict[str, Any]:
    return json.loads(json.dumps(after(2).to_document()))


@pytest.mark.parametrize(
    ("source", "policy", "rounds"),
    [
        ("@quickstart", {}, 0),
        ("@quickstart", {}, 3),
        ("@packing", {"formulation": "makespan", "hysteresis": 0.0}, 2),  # pairs that share GPUs
        ("@smd", {"formulation": "smd"}, 1),  # options, and jobs that need no pool
        ("@quickstart", {"ranking": "srtf", "patience": 3}, 2),
    ],
)
def test_a_state_s_document_is_the_state(source: str, policy: dict[str, Any], rounds: int) -> None:
    state = after(rounds, source, policy)
    nodes = (next(iter(state.instance.cluster.numbering.by_name)),)
    state = replace(
        state, reservations=(Reservation(nodes, state.now + 500, state.now + 900, "disks"),)
    )
    document = json.loads(json.dumps(state.to_document(), allow_nan=False))
    again = RoundState.from_document(document)
    for part in (Ledger, Service):
        mine, other = (getattr(one, part.__name__.lower()) for one in (state, again))
        for field in fields(part):
            a, b = getattr(mine, field.name), getattr(other, field.name)
            assert a.dtype == b.dtype and a.tobytes() == b.tobytes(), field.name
    assert policy_document(again.policy) == policy_document(state.policy)
    assert (again.round, again.reservations) == (state.round, state.reservations)
    assert again.to_document() == document
    assert optsched.solve_round(again).id == optsched.solve_round(state).id
    jsonschema.Draft202012Validator(state_schema()).validate(document)


@pytest.mark.property
@pytest.mark.parametrize("seed", range(3))
def test_a_document_is_exact_whatever_happens(seed: int) -> None:
    """Jobs come, go, stop and are observed, nodes fail and are reserved: document and state plan the same."""
    dice, coming = random.Random(seed), 0
    policy = {"hysteresis": 0.2, "patience": 4}
    with optsched.Scheduler("@packing", policy, clock=lambda: 0.0, isolate=False) as made:
        start, nodes = made.state.now, list(made.instance.cluster.numbering.by_name)
        templates = made.instance.to_document()["jobs"]
        for number in range(12):
            now = start + 360.0 * number
            names = list(made.instance.jobs_table.names.written())
            for name in dice.sample(names, min(2, len(names))):
                dice.choice((made.complete, made.cancel, made.stopped))(name, now=now)
            for _ in range(dice.randrange(4)):
                made.submit(
                    {**dice.choice(templates), "id": f"new-{coming}", "arrival": now}, now=now
                )
                coming += 1
            for name in made.instance.jobs_table.names.written()[:2]:
                made.observe(name, steps=dice.uniform(0, 3), now=now)
            dice.choice((made.node_down, made.node_drain, made.node_up))(
                dice.choice(nodes), now=now
            )
            made.reserve(f"r{number}", [dice.choice(nodes)], now + 300, now + 900, now=now)
            made.resize({made.instance.cluster.pools[0].name: 4}, now=now) if number == 6 else None
            document = json.loads(json.dumps(made.state.to_document(), allow_nan=False))
            wanted = made.solve(now)
            found = optsched.solve_round(RoundState.from_document(document))
            assert found.id == wanted.id, number
            assert found.started_from == wanted.started_from


def test_a_plan_s_document_keeps_its_schema() -> None:
    for source in ("@quickstart", "@packing", "@unrelated", "@leases"):
        plan = optsched.solve_round(after(2, source))
        document = json.loads(json.dumps(plan.to_document(), allow_nan=False))
        jsonschema.Draft202012Validator(plan_schema()).validate(document)
        assert document["id"] == plan.id
        same = ("round", "now", "until", "formulation", "status", "objective", "bound", "gap")
        same += ("fallback", "metrics", "reproducible", "started_from")
        assert {name: document[name] for name in same} == {
            name: getattr(plan, name) for name in same
        }
        seated = {row["job"]: row for kind in ("start", "keep", "move") for row in document[kind]}
        runs = {plan.instance.jobs_table.names[job]: held for job, held in plan.running.items()}
        assert set(seated) == set(runs)
        for job, row in seated.items():
            assert tuple(row["gpus"]) == runs[job][1]
            assert [
                f"{node}/{index}" for node, indices in row["nodes"].items() for index in indices
            ] == row["gpus"]
        assert all(row["reason"] for kind in ("move", "preempt", "hold") for row in document[kind])
        stops = [step["kind"] for step in document["actions"]]
        assert stops == sorted(stops, reverse=True)


def test_numbers_that_do_not_exist_are_null() -> None:
    document = optsched.solve_round("@quickstart", {"ranking": "fcfs"}).to_document()
    names = ("status", "objective", "bound", "gap", "certificate", "formulation")
    assert [document[name] for name in names] == [None] * 6
    assert document["prices"] == {} and document["allocation"] == []


def test_jobs_that_have_gone_leave_what_is_owed_to_others(third: dict[str, Any]) -> None:
    state = RoundState.from_document(third)
    names = state.instance.jobs_table.names
    gone = names[0]
    document = copy.deepcopy(third)
    document["instance"]["jobs"] = [
        job for job in document["instance"]["jobs"] if job["id"] != gone
    ]
    document["instance"]["jobs"].append(
        {"id": "new", "gpus": 1, "steps": 9, "throughput": {"v100": 1.0}}
    )
    found = RoundState.from_document(document)
    kept = state.ledger.revised(np.arange(1, len(names)), 1)
    assert found.ledger.key.tobytes() == kept.key.tobytes()
    assert found.ledger.owed.tolist() == kept.owed.tolist()
    assert found.warm is not None and found.warm.of_job[-1] == -1
    assert found.warm.of_job[:-1].tolist() == state.warm.of_job[1:].tolist()
    plan = optsched.solve_round(found)
    assert plan.fallback is None and "columns known" in plan.started_from


def test_a_job_that_the_instance_says_does_not_run_has_stopped(third: dict[str, Any]) -> None:
    document = copy.deepcopy(third)
    (row,) = [
        place
        for place, job in enumerate(document["instance"]["jobs"])
        if job["id"] == "resnet-50-1"
    ]
    assert document["instance"]["jobs"][row].pop("running")
    state = RoundState.from_document(document)
    assert not state.ledger.runs[state.ledger.job == row].any()
    assert state.service.speed[row] == 0 and state.service.waiting_since[row] == state.now


# --- what solve_round takes ----------------------------------------------------------------------------------------


def test_a_round_begins_with_whatever_there_is(tmp_path: Path, third: dict[str, Any]) -> None:
    instance = optsched.load("@quickstart")
    wanted = optsched.solve_round(RoundState.first(instance)).id
    file = tmp_path / "instance.yaml"
    file.write_text(json.dumps(instance.to_document()))
    npz = tmp_path / "instance.npz"
    from optsched.instance import instance_bytes

    npz.write_bytes(instance_bytes(instance, "npz"))
    for source in (instance, "@quickstart", file, str(npz), instance.to_document()):
        assert optsched.solve_round(source).id == wanted
    state = tmp_path / "state.json"
    state.write_text(json.dumps(third))
    assert optsched.solve_round(state).round == 2
    assert optsched.solve_round(state, {"ranking": "fcfs"}).solution is None


WRONG = {
    "format": (
        {"format": "optsched-round/2"},
        'format: found "optsched-round/2", expected "optsched-round/1"',
    ),
    "round": ({"round": -1}, "round: found -1, expected a number of at least 0"),
    "key": (
        {"ledgre": []},
        "ledgre: found an unknown key 'ledgre', expected one of the format's keys (did you mean...",
    ),
    "policy": (
        {"policy": {"hysteresys": 1}},
        "policy.hysteresys: found an unknown key 'hysteresys'",
    ),
    "both": (
        {"policy": {"ranking": "fcfs", "formulation": "makespan"}},
        'policy: found {"ranking": "fcfs", "formulation": "makespan"}, expected a formulation or a ranking, not both',
    ),
    "pool": (
        {"ledger": [{"job": "a", "pool": "q", "gpus": 1, "nodes": 1}]},
        'ledger[0].pool: found "q", expected one...',
    ),
    "nobody": (
        {"ledger": [{"pool": None, "gpus": 1, "nodes": 1}]},
        'ledger[0]: found {"pool": null, "gpus": 1, "nodes": 1}, expected a job or two jobs',
    ),
    "basis": (
        {"basis": "AAAA"},
        'basis: found "AAAA", expected null, or the text that a state was written with',
    ),
    "instance": ({"instance": {"jobs": 1}}, "instance.format"),
    "node": (
        {"reservations": [{"nodes": ["q"], "start": 0, "end": 1}]},
        'reservations[0].nodes[0]: found "q"',
    ),
    "times": (
        {"reservations": [{"nodes": [], "start": 1, "end": 1}]},
        "reservations[0].end: found 1...",
    ),
    "service": (
        {"service": {"a": {"starts": 0.5}}},
        "service.a.starts: found 0.5, expected a whole number",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_told_with_its_path(case: str, third: dict[str, Any]) -> None:
    change, message = WRONG[case]
    with refuses(message):
        RoundState.from_document(third | change)


def test_a_state_without_an_instance_and_things_that_are_none(tmp_path: Path) -> None:
    with refuses("instance: found nothing, expected this key"):
        RoundState.from_document({"format": "optsched-round/1"})
    file = tmp_path / "state.json"
    file.write_text('{"format": "optsched-round/9"}')
    with refuses('state.json: format: found "optsched-round/9"...'):
        optsched.solve_round(file)
    with refuses("found a int, expected a RoundState, an Instance or a file of one", UsageError):
        optsched.solve_round(3)  # type: ignore[arg-type]
