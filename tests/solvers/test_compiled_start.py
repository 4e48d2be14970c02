"""When compiled sweeps are loaded: by the size of a table alone, and only where they pay for their start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# Private names: sessions and steps of one back-end, without the engine
from optsched.arrays import compiling
from optsched.solvers.prices import kernels

pytestmark = pytest.mark.process

FIRST_SOLVES = """
import sys
sys.path.insert(0, sys.argv[1])
import optsched
from spine import distinct_rows

for formulation in ("max-min-fairness", "proportional-fairness", "max-throughput"):
    optsched.solve(optsched.Instance.from_arrays(**distinct_rows(13_000, 4)), formulation, solver="prices")
assert "numba" not in sys.modules
"""


def test_a_fresh_process_loads_no_numba_for_ten_thousands_of_jobs() -> None:
    pytest.importorskip("numba")
    benchmarks = str(Path(__file__).parents[2] / "benchmarks")
    done = subprocess.run(
        [sys.executable, "-c", FIRST_SOLVES, benchmarks], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_what_a_process_loaded_before_decides_nothing() -> None:
    pytest.importorskip("numba")
    assert kernels.sweeps_for(compiling.COMPILED - 1) is None
    assert kernels.sweeps_for(compiling.COMPILED) is not None
    assert kernels.sweeps_for(compiling.COMPILED - 1) is None
