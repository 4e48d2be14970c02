"""Contents of nodes that are made without a search: they are legal, and worth nearly as much."""

from __future__ import annotations

import numpy as np
import pytest

from optsched.candidates import NO_SLICE
from optsched.program.space import WHOLE_GPU, GangPart, GpuRoom, gpus_of_pieces
from optsched.program.space.bins import Bin
from optsched.program.space.contents import GpuPiece, fits_fullest
from optsched.registry import load_solver
from optsched.solvers import Limits


def random_bin(seed: int) -> tuple[Bin, np.ndarray]:
    """A node with CPUs and memory, parts that fit on it, and their prices."""
    rng = np.random.default_rng(seed)
    gpus = int(rng.integers(2, 9))
    parts = []
    for _ in range(12):
        whole = rng.random() < 0.4
        count = int(rng.integers(1, gpus + 1)) if whole else 1
        share = 1.0 if whole else float(rng.choice([0.2, 0.3, 0.4, 0.6]))
        need = tuple(rng.uniform(0.5, 4.0, 2).tolist())
        parts.append(GangPart(0, count, share, need))
    most = rng.integers(1, 20, len(parts)).astype(np.float64)
    price = rng.uniform(0.1, 2.0, len(parts))
    price[rng.random(len(parts)) < 0.2] = 0.0
    own = np.array([2.0 * gpus, 3.0 * gpus])
    return Bin(parts, range(len(parts)), most, gpus, own), price


@pytest.mark.parametrize("seed", range(10))
def test_guesses_are_within_the_rows_and_near_the_best(seed: int) -> None:
    node, price = random_bin(seed)
    guesses = node.guesses(price)
    A, upper = node.relaxed_rows
    used = A @ guesses.T
    assert (used <= upper[:, np.newaxis] * (1 + 1e-9)).all()
    assert (guesses <= node.most).all()
    assert not guesses[:, price == 0].any()
    session = load_solver("highs")().open(node.relaxed().arrays)
    session.set_cost(-price)
    best = session.run(Limits())
    assert best.bound is not None
    worth = (guesses @ price).max()
    assert 0.8 * -best.bound <= worth <= -best.bound * (1 + 1e-6)


@pytest.mark.parametrize("seed", range(30))
def test_what_fits_the_fullest_gpus_is_found_by_the_search(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rooms = (*[WHOLE_GPU] * int(rng.integers(0, 3)), GpuRoom(0.5), GpuRoom(0.3))
    pieces = [
        GpuPiece(float(rng.choice([0.3, 0.5, 0.7])), int(rng.integers(1, 3)))
        for _ in range(rng.integers(1, 5))
    ]
    if fits_fullest(pieces, rooms):
        assert gpus_of_pieces(pieces, rooms, None) is not None


def test_what_fits_the_fullest_gpus_leaves_cut_gpus_and_slices_out() -> None:
    assert fits_fullest([GpuPiece(0.5, 1, NO_SLICE)], [WHOLE_GPU])
    assert not fits_fullest([GpuPiece(0.5, 1, NO_SLICE)], [GpuRoom(1.0, (1,))])
    assert not fits_fullest([GpuPiece(0.5, 1, 0)], [WHOLE_GPU])
    assert not fits_fullest([GpuPiece(0.5, 2)], [WHOLE_GPU]), "two different GPUs"
