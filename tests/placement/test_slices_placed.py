"""Slices (MIG) that other formulations share out: no GPU is given slices that no layout of it has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from documents import instance_document

import optsched
from optsched.placement import check_placement

pytestmark = pytest.mark.unit


def document(slices: list[tuple[str, float]], gpus: int = 1, **more: Any) -> dict[str, Any]:
    """A job for each slice, by profile and share of the GPU."""
    pool = {"name": "p", "gpu": "A100-SXM4-40GB", "nodes": 1, "gpus_per_node": gpus}
    jobs = [
        {
            "id": f"j{number}",
            "options": [
                {
                    "pool": "p",
                    "gpus": 1,
                    "share": share,
                    "throughput": 1.0 + number,
                    "attributes": {"mig": profile} if profile else {},
                }
            ],
        }
        for number, (profile, share) in enumerate(slices)
    ]
    return instance_document([pool], jobs, **more)


def placed(given: dict[str, Any]) -> optsched.Solution:
    return optsched.place(optsched.solve(given, "max-throughput", integral=True))


@pytest.mark.parametrize(
    ("slices", "held", "why"),
    [
        ([("2g.10gb", 1 / 4)] * 4, 3, "a GPU has at most 3 x 2g.10gb, which starts at 0, 2 or 4"),
        ([("1g.5gb", 1 / 8)] * 8, 7, "a GPU has at most 7 x 1g.5gb"),
        ([("4g.20gb", 1 / 2)] * 2, 1, "a GPU has at most 1 x 4g.20gb, which starts at 0"),
        # By compute slices the three would fill a GPU
        ([("3g.20gb", 3 / 7)] * 2 + [("1g.5gb", 1 / 7)], 2, "take 9 memory slices of 8"),
        ([("4g.20gb", 1 / 2), ("", 1 / 2)], 1, "cannot have slices and other shares"),
    ],
)
def test_slices_that_no_layout_has_are_refused(
    slices: list[tuple[str, float]], held: int, why: str
) -> None:
    given = document(slices)
    solution = placed(given)
    placement = solution.placement
    assert placement is not None and len(placement) == held
    assert [why in reason for _, reason in placement.refused] == [True] * (len(slices) - held)
    assert placement.figures["rows_placed"] == held and placement.figures["exact"] == 0
    assert optsched.verify(given, solution.to_document()).ok


def test_legal_layouts_stay_as_they_are() -> None:
    slices = [("4g.20gb", 1 / 2), ("3g.20gb", 1 / 2)]
    solution = placed(document(slices))
    assert solution.placement is not None and len(solution.placement) == 2
    assert solution.placement.figures["exact"] == 1
    # Two GPUs hold four slices of 2g, three and one
    four = placed(document([("2g.10gb", 1 / 4)] * 6, gpus=2))
    assert four.placement is not None and len(four.placement) >= 5


def test_the_check_finds_an_illegal_layout() -> None:
    for slices, flaws in (
        ([("2g.10gb", 1 / 4)] * 4, 4),
        ([("2g.10gb", 1 / 4)] * 3 + [("1g.5gb", 1 / 8)], 0),
        ([("4g.20gb", 1 / 2), ("", 1 / 2)], 2),
    ):
        C = optsched.compile(document(slices)).per_job().classes(frozenset(), [])
        jobs = C.first[C.class_a]
        nobody = np.full(len(jobs), -1, np.int64)
        found = check_placement(C, jobs, nobody, np.arange(len(jobs)), [["p-0/0"]] * len(jobs))
        assert len(found) == flaws, slices
