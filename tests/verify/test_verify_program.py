"""Solutions of programs from files, checked against their programs."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from programs import covering, dense, hard_knapsacks, infeasible, knapsack, unbounded
from refusals import refuses

import optsched
from optsched.errors import InvalidArgument
from optsched.program import LinearProgram
from optsched.study import verify_program

Change = Callable[[dict[str, Any]], None]
PROGRAMS = {
    "dense": dense, "covering": covering, "knapsack": knapsack, "infeasible": infeasible, "unbounded": unbounded,
}  # fmt: skip


@cache
def solved(name: str) -> tuple[LinearProgram, dict[str, Any]]:
    program = PROGRAMS[name]()
    return program, json.loads(json.dumps(optsched.solve_program(program).to_document()))


@pytest.mark.parametrize("resolve", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_right_file_passes(name: str, resolve: bool) -> None:
    program, document = solved(name)
    found = verify_program(program, document, resolve=resolve)
    assert found.ok, str(found)
    assert found.bound == ("consistent" if name in ("knapsack", "unbounded") else "verified")


@pytest.mark.parametrize("solver", ["highs", "clarabel", "glop", "pdlp", "scip", "cbc", "scs"])
def test_of_every_solver(solver: str) -> None:
    for program in (dense(), covering()):
        found = verify_program(
            program, optsched.solve_program(program, solver=solver).to_document()
        )
        assert found.ok, str(found)
        assert found.bound == "verified"


@pytest.mark.clock
@pytest.mark.parametrize("limit", [{"work_limit": 1}, {"time_limit": 0.2}])
def test_of_a_stopped_run(limit: dict[str, Any]) -> None:
    program = hard_knapsacks()
    found = verify_program(program, optsched.solve_program(program, **limit).to_document())
    assert found.ok, str(found)


TAMPERINGS: dict[str, tuple[str, Change, str]] = {
    "a value": ("dense", lambda d: d["values"].update(x_0=3.5), "objective"),
    "a value beyond a row": ("dense", lambda d: d["values"].update(x_0=99.0), "values"),
    "an unknown column": ("dense", lambda d: d["values"].update(y=1.0), "values.y"),
    "the objective": ("dense", lambda d: d.update(objective=12.0), "objective"),
    "the bound": ("dense", lambda d: d.update(bound=11.5), "bound"),
    "a dual": ("covering", lambda d: d["duals"].update(rows_0=1.4), "bound"),
    "an unknown row": ("covering", lambda d: d["duals"].update(row=1.0), "duals.row"),
    "no duals": ("covering", lambda d: d.update(duals=None), "duals"),
    "a claim for a proof": (
        "covering",
        lambda d: d.update(duals=None, bound_source="solver", certificate=d["certificate"] | {"proof": "claimed"}),
        "bound_source",
    ),
    "the gap": ("dense", lambda d: d.update(gap=0.5), "gap"),
    "the status": ("dense", lambda d: d.update(status="feasible"), "status"),
    "the termination": ("dense", lambda d: d.update(termination="infeasible"), "termination"),
    "the sense": ("dense", lambda d: d["program"].update(sense="min"), "program.sense"),
    "the size": ("dense", lambda d: d["program"].update(rows=7), "program.rows"),
    "reproducible": ("dense", lambda d: d.update(reproducible=False), "reproducible"),
    "a proof of a claim": ("knapsack", lambda d: d["certificate"].update(proof="dual"), "certificate.proof"),
    "half an item": ("knapsack", lambda d: d["values"].update(x_0=0.5), "values"),
    "a residual": ("dense", lambda d: d["certificate"]["residuals"].update(rows=0.1), "certificate.residuals.rows"),
    "a bad certificate": ("dense", lambda d: d["certificate"].update(ok=False), "certificate.ok"),
    "no point": ("dense", lambda d: d.update(values=None), "values"),
    "unbounded, not infeasible": ("infeasible", lambda d: d.update(status="unbounded"), "termination"),
    "an unknown conflict": ("infeasible", lambda d: d["conflicts"].append("row_9"), "conflicts[2]"),
    "no conflict": ("infeasible", lambda d: d["conflicts"].clear(), "conflicts"),
    "half a conflict": ("infeasible", lambda d: d["conflicts"].pop(), "conflicts"),
    "how much is missing": (
        "infeasible", lambda d: d["certificate"]["residuals"].update(least_violation=9.0),
        "certificate.residuals.least_violation",
    ),
    "a field too many": ("dense", lambda d: d.update(colour="red"), "colour"),
}  # fmt: skip


def test_the_clock_may_stop_a_step_before_a_program_that_ends_imprecisely() -> None:
    program, document = solved("knapsack")
    document = copy.deepcopy(document) | {"termination": "imprecise", "reproducible": False}
    found = verify_program(program, document).findings
    assert "reproducible" not in {finding.field for finding in found}


@pytest.mark.parametrize("tampering", TAMPERINGS)
def test_tampered_files_are_refused_by_field(tampering: str) -> None:
    name, change, field = TAMPERINGS[tampering]
    program, document = solved(name)
    document = copy.deepcopy(document)
    change(document)
    assert field in [finding.field for finding in verify_program(program, document).findings]


def test_a_solution_of_an_instance_is_none_of_a_program() -> None:
    program, document = solved("dense")
    with refuses(
        'format: found "optsched-solution/1", '
        'expected a solution of the format "optsched-program-solution/1"'
    ):
        verify_program(program, document | {"format": "optsched-solution/1"})


def test_infeasibility_is_proved_again() -> None:
    _, document = solved("infeasible")
    program = dense()
    forged = document | {"program": solved("dense")[1]["program"]}
    fields = [finding.field for finding in verify_program(program, forged).findings]
    assert fields[0] == "status"


def test_an_optimum_that_is_none_is_found_by_solving_again() -> None:
    program, document = solved("knapsack")
    worse = copy.deepcopy(document) | {"values": {}, "objective": 0.0, "bound": 0.0, "gap": 0.0}
    assert verify_program(program, worse).ok  # a claim that nothing contradicts
    assert [item.field for item in verify_program(program, worse, resolve=True).findings] == [
        "objective"
    ]
    worse |= {
        "status": "feasible",
        "bound": 1.0,
        "termination": "time_limit",
        "reproducible": False,
    }
    worse["gap"] = 1e9
    assert [item.field for item in verify_program(program, worse, resolve=True).findings] == [
        "bound"
    ]
    other = solved("dense")[1] | {"program": document["program"]}
    assert not verify_program(program, other, resolve=True).ok


def test_what_is_no_solution() -> None:
    with refuses("document: found [], expected a mapping, text or a path", InvalidArgument):
        verify_program(dense(), [])  # type: ignore[arg-type]
    with refuses("found no readable file at..."):
        verify_program(dense(), "/nowhere/solution.json")
