"""Colours: told apart by everybody, given to jobs steadily, with ink that can be read on them."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from optsched.report.palette import INK, JOBS, MAIN, PALE_INK, SECOND, ink_on, job_colours

# Machado, Oliveira and Fernandes 2009: full protanopia, deuteranopia and tritanopia, on linear RGB
SIGHT = {
    "full": np.eye(3),
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
XYZ = [
    [0.4124564, 0.3575761, 0.1804375],
    [0.2126729, 0.7151522, 0.0721750],
    [0.0193339, 0.1191920, 0.9503041],
]


def linear(colour: str) -> np.ndarray:
    channels = np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)]) / 255
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def lab(channels: np.ndarray) -> np.ndarray:
    """CIE L*a*b* of linear RGB."""
    xyz = np.array(XYZ) @ np.clip(channels, 0, 1) / np.array([0.95047, 1, 1.08883])
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize(
    ("sight", "least"), [("full", 15), ("protanopia", 15), ("deuteranopia", 15), ("tritanopia", 12)]
)
def test_any_two_jobs_are_told_apart(sight: str, least: float) -> None:
    seen = [lab(np.array(SIGHT[sight]) @ linear(colour)) for colour in JOBS]
    assert min(np.linalg.norm(one - other) for one, other in combinations(seen, 2)) > least
    one, other = (lab(np.array(SIGHT[sight]) @ linear(colour)) for colour in (MAIN, SECOND))
    assert np.linalg.norm(one - other) > 40


def test_up_to_twelve_jobs_differ_and_keep_their_colours() -> None:
    assert list(job_colours(range(12)).values()) == list(JOBS)
    assert job_colours([3, 5]) == {3: JOBS[3], 5: JOBS[5]}
    chosen = job_colours([1, 13, 25, 2])
    assert chosen == {
        1: JOBS[1],
        2: JOBS[2],
        13: JOBS[3],
        25: JOBS[4],
    }  # rows 13 and 25 would like colour 1 too
    for rows in ([11, 23, 35], range(5, 17), range(0, 120, 10)):
        assert len(set(job_colours(rows).values())) == len(list(rows))


def test_more_jobs_repeat_their_own_choice() -> None:
    chosen = job_colours(range(100))
    assert chosen[0] == chosen[96] == JOBS[0]
    assert job_colours([]) == {}


def test_ink_has_contrast() -> None:
    for colour in JOBS:
        pale = np.array([0.2126, 0.7152, 0.0722]) @ linear(colour)
        of_ink = {INK: (pale + 0.05) / 0.0602, PALE_INK: 1.05 / (pale + 0.05)}
        assert of_ink[ink_on(colour)] >= 3.5, colour
