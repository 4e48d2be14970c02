"""The best node for gangs: lists by free GPUs, and equal gangs at once, against a scan for one after the other."""

from __future__ import annotations

import numpy as np
import pytest

# Private names: searches for nodes without the placement around them
from optsched.placement.best_fit import NodesByFreeGpus, best_nodes, fullest_with_room

pytestmark = pytest.mark.property


@pytest.mark.parametrize("seed", range(30))
def test_equal_gangs_at_once_get_the_nodes_of_one_after_the_other(seed: int) -> None:
    random = np.random.default_rng(seed)
    free = random.integers(0, 9, 12)
    gpus = int(random.integers(1, 5))
    left, one_by_one = free.copy(), []
    while (node := fullest_with_room(left, gpus)) is not None:
        left[node] -= gpus
        one_by_one.append(node)
    for most in (0, 3, 100):
        assert best_nodes(free, gpus, most).tolist() == one_by_one[:most]


@pytest.mark.parametrize("seed", range(30))
def test_lists_find_what_a_scan_finds(seed: int) -> None:
    random = np.random.default_rng(seed)
    first, nodes = 3, 10
    free = random.integers(0, 9, first + nodes)
    index = NodesByFreeGpus(free, slice(first, first + nodes), 8)
    for _ in range(100):
        room = random.random(first + nodes) < 0.7
        gpus = int(random.integers(1, 9))
        wanted = fullest_with_room(np.where(room, free, 0)[first:], gpus)
        found = index.best_fit(gpus, lambda node, room=room: bool(room[node]))  # type: ignore[misc]
        assert found == (None if wanted is None else first + wanted)
        node = int(random.integers(first, first + nodes))
        free[node] = random.integers(0, 9)
        index.changed(node)
