"""The best nodes for equal gangs at once, against a scan for one after the other."""

from __future__ import annotations

import numpy as np
import pytest

# Private names: searches for nodes without the placement around them
from optsched.placement.best_fit import best_nodes

pytestmark = pytest.mark.property

NEEDS = ((0.0, 0.0), (3.0, 0.0), (5.0, 40.0))
"""CPUs and memory per GPU: none, one of the two, both."""


@pytest.mark.parametrize("need", NEEDS)
@pytest.mark.parametrize("seed", range(30))
def test_equal_gangs_at_once_get_the_nodes_of_one_after_the_other(
    seed: int, need: tuple[float, float]
) -> None:
    random = np.random.default_rng(seed)
    free = random.integers(0, 9, 12)
    own = np.stack([random.integers(0, 48, 12), random.integers(0, 400, 12)], axis=1) * 1.0
    own[random.random(own.shape) < 0.2] = np.inf
    gpus = int(random.integers(1, 5))
    each = np.array(need)
    left, own_left, one_by_one = free.copy(), own.copy(), []
    while True:
        has_own = (own_left >= gpus * each).all(axis=1)
        room = np.flatnonzero(has_own & (left >= gpus))
        if not len(room):
            break
        node = int(room[np.argmin(left[room])])
        left[node] -= gpus
        own_left[node] -= gpus * each
        one_by_one.append(node)
    for most in (0, 3, 100):
        assert best_nodes(free, own, gpus, each, most).tolist() == one_by_one[:most]
