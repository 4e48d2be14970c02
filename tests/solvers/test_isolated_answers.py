"""Solvers in a process of their own answer as they do in this one, bit by bit, and keep their sessions."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import troubled_solvers
from isolated_cases import PROCESSES, soon
from programs import dense, infeasible, knapsack

from optsched.conformance import BANKS, CaseVerdict, check_case, check_solver
from optsched.errors import SolverUnavailable, UsageError
from optsched.processes import Wire
from optsched.program import Cone, ConicProgram, LinearArrays, TimelineProgram
from optsched.registry import load_solver
from optsched.solution import Basis, Values
from optsched.solvers import Limits, Session, Solver
from optsched.solvers.isolated import SolverProcess

# Private names: sessions and steps of one back-end, without the engine
from optsched.solvers.isolated.messages import Address, Call
from optsched.solvers.isolated.process import LOST
from optsched.solvers.isolated.worker import Worker
from optsched.solving import Engine

pytestmark = [
    pytest.mark.process,
    PROCESSES,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

LIMITS = Limits(time=20.0)


@pytest.fixture(scope="module")
def process() -> Iterator[SolverProcess]:
    with SolverProcess(load_solver) as process:
        yield process


def same(one: Values, other: Values) -> None:
    """Equal, bit by bit, but for the seconds."""
    for field in fields(Values):
        a, b = getattr(one, field.name), getattr(other, field.name)
        if isinstance(a, np.ndarray):
            assert (
                isinstance(b, np.ndarray) and a.dtype == b.dtype and a.tobytes() == b.tobytes()
            ), field.name
        elif field.name != "seconds":
            assert a == b and type(a) is type(b), field.name


def random_program(rows: int, columns: int, seed: int, integer: bool = False) -> LinearArrays:
    """A packing program with some equal rates, in which a simplex method has work to do."""
    random = np.random.default_rng(seed)
    matrix = sp.random(rows, columns, density=0.05, random_state=seed, format="csc")
    whole = np.zeros(columns, bool)
    whole[: columns // 2 if integer else 0] = True
    upper = np.full(columns, 4.0)
    return LinearArrays(
        A=sp.csc_matrix(matrix), row_lower=np.full(rows, -np.inf), row_upper=random.uniform(1, 5, rows),
        lower=np.zeros(columns), upper=upper, cost=random.uniform(0.5, 1, columns), integer=whole, maximise=True,
        offset=0.5, implied_lower=np.zeros(columns), implied_upper=upper, rows=(), columns=(),
    )  # fmt: skip


def timeline() -> TimelineProgram:
    random = np.random.default_rng(1)
    jobs, machines = 6, 2
    return TimelineProgram(
        release=np.zeros(jobs, np.int64), deadline=np.full(jobs, 200), activity=np.repeat(np.arange(jobs), machines),
        duration=random.integers(1, 20, jobs * machines),
        usage=sp.csr_matrix(np.tile(np.eye(machines, dtype=np.int64), jobs)), capacity=np.ones(machines, np.int64),
    )  # fmt: skip


def logarithms() -> ConicProgram:
    """maximise  log x + 2 log y  s.t.  x + y <= 3:  columns x, y and a level for each, in exponential cones."""
    rows = np.zeros((7, 4))
    rows[0, :2] = 1.0
    rows[1, 2] = rows[3, 0] = rows[4, 3] = rows[6, 1] = -1.0
    b = np.array([3.0, 0, 1, 0, 0, 1, 0])
    cones = (Cone("nonnegative", 1), Cone("exponential", 3), Cone("exponential", 3))
    return ConicProgram(sp.csc_matrix(rows), b, np.array([0.0, 0, 1, 2]), cones, True, 0.0)


@pytest.mark.parametrize("name", ["highs", "highs-ipm", "clarabel", "glop"])
def test_a_linear_program(process: SolverProcess, name: str) -> None:
    arrays = random_program(60, 90, 0)
    same(
        load_solver(name)().open(arrays).run(LIMITS), process.load(name)().open(arrays).run(LIMITS)
    )


def test_a_linear_program_from_a_basis(process: SolverProcess) -> None:
    before = load_solver("highs")().open(random_program(300, 500, 1))
    before.run(LIMITS)
    basis = before.basis()
    assert basis is not None
    arrays = replace(before.arrays, cost=before.arrays.cost * np.linspace(0.9, 1.1, 500))
    sessions = [load("highs")().open(arrays) for load in (load_solver, process.load)]
    for session in sessions:
        session.set_start(basis)
    here, there = (session.run(LIMITS) for session in sessions)
    same(here, there)
    assert 0 < there.iterations < load_solver("highs")().open(arrays).run(LIMITS).iterations
    ends = [session.basis() for session in sessions]
    for of in ("columns", "rows"):
        one, other = (getattr(end, of) for end in ends)
        assert one.dtype == other.dtype and one.tobytes() == other.tobytes()


def test_an_integer_program(process: SolverProcess) -> None:
    arrays = random_program(30, 40, 2, integer=True)
    for start in (None, np.zeros(40)):
        sessions = [load("highs")().open(arrays) for load in (load_solver, process.load)]
        for session in sessions:
            if start is not None:
                session.set_start(start)
        here, there = (session.run(LIMITS) for session in sessions)
        same(here, there)
        assert there.x is not None and sessions[1].basis() is None


def test_a_conic_program(process: SolverProcess) -> None:
    program = logarithms()
    here, there = (
        load("clarabel")().solve_conic(program, LIMITS) for load in (load_solver, process.load)
    )
    same(here, there)
    assert there.x is not None and there.x[:2] == pytest.approx([1.0, 2.0], rel=1e-4)
    with pytest.raises(SolverUnavailable, match=r"^solver highs takes no conic programs$"):
        process.load("highs")().solve_conic(program, LIMITS)


def test_a_timeline(process: SolverProcess) -> None:
    program = timeline()
    here, there = (
        load("cp-sat")().solve_timeline(program, LIMITS) for load in (load_solver, process.load)
    )
    same(here, there)
    again = [
        load("cp-sat")().solve_timeline(program, LIMITS, here.x)
        for load in (load_solver, process.load)
    ]
    same(*again)


CHANGES: dict[str, Callable[[Session], None]] = {
    "cost": lambda session: session.set_cost(np.array([1.0, 5.0])),
    "rows": lambda session: session.set_rows(np.full(2, -np.inf), np.array([2.0, 3.0])),
    "bounds": lambda session: session.set_bounds(np.array([0.0, 2.0]), np.array([3.0, np.inf])),
    "coefficients": lambda session: session.set_coefficients(
        np.arange(2), np.arange(2), np.array([2.0, 1.0])
    ),
    "become": lambda session: session.become(
        replace(dense().arrays, cost=np.array([2.0, 1.0]), offset=3.0)
    ),
    "start": lambda session: session.set_start(Basis(np.array([1, 1]), np.array([2, 2]))),
    "wrong start": lambda session: session.set_start(np.zeros(7)),
    "more rows": lambda session: session.add_rows(
        sp.csr_matrix([[1.0, -1.0]]), np.array([-np.inf]), np.zeros(1)
    ),
    "more columns": lambda session: session.add_columns(
        sp.csc_matrix(np.ones((3, 1))), np.array([7.0]), np.ones(1)
    ),
}


@pytest.mark.parametrize("name", ["highs", "clarabel"])
def test_a_session_that_is_changed(process: SolverProcess, name: str) -> None:
    """After every change, before the first run and after it: the values, and the reasons to rebuild."""
    here, there = (load(name)().open(dense().arrays) for load in (load_solver, process.load))
    for session in (here, there):
        CHANGES["wrong start"](session)
        CHANGES["cost"](session)
    same(here.run(LIMITS), there.run(LIMITS))
    for change in CHANGES.values():
        for session in (here, there):
            change(session)
        same(here.run(LIMITS), there.run(LIMITS))
    assert _bytes(here.arrays) == _bytes(there.arrays)


def _bytes(arrays: LinearArrays) -> list[bytes]:
    vectors = (arrays.cost, arrays.lower, arrays.upper, arrays.row_lower, arrays.row_upper)
    return [array.tobytes() for array in (arrays.A.toarray(), *vectors)]


def test_sessions_side_by_side(process: SolverProcess) -> None:
    highs = process.load("highs")
    one, other = highs().open(dense().arrays), highs().open(knapsack().arrays)
    for _ in range(2):
        assert one.run(LIMITS).objective == pytest.approx(11.0)
        assert other.run(LIMITS).objective == pytest.approx(52.0)
    assert one.run(LIMITS).rebuilt == ()
    key = one.key
    assert process.holds(key)
    del one
    other.run(LIMITS)
    assert not process.holds(key)


def test_what_is_forgotten_is_dropped() -> None:
    """A scheduler opens a session every round."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        worker, address = Worker(Wire(theirs)), Address.of(load_solver("highs"))
        for key, forgotten in ((1, ()), (2, ()), (3, (1, 2))):
            call = Call(
                key,
                address,
                "run",
                (LIMITS,),
                session=key,
                program=dense().arrays,
                forgotten=forgotten,
            )
            worker.answer(call)
            assert Wire(ours).receive().content.objective == pytest.approx(11.0)
    assert list(worker.sessions) == [3]


def test_a_session_whose_process_is_gone(process: SolverProcess) -> None:
    """It is loaded anew as it is by now; what cannot be known any more is not."""
    session = process.load("highs")().open(dense().arrays)
    assert session.basis() is None
    session.run(LIMITS)
    session.set_cost(np.array([1.0, 5.0]))
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    assert soon(lambda: process.pid is None)
    assert session.basis() is None
    values = session.run(LIMITS)
    assert values.objective == pytest.approx(15.0) and values.rebuilt == (LOST,)
    assert session.run(LIMITS).rebuilt == () and session.basis() is not None


def test_a_session_whose_run_failed(process: SolverProcess) -> None:
    session = process.load("highs")().open(dense().arrays)
    with pytest.raises(UsageError, match=r"^HiGHS has no option 'no_such_option'"):
        session.run(Limits(options={"no_such_option": 1}))
    values = session.run(LIMITS)
    assert values.objective == pytest.approx(11.0) and values.rebuilt == (LOST,)


def test_a_start_is_kept_where_the_process_is_gone(process: SolverProcess) -> None:
    session = process.load("highs")().open(random_program(60, 90, 4))
    session.run(LIMITS)
    basis = session.basis()
    assert basis is not None and process.pid is not None
    session.set_start(basis)
    os.kill(process.pid, signal.SIGKILL)
    assert soon(lambda: process.pid is None)
    assert session.run(LIMITS).iterations == 0


def test_conflict(process: SolverProcess) -> None:
    session = process.load("highs")().open(infeasible().arrays)
    assert (
        session.conflict().tolist()
        == load_solver("highs")().open(infeasible().arrays).conflict().tolist()
        == [0, 1]
    )
    with pytest.raises(SolverUnavailable, match="no infeasibility analysis"):
        process.load("clarabel")().open(infeasible().arrays).conflict()
    outcome = Engine(process.load, "highs", LIMITS).solve_linear(infeasible())
    assert outcome.status == "infeasible" and len(outcome.conflicts) == 2


def test_a_solver_of_a_family(process: SolverProcess) -> None:
    solver = process.load("pulp:PULP_CBC_CMD")
    assert solver.version() == load_solver("pulp:PULP_CBC_CMD").version()
    assert solver().open(dense().arrays).run(LIMITS).objective == pytest.approx(11.0)


@pytest.mark.parametrize(
    ("name", "banks"),
    [("highs", ["linear", "integer", "sessions"]), ("clarabel", ["linear", "conic", "sessions"]),
     ("cp-sat", ["integer", "timeline", "limits"])],
)  # fmt: skip
def test_conformance(process: SolverProcess, name: str, banks: list[str]) -> None:
    results = check_solver(process.load(name), banks)
    assert [result for result in results if result.verdict is CaseVerdict.FAILED] == []
    assert sum(result.verdict is CaseVerdict.PASSED for result in results) > 20


@pytest.mark.parametrize(
    "name", ["the time limit is kept", "Ctrl-C stops the run", "an unknown option is refused"]
)
def test_limits_of_highs(process: SolverProcess, name: str) -> None:
    """Those cases of the bank that are no studies in patience."""
    (item,) = (item for item in BANKS["limits"] if item.name == name)
    result = check_case(item, "limits", process.load("highs"))
    assert result.verdict is CaseVerdict.PASSED, result.reason


def test_a_liar_is_found_in_another_process_too() -> None:
    with SolverProcess(troubled_solvers.load) as process:
        solver = process.load("boasts")
        (result,) = (
            check_case(item, "linear", solver) for item in BANKS["linear"] if item.name == "maximum"
        )
        assert result.verdict is CaseVerdict.FAILED and "states the objective" in result.reason


# --- what a process costs ------------------------------------------------------------------------------------------


def test_a_process_imports_what_its_solver_needs() -> None:
    script = (
        "import sys, optsched.solvers.isolated.worker\n"
        "from optsched.solvers.isolated.messages import Address\n"
        "Address('optsched.solvers.highs', 'Highs').solver().version()\n"
        "idle = {'clarabel', 'cvxpy', 'networkx', 'optsched.candidates', 'ortools', 'pulp', 'pydantic'}\n"
        "assert not idle & set(sys.modules), idle & set(sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.clock
def test_the_way_there_and_back_is_short(process: SolverProcess) -> None:
    """A program that is solved at once; 20 ms are far from what it needs while nobody else computes."""
    seconds: list[float] = []
    solver: type[Solver] = process.load("highs")
    for _ in range(30):
        session = solver().open(dense().arrays)
        started = time.perf_counter()
        values = session.run(LIMITS)
        seconds.append(time.perf_counter() - started - values.seconds)
    assert min(seconds) < 0.02


def test_nothing_computed_is_sent(process: SolverProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays by rows are kept with a program once somebody asked for them, and would double what is sent."""
    from optsched.processes import wire

    sent: list[int] = []
    encoded = wire.encoded

    def counted(message: object) -> Any:
        parts = encoded(message)
        sent.append(sum(map(len, parts)))
        return parts

    monkeypatch.setattr(wire, "encoded", counted)
    arrays = random_program(300, 500, 5)
    for _ in range(2):
        process.load("highs")().open(arrays).run(LIMITS)
        assert arrays.by_rows.nnz
    assert sent[-1] < 1.01 * sent[0]
