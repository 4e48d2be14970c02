"""Workers of tests: tasks that count, sleep, crash, and take too much."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from optsched.errors import InvalidInput


def square(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """A row that depends on the content alone, after a while."""
    time.sleep(spec.get("sleep", 0.0))
    if "log" in spec:
        with Path(spec["log"]).open("a") as log:
            log.write(f"{spec['x']}\n")
    return {
        "status": "optimal",
        "square": spec["x"] ** 2,
        "random": float(np.random.default_rng(spec["x"]).random()),
    }


def odd(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """Whatever can go wrong."""
    match spec["do"]:
        case "raise":
            raise ValueError("a task of its own kind")
        case "refuse":
            raise InvalidInput("jobs[3].steps", "-1", "a number above 0", "instance.json")
        case "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "words":
            sys.stderr.write("terminate called: the abacus is broken\n\n")
            sys.stderr.flush()
            os.abort()
        case "exit":
            os._exit(3)
        case "sleep":
            time.sleep(60)
        case "child":
            import subprocess

            Path(spec["pid"]).write_text(str(subprocess.Popen(["sleep", "60"]).pid))
            time.sleep(60)
        case "eat":
            held = []
            while True:
                held.append(np.ones(4_000_000))
                time.sleep(0.01)
        case "gulp":
            np.ones(1 << 40)
        case "nan":
            return {"x": float("nan")}
        case "print":
            sys.stdout.write("a solver's own words\n")
        case "large":
            return {"x": "y" * 3_000_000}
    return {"did": spec["do"]}


def lose(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """Kill the task's own process, its worker, or the actor of a Ray cluster that has it done,
    as often as a file says; then a row."""
    times = Path(spec["times"])
    left = int(times.read_text())
    if left:
        times.write_text(str(left - 1))
        stat = Path(f"/proc/{os.getppid()}/stat").read_text()
        actor = int(stat.rpartition(")")[2].split()[1])
        lost = {"task": os.getpid(), "worker": os.getppid(), "actor": actor}
        os.kill(lost[spec["whom"]], spec.get("signal", signal.SIGKILL))
        time.sleep(60)
        times.write_text("a task that outlived its worker")
    return {"x": spec["x"]}


def killed(*given: Any) -> None:
    """A worker that is killed before it says anything."""
    os.kill(os.getpid(), signal.SIGKILL)


def prepare(spec: Mapping[str, Any]) -> None:
    """Imports for some tasks; for one it is the end."""
    if spec["do"] == "die early":
        os.abort()
    if spec["do"] == "fail early":
        raise RuntimeError("nothing here")


def returns_nothing(spec: Mapping[str, Any]) -> None:
    """What a worker returns by mistake: no mapping."""
