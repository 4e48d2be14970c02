"""Ctrl-C during a run: the incumbent comes back certified, or the interruption is reported."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

pytestmark = pytest.mark.process

SCRIPT = """
import os, signal
import numpy as np
import optsched
from optsched.errors import Interrupted

random = np.random.default_rng(0)
jobs = {jobs}
instance = optsched.Instance.from_arrays(
    pools={{f"p{{j}}": jobs // 4 for j in range(8)}},
    throughput=random.lognormal(0, 1, (jobs, 8)), gpus=random.choice([1, 2, 4, 8], jobs),
)
candidates = optsched.compile(instance)
optsched.solve("@quickstart", solver="{solver}")
events = []


def stop(event):  # at the first event of the solver: after so many seconds a busy machine may not have begun
    if not events:
        os.kill(os.getpid(), signal.SIGINT)
    events.append(event)


try:
    solution = optsched.solve(candidates, "max-min-fairness", solver="{solver}", on_progress=stop)
    print(solution.termination, solution.status, solution.ok, solution.reproducible)
except Interrupted as error:
    print("interrupted without incumbent")
assert events
"""


@pytest.mark.clock
@pytest.mark.parametrize(
    "solver", ["highs", pytest.param("highs-ipm", marks=pytest.mark.study), "clarabel"]
)
def test_ctrl_c(solver: str) -> None:
    script = SCRIPT.format(jobs=20_000, solver=solver)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    # a run that is stopped in its last iterations may leave duals that prove its point
    expected = [f"interrupted {status} True False" for status in ("feasible", "optimal")]
    assert done.stdout.strip() in (*expected, "interrupted without incumbent"), done.stdout


def test_ctrl_c_is_not_swallowed_outside_of_a_solver() -> None:
    script = (
        "import os, signal, optsched.api\nos.kill(os.getpid(), signal.SIGINT)\nprint('still here')"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert done.returncode in (1, -signal.SIGINT, 130) and "still here" not in done.stdout


DURING_A_SHORT_RUN = """
import os, signal
import optsched
from optsched.solvers.highs import HighsSession

solved = HighsSession._solved


def press(self, *arguments):
    os.kill(os.getpid(), signal.SIGINT)
    return solved(self, *arguments)


optsched.solve("@quickstart")
HighsSession._solved = press
try:
    optsched.solve("@quickstart")
except KeyboardInterrupt:
    print("interrupted")
"""


def test_ctrl_c_is_not_swallowed_by_a_run_that_ends_before_it_looks() -> None:
    done = subprocess.run(
        [sys.executable, "-c", DURING_A_SHORT_RUN], capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "interrupted\n", done.stderr


PRICES = """
import os, signal
import numpy as np
import optsched
from optsched.errors import Interrupted

random = np.random.default_rng(0)
instance = optsched.Instance.from_arrays(
    pools={{f"p{{j}}": 40 for j in range(4)}}, throughput=random.lognormal(0, 1, (3000, 4)),
    gpus=random.choice([1, 2, 4], 3000), steps=random.lognormal(9, 1, 3000),
)
passes = []


def told(text):
    passes.append(text)
    if len(passes) == {after}:
        os.kill(os.getpid(), signal.SIGINT)


try:
    solution = optsched.solve(instance, "{formulation}", solver="prices", on_log=told)
except Interrupted:
    print("interrupted without incumbent")
else:
    print(solution.termination, solution.status, solution.ok, solution.reproducible, len(passes) < {after} + 4)
    assert optsched.verify(instance, solution.to_document()).ok
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
"""


@pytest.mark.parametrize("after", [1, 5])
@pytest.mark.parametrize(
    "formulation", ["max-min-fairness", "makespan", "proportional-fairness", "max-throughput"]
)
def test_ctrl_c_between_passes_of_prices(formulation: str, after: int) -> None:
    script = PRICES.format(formulation=formulation, after=after)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "interrupted feasible True False True", done.stdout
