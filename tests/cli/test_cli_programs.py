"""``optsched solve MODEL.mps``: tables, JSON, points in and out, exit codes; and ``--start`` of instances."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from programs import covering, dense, hard_knapsacks, infeasible, knapsack, unbounded

from optsched.formats.mps import program_names, program_text
from optsched.program import LinearProgram


@pytest.fixture
def model(tmp_path: Path):  # type: ignore[no-untyped-def]
    def model(lp: LinearProgram, name: str = "model.mps") -> Path:
        path = tmp_path / name
        kind = "lp" if ".lp" in name else "mps"
        text = program_text(lp.arrays, program_names(lp.arrays), kind, name="my_model")
        path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
        return path

    return model


def test_table(run: Any, model: Any) -> None:
    result = run("solve", model(knapsack()))
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith(
        "my_model\nmaximise: 1 row, 8 columns (8 integer), 8 coefficients\n\nstatus       optimal\n"
    )
    assert "objective    52\nbound        52  gap 0 %\n" in result.out
    assert "bound claimed by the solver" in result.out
    assert "Columns that are not 0: 2 of 8\n" in result.out
    assert [line.split() for line in result.out.splitlines()[-2:]] == [["x_0", "1"], ["x_7", "1"]]


@pytest.mark.parametrize("name", ["m.mps", "m.MPS", "m.lp", "m.mps.gz", "m.lp.gz"])
def test_kinds_of_files(run: Any, model: Any, name: str) -> None:
    told = run("solve", model(dense(), name), "--json").json
    assert told["objective"] == 11.0 and told["certificate"]["proof"] == "dual"


def test_long_points_are_cut(run: Any, model: Any) -> None:
    lp = LinearProgram()
    x = lp.variables(50, name="x", upper=2.0)
    lp.maximise(x.sum())
    out = run("solve", model(lp)).out
    assert "Columns that are not 0: 50 of 50" in out and out.endswith(
        "... and 10 more (use -o or --json)\n"
    )


def test_points_out_and_in(run: Any, model: Any, tmp_path: Path) -> None:
    path = model(dense())
    for name in ("p.sol", "p.json"):
        told = run("solve", path, "-o", tmp_path / name)
        assert told.code == 0 and told.out.endswith(f"solution written to {tmp_path / name}\n")
        again = run("solve", path, "--start", tmp_path / name, "-v")
        assert again.code == 0
        assert "optsched: Optimal after 0 iterations" in again.err
    assert (tmp_path / "p.sol").read_text() == "=obj= 11\nx_0 3\nx_1 1\n"
    written = json.loads((tmp_path / "p.json").read_text())
    printed = run("solve", path, "-o", "-").json
    assert written.pop("timings").keys() == printed.pop("timings").keys()
    assert written == printed


def test_exit_codes(run: Any, model: Any, tmp_path: Path) -> None:
    result = run("solve", model(infeasible()), "-o", tmp_path / "p.sol")
    assert result.code == 4 and "These rows cannot all hold:\n- rows_0, rows_1\n" in result.out
    assert not (tmp_path / "p.sol").exists() and "written to" not in result.out
    assert (
        result.err
        == f"optsched: {tmp_path / 'p.sol'} is not written: there is no point, the status is infeasible\n"
    )
    assert run("solve", model(unbounded())).code == 4
    hard = model(hard_knapsacks())
    result = run("solve", hard, "--time-limit", "0.3")
    assert result.code == 0 and "feasible  the time limit was reached" in result.out
    assert run("solve", hard, "--time-limit", "0.3", "--require-optimal").code == 5
    assert run("solve", model(knapsack()), "--solver", "clarabel").code == 7
    assert (
        run("solve", model(dense()), "--solver", "glop", "--start", tmp_path / "none.sol").code == 3
    )
    assert run("solve", tmp_path / "none.mps").code == 3


@pytest.mark.parametrize(
    "option",
    [("-f", "makespan"), ("-O", "a=1"), ("-C", "deadlines"), ("--no-classes",), ("--duals",)],
)
def test_options_of_instances_are_refused(run: Any, model: Any, option: tuple[str, ...]) -> None:
    assert run("solve", model(dense()), *option).refused(
        f"model.mps is a program: {option[0]} is for instances"
    )


def test_where_the_answer_goes(run: Any, model: Any, tmp_path: Path) -> None:
    target = tmp_path / "p.txt"
    assert run("solve", model(dense()), "-o", target).refused(
        f"found {target}, expected a name that ends in .sol or .json for the solution of a program"
    )


def test_broken_files_are_told_with_their_line(run: Any, model: Any) -> None:
    path = model(dense())
    path.write_text(path.read_text().replace("rows_1    3", "rows_1    three"))
    result = run("solve", path)
    line = 1 + next(
        row for row, text in enumerate(path.read_text().splitlines()) if "three" in text
    )
    assert result.refused(f'{path}:{line}: found "three", expected a finite number', 3)


def test_warnings_are_told_without_asking(run: Any, model: Any) -> None:
    path = model(knapsack())
    bounds = path.read_text().partition("BOUNDS\n")[2].partition("ENDATA")[0]
    path.write_text(path.read_text().replace(bounds, ""))
    result = run("solve", path)
    assert result.code == 0
    assert (
        result.err
        == f"optsched: {path}: 8 integer columns without bounds are taken as 0 or 1, as HiGHS does\n"
    )


def test_starts_of_instances(run: Any, tmp_path: Path) -> None:
    wanted = ("solve", "@quickstart", "-f", "max-throughput", "-O", "integral=true")
    for name in ("s.json", "s.sol"):
        first = run(*wanted, "-o", tmp_path / name)
        assert first.code == 0
        again = run(*wanted, "--start", tmp_path / name, "--json")
        assert again.code == 0 and "max-throughput" in again.out
    told = run(*wanted, "--start", tmp_path / "s.json", "-v")
    assert "optsched: start: 9 rows of the allocation, 0 of them no longer possible\n" in told.err
    assert run(*wanted, "--start", tmp_path / "s.json", "--solver", "glop").code == 7
    assert run("solve", "@quickstart", "--start", tmp_path / "s.json", "--solver", "pdlp").code == 7
    assert run("solve", "@quickstart", "-f", "isolated", "--start", tmp_path / "s.json").code == 2


def test_the_solution_of_a_program_is_verified(run: Any, tmp_path: Path) -> None:
    model, solution, arrays = tmp_path / "model.mps", tmp_path / "solution.json", covering().arrays
    model.write_bytes(program_text(arrays, program_names(arrays), "mps", name="model"))
    assert run("solve", model, "-o", solution).code == 0
    result = run("verify", model, solution, "--resolve")
    assert (result.code, result.out) == (0, "the solution is right, its bound was recomputed\n")
    solution.write_text(solution.read_text().replace('"objective": 9', '"objective": 8'))
    result = run("verify", model, solution, "--json")
    assert result.code == 6 and "objective" in {
        finding["field"] for finding in result.json["findings"]
    }
    assert (
        "a .sol file is a point without any claim" in run("verify", model, tmp_path / "p.sol").err
    )
    solution.write_text("{")
    assert run("verify", model, solution).refused(f"{solution}: found text that is not JSON...", 3)
