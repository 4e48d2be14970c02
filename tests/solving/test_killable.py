"""Within a time limit, a large program of a back-end that may overrun is solved in a process that is killed in time."""

from __future__ import annotations

import gc
import os
import re
import signal
import threading
import time
from typing import Any, ClassVar

import numpy as np
import overrunning_solvers
import pytest
import scipy.sparse as sp

import optsched
from optsched.arrays import FloatArray
from optsched.program import LinearArrays, LinearProgram
from optsched.registry import load_solver, names
from optsched.solution import Solution, Termination
from optsched.solvers import Clarabel, Highs, Limits
from optsched.solvers.clarabel import SET_UP  # Private: the words of a limit met in the set-up
from optsched.solvers.isolated import SolverProcess
from optsched.solvers.isolated.process import IsolatedSolver  # Private: whether a run is isolated
from optsched.solving import Engine
from optsched.solving.runs import KILLABLE

pytestmark = pytest.mark.process


@pytest.fixture
def any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs of every size are large."""
    monkeypatch.setattr("optsched.solving.runs.KILLABLE", 0)


@pytest.fixture
def sleeping(monkeypatch: pytest.MonkeyPatch, any_size: None) -> None:
    """HiGHS looks at no clock."""
    monkeypatch.setattr("optsched.api.load_solver", overrunning_solvers.load)


# --- a run that is killed ------------------------------------------------------------------------


@pytest.mark.usefixtures("sleeping")
@pytest.mark.parametrize("solver", ["auto", "highs"])
@pytest.mark.parametrize("name", ["max-min-fairness", "finish-time-fairness", "water-filling"])
def test_a_run_that_is_killed_leaves_the_known_point(name: str, solver: str) -> None:
    solution = optsched.solve("@quickstart", name, solver=solver, time_limit=0.1)
    assert solution.ok and solution.status == "feasible" and not solution.reproducible
    assert solution.termination == Termination.TIME_LIMIT
    killed, known = solution.solver.attempts
    assert killed.name == "highs" and known == ("known point", "feasible")
    assert optsched.verify("@quickstart", solution.to_document()).ok


@pytest.mark.usefixtures("sleeping")
def test_a_run_that_is_killed_without_a_known_point_ends_in_a_status() -> None:
    solution = optsched.solve("@quickstart", constraints=["deadlines"], time_limit=0.1)
    assert (solution.status, solution.termination) == ("limit", "time_limit")


@pytest.mark.usefixtures("sleeping")
def test_ctrl_c_kills_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[SolverProcess] = []
    ask = SolverProcess.ask

    def interrupted(process: SolverProcess, *given: Any) -> Any:
        asked.append(process)
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        return ask(process, *given)

    monkeypatch.setattr(SolverProcess, "ask", interrupted)
    solution = optsched.solve("@quickstart", time_limit=300.0)
    assert (solution.status, solution.termination) == ("feasible", Termination.INTERRUPTED)
    assert len(asked) == 1 and asked[0].pid is None


@pytest.mark.usefixtures("any_size")
def test_the_process_ends_with_the_runs() -> None:
    engine = Engine(load_solver, "clarabel", Limits(time=60.0))
    assert engine.run(engine.open(pairs(10, 30))).termination is Termination.OPTIMAL
    process = engine._process
    assert process is not None and process.pid is not None
    pid = process.pid
    del engine, process
    gc.collect()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


# --- the same answers ----------------------------------------------------------------------------

PROGRAMS = [
    ("max-min-fairness", "clarabel"),
    ("proportional-fairness", "clarabel"),
    ("water-filling", "clarabel"),
    ("finish-time-fairness", "scs"),
    ("max-throughput", "cbc"),
]


@pytest.mark.parametrize(("name", "solver"), PROGRAMS)
def test_the_answer_is_the_same(name: str, solver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit by bit, but for the times that it took."""
    here = answer(optsched.solve("@quickstart", name, solver=solver, time_limit=60.0))
    monkeypatch.setattr("optsched.solving.runs.KILLABLE", 0)
    assert answer(optsched.solve("@quickstart", name, solver=solver, time_limit=60.0)) == here


def answer(solution: Solution) -> dict[str, Any]:
    document: dict[str, Any] = solution.to_document()
    del document["timings"]
    return document


# --- what is left to a process -------------------------------------------------------------------


class OfAScript(Clarabel):
    """No other process can import it under this name."""

    name: ClassVar[str] = "of a script"
    __qualname__ = "somewhere.<locals>.OfAScript"


@pytest.mark.unit
def test_where_a_program_is_solved() -> None:
    limited, unlimited = Engine(load_solver, limits=Limits(time=60.0)), Engine(load_solver)
    assert limited.killable(Clarabel, KILLABLE - 1) is Clarabel
    assert limited.killable(Highs, KILLABLE) is Highs
    assert unlimited.killable(Clarabel, KILLABLE) is Clarabel
    assert limited.killable(OfAScript, KILLABLE) is OfAScript
    isolated = limited.killable(Clarabel, KILLABLE)
    assert issubclass(isolated, IsolatedSolver) and isolated.original is Clarabel
    assert limited.killable(isolated, KILLABLE) is isolated  # as a scheduler's own process


@pytest.mark.unit
def test_which_solvers_keep_their_time() -> None:
    """Those that look at the clock in all that they do, or are abandoned; no other one says so."""
    keeping = {name for name in names("solver") if load_solver(name).keeps_time}
    assert keeping == {"highs", "highs-ipm", "prices", "glop", "pdlp", "cp-sat"}


# --- a set-up that is long -----------------------------------------------------------------------


def pairs(jobs: int, columns: int) -> LinearArrays:
    """Random pairs of jobs that share GPUs: factors of its matrix fill in."""
    rng = np.random.default_rng(0)
    first = rng.integers(0, jobs, columns)
    second = (first + rng.integers(1, jobs, columns)) % jobs
    number = np.arange(columns)
    where = (np.concatenate([first, second]), np.concatenate([number, number]))
    member = sp.csc_matrix((np.ones(2 * columns), where), shape=(jobs, columns))
    worth: FloatArray = rng.random(columns)
    program = LinearProgram()
    x = program.variables(columns, name="x", implied=(0.0, 1.0))
    program.constrain(member @ x <= 1.0, name="time")
    program.maximise(worth[None, :] @ x)
    return program.arrays


@pytest.mark.clock
def test_a_long_factorisation_keeps_the_time() -> None:
    """In this process it takes more than a minute."""
    program = pairs(20_000, 200_000)
    started = time.monotonic()
    solution = optsched.solve_program(program, time_limit=3.0)
    assert time.monotonic() - started < 6.0
    assert solution.termination == Termination.TIME_LIMIT
    # On a fast machine the set-up itself may end within the grace that precedes a kill.
    assert re.search(f"was killed|{SET_UP}", solution.solver.attempts[0].outcome)
