"""What `auto` picks first for programs of different jobs: never by what is installed."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import scipy.sparse as sp

from optsched.candidates import compile
from optsched.instance import Instance
from optsched.performance import TableModel
from optsched.program import AllocationProgram, Minimum, Total

# Private names: single strategies, without the engine that chooses them
from optsched.solving import choice
from optsched.solving.choice import (
    BY_PRICES_CONCAVE,
    BY_PRICES_LEVEL,
    BY_PRICES_TOTAL,
    MOST_FROM_BASIS,
    pick_for_allocation,
)

UTILITIES = {
    "level": BY_PRICES_LEVEL,
    "linear": BY_PRICES_TOTAL,
    "log": BY_PRICES_CONCAVE,
    "power": BY_PRICES_CONCAVE,
}


def program(jobs: int, utility: str, copies: int = 1) -> AllocationProgram:
    rates = np.repeat(np.random.default_rng(0).lognormal(0.0, 1.0, (jobs, 2)), copies, axis=0)
    instance = Instance.from_arrays(pools={"a": 64, "b": 64}, throughput=rates)
    classes = compile(instance, TableModel(instance.rates, instance)).classes(frozenset())
    weight = np.ones(len(classes))
    chosen = (
        Minimum()
        if utility == "level"
        else Total(weight, utility, 1.0 if utility == "linear" else -1.0)
    )
    return AllocationProgram(classes, chosen, sp.csr_matrix(classes.throughput))


def picked(
    jobs: int, utility: str, *, start: bool = False, basis: bool = False, copies: int = 1
) -> str | None:
    found = pick_for_allocation(program(jobs, utility, copies), start=start, basis=basis)
    return None if found is None else found[0]


@pytest.mark.parametrize("utility", UTILITIES)
def test_prices_are_picked_from_so_many_different_jobs(utility: str) -> None:
    least = UTILITIES[utility]
    assert picked(least, utility) == "prices"
    assert picked(least - 1, utility) is None
    assert picked(50, utility, copies=2 * least // 50) is None  # equal jobs are one class


@pytest.mark.parametrize("known", ["start", "basis"])
def test_simplex_from_a_point_or_a_basis_is_worth_more_than_prices(known: str) -> None:
    assert picked(BY_PRICES_LEVEL, "level", **{known: True}) is None
    assert picked(BY_PRICES_TOTAL, "linear", **{known: True}) is None
    assert picked(BY_PRICES_CONCAVE, "log", **{known: True}) == "prices"
    assert picked(MOST_FROM_BASIS + 1, "level", **{known: True}) == "prices"


def test_the_choice_does_not_depend_on_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    assert (
        picked(BY_PRICES_LEVEL, "level") == "prices"
        and picked(BY_PRICES_LEVEL - 1, "level") is None
    )


def test_the_reason_tells_how_many_jobs_differ() -> None:
    found = choice.pick_for_allocation(program(BY_PRICES_LEVEL, "level"), start=False, basis=False)
    assert found == (
        "prices",
        f"allocation of {BY_PRICES_LEVEL} different jobs, by prices of the resources",
    )
