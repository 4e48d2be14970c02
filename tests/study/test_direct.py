"""Programs without a formulation: solved from files and from Python, certified, written, and started from points."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from programs import covering, dense, hard_knapsacks, knapsack, market_split, unbounded
from programs import infeasible_knapsack as infeasible
from refusals import refuses

import optsched
from optsched.errors import SolverUnavailable, UsageError
from optsched.formats.mps import program_names, program_text
from optsched.program import LinearProgram

# Private names: what an answer is made of, before it is put together
from optsched.study.direct import point_of


def written(lp: LinearProgram, folder: Path, kind: str = "mps") -> Path:
    path = folder / f"p.{kind}"
    path.write_bytes(program_text(lp.arrays, program_names(lp.arrays), kind, name="a program"))
    return path


@pytest.mark.parametrize("solver", ["auto", "highs", "clarabel", "glop", "scip", "cbc", "scs"])
@pytest.mark.parametrize("kind", ["mps", "lp"])
def test_from_a_file(kind: str, solver: str, tmp_path: Path) -> None:
    for lp, optimum in ((dense(), 11.0), (covering(), 9.0)):
        solution = optsched.solve_program(written(lp, tmp_path, kind), solver=solver)
        assert (solution.status, solution.ok) == ("optimal", True)
        assert solution.objective == pytest.approx(optimum) and solution.gap < 2e-6
        assert solution.values == pytest.approx({"x_0": 3.0, "x_1": 1.0}, abs=1e-4)


def test_duals_by_name() -> None:
    solution = optsched.solve_program(covering())
    assert solution.duals == pytest.approx({"rows_0": 1.5, "rows_1": 0.5})
    assert optsched.solve_program(knapsack()).duals is None


def test_arrays_and_programs_are_taken_as_they_are() -> None:
    assert (
        optsched.solve_program(dense().arrays).objective
        == optsched.solve_program(dense()).objective
    )


def test_without_an_optimum(tmp_path: Path) -> None:
    solution = optsched.solve_program(written(infeasible(), tmp_path))
    assert (solution.status, solution.objective, solution.values) == ("infeasible", None, {})
    assert optsched.solve_program(unbounded()).status == "unbounded"
    two = optsched.solve_program(optsched.conformance.linear.infeasible())
    assert sorted(two.conflicts) == ["rows_0", "rows_1"]
    with pytest.raises(UsageError, match="there is no point to be written"):
        solution.write(tmp_path / "p.sol")


def test_the_document_is_json_and_reproducible(tmp_path: Path) -> None:
    first, second = (optsched.solve_program(knapsack(), seed=1).to_document() for _ in range(2))
    assert first.pop("timings").keys() >= {"load", "solve", "total"} and second.pop("timings")
    assert json.dumps(first, allow_nan=False) == json.dumps(second, allow_nan=False)
    assert first["format"] == "optsched-program-solution/1"
    assert first["program"] == {
        "name": "program", "rows": 1, "columns": 8, "integer": 8, "nonzeros": 8, "sense": "max"
    }  # fmt: skip
    assert first["values"] == {"x_0": 1.0, "x_7": 1.0}


@pytest.mark.clock
def test_stopped_runs_are_certified() -> None:
    solution = optsched.solve_program(hard_knapsacks(), time_limit=0.4)
    assert (solution.status, solution.termination, solution.ok) == ("feasible", "time_limit", True)
    assert not solution.reproducible and solution.bound > solution.objective


@pytest.mark.property
def test_start_by_every_way(tmp_path: Path) -> None:
    """A market split that no search solves in a node: what comes back is the start."""
    lp, planted = market_split(30)
    names = program_names(lp.arrays).columns
    by_name = {name: value for name, value in zip(names, planted.tolist(), strict=True) if value}
    limits = {"work_limit": 1}
    first = optsched.solve_program(lp, start=planted, **limits)
    assert first.objective >= planted.sum() and first.ok
    assert optsched.solve_program(lp, **limits).status == "limit"
    for file in ("p.sol", "p.json"):
        first.write(tmp_path / file)
    for start in (by_name, tmp_path / "p.sol", str(tmp_path / "p.json")):
        assert optsched.solve_program(lp, start=start, **limits).objective >= planted.sum()


def test_a_linear_program_starts_from_a_point_too() -> None:
    lp = optsched.conformance.limits.slow_program(100, 150)
    cold = optsched.solve_program(lp, solver="highs")
    warm = optsched.solve_program(lp, start=cold.x)
    assert warm.objective == pytest.approx(cold.objective, rel=1e-9)
    assert (warm.solver.name, warm.solver.iterations) == (
        "highs",
        0,
    ) and cold.solver.iterations > 10
    assert "start" in warm.solver.reason


def test_all_zero_is_a_point_like_any_other() -> None:
    """A run that is stopped with nothing but zeros has found something, if zeros keep the rows."""
    lp = hard_knapsacks()
    solution = optsched.solve_program(
        lp, start=np.zeros(200), work_limit=1, solver_options={"mip_max_nodes": 0}
    )
    assert solution.status in ("feasible", "optimal")


def test_who_takes_no_start_says_so() -> None:
    with refuses("solver: found clarabel, expected one with start", SolverUnavailable):
        optsched.solve_program(dense(), solver="clarabel", start=np.zeros(2))


@pytest.mark.parametrize(
    ("start", "message"),
    [
        ({"w": 1}, 'start: found column "w", expected a column of the program'),
        ({"x": "much"}, 'start: found "much" for column "x", expected a finite number'),
        ({"x": float("nan")}, 'start: found NaN for column "x", expected a finite number'),
        ({"x": True}, 'start: found true for column "x"'),
    ],
)
def test_starts_that_are_none(start: dict[str, object], message: str) -> None:
    with refuses(message):
        point_of(start, ("x", "y"))


def test_start_files_that_are_none(tmp_path: Path) -> None:
    for text, message in (
        ("{}", "p.json: found no point"),
        ("[]", "p.json: found no point"),
        ("{", "p.json: found text that is not JSON..."),
        ("", "p.json: found an empty start"),
    ):
        (tmp_path / "p.json").write_text(text)
        with refuses(message):
            point_of(tmp_path / "p.json", ("x",))
    with refuses("start: found the shape (3,), expected (2,)...", UsageError):
        point_of(np.zeros(3), ("x", "y"))
    with refuses("found no readable file..."):
        point_of(tmp_path / "none.json", ("x",))


def test_limits_are_checked() -> None:
    with refuses("time_limit: found -1, expected a number above 0", UsageError):
        optsched.solve_program(dense(), time_limit=-1)
