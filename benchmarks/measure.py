"""Measurements in fresh processes: wall seconds and growth of peak memory, one thread each."""

from __future__ import annotations

import importlib
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ONE_THREAD = {
    name: "1"
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS")
}


@dataclass(frozen=True)
class Measurement:
    """Medians over the repetitions: seconds, MB above what the imports take, and what the run returned."""

    seconds: float
    megabytes: float
    result: Any


def peak_mb() -> float:
    """Peak memory of this process so far, MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(
    module: str, function: str, repeat: int = 3, timeout: float | None = None, **arguments: Any
) -> Measurement:
    """Run ``module.function(**arguments)`` in fresh processes; it returns the callable to time.

    Raises `subprocess.TimeoutExpired` where a process takes longer than ``timeout`` seconds.
    """
    runs = []
    for _ in range(repeat):
        command = [sys.executable, __file__, module, function, json.dumps(arguments)]
        paths = os.pathsep.join(
            [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        )
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=timeout,
            env={**os.environ, **ONE_THREAD, "PYTHONPATH": paths},
        )  # fmt: skip
        runs.append(json.loads(done.stdout.splitlines()[-1]))
    return Measurement(
        statistics.median(run["seconds"] for run in runs),
        statistics.median(run["megabytes"] for run in runs),
        runs[0]["result"],
    )


def ended(error: subprocess.CalledProcessError) -> str:
    """How a run of `measure` ended that has no result: its last words, or the signal, as where memory ran out."""
    if error.returncode < 0:
        return f"the run was ended by {signal.Signals(-error.returncode).name}"
    words: list[str] = (error.stderr or "").strip().splitlines()
    return words[-1] if words else f"the run ended with code {error.returncode}"


def _run_here(module: str, function: str, arguments: str) -> None:
    prepare: Callable[..., Callable[[], Any]] = getattr(importlib.import_module(module), function)
    timed = prepare(**json.loads(arguments))
    before, started = peak_mb(), time.perf_counter()
    result = timed()
    seconds = time.perf_counter() - started
    print(json.dumps({"seconds": seconds, "megabytes": peak_mb() - before, "result": result}))


if __name__ == "__main__":
    _run_here(*sys.argv[1:])
