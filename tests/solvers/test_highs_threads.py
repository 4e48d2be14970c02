"""HiGHS keeps a scheduler for each thread that runs it, made for the number of threads of the first run there.

No run of ours may fail because of it: in whichever order runs with other numbers of threads come, after the caller's
own use of HiGHS, in several threads at once, in forked processes. Each script runs in a fresh process.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import highspy
import numpy as np
import pytest
from programs import knapsack

from optsched.solution import Termination
from optsched.solvers import Highs, Limits, highs, new_thread

pytestmark = pytest.mark.process

SETUP = """
import json, os, threading
import highspy, numpy as np
from optsched.conformance.integer import knapsack
from optsched.conformance.linear import dense, infeasible
from optsched.registry import load_solver
from optsched.solvers import Limits

def lp(threads, solver="highs", **options):
    return load_solver(solver)().open(dense().arrays).run(Limits(threads=threads, **options)).objective

def milp(threads, solver="highs"):
    return load_solver(solver)().open(knapsack().arrays).run(Limits(threads=threads)).objective

def elsewhere(*counts):
    "In a process of its own, which serves one run after the other."
    from optsched.solvers.isolated import SolverProcess
    with SolverProcess(load_solver) as process:
        highs = process.load("highs")
        return [highs().open(dense().arrays).run(Limits(threads=threads)).objective for threads in counts]

def conflict(threads=None):
    session = load_solver("highs")().open(infeasible().arrays)
    if threads is not None:
        session.run(Limits(threads=threads))
    return session.conflict().tolist()

def own(threads, inside=None):
    "The caller's own HiGHS; `inside` is called while it runs."
    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    highs.setOptionValue("threads", threads)
    highs.setOptionValue("presolve", "off")
    columns = [highs.addVariable(0, 3, -1 - column) for column in range(4)]
    highs.addConstr(sum(columns) <= 7)
    told = []
    if inside is not None:
        highs.cbSimplexInterrupt += lambda event: told or told.append(inside())
    highs.run()
    assert highs.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return told[0] if inside else -highs.getInfo().objective_function_value
"""


def told(expression: str) -> Any:
    script = f"{SETUP}\nprint(json.dumps({expression}))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("[lp(4), lp(1), lp(2), milp(3), lp(1)]", [11.0, 11.0, 11.0, 52.0, 11.0]),
        ("[conflict(), lp(1), conflict(3), lp(2)]", [[0, 1], 11.0, [0, 1], 11.0]),
        (
            "[own(4), lp(1), milp(2), conflict(2), lp(4, 'highs-ipm'), own(4)]",
            [23.0, 11.0, 52.0, [0, 1], 11.0, 23.0],
        ),
        (
            "[milp(2, 'pulp:HiGHS'), lp(3), lp(1, 'cvxpy:HIGHS'), milp(3, 'pulp:HiGHS')]",
            [52.0, 11.0, 11.0, 52.0],
        ),
        ("elsewhere(2, 1, 4)", [11.0, 11.0, 11.0]),
        (
            "[own(3, lambda: lp(1)), own(3, lambda: lp(3)), own(3, lambda: milp(2))]",
            [11.0, 11.0, 52.0],
        ),
    ],
    ids=[
        "ours",
        "infeasible first",
        "the caller's first",
        "through PuLP and cvxpy",
        "isolated",
        "inside of the caller's",
    ],
)
def test_numbers_of_threads_follow_each_other(expression: str, expected: list[Any]) -> None:
    assert told(expression) == [pytest.approx(item, rel=1e-6) for item in expected]


def test_the_callers_scheduler_costs_neither_the_start_nor_a_line_in_the_log() -> None:
    script = """
own(4)
session = load_solver("highs")().open(dense().arrays)
cold = session.run(Limits())
other = load_solver("highs")().open(dense().arrays)
other.set_start(session.basis())
warm = other.run(Limits())
log = []
lp(1, on_log=log.append)
"""
    cold, warm, log = told(
        f"[exec({script!r}, globals()), cold.iterations, warm.iterations, ''.join(log)][1:]"
    )
    assert cold > 0 == warm
    assert "HiGHS" in log and "ERROR" not in log


def test_threads_of_the_caller_solve_at_once() -> None:
    script = """
answers = []
def work(threads):
    gate.wait()
    answers.append([[lp(threads), milp(threads), conflict(threads)] for _ in range(10)])
for counts in ([1, 1, 1, 1], [2, 2, 2, 2], [1, 3, 1, 3]):
    gate = threading.Barrier(4)
    workers = [threading.Thread(target=work, args=(count,)) for count in counts]
    [worker.start() for worker in workers]
    [worker.join() for worker in workers]
"""
    once = [pytest.approx(11.0), pytest.approx(52.0), [0, 1]]
    assert told(f"[exec({script!r}, globals()), answers][1]") == [[once] * 10] * 12


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="forks")
def test_a_forked_process_solves_with_any_number_of_threads() -> None:
    script = """
def child(threads):
    ours, theirs = os.pipe()
    if not os.fork():
        os.write(theirs, json.dumps([lp(threads), milp(threads), conflict(threads), lp(threads)]).encode())
        os._exit(0)
    os.close(theirs)
    return json.loads(os.fdopen(ours).read())
"""
    each = [pytest.approx(11.0), pytest.approx(52.0), [0, 1], pytest.approx(11.0)]
    expression = (
        f"[exec({script!r}, globals()), own(2), lp(2), milp(3), [child(n) for n in (2, 1, 4)]][-1]"
    )
    assert told(expression) == [each] * 3


@pytest.mark.clock
def test_a_run_that_goes_on_past_its_limit_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its start comes back as its point, and the session solves again afterwards."""
    arrays = knapsack().arrays
    start = np.zeros(arrays.shape[1])
    session = Highs().open(arrays)
    best = session.run(Limits()).objective
    session.set_start(start)
    began = time.monotonic()
    with monkeypatch.context() as patch:
        patch.setattr(highspy.Highs, "run", lambda self: time.sleep(30))
        patch.setattr(highs, "GRACE", 0.2)
        values = session.run(Limits(time=0.2))
    assert time.monotonic() - began < 10
    assert values.termination is Termination.TIME_LIMIT and values.x is start
    assert session.run(Limits()).objective == best


def test_a_run_that_was_abandoned_stays_out_of_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is still asked to stop, and its bound is not that of the next run."""
    session = Highs().open(knapsack().arrays)
    handlers: list[Any] = []
    asked: list[bool] = []

    def never_ends(work: Callable[[], Any], *limits: Any) -> None:
        handlers.append(session._highs.cbMipInterrupt.callbacks[-1])
        bounds = SimpleNamespace(mip_primal_bound=1.0, mip_dual_bound=float(len(handlers)))
        event = SimpleNamespace(data_out=bounds, interrupt=lambda: asked.append(True))
        handlers[0](event)  # the thread of the first run, in which HiGHS goes on
        raise TimeoutError

    with monkeypatch.context() as patch:
        patch.setattr(highs, "in_new_thread", never_ends)
        first = session.run(Limits())
        assert (first.termination, first.bound, asked) == (Termination.TIME_LIMIT, 1.0, [])
        second = session.run(Limits())
    assert (second.termination, second.bound, asked) == (Termination.TIME_LIMIT, None, [True])
    assert session.run(Limits()).termination is Termination.OPTIMAL


def test_an_abandoned_run_leaves_its_best_point(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Highs().open(knapsack().arrays)
    best = session.run(Limits())

    def ends_late(work: Callable[[], Any], *limits: Any) -> None:
        work()
        raise TimeoutError

    monkeypatch.setattr(highs, "in_new_thread", ends_late)
    values = Highs().open(knapsack().arrays).run(Limits())
    assert values.termination is Termination.TIME_LIMIT and values.x is not None
    assert best.x is not None and values.x.tolist() == best.x.tolist()


def test_a_run_that_does_not_look_at_ctrl_c_is_left() -> None:
    ends, interrupt = threading.Event(), threading.Event()
    interrupt.set()
    try:
        with pytest.raises(TimeoutError):
            new_thread.in_new_thread(lambda: ends.wait(20.0), None, interrupt, 0.01)
    finally:
        ends.set()


LEFT = """
import sys, time
import highspy, numpy as np
from optsched.cli.main import run
from optsched.solvers.new_thread import in_new_thread

def hard():
    h, random, n = highspy.Highs(), np.random.default_rng(0), 60
    h.silent()
    h.setOptionValue("threads", 2)
    h.setOptionValue("time_limit", {seconds})
    for j in range(n):
        h.addVar(0, 1)
        h.changeColIntegrality(j, highspy.HighsVarType.kInteger)
        h.changeColCost(j, -float(random.integers(50, 100)))
    for i in range(40):
        a = random.integers(1, 100, n).astype(float)
        h.addRow(-highspy.kHighsInf, float(a.sum() // 2), n, np.arange(n, dtype=np.int32), a)
    h.run()

try:
    in_new_thread(hard, 0.3)
except TimeoutError:
    print("still running", flush=True)
sys.argv[1:] = ["solve", "--nothing"]
sys.exit({end})
"""


@pytest.mark.parametrize(("end", "seconds", "code"), [("run()", 1000, 2), ("3", 1, 3)])
def test_a_process_keeps_its_exit_code_while_a_run_goes_on(
    end: str, seconds: int, code: int
) -> None:
    """The command leaves at once, a script waits. A run that goes on while Python shuts down aborts the process."""
    script = LEFT.format(end=end, seconds=seconds)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stdout) == (code, "still running\n")
    assert "terminate" not in done.stderr
