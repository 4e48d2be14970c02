"""The row of one task of a benchmark: what it solves, and what it says of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import optsched
from optsched.benchmarking import Benchmark, from_names

# Private names: statistics, rows and their files are checked without a sweep
from optsched.benchmarking.solve_task import prepare_solve, solve_task

KNAPSACK = """Maximize
 value: 5 a + 4 b + 3 c
Subject To
 size: 2 a + 3 b + c <= 5
Binary
 a b c
End
"""


def row_of(name: str, folder: Path | None = None, **given: Any) -> Mapping[str, Any]:
    """What the only task of a benchmark says, done in this process."""
    (task,) = Benchmark(from_names([name], folder), **given).tasks()
    prepare_solve(task.spec)
    return solve_task(task.spec)


def test_an_instance() -> None:
    row = row_of("@quickstart", formulations=[("max-throughput", {})], solvers=["highs"])
    solution = optsched.solve("@quickstart", "max-throughput", solver="highs")
    assert row["objective"] == pytest.approx(solution.objective, rel=1e-9)
    assert (row["status"], row["sense"], row["proof"]) == (
        "optimal",
        "max",
        solution.certificate.proof,
    )
    assert (row["n"], row["m"], row["sha256"]) == (12, 3, solution.instance.sha256)
    stages = [row[f"{stage}_s"] for stage in ("load", "compile", "build", "solve", "certify")]
    assert min(stages) >= 0 and row["total_s"] >= max(stages)


def test_a_program(tmp_path: Path) -> None:
    """a and b fill the knapsack and are worth 9; c beside a would be worth 8."""
    (tmp_path / "knapsack.lp").write_text(KNAPSACK)
    row = row_of("knapsack.lp", tmp_path)
    assert (row["status"], row["objective"], row["sense"]) == ("optimal", 9.0, "max")
    assert (row["n"], row["m"], row["columns"]) == (3, 1, 3)


def test_a_task_that_spends_its_time_before_the_solver_begins() -> None:
    row = row_of("@quickstart", time_limit=1e-9)
    assert (row["status"], row["solve_s"]) == ("limit", None)
    assert (
        "objective" not in row
        and row["error"] == "the time limit was over before the solver could begin"
    )
