"""Side constraints in instance and solution files, on the shell and in exported programs; tampering."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from side_cases import six_jobs

import optsched
from optsched import Instance, registry
from optsched.cli.main import main

# Private names: the inner steps of an answer are compared with a reference
from optsched.cli.values import constraint as typed

EVERY: tuple[dict[str, Any], ...] = (
    {"kind": "budget", "limit": 9.0},
    {"kind": "power", "limit": 1000.0},
    {"kind": "cells", "tenant": "language", "owns": {"1": 2, "2": 2}},
    {"kind": "quota", "tenant": "vision", "share": 0.3},
    {"kind": "minimum-share", "tenant": "language", "gpus": 1.5},
    {"kind": "pinned", "pools": ["a"], "jobs": ["j0"]},
    {"kind": "forbidden", "pools": ["a"], "jobs": ["j5"]},
    {"kind": "minimum-service", "fraction": 0.2},
    {"kind": "minimum-throughput", "jobs": ["j0"], "rate": 0.01},
    {"kind": "moves", "limit": 1.0},
    {"kind": "deadlines"},
    {"kind": "placeable"},
    {"kind": "anti-affinity", "jobs": ["j0", "j1"]},
    {"kind": "uninterrupted"},
)
FORMULATIONS = (
    "max-min-fairness",
    "max-throughput",
    "makespan",
    "proportional-fairness",
    "alpha-fairness",
)


def test_every_kind_is_here() -> None:
    assert {item["kind"] for item in EVERY} == set(registry.names("constraint"))


@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_all_of_them_together_in_the_instance(formulation: str) -> None:
    jobs = [job | {"steps": 1800.0} for job in six_jobs()["jobs"]]
    jobs[1] |= {"running": {"pool": "b", "gpus": ["b-0/0"]}, "preemptible": False}
    jobs[2]["deadline"] = 3600.0
    instance = Instance.from_document(six_jobs(constraints=EVERY, jobs=jobs))
    solution = optsched.solve(instance, formulation)
    written = json.loads(json.dumps(solution.to_document()))
    assert (
        solution.ok
        and solution.status == "optimal"
        and optsched.verify(instance, written, resolve=True).ok
    )
    assert [item["kind"] for item in written["constraints"]] == [item["kind"] for item in EVERY]
    # Placements have no rows, and of nodes of 1 GPU each more is never promised than fits.
    rowless = {"anti-affinity", "placeable"}
    assert {item["kind"] for item in EVERY} - rowless <= set(solution.duals)
    free = Instance.from_document(six_jobs(jobs=jobs))
    again = optsched.solve(free, formulation, constraints=EVERY, classes=False)
    assert again.objective == pytest.approx(solution.objective, rel=1e-7)
    assert optsched.solve(free, formulation).objective != pytest.approx(
        solution.objective, rel=1e-3
    )


PINNED = {
    "kind": "pinned",
    "pools": ["b"],
    "gpus": None,
    "jobs": None,
    "tenant": None,
    "workload": None,
}
CHANGES: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "a limit": (lambda file: file["constraints"][0].update(limit=5.0), "certificate"),
    "a looser limit": (lambda file: file["constraints"][0].update(limit=7.0), "bound"),
    "a share": (lambda file: file["constraints"][1].update(share=0.05), "certificate"),
    "a tenant": (lambda file: file["constraints"][1].update(tenant="nobody"), "constraints[1]"),
    "an option": (lambda file: file["constraints"][1].pop("share"), "constraints[1]"),
    "one less": (lambda file: file["constraints"].pop(0), "duals"),
    "one more": (lambda file: file["constraints"].append(PINNED), "duals"),
    "a fraction": (lambda file: file["allocation"][0].update(fraction=0.123), "objective"),
    "a dual": (lambda file: file["duals"].update(budget=[0.1]), "duals"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_tampering_is_refused(change: str) -> None:
    instance = Instance.from_document(six_jobs())
    constraints = [
        {"kind": "budget", "limit": 6.0},
        {"kind": "quota", "tenant": "vision", "share": 0.5},
    ]
    solution = optsched.solve(instance, "max-min-fairness", constraints=constraints)
    written = json.loads(json.dumps(solution.to_document()))
    assert optsched.verify(instance, written).ok
    changed, (tamper, field) = deepcopy(written), CHANGES[change]
    tamper(changed)
    found = optsched.verify(instance, changed)
    assert not found.ok and any(finding.field.startswith(field) for finding in found.findings), (
        found.findings
    )


def test_a_constraint_that_the_answer_does_not_keep_is_found() -> None:
    instance = Instance.from_document(six_jobs())
    written = json.loads(json.dumps(optsched.solve(instance, "max-throughput").to_document()))
    written["constraints"] = [PINNED]
    written["duals"]["pinned"] = [0.0, 0.0]
    assert not optsched.verify(instance, written).ok


def test_infeasible_claims_are_checked() -> None:
    instance = Instance.from_document(six_jobs())
    for constraint, limit in (
        ({"kind": "power", "limit": 319.0}, 1000.0),
        ({"kind": "power", "limit": 400.0}, 1000.0),
    ):
        service = {"kind": "minimum-service", "fraction": 0.9}
        written = optsched.solve(instance, constraints=[constraint, service]).to_document()
        assert written["status"] == "infeasible" and optsched.verify(instance, written).ok
        changed = deepcopy(written)
        changed["constraints"][0]["limit"] = limit
        assert not optsched.verify(instance, changed).ok
        changed = deepcopy(written)
        changed["conflicts"] = changed["conflicts"][1:] or ["nothing"]
        assert not optsched.verify(instance, changed).ok


OPTIONS = (
    "-C",
    'pinned:jobs=["j0","j1"],pools=[b]',
    "-C",
    "budget:limit=9",
    "-C",
    "minimum-service:fraction=0.1",
)


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "instance.json"
    path.write_text(json.dumps(six_jobs()))
    return str(path)


def test_the_shell_takes_lists(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["solve", file, "-f", "makespan", *OPTIONS, "--json"]) == 0
    pinned, budget, service = json.loads(capsys.readouterr().out)["constraints"]
    assert pinned["jobs"] == ["j0", "j1"] and pinned["pools"] == ["b"]
    assert budget["limit"] == 9.0 and service["fraction"] == 0.1


def test_exit_codes(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["solve", file, *OPTIONS, "-C", "quota:tenant=visoin,gpus=1"]) == 2
    assert "did you mean vision?" in capsys.readouterr().err
    more = ("-C", "minimum-service:fraction=1,jobs=j0", "-C", "forbidden:pools=b,jobs=j1")
    for command in (["solve"], ["explain"], ["export", "-f", "max-throughput", "-o", "-"]):
        assert main([command[0], file, *command[1:], *OPTIONS, *more]) == 4
        said = capsys.readouterr()
        assert "job j1 is left nowhere to run" in " ".join((said.out + said.err).split())


def test_an_exported_program_has_the_rows(file: str, tmp_path: Path) -> None:
    program = tmp_path / "program.lp"
    assert main(["export", file, "-f", "max-throughput", *OPTIONS, "-o", str(program)]) == 0
    text = program.read_text()
    assert "pinned" in text and "budget" in text and "minimum_service" in text.replace("-", "_")
    constraints = [typed(item) for item in OPTIONS[1::2]]
    ours = optsched.solve(
        Instance.from_document(six_jobs()), "max-throughput", constraints=constraints
    )
    assert abs(optsched.solve_program(program).objective) == pytest.approx(ours.objective, rel=1e-9)
