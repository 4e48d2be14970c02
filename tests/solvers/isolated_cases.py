"""Runs of the troubled solver in a process of its own, and looks at processes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from programs import dense

from optsched.solution import Values
from optsched.solvers import Limits
from optsched.solvers.isolated import SolverProcess

PROCESSES = pytest.mark.skipif(
    not Path("/proc/self/fd").is_dir(), reason="looks at processes through /proc"
)


def run(process: SolverProcess, seconds: float | None = 20.0, **options: Any) -> Values:
    """Run a small program on the troubled solver; the trouble is the first option."""
    limits = {key: options.pop(key) for key in ("on_progress", "on_log") if key in options}
    names = {name.replace("_", " "): value for name, value in options.items()}
    session = process.load("troubled")().open(dense().arrays)
    return session.run(Limits(time=seconds, options=names, **limits))


def works(process: SolverProcess) -> bool:
    return run(process).objective == pytest.approx(11.0)


def gone(pid: int) -> bool:
    """Whether a process does not exist, or is a zombie that nobody of ours has to reap."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def soon(holds: Any, seconds: float = 5.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if holds():
            return True
        time.sleep(0.01)
    return False
