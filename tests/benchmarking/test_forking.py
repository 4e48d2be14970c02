"""Workers that are forked from a program in which nothing else runs, in fresh processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
BEGIN = """
import sys, threading
HERE = sys.argv[1]
from optsched.processes.forking import can_fork, few_threads
few_threads()
sys.path.insert(0, HERE)
import odd_tasks
from optsched.benchmarking import Task, run_tasks
from optsched.processes import Child
kinds = []
for name in ("_forked", "_spawned"):
    def made(self, *given, name=name, real=getattr(Child, name)):
        kinds.append(name)
        return real(self, *given)
    setattr(Child, name, made)
"""


def told(script: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + script, str(HERE)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


pytestmark = pytest.mark.process
linux = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="workers are forked on Linux only"
)


@linux
def test_a_forked_worker_does_what_another_does() -> None:
    script = """
fates = ("raise", "refuse", "words", "exit", "print", "fail early")
tasks = [Task.of({"do": fate}, {"fate": fate}) for fate in fates]
print("unflushed")
def rows():
    return [(row["fate"], row["status"], row["error"]) for row in run_tasks(tasks, odd_tasks.odd).rows]
forked = rows()
assert set(kinds) == {"_forked"}, kinds
kinds.clear()
waiting = threading.Event()
threading.Thread(target=waiting.wait, daemon=True).start()
assert not can_fork(1)
assert rows() == forked and set(kinds) == {"_spawned"}, kinds
waiting.set()
"""
    assert told(script) == ["unflushed"]  # once, and nothing of what tasks print


@linux
def test_a_worker_that_is_replaced_and_one_for_more_threads() -> None:
    """The worker is forked before the progress thread starts. One that crashed is replaced by a spawned one."""
    script = """
tasks = [Task.of({"do": fate}, {"fate": fate}) for fate in ("die early", "print")]
def on_start(progress, notices):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
sweep = run_tasks(tasks, odd_tasks.odd, prepare=odd_tasks.prepare, on_start=on_start)
assert [row["status"] for row in sweep.rows] == ["error", "ok"], sweep.rows
assert kinds == ["_forked", "_spawned"], kinds
assert not can_fork(2)
"""
    assert told(script) == []
