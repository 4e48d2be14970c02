"""What rows take for granted of a requirement: it is told wherever the requirement is said to be impossible."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from plan_instances import made

import optsched

# Private names: the inner steps of an answer are compared with a reference
from optsched.solution.explanation import conflict_statement

STEADY = "at a constant rate from now on"
ONE_GPU = {"pools": [{"name": "v100", "nodes": 1, "gpus_per_node": 1}]}


def in_turns(**fields: Any) -> optsched.Instance:
    """Two jobs of 2 s, due at 2 s and 4 s, on one GPU: earliest deadline first meets both."""
    jobs = [
        {"id": name, "steps": 2, "deadline": due, "throughput": {"v100": 1.0}}
        for name, due in (("a", 2), ("b", 4))
    ]
    return made(round=1.0, cluster=ONE_GPU, jobs=jobs, **fields)


def test_deadlines_that_turns_meet_are_not_called_impossible() -> None:
    instance = in_turns()
    steady = optsched.solve(instance, "max-throughput", constraints=["deadlines"])
    assert steady.status == "infeasible"
    assert conflict_statement(steady.conflicts, steady.certificate.proof) == (
        f"{STEADY}, these requirements cannot all hold"
    )
    assert steady.why_infeasible.startswith(f"{STEADY}, these requirements cannot all hold (")
    decided_by = steady.conflicts[-1].assumption.decided_by
    assert " lease " in decided_by and decided_by in steady.why_infeasible
    in_rounds = optsched.solve(instance, "lease")
    assert (
        in_rounds.status == "optimal"
        and in_rounds.objective == 2.0
        and in_rounds.why_infeasible == ""
    )


def test_whole_jobs_conflict_where_fractions_of_them_do_not() -> None:
    """0.556 + 0.556 GPU h of 3 GPUs for 0.389 h: fractions fit, and two gangs of 2 do not."""
    due = {"gpus": 2, "steps": 1000, "deadline": 1400.0, "throughput": {"v100": 1.0}}
    cluster = {"pools": [{"name": "v100", "nodes": 1, "gpus_per_node": 3}]}
    instance = made(cluster=cluster, jobs=[{"id": name, **due} for name in "ab"])
    fractions = optsched.solve(instance, "max-throughput", constraints=["deadlines"])
    assert fractions.status == "optimal"
    whole = optsched.solve(instance, "max-throughput", constraints=["deadlines"], integral=True)
    assert whole.status == "infeasible"
    said = conflict_statement(whole.conflicts, whole.certificate.proof)
    assert said == f"with whole jobs, {STEADY}, these requirements cannot all hold"
    assert optsched.verify(instance, whole.to_document()).ok


def test_what_has_no_assumption_conflicts_as_it_is() -> None:
    shared = [{"kind": "minimum-service", "fraction": 1.0}]
    solution = optsched.solve(in_turns(), "max-throughput", constraints=shared)
    assert solution.status == "infeasible"
    assert (
        conflict_statement(solution.conflicts, solution.certificate.proof)
        == "these requirements cannot all hold"
    )
    past = optsched.solve(in_turns(now=3.0), "max-throughput", constraints=["deadlines"])
    assert conflict_statement(past.conflicts, past.certificate.proof) == "this cannot be met"


def test_leases_say_that_they_plan_whole_rounds() -> None:
    solution = optsched.solve(replace(in_turns(), round=3.0), "lease")
    told = "in whole rounds of 3 s, every job in one configuration, this cannot be met"
    assert conflict_statement(solution.conflicts, solution.certificate.proof) == told


def test_a_file_says_what_its_conflicts_rest_on() -> None:
    instance = in_turns()
    for formulation, constraints in (("max-throughput", ["deadlines"]), ("lease", [])):
        changed = instance if constraints else replace(instance, round=3.0)
        document = optsched.solve(changed, formulation, constraints=constraints).to_document()
        assert len(document["assumptions"]) == 1
        assert optsched.verify(changed, document).ok
        before = {key: value for key, value in document.items() if key != "assumptions"}
        assert optsched.verify(changed, before).ok, "files of before leave it out"
        wrong = optsched.verify(changed, document | {"assumptions": ["on Sundays"]})
        assert [finding.field for finding in wrong.findings] == ["assumptions"]
    assert "assumptions" not in optsched.solve(instance, "makespan").to_document()


def test_rounds_say_what_was_shown() -> None:
    policy = {"formulation": "max-throughput", "constraints": [{"kind": "deadlines"}]}
    plan = optsched.Scheduler(in_turns(), policy).solve(now=0)
    room = "pool v100 leaves no room for it beside jobs that are admitted: a"
    assert plan.fallback is None and plan.declined == (("b", f"{STEADY}, {room}"),)


@pytest.mark.parametrize(
    "command",
    [
        ("solve", "-C", "deadlines"),
        ("solve", "-C", "deadlines:give_way=shortfall"),
        ("explain", "-C", "deadlines"),
        ("compare", "-C", "deadlines", "-f", "makespan"),
        ("whatif", "-C", "deadlines", "--add", "v100:1"),
        ("pareto", "-C", "deadlines", "-f", "makespan", "-f", "max-throughput"),
    ],
    ids=lambda command: f"{command[0]} {command[2]}",
)
def test_every_command_says_it(
    command: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from optsched.cli.main import main

    path = tmp_path / "turns.json"
    path.write_text(json.dumps(in_turns().to_document()))
    main([command[0], str(path), *command[1:]])
    out = " ".join(capsys.readouterr().out.split())
    assert STEADY in out.lower() and "for the formulation lease to decide" in out
