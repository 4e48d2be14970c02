"""Solution files as pictures read them: the right instance, and each part's errors by the path of the field."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from picture_samples import (
    instance_of,
    solved,
    with_placement,
    with_rounds,
    with_schedule,
)
from refusals import refuses

import optsched
from optsched.errors import UsageError
from optsched.report import (
    SolutionFile,
    allocation_heatmap,
    heatmap_rows,
    price_bars,
    rounds_gantt,
    schedule_gantt,
    topology_picture,
)  # fmt: skip
from optsched.solution import Solution

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def made() -> Solution:
    return with_placement(
        with_rounds(with_schedule(solved(instance_of(8, {"a": (2, 4), "b": (1, 8)}, 2))))
    )


@pytest.fixture
def document(made: Solution) -> dict[str, Any]:
    return copy.deepcopy(made.to_document())


@pytest.mark.picture
def test_a_file_on_disk_draws_every_picture(
    made: Solution, document: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "solution.json"
    path.write_text(json.dumps(document))
    file = SolutionFile.read(made.instance, path)
    for draw in (allocation_heatmap, topology_picture, schedule_gantt, rounds_gantt, price_bars):
        one, other = draw(file), draw(made)
        assert one.get_title(loc="left") == other.get_title(loc="left")
        assert len(one.get_children()) == len(other.get_children())


@pytest.mark.parametrize(
    ("name", "formulation", "options"),
    [
        ("@quickstart", "max-min-fairness", {}), ("@packing", "max-min-fairness", {}), ("@large", "makespan", {}),
        ("@quickstart", "max-throughput", {"integral": True}), ("@quickstart", "isolated", {}),
        ("@quickstart", "max-min-fairness", {"classes": False, "constraints": [{"kind": "deadlines", "soft": True}]}),
    ],
)  # fmt: skip
def test_the_heatmap_of_a_file_is_that_of_its_solution(
    name: str, formulation: str, options: dict[str, Any]
) -> None:
    solution = optsched.solve(name, formulation, **options)
    one, other = (
        heatmap_rows(solution.allocation),
        heatmap_rows(SolutionFile.read(solution.instance, solution.to_document())),
    )
    for field in ("fraction", "runs", "size", "used", "capacity"):
        np.testing.assert_array_equal(getattr(one, field), getattr(other, field))
    assert (one.labels, one.places, one.row_words) == (other.labels, other.places, other.row_words)
    usage = solution.allocation.usage[solution.allocation.classes.resources.pool >= 0]
    np.testing.assert_allclose(one.used, usage, atol=1e-9)


def test_rows_that_somebody_added_in_python_are_no_obstacle() -> None:
    solution = optsched.solve("@quickstart", extend=lambda lp, variables, classes: None)
    assert {"kind": "extend"} in solution.to_document()["constraints"]
    assert heatmap_rows(SolutionFile.read(solution.instance, solution.to_document())).labels


def test_a_solution_of_another_instance_is_refused() -> None:
    document = optsched.solve("@packing").to_document()
    other = optsched.load("@quickstart")
    with refuses(
        f"instance.sha256: found ..., expected {other.sha256}, the hash of this instance..."
    ):
        SolutionFile.read(other, document)


def test_a_formulation_that_is_not_here_is_told(made: Solution, document: dict[str, Any]) -> None:
    document["formulation"] = "secret"
    with refuses('formulation: found "secret", expected one that can be made...'):
        allocation_heatmap(SolutionFile.read(made.instance, document))


def test_a_certificate_that_does_not_hold_is_told(made: Solution, document: dict[str, Any]) -> None:
    document["certificate"]["ok"] = False
    ax = allocation_heatmap(SolutionFile.read(made.instance, document))
    assert any("its certificate does not hold" in text.get_text() for text in ax.texts)


def test_an_infeasible_file_has_no_allocation() -> None:
    solution = optsched.solve("@infeasible")
    file = SolutionFile.read(solution.instance, solution.to_document())
    with pytest.raises(
        UsageError, match="the solution is infeasible: there is no allocation to draw"
    ):
        allocation_heatmap(file)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "found an empty solution"),
        (b"{", "solution.json: found text that is not JSON..."),
        (b"[1]", "solution.json: found [1], expected a solution..."),
        (b'{"format": "optsched-solution/9"}', 'format: found "optsched-solution/9"'),
        (None, "found no readable file..."),
    ],
)
def test_what_is_no_solution_is_refused(content: bytes | None, told: str, tmp_path: Path) -> None:
    path = tmp_path / "solution.json"
    if content is not None:
        path.write_bytes(content)
    with refuses(told):
        SolutionFile.read(optsched.load("@quickstart"), path)


def _set(*path: Any) -> Callable[[dict[str, Any]], None]:
    """Put the last item at the place that the others lead to."""

    def change(document: dict[str, Any]) -> None:
        place: Any = document
        for key in path[:-2]:
            place = place[key]
        if path[-1] is ...:
            del place[path[-2]]
        else:
            place[path[-2]] = path[-1]

    return change


WRONG: dict[str, tuple[Callable[[dict[str, Any]], None], Callable[..., Any], str]] = {
    "unknown job": (
        _set("schedule", 2, "job", "x"),
        schedule_gantt,
        'schedule[2].job: found "x", expected the id of a job',
    ),
    "unknown pool": (
        _set("schedule", 1, "pool", "x"),
        schedule_gantt,
        'schedule[1].pool: found "x", expected one of the pools a, b',
    ),
    "text start": (
        _set("schedule", 0, "start", "x"),
        schedule_gantt,
        'schedule[0].start: found "x", expected a number',
    ),
    "infinite end": (
        _set("schedule", 0, "end", np.inf),
        schedule_gantt,
        "schedule[0].end: found Infinity",
    ),
    "no end": (
        _set("schedule", 0, "end", ...),
        schedule_gantt,
        "schedule[0].end: found nothing, expected this key",
    ),
    "ends before it starts": (
        _set("schedule", 3, "end", -5.0),
        schedule_gantt,
        "schedule[3].end: found -5.0, expected at least its start",
    ),
    "schedule no list": (_set("schedule", {"a": 1}), schedule_gantt, "schedule: found "),
    "rounds no object": (
        _set("rounds", [1]),
        rounds_gantt,
        "rounds: found [1], expected an object",
    ),
    "negative duration": (
        _set("rounds", "slices", 1, "duration", -1.0),
        rounds_gantt,
        "rounds.slices[1].duration: found -1.0",
    ),
    "no such row": (
        _set("rounds", "slices", 0, "run", [0, 99]),
        rounds_gantt,
        "rounds.slices[0].run[1]: found 99, expected the number of one of",
    ),
    "negative row": (
        _set("rounds", "slices", 0, "run", [-1]),
        rounds_gantt,
        "rounds.slices[0].run[0]: found -1",
    ),
    "window 0": (
        _set("rounds", "window", 0.0),
        rounds_gantt,
        "rounds.window: found 0.0, expected a number above 0",
    ),
    "no scale": (_set("rounds", "scale", ...), rounds_gantt, "rounds.scale: found nothing"),
    "unknown job of a placement": (
        _set("placement", 1, "job", "x"),
        topology_picture,
        'placement[1]: found "x", expected the id of a job',
    ),
    "no job": (
        _set("placement", 1, "job", ...),
        topology_picture,
        "placement[1]: found neither job nor jobs, expected one of them",
    ),
    "GPUs no list": (
        _set("placement", 0, "gpus", "a-0/0"),
        topology_picture,
        'placement[0].gpus: found "a-0/0", expected a list',
    ),
    "unknown job of the allocation": (
        _set("allocation", 0, "job", "x"),
        allocation_heatmap,
        'allocation[0].job: found "x"',
    ),
    "unknown pool of the allocation": (
        _set("allocation", 0, "pool", "x"),
        allocation_heatmap,
        'allocation[0].pool: found "x"',
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_part_is_refused_with_its_path(
    name: str, made: Solution, document: dict[str, Any]
) -> None:
    change, draw, told = WRONG[name]
    change(document)
    with refuses(f"{told}..."):
        draw(SolutionFile.read(made.instance, document))


@pytest.mark.parametrize(
    ("part", "draw"),
    [("schedule", schedule_gantt), ("rounds", rounds_gantt), ("placement", topology_picture)],
)
def test_a_file_without_a_part_has_no_picture_of_it(
    part: str, draw: Callable[..., Any], made: Solution, document: dict[str, Any]
) -> None:
    for change in (_set(part, None), _set(part, ...)):
        change(document)
        with pytest.raises(
            UsageError,
            match=f"the solution of max-throughput has no {part}: there is nothing to draw",
        ):
            draw(SolutionFile.read(made.instance, document))


def test_jobs_that_share_are_read(tmp_path: Path) -> None:
    solution = with_rounds(solved("@packing", "max-min-fairness"), 6)
    document = solution.to_document()
    row = next(place for place, item in enumerate(document["allocation"]) if "jobs" in item)
    document["allocation"][row]["jobs"][1] = "nobody"
    with refuses(f'allocation[{row}].jobs[1]: found "nobody"'):
        rounds_gantt(SolutionFile.read(solution.instance, document))
