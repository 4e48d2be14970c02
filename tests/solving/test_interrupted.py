"""Ctrl-C at any moment of a solve: what is known by then is the answer, or one sentence says that nothing is."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import optsched
from optsched.cli.main import _application, main
from optsched.errors import NOTHING_YET, Interrupted
from optsched.program import AllocationProgram
from optsched.solution import Termination, Values
from optsched.solvers.highs import HighsSession
from optsched.solvers.interrupt import interrupt_flag, keeping_answers

ENDS = [("feasible", "interrupted"), ("optimal", "optimal")]
BUDGET = {"kind": "budget", "limit": 20.0}


def ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def after_ctrl_c(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, called after a Ctrl-C the first time."""
    calls: list[bool] = []

    def called(*given: Any, **named: Any) -> Any:
        calls.append(True)
        if len(calls) == 1:
            ctrl_c()
        return function(*given, **named)

    return called


def test_what_was_asked_for_before_a_run_ends_it_at_once() -> None:
    with interrupt_flag() as outer:
        ctrl_c()
        with interrupt_flag() as inner:
            assert outer.is_set() and inner.is_set()
    with interrupt_flag() as later:
        assert not later.is_set()


@pytest.mark.parametrize("formulation", ["makespan", "max-throughput", "proportional-fairness"])
def test_while_a_program_is_written_down_the_known_point_is_the_answer(
    monkeypatch: pytest.MonkeyPatch, formulation: str
) -> None:
    for lower in ("to_linear", "to_conic"):
        monkeypatch.setattr(
            AllocationProgram, lower, after_ctrl_c(getattr(AllocationProgram, lower))
        )
    with keeping_answers():
        solution = optsched.solve("@quickstart", formulation, constraints=[BUDGET])
    # a small program may be solved before a solver looks at the flag
    assert (solution.status, solution.termination) in ENDS
    assert optsched.verify(solution.instance, solution.to_document()).ok


def test_a_solver_that_is_stopped_before_its_first_point_leaves_the_known_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        HighsSession, "run", lambda session, limits: Values(Termination.INTERRUPTED)
    )
    solution = optsched.solve("@quickstart", "makespan", constraints=[BUDGET])
    assert (solution.status, solution.termination) == ("feasible", "interrupted")
    assert solution.solver.attempts[-1].name == "known point"


def test_a_requirement_that_no_known_point_meets_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        HighsSession, "run", lambda session, limits: Values(Termination.INTERRUPTED)
    )
    with pytest.raises(Interrupted, match=NOTHING_YET):
        optsched.solve("@quickstart", "makespan", constraints=["deadlines"])


def test_a_later_stage_of_water_filling_keeps_the_point_of_the_stage_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs: list[Values] = []
    run = HighsSession.run

    def stopped_later(session: HighsSession, limits: Any) -> Values:
        runs.append(run(session, limits) if not runs else Values(Termination.INTERRUPTED))
        return runs[-1]

    monkeypatch.setattr(HighsSession, "run", stopped_later)
    solution = optsched.solve("@quickstart", "water-filling", solver="highs")
    assert len(runs) > 1
    assert (solution.status, solution.termination) == ("feasible", "interrupted")


def test_ctrl_c_while_the_answer_is_written_does_not_cost_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("optsched.api.write_solution", after_ctrl_c(optsched.write_solution))
    assert main(["solve", "@quickstart", "-q", "-o", str(tmp_path / "o.json")]) == 0
    assert json.loads((tmp_path / "o.json").read_text())["status"] == "optimal"


def test_in_a_script_ctrl_c_that_no_answer_tells_of_is_raised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("optsched.api.notes_on", after_ctrl_c(lambda *given, **named: ()))
    with pytest.raises(KeyboardInterrupt):
        optsched.solve("@quickstart")


@pytest.mark.parametrize("where", ["optsched.api.load", "optsched.api.compile_for"])
def test_ctrl_c_while_an_instance_is_read_or_compiled_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], where: str
) -> None:
    monkeypatch.setattr(where, after_ctrl_c(lambda *given: pytest.fail("went on")))
    assert main(["solve", "@quickstart", "-o", str(tmp_path / "o.json")]) == 130
    assert capsys.readouterr() == ("", f"optsched: {NOTHING_YET}\n")
    assert not list(tmp_path.iterdir())


def test_ctrl_c_before_a_command_begins_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """typer turns it into an exit code of its own, without a word."""
    monkeypatch.setattr(
        "optsched.cli.command.Made._make", after_ctrl_c(lambda *given: pytest.fail("went on"))
    )
    _application.cache_clear()  # commands are made once
    assert main(["doctor"]) == 130
    assert capsys.readouterr().err == "optsched: interrupted\n"


def test_ctrl_c_while_the_modules_of_a_command_load_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Loading(ModuleType):
        def __getattr__(self, name: str) -> Any:
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "optsched.cli.command", Loading("optsched.cli.command"))
    monkeypatch.delitem(sys.modules, "optsched.cli.main")
    with pytest.raises(SystemExit) as ended:
        import_module("optsched.cli.main")
    assert ended.value.code == 130 and capsys.readouterr().err == "optsched: interrupted\n"
