"""What runs as arrays: those that are carried over are those that the places say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import optsched

# Private names: readers and writers are checked one by one, below `Instance`
from optsched.instance.running import Place, RunningJobs

CLUSTER = optsched.Instance.from_arrays(
    pools=[
        {"name": "p", "nodes": 3, "gpus_per_node": 4},
        {"name": "q", "nodes": 2, "gpus_per_node": 8},
    ],
    throughput=np.ones((1, 2)),
    steps=1.0,
).cluster


def assert_follows(places: RunningJobs) -> None:
    """The arrays of a mapping are those of one that is made of its places alone."""
    fresh = RunningJobs.of(dict(places))
    for name in ("job", "pool", "length", "dated", "owner"):
        found, expected = getattr(places, name), getattr(fresh, name)
        assert found.dtype == expected.dtype and found.tolist() == expected.tolist(), name
    numbering = CLUSTER.numbering
    assert places.numbers(numbering).tolist() == fresh.numbers(numbering).tolist()
    assert places.flat_names() == fresh.flat_names()


@st.composite
def running(draw: st.DrawFn, first: int, last: int) -> dict[int, Place]:
    places: dict[int, Place] = {}
    for job in sorted(draw(st.sets(st.integers(first, last)))):
        pool = draw(st.integers(0, 1))
        node, gpus = draw(st.integers(0, 1)), draw(st.integers(0, 4))
        names = tuple(f"{'pq'[pool]}-{node}/{gpu}" for gpu in range(gpus))
        places[job] = (pool, names, draw(st.none() | st.floats(0, 1e3)))
    return places


@given(running(0, 9), running(10, 19), st.randoms(use_true_random=False), st.booleans())
def test_arrays_that_are_carried_over_follow_from_the_places(
    one: dict[int, Place], other: dict[int, Place], random: object, numbered: bool
) -> None:
    places = RunningJobs.of(one)
    if numbered:
        places.numbers(CLUSTER.numbering)
    assert places == one and one == places and list(places) == sorted(one)
    stay = np.array([place for place in range(len(one)) if random.random() < 0.7], np.int64)  # type: ignore[attr-defined]
    kept = places.take(stay, places.job[stay] + 20)
    assert dict(kept) == {int(places.job[i]) + 20: one[int(places.job[i])] for i in stay.tolist()}
    assert_follows(places.take(stay, np.arange(len(stay))))
    both = places.and_also(RunningJobs.of(other))
    assert dict(both) == one | other and list(both) == sorted(one | other)
    assert_follows(both)
    assert_follows(RunningJobs.of(other).and_also(places))


def test_numbers_are_those_of_the_cluster_that_is_asked_for() -> None:
    places = RunningJobs.of({3: (1, ("q-1/0", "q-1/7"), 5.0)})
    assert places.numbers(CLUSTER.numbering).tolist() == [20, 27]
    smaller = optsched.Instance.from_arrays(
        pools=[{"name": "q", "nodes": 2, "gpus_per_node": 4}], throughput=np.ones((1, 1)), steps=1.0
    )
    assert places.numbers(smaller.cluster.numbering).tolist() == [4, -1]
    assert places.gpus(np.array([0, 0])) == [("q-1/0", "q-1/7")] * 2
    assert places.numbers_of(np.array([0, 0]), CLUSTER.numbering).tolist() == [20, 27, 20, 27]
    assert places.among(5).tolist() == [-1, -1, -1, 0, -1]


def test_what_runs_cannot_be_changed() -> None:
    places = RunningJobs.of({0: (0, ("p-0/0",), None)})
    assert RunningJobs.of(places) is places
    with pytest.raises(TypeError):
        places[1] = (0, ("p-0/1",), None)  # type: ignore[index]
