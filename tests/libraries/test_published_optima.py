"""Published files, read as they are: optima and best known values that the literature states."""

from __future__ import annotations

import csv
from collections import Counter

import pytest
from beside import SHARED, needs

import optsched
from optsched.libraries import problems_in, read_problem

ORLIB = SHARED / "data" / "orlib"

pytestmark = [
    pytest.mark.oracle,
    needs(ORLIB),
]


def assignments() -> dict[str, float]:
    """Proved optima of the least total cost, by file."""
    if not ORLIB.is_dir():
        return {}
    with (ORLIB / "gap" / "data" / "data.csv").open() as table:
        rows = [row for row in csv.DictReader(table) if row["Optimum"]]
    return {row["Path"]: float(row["Optimum"]) for row in rows}


def test_assignments_are_read_and_their_best_solutions_cost_what_is_stated() -> None:
    """The stored solutions name the agent of each job; costs and loads are summed here."""
    with (ORLIB / "gap" / "data" / "data.csv").open() as table:
        rows = [row for row in csv.DictReader(table) if int(row["Item number"]) <= 400]
    rows = [row for row in rows if (ORLIB / "gap" / "data" / row["Path"]).exists()]
    assert len(rows) >= 40
    for row in rows:
        problem = read_problem(ORLIB / "gap" / "data" / row["Path"])
        answer = ORLIB / "gap" / "output" / "best" / f"{row['Path']}_solution.txt"
        agents = [int(word) for word in answer.read_text().split()]
        jobs = problem.instance.to_document()["jobs"]
        chosen = [job["options"][agent] for job, agent in zip(jobs, agents, strict=True)]
        load: Counter[str] = Counter()
        for option in chosen:
            load.update(option["uses"])
        cost = sum(option["cost"] for option in chosen)
        # A few are a little worse or better than the table, which was filled at another time
        assert float(row["Best known bound"]) <= cost, row["Path"]
        assert cost == pytest.approx(float(row["Best known solution value"]), rel=1e-3), row["Path"]
        agents_of = problem.instance.cluster.resources
        assert all(load[agent.name] <= agent.capacity for agent in agents_of), row["Path"]


@pytest.mark.parametrize(
    "path", ["cattrysse1994/gap1-0", "cattrysse1994/gap8-0", "chu1997/a10100", "chu1997/c05100"]
)
def test_optima_of_assignments(path: str) -> None:
    solution = optsched.solve(ORLIB / "gap" / "data" / path)
    assert (solution.formulation, solution.status) == ("gap", "optimal")
    assert solution.objective == assignments()[path]


def test_best_known_values_of_knapsacks() -> None:
    problems = problems_in(ORLIB / "mkp" / "mknapcb1.txt")
    assert len(problems) == 30
    # 5.100-20, the first of those whose capacities are 75 % of all uses
    solution = optsched.solve(problems[20].source)
    assert (solution.status, solution.objective) == ("optimal", problems[20].best_known)


@pytest.mark.parametrize("file", ["binpack1.txt", "binpack3.txt"])
def test_best_known_packings(file: str) -> None:
    problems = problems_in(ORLIB / "binpack" / file)
    assert len(problems) == 20
    improved = 0
    for row in (0, 7, 8, 12, 19):
        solution = optsched.solve(problems[row].source)
        best = problems[row].best_known
        assert solution.status == "optimal" and solution.objective <= best, row
        improved += solution.objective < best
    # Two of the values of 1996 are improved in the literature, by one bin each
    assert improved == (2 if file == "binpack1.txt" else 0)


@pytest.mark.parametrize("name", ["j102_2", "j1030_1", "j1060_1", "j2010_1"])
def test_makespans_of_projects(name: str) -> None:
    with (ORLIB / "mmrcpsp" / "cpo_results_j10_j20_j30.csv").open() as table:
        rows = {row["Model name"]: row for row in csv.DictReader(table, delimiter=";")}
    stated = rows[f"mmrcpsp_PSPLIB_{name}"]
    assert stated["Status"] == "Optimum"
    solution = optsched.solve(ORLIB / "mmrcpsp" / name.partition("_")[0][:3] / f"{name}.mm")
    assert (solution.status, solution.objective) == ("optimal", float(stated["Objective"]))
