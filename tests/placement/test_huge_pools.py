"""Clusters with more nodes than anybody places rows on are refused by their number of GPUs."""

from __future__ import annotations

import numpy as np
import pytest
from refusals import refuses

import optsched
from optsched.errors import UsageError


def solved(nodes: int) -> optsched.Solution:
    instance = optsched.Instance.from_arrays(
        pools={"a": nodes}, throughput=np.ones((3, 1)), gpus=[1, 2, 4]
    )
    return optsched.solve(instance, "max-throughput", integral=True)


def test_a_huge_cluster_is_refused_by_its_number_of_gpus() -> None:
    told = "place: found a cluster of 5,000,001 GPUs, expected at most 5,000,000 GPUs of nodes"
    with refuses(told, UsageError):
        optsched.place(solved(5_000_001))


def test_the_largest_one_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optsched.api.MOST_PLACED", 16)
    assert len(optsched.place(solved(16)).placement.to_records()) == 3
    with refuses(
        "place: found a cluster of 17 GPUs, expected at most 16 GPUs of nodes", UsageError
    ):
        optsched.place(solved(17))
