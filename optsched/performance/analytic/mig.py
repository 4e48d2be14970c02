"""MIG: boards that are cut into slices, and how fast a slice is."""

from __future__ import annotations

from typing import NamedTuple

from optsched.errors import InvalidInput
from optsched.instance.reading import show
from optsched.performance.analytic.board import Board, MigProfile


def _seven(small: int, memory: tuple[int, int, int, int]) -> tuple[MigProfile, ...]:
    """The usual six profiles of a board of 7 compute and 8 memory slices, by the GB in their names."""
    one, two, half, whole = memory
    return (
        MigProfile(f"1g.{one}gb", 1, 1, small),
        MigProfile(f"1g.{two}gb", 1, 2, 4),
        MigProfile(f"2g.{two}gb", 2, 2, 3),
        MigProfile(f"3g.{half}gb", 3, 4, 2),
        MigProfile(f"4g.{half}gb", 4, 4, 1),
        MigProfile(f"7g.{whole}gb", 7, 8, 1),
    )


PROFILES = {
    "A30": (
        MigProfile("1g.6gb", 1, 1, 4),
        MigProfile("2g.12gb", 2, 2, 2),
        MigProfile("4g.24gb", 4, 4, 1),
    ),
    "A100-40GB": _seven(7, (5, 10, 20, 40)),
    "80GB": _seven(7, (10, 20, 40, 80)),
    "H100-NVL": _seven(7, (12, 24, 47, 94)),
    "H200": _seven(7, (18, 35, 71, 141)),
    "B200": _seven(7, (23, 45, 90, 180)),
}
"""Profiles with the largest number of instances (NVIDIA MIG user guide; NVIDIA/mig-parted, Apache-2.0).

Checked: all of A30, A100 and the 80 GB boards, 1g of the others; the other counts of H200 and B200 follow the same
geometry and are not verified.
"""


class Slice(NamedTuple):
    """Shares of a board: of its compute, and of its memory and memory bandwidth."""

    compute: float
    memory: float


def slice_of(board: Board, profile: object, path: str) -> Slice:
    """What a slice of a board has, to first order: c of its 7 compute slices, m of its 8 memory slices.

    The A30 has 4 of both. Rates follow from the roofline with both shares (`optsched.performance.analytic.roofline`).

    Raises
    ------
    InvalidInput
        If the board has no such profile.
    """
    whole = max(board.mig, key=lambda one: one.compute_slices, default=None)
    for one in board.mig:
        if one.name == profile and whole is not None:
            return Slice(
                one.compute_slices / whole.compute_slices, one.memory_slices / whole.memory_slices
            )
    names = ", ".join(one.name for one in board.mig)
    raise InvalidInput(
        path, show(profile), f"a MIG profile of {board.name} ({names or 'it has none'})"
    )
