"""The raw log of every back-end: it reaches who asks for it, and standard output stays clean."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest
from programs import dense, hard_knapsacks, knapsack

from optsched.errors import SolverCrashed
from optsched.registry import load_solver
from optsched.solvers import Capability, Limits

# Private names: sessions and steps of one back-end, without the engine
from optsched.solvers.raw_log import caught_output
from optsched.solving import Engine

WORDS = {
    "highs": "Simplex", "highs-ipm": "ipx", "clarabel": "Clarabel.rs", "glop": "Presolve", "pdlp": "PDLP",
    "scip": "presolving", "cp-sat": "Starting", "cbc": "CBC MILP Solver", "scs": "SCS",
}  # fmt: skip


def test_the_log_reaches_who_asks(solver_name: str, capfd: pytest.CaptureFixture[str]) -> None:
    if not load_solver(solver_name).capabilities & {Capability.CONTINUOUS, Capability.INTEGER}:
        pytest.skip("takes no rows and columns")
    program = (
        dense() if Capability.CONTINUOUS in load_solver(solver_name).capabilities else knapsack()
    )
    pieces: list[str] = []
    outcome = Engine(load_solver, solver_name, Limits(on_log=pieces.append)).solve_linear(program)
    assert outcome.status == "optimal"
    text = "".join(pieces)
    assert WORDS.get(solver_name, "").lower() in text.lower() and len(text) > 100
    assert capfd.readouterr().out == ""
    Engine(load_solver, solver_name).solve_linear(program)
    assert capfd.readouterr().out == ""


@pytest.mark.clock
def test_it_comes_while_the_solver_runs() -> None:
    """Several pieces, not one at the end."""
    pieces: list[str] = []
    Engine(load_solver, "highs", Limits(time=0.5, on_log=pieces.append)).solve_linear(
        hard_knapsacks()
    )
    assert len(pieces) >= 2


def test_output_is_given_back(capfd: pytest.CaptureFixture[str]) -> None:
    pieces: list[str] = []
    with pytest.raises(SolverCrashed), caught_output(pieces.append):
        os.write(1, b"by C\n")
        sys.stdout.write("by Python\n")
        raise SolverCrashed("oops")
    sys.stdout.write("after\n")
    assert "".join(pieces) == "by C\nby Python\n"
    assert capfd.readouterr().out == "after\n"


def test_nobody_asks(capfd: pytest.CaptureFixture[str]) -> None:
    with caught_output(None):
        sys.stdout.write("as ever\n")
    assert capfd.readouterr().out == "as ever\n"


def test_on_the_shell(capfd: pytest.CaptureFixture[str]) -> None:
    from optsched.cli.main import main

    def run(*arguments: str) -> Any:
        capfd.readouterr()
        return main(["solve", "@quickstart", "--json", *arguments]), capfd.readouterr()

    code, (out, err) = run("--solver-log")
    assert code == 0 and out.startswith("{\n") and out.endswith("}\n")
    assert "LP has" in err and "optsched:" not in err
    assert run()[1].err == ""
