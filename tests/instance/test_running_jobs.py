"""Running jobs by the names of their GPUs and by their numbers: one mapping, whatever is asked for first."""

from __future__ import annotations

import numpy as np
import pytest

import optsched

# Private names: a value that instances carry, checked by itself
from optsched.instance.cluster import Numbering
from optsched.instance.running import Place, RunningJobs

PLACES: dict[int, Place] = {
    4: (1, ("b-0/0", "b-0/1", "b-1/0"), 5.0),
    1: (0, ("a-1/1",), None),
    7: (0, ("a-0/1", "a-0/0"), 0.0),
}


@pytest.fixture
def numbering() -> Numbering:
    pools = [{"name": name, "nodes": 2, "gpus_per_node": 2} for name in "ab"]
    arrays = {"throughput": np.ones((1, 2)), "gpus": [1], "steps": 1.0}
    return optsched.Instance.from_arrays(pools=pools, **arrays).cluster.numbering


def numbered(numbering: Numbering) -> RunningJobs:
    """The same places, known by numbers alone."""
    named = RunningJobs.of(PLACES)
    return RunningJobs(
        named.job,
        named.pool,
        named.length,
        named.since,
        numbers=(numbering, named.numbers(numbering)),
    )


def test_names_and_numbers_follow_from_each_other(numbering: Numbering) -> None:
    assert RunningJobs.of(PLACES).numbers(numbering).tolist() == [4, 5, 6, 3, 1, 0]
    assert numbered(numbering).flat_names() == RunningJobs.of(PLACES).flat_names()
    for jobs in (RunningJobs.of(PLACES), numbered(numbering)):
        assert dict(jobs) == PLACES
        assert 4 in jobs and 2 not in jobs
        with pytest.raises(KeyError):
            jobs[2]


def test_some_of_them_and_others(numbering: Numbering) -> None:
    more: dict[int, Place] = {2: (1, ("b-1/1",), 9.0)}
    for jobs in (RunningJobs.of(PLACES), numbered(numbering)):
        for others in (RunningJobs.of(more), RunningJobs.of(more).in_order()):
            both = jobs.and_also(others)
            assert list(both.items()) == sorted((PLACES | more).items())
            assert both.numbers(numbering).tolist() == [3, 7, 4, 5, 6, 1, 0]
        assert dict(jobs.take(np.array([2, 0]), np.array([0, 3]))) == {0: PLACES[7], 3: PLACES[4]}
        stay = np.array([True, False, True])
        assert dict(jobs.kept(stay, np.array([0, 3]))) == {0: PLACES[4], 3: PLACES[7]}
    assert dict(RunningJobs.of({}).and_also(numbered(numbering))) == PLACES


def test_numbers_in_another_cluster_come_from_the_names(numbering: Numbering) -> None:
    pools = [{"name": name, "nodes": 2, "gpus_per_node": 2} for name in "ba"]
    arrays = {"throughput": np.ones((1, 2)), "gpus": [1], "steps": 1.0}
    other = optsched.Instance.from_arrays(pools=pools, **arrays).cluster.numbering
    jobs = numbered(numbering)
    assert jobs.numbers(other).tolist() == [0, 1, 2, 7, 5, 4]
    assert dict(jobs) == PLACES


def test_others_may_run_on_nodes_that_came_later(numbering: Numbering) -> None:
    pools = [{"name": name, "nodes": 3, "gpus_per_node": 2} for name in "ab"]
    arrays = {"throughput": np.ones((1, 2)), "gpus": [1], "steps": 1.0}
    later = optsched.Instance.from_arrays(pools=pools, **arrays).cluster.numbering
    more: dict[int, Place] = {2: (0, ("a-2/1", "b-0/1"), 9.0)}
    both = numbered(numbering).and_also(RunningJobs.of(more))
    assert dict(both) == PLACES | more
    assert both.numbers(later).tolist() == [3, 5, 7, 6, 7, 8, 1, 0]
