"""Where the solver of an instance starts: previous solutions, their files, ``.sol`` files, arrays."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import refuses

import optsched
from optsched import api
from optsched.errors import SolverUnavailable, UsageError
from optsched.instance import shipped_path

# Private names: single checks, without a whole solution file
from optsched.verify.starts import sol_of, start_point

INTEGRAL: dict[str, Any] = {"formulation": "max-throughput", "options": {"integral": True}}


@pytest.fixture
def previous(tmp_path: Path) -> tuple[optsched.Solution, Path]:
    solution = optsched.solve("@quickstart", **INTEGRAL)
    optsched.write_solution(solution, tmp_path / "s.json")
    (tmp_path / "s.sol").write_bytes(sol_of(solution))
    return solution, tmp_path


@pytest.mark.parametrize("formulation", ["proportional-fairness", "finish-time-fairness"])
def test_points_of_what_is_not_linear_are_no_sol_files(formulation: str) -> None:
    told = rf"{formulation} is not linear, and \.sol files are points of linear programs: write the solution as \.json"
    with pytest.raises(UsageError, match=told):
        sol_of(optsched.solve("@quickstart", formulation))


def test_every_source_is_the_same_point(previous: tuple[optsched.Solution, Path]) -> None:
    solution, folder = previous
    formulation = api.make_formulation("max-throughput", {"integral": True})
    x = solution.allocation.x
    for source in (solution, solution.to_document(), folder / "s.json", str(folder / "s.sol"), x):
        assert start_point(source, formulation, solution.candidates).tolist() == x.tolist()


@pytest.mark.parametrize("formulation", ["max-min-fairness", "makespan", "max-throughput"])
def test_simplex_needs_no_iteration_from_its_own_answer(formulation: str) -> None:
    cold = optsched.solve("@quickstart", formulation, solver="highs")
    warm = optsched.solve("@quickstart", formulation, start=cold)
    assert warm.objective == pytest.approx(cold.objective, rel=1e-9) and warm.certificate.ok
    assert warm.solver.iterations < cold.solver.iterations
    assert warm.solver.reason == "linear program with a point to start from"


@pytest.mark.parametrize("solver", ["auto", "clarabel"])
def test_a_concave_total_is_solved_without_a_start(
    solver: str, caplog: pytest.LogCaptureFixture
) -> None:
    """No solver starts a conic program from a point."""
    cold = optsched.solve("@quickstart", "proportional-fairness")
    with caplog.at_level("WARNING"):
        warm = optsched.solve("@quickstart", "proportional-fairness", start=cold, solver=solver)
    assert warm.objective == pytest.approx(cold.objective, rel=1e-9) and warm.certificate.ok
    assert "the start was of no use: proportional-fairness" in caplog.text


def test_an_integral_start_is_the_incumbent(
    previous: tuple[optsched.Solution, Path], tmp_path: Path
) -> None:
    solution, folder = previous
    log = tmp_path / "log"
    again = optsched.solve(
        "@quickstart", **INTEGRAL, start=folder / "s.sol", solver_options={"log_file": str(log)}
    )
    assert again.objective == pytest.approx(solution.objective, rel=1e-12)
    assert again.solver.rebuilt == ()


def test_classes_are_spread_and_gathered() -> None:
    """Many equal jobs are one class: the rows of all of them are one column."""
    cold = optsched.solve("@large", solver="highs")
    formulation = api.make_formulation("max-min-fairness")
    found = start_point(cold.to_document(), formulation, cold.candidates)
    np.testing.assert_allclose(found, cold.allocation.x, rtol=1e-9, atol=1e-9)


def test_what_is_gone_is_left_out(
    previous: tuple[optsched.Solution, Path], caplog: pytest.LogCaptureFixture
) -> None:
    solution, folder = previous
    document = json.loads(shipped_path("quickstart").read_text())
    gone = solution.allocation.to_records()[0]["job"]
    document["jobs"] = [job for job in document["jobs"] if job["id"] != gone]
    document["cluster"]["pools"] = document["cluster"]["pools"][::-1]
    changed = optsched.Instance.from_document(document)
    rows = len(solution.allocation.to_records())
    with caplog.at_level(logging.DEBUG, "optsched"):
        answer = optsched.solve(changed, **INTEGRAL, start=folder / "s.json")
    assert answer.certificate.ok and answer.status == "optimal"
    assert f"start: {rows} rows of the allocation, 1 of them no longer possible" in caplog.text
    assert re.search(rf'start: left out allocation\[0\]\.job: .*"{gone}"', caplog.text)


def test_what_a_start_is_worth_is_told_without_being_asked(
    previous: tuple[optsched.Solution, Path], caplog: pytest.LogCaptureFixture
) -> None:
    _, folder = previous
    with caplog.at_level(logging.WARNING, "optsched"):
        optsched.solve("@quickstart", **INTEGRAL, start=folder / "s.json")
        optsched.solve("@quickstart", **INTEGRAL, start=folder / "s.sol")
        assert caplog.text == ""
        optsched.solve("@topology", **INTEGRAL, start=folder / "s.json")
    assert "of them no longer possible: nothing is left of it" in caplog.text


def test_a_point_of_another_program_is_told(
    previous: tuple[optsched.Solution, Path], caplog: pytest.LogCaptureFixture
) -> None:
    """All these programs have columns x_0, x_1, ..."""
    solution, folder = previous
    with caplog.at_level(logging.WARNING, "optsched"):
        optsched.solve("@quickstart", "makespan", start=folder / "s.sol")
    assert "s.sol names 44 of the program's 45 columns, the others (t) start at 0" in caplog.text
    assert (
        f"s.sol states the objective {solution.objective:.9g}, its point has 0 here" in caplog.text
    )
    assert "it may be of another program" in caplog.text


def test_a_start_that_no_longer_fits_is_scaled_down(
    previous: tuple[optsched.Solution, Path],
) -> None:
    _, folder = previous
    document = json.loads(shipped_path("quickstart").read_text())
    for pool in document["cluster"]["pools"]:
        pool["nodes"] = 1
    answer = optsched.solve(
        optsched.Instance.from_document(document), **INTEGRAL, start=folder / "s.json"
    )
    assert answer.status == "optimal" and answer.certificate.ok


def test_who_takes_no_start_says_so(previous: tuple[optsched.Solution, Path]) -> None:
    solution, _ = previous
    for solver in ("glop", "clarabel"):
        with refuses(f"solver: found {solver}, expected one with start", SolverUnavailable):
            optsched.solve("@quickstart", "makespan", solver=solver, start=solution)
    with pytest.raises(
        UsageError, match="isolated is a rule: it solves no program that could start somewhere"
    ):
        optsched.solve("@quickstart", "isolated", start=solution)


def test_starts_that_are_none(tmp_path: Path) -> None:
    for name, text, message in (
        ("a.json", "{}", "a.json: format: found nothing"),
        ("b.json", "[]", "b.json: found [], expected a solution: an object"),
        ("c.json", "{", "c.json: found text that is not JSON..."),
        ("d.sol", "x_9999 1", 'd.sol:1: found column "x_9999"'),
    ):
        (tmp_path / name).write_text(text)
        with refuses(message):
            optsched.solve("@quickstart", start=tmp_path / name)
    with refuses("found no readable file..."):
        optsched.solve("@quickstart", start=tmp_path / "none.json")
    with refuses("start: found the shape (3,), expected (44,), the class columns", UsageError):
        optsched.solve("@quickstart", start=np.zeros(3))


def test_sol_files_of_allocations(previous: tuple[optsched.Solution, Path]) -> None:
    solution, _ = previous
    lines = sol_of(solution).decode().splitlines()
    assert (
        lines[0] == f"=obj= {solution.objective!r}"
        and len(lines) == 1 + solution.allocation.classes.columns
    )
    fair = optsched.solve("@quickstart")
    assert (
        sol_of(fair).decode().splitlines()[-1] == f"t {fair.objective!r}"
    )  # the level, recomputed
    with pytest.raises(UsageError, match="is not linear"):
        sol_of(optsched.solve("@quickstart", "proportional-fairness"))
    with pytest.raises(UsageError, match="is a rule"):
        sol_of(optsched.solve("@quickstart", "isolated"))
    with pytest.raises(UsageError, match="there is no allocation"):
        sol_of(optsched.solve("@infeasible"))
    with pytest.raises(UsageError, match="rows made by extend"):
        sol_of(optsched.solve("@quickstart", extend=lambda *_: None))


def test_an_exported_program_takes_the_point(previous: tuple[optsched.Solution, Path]) -> None:
    """The names of the export and of the ``.sol`` file are the same: the program is solved where it starts."""
    from optsched.formats.mps import allocation_names, program_text

    solution, folder = previous
    formulation = api.make_formulation("max-throughput", {"integral": True})
    program = formulation.program(formulation.classes(solution.candidates))
    arrays = program.to_linear().arrays
    (folder / "p.mps").write_bytes(program_text(arrays, allocation_names(program, arrays), "mps"))
    answer = optsched.solve_program(folder / "p.mps", start=folder / "s.sol")
    assert answer.objective == pytest.approx(solution.objective, rel=1e-9)
