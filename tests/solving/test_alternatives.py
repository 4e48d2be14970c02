"""Several solutions: different from each other, feasible, certified with the bound of the best, best first."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from refusals import refuses

import optsched
from optsched import Instance
from optsched.cli.main import main
from optsched.errors import InvalidArgument, UsageError
from optsched.generate import generate
from optsched.solving import alternatives
from optsched.solving.alternatives import FoundPoints

pytestmark = pytest.mark.property


def assignment() -> Instance:
    return generate("gap", jobs=24, agents=4, type="d", seed=1).instance


@pytest.mark.parametrize(
    ("source", "formulation", "solver"),
    [
        ("@smd", "multiple-choice", "auto"),
        ("@knapsack", "multiple-choice", "auto"),  # the enumeration of knapsacks
        ("@unrelated", "makespan-unrelated", "auto"),  # a timeline by CP-SAT
        ("@unrelated", "makespan-unrelated", "highs"),
        ("@leases", "lease", "auto"),
        ("assignment", "gap", "auto"),  # branch and bound, then the search of assignments
        ("assignment", "gap", "highs"),
    ],
)
def test_other_solutions(source: str, formulation: str, solver: str) -> None:
    instance = assignment() if source == "assignment" else optsched.load(source)
    best = optsched.solve(instance, formulation, solver=solver, solutions=4, time_limit=60)
    assert best.certificate.ok and 1 <= len(best.alternatives) <= 3
    every = [best, *best.alternatives]
    assert best.objective is not None
    sign = -1.0 if best.sense == "max" else 1.0
    worth = [sign * (each.objective or 0.0) for each in every]
    assert all(before <= after + 1e-9 for before, after in pairwise(worth))
    for number, each in enumerate(every):
        assert each.certificate.ok and each.bound == best.bound
        assert optsched.verify(each).ok
        assert all(each.differing_jobs(other) > 0 for other in every[:number])
    assert best.differing_jobs(best) == 0
    alone = optsched.solve(instance, formulation, solver=solver, time_limit=60)
    assert alone.alternatives == () and alone.objective == best.objective


def test_what_is_no_solution_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Points that break a row, are not whole, or are of other programs."""
    offered: list[np.ndarray] = []

    class Everything(FoundPoints):
        def add(self, point: np.ndarray) -> None:
            offered.append(point)
            for wrong in (point + 3.0, 0.5 * point, point[:-1], np.append(point, 1.0), -point):
                super().add(wrong)

    monkeypatch.setattr(alternatives, "FoundPoints", Everything)
    solution = optsched.solve("@smd", "multiple-choice", solutions=5)
    assert offered
    assert all(optsched.verify(other).ok for other in solution.alternatives)
    assert all(other.differing_jobs(solution) for other in solution.alternatives)


def test_a_note_where_there_is_no_other_solution() -> None:
    solution = optsched.solve("@quickstart", "max-min-fairness", solutions=3)
    assert solution.alternatives == ()
    assert "no other solution in whole jobs or of a schedule was found on the way" in solution.notes


@pytest.mark.parametrize("wrong", [0, -1])
def test_a_wrong_number_is_refused(wrong: int) -> None:
    with refuses(
        f"solutions: found {wrong}, expected a whole number of at least 1", InvalidArgument
    ):
        optsched.solve("@quickstart", solutions=wrong)


def test_the_shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "plan.json"
    arguments = ["solve", "@smd", "-f", "multiple-choice", "--solutions", "3"]
    assert main([*arguments, "-o", str(out)]) == 0
    assert "Several solutions" in capsys.readouterr().out
    names = ["plan-2.json", "plan-3.json", "plan.json"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    for name in names:
        assert main(["verify", "@smd", str(tmp_path / name)]) == 0
    start = str(tmp_path / "plan-2.json")
    assert main([*arguments, "--start", start, "-o", str(out)]) == UsageError.exit_code
    assert f"--solutions: found {start}, which is read, expected another" in capsys.readouterr().err
    assert main([*arguments, "--json"]) == UsageError.exit_code
    assert "--solutions writes a file for each solution: give -o FILE" in capsys.readouterr().err
