"""The solution file: what is written, and what is read back."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from documents import instance_document
from refusals import refuses

import optsched
from optsched import Instance

# Private names: checks of points that no engine has made
from optsched.instance.reading import validate
from optsched.solution.document import AllocationRow, SolutionDocument

KEYS = [
    "format", "instance", "formulation", "options", "constraints", "solver", "classes", "sense", "objective", "bound",
    "bound_source", "gap", "termination", "status", "reproducible", "certificate", "allocation", "throughput", "prices",
    "duals", "conflicts", "unplaced", "metrics", "timings", "notes",
]  # fmt: skip


@pytest.fixture(scope="module")
def solution() -> optsched.Solution:
    return optsched.solve("@quickstart", "makespan")


def test_all_keys_in_their_order(solution: optsched.Solution) -> None:
    assert list(solution.to_document()) == KEYS


def test_numbers_survive_the_file_to_the_last_bit(
    solution: optsched.Solution, tmp_path: Path
) -> None:
    path = tmp_path / "solution.json"
    optsched.write_solution(solution, path)
    document = json.loads(path.read_text())
    assert document == solution.to_document()
    assert document["objective"] == solution.objective
    assert solution.duals is not None
    assert all(document["duals"][name] == block.tolist() for name, block in solution.duals.items())
    assert (
        validate(SolutionDocument, document).model_dump(mode="json", exclude_unset=True) == document
    )


def test_the_same_solution_twice_is_the_same_text(solution: optsched.Solution) -> None:
    again = optsched.solve("@quickstart", "makespan").to_document()
    assert json.dumps(again | {"timings": {}}) == json.dumps(
        solution.to_document() | {"timings": {}}
    )


def test_duals_of_many_rows_are_written_on_request(
    solution: optsched.Solution, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = sum(len(block) for block in solution.to_document()["duals"].values())
    monkeypatch.setattr("optsched.solution.solution.DUAL_ROWS", rows)
    assert solution.to_document()["duals"] is not None
    monkeypatch.setattr("optsched.solution.solution.DUAL_ROWS", rows - 1)
    assert solution.to_document()["duals"] is None
    assert solution.to_document(all_duals=True)["duals"] is not None


def test_rows_say_how_a_job_runs() -> None:
    """Share, attributes and the number of the option stand there where they say something."""
    option = {"pool": "g", "gpus": 1, "throughput": 2.0}
    given = Instance.from_document(
        instance_document(
            {"g": 2},
            [
                {
                    "id": "a",
                    "options": [{**option, "throughput": 1.0}, {**option, "share": 0.5}],
                    "steps": 10,
                },
                {"id": "b", "options": [{**option, "attributes": {"servers": 3}}], "steps": 10},
                {"id": "c", "throughput": {"g": 1.0}, "steps": 10},
            ],
            name="rows",
            colocation=[],
        )
    )
    rows = optsched.solve(given, "max-throughput").to_document()["allocation"]
    place = {"pool": "g", "gpus": 1, "nodes": 1}
    assert [{key: row[key] for key in row if key != "fraction"} for row in rows] == [
        {"job": "a", **place, "option": 1, "share": 0.5},
        {"job": "b", **place, "option": 0, "attributes": {"servers": 3}},
        {"job": "c", **place},
    ]
    assert [row["fraction"] for row in rows] == pytest.approx([1.0, 1.0, 0.5])


def test_a_number_that_does_not_exist_is_null() -> None:
    given = Instance.from_arrays(pools={"g": 1}, throughput=[[1.0]], steps=0.0)
    document = optsched.solve(given, "max-min-fairness").to_document()
    assert [document[name] for name in ("objective", "bound", "gap", "duals")] == [None] * 4
    json.dumps(document, allow_nan=False)


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        (("objective",), "1", 'objective: found "1", expected a number'),
        (("objective",), float("inf"), "objective: found Infinity, expected a finite number"),
        (("status",), "great", "status: found \"great\", expected one of 'optimal', 'feasible'"),
        (("termination",), None, "termination: found null, expected one of 'optimal'"),
        (("classes",), 1, "classes: found 1, expected true or false"),
        (("allocation", 2, "gpus"), 1.5, "allocation[2].gpus: found 1.5, expected a whole number"),
        (("allocation", 2, "fraction"), None, "allocation[2].fraction: found null, expected a number"),
        (("allocation", 2, "jobs"), ["a"], "allocation[2].jobs[1]: found nothing, expected an entry"),
        (("duals", "time", 3), "x", 'duals.time[3]: found "x", expected a number'),
        (("throughput", "vgg-16-5"), [], "throughput.vgg-16-5: found [], expected a number"),
        (("solver", "sed"), 1, "solver.sed: found an unknown key 'sed', expected one of the format's"),
        (("certificate", "proof"), "mine", "certificate.proof: found \"mine\", expected one of 'dual', 'claimed'"),
    ],
)  # fmt: skip
def test_what_is_not_of_the_format_is_told_with_its_path(
    solution: optsched.Solution, path: tuple[Any, ...], value: Any, told: str
) -> None:
    document = copy.deepcopy(solution.to_document())
    owner: Any = document
    for part in path[:-1]:
        owner = owner[part]
    owner[path[-1]] = value
    with refuses(f"{told}..."):
        validate(SolutionDocument, document)


def test_rows_of_an_allocation_are_objects_only_when_asked_for(
    solution: optsched.Solution, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred thousand objects take longer than all checks of their numbers."""
    made: list[int] = []
    make = AllocationRow.model_construct
    monkeypatch.setattr(
        AllocationRow, "model_construct", lambda **values: made.append(1) or make(**values)
    )
    monkeypatch.setattr(AllocationRow, "__init__", lambda *_, **__: made.append(1))
    document = solution.to_document()
    assert optsched.verify(solution.instance, document).ok
    assert not made
    rows = validate(SolutionDocument, document).allocation
    last = rows[-1]
    assert (last.job, last.fraction) == tuple(
        document["allocation"][-1][name] for name in ("job", "fraction")
    )
    assert list(rows[-2:]) == [rows[len(rows) - 2], last] and len(made) == 4


def test_metrics_by_hand() -> None:
    """Two of three GPUs of one pool, all of the other for half of the time."""
    given = Instance.from_arrays(
        pools=[
            {"name": "g", "nodes": 1, "gpus_per_node": 3, "cost_per_gpu_hour": 2.0},
            {"name": "h", "nodes": 1, "gpus_per_node": 1, "cost_per_gpu_hour": 1.0},
        ],
        throughput=[[4.0, 0.0], [0.0, 8.0]],
        gpus=[2, 1],
    )
    solution = optsched.solve(given, "max-throughput")
    assert solution.allocation is not None
    half = type(solution.allocation)(
        solution.allocation.classes, solution.allocation.x * np.array([1.0, 0.5])
    )
    from optsched.solution.solution import allocation_metrics

    assert allocation_metrics(half) == {
        "jobs": 2,
        "gpus_in_use": 2.5,
        "utilisation": {"g": 2 / 3, "h": 0.5},
        "total_throughput": 8.0,
        "cost_per_hour": 4.5,
    }
