"""Slices (MIG) that other formulations share out: no GPU is given slices that no layout of it has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from documents import instance_document

import optsched
from optsched.instance import Layouts
from optsched.instance.cluster import Partition
from optsched.performance import partitions_of
from optsched.placement import check_placement

# Private name: a table that the whole placement would take long to fill
from optsched.placement.cut_gpus import FULL, SliceCodes

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


def test_many_profiles_have_few_codes() -> None:
    """Four of 12 profiles at a time: their counts are one of 1,820 multisets, of 6^12 numbers."""
    layouts = Layouts([Partition(f"p{n}", 1, 2, (0, 2, 4, 6)) for n in range(12)])
    codes = SliceCodes.of(layouts)
    assert codes.more.shape == (1820, 12)
    code = np.zeros(3, np.int64)
    for profile in (3, 11, 3):
        code = codes.after(code, profile)
    assert codes.slices(int(code[0])) == [3, 3, 11]
    assert (codes.after(code, 0) > 0).all()
    assert (codes.after(codes.after(code, 0), 1) == FULL).all()


def test_codes_are_the_multisets_of_layouts() -> None:
    """One more slice has a code just where a maximal layout has the slices."""
    (pool,) = optsched.load(document([("1g.5gb", 1 / 8)])).cluster.pools
    layouts = Layouts(partitions_of(pool))
    codes = SliceCodes.of(layouts)
    assert len(set(codes.profiles)) == len(codes.profiles) and codes.profiles[0] == ()
    for code, profiles in enumerate(codes.profiles):
        for profile in range(len(layouts.names)):
            counts = np.bincount([*profiles, profile], minlength=len(layouts.names))
            (after,) = codes.after(np.array([code]), profile).tolist()
            assert (after != FULL) == (layouts.layout_for(counts) is not None)
            assert after == FULL or codes.slices(after) == sorted([*profiles, profile])
