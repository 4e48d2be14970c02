"""Generated traces: arrivals, durations and deadlines have the distributions asked for, and the load is hit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refuses

from optsched.errors import UsageError
from optsched.generate import generate

# Private names: the draws and steps that generators are made of
from optsched.generate.jobs import (
    DAY,
    HOUR,
    diurnal,
    even,
    gavel,
    lognormal,
    pareto,
    poisson,
)
from optsched.instance import Instance, instance_bytes
from optsched.traces import Trace, TraceSummary, describe

pytestmark = pytest.mark.property


def made(seed: int = 1, **options: Any) -> Instance:
    return generate("trace", seed=seed, **options).instance


def told(seed: int = 1, **options: Any) -> TraceSummary:
    return describe(Trace(made(seed, **options)))


# --- arrivals ---------------------------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.1, 1000))
def test_arrivals_come_at_the_mean_rate(seed: int, rate: float) -> None:
    count = 4000
    random = np.random.default_rng(seed)
    arrivals = poisson(count, rate, random)
    assert (np.diff(arrivals) >= 0).all() and len(arrivals) == count
    assert count / (arrivals[-1] / HOUR) == pytest.approx(rate, rel=5 / np.sqrt(count))
    assert np.diff(even(count, rate)) == pytest.approx(HOUR / rate)


def test_gaps_of_a_poisson_process_are_exponential() -> None:
    gaps = np.sort(np.diff(poisson(20_001, 60.0, np.random.default_rng(3))))
    distance = np.abs((1 - np.exp(-gaps / 60.0)) - np.arange(1, 20_001) / 20_000).max()
    assert distance < 1.95 / np.sqrt(20_000)  # Kolmogorov and Smirnov, one seed in a thousand


@pytest.mark.parametrize(("amplitude", "peak"), [(0.0, 0.0), (0.6, 14.0), (1.0, 3.0)])
def test_the_rate_of_a_day(amplitude: float, peak: float) -> None:
    rate, count = 600.0, 200_000
    arrivals = diurnal(count, rate, amplitude, peak, np.random.default_rng(7))
    days = int(arrivals[-1] // DAY)
    assert len(arrivals) == count and (np.diff(arrivals) >= 0).all()
    by_hour, _ = np.histogram(arrivals[arrivals < days * DAY] % DAY, 24, (0, DAY))
    middle = np.arange(24) + 0.5
    # the mean of a cosine over an hour
    smooth = np.sin(np.pi / 24) / (np.pi / 24)
    expected = rate * days * (1 + amplitude * smooth * np.cos(2 * np.pi * (middle - peak) / 24))
    assert np.abs(by_hour - expected).max() < 5 * np.sqrt(expected.max())


# --- durations --------------------------------------------------------------------------------------------------------


def test_durations_have_their_medians_and_tails() -> None:
    count, random = 100_000, np.random.default_rng(1)
    for hours in (lognormal(count, 3.0, 1.5, random), pareto(count, 3.0, 1.5, random)):
        assert np.median(hours) == pytest.approx(3.0, rel=0.03)
    assert np.log(lognormal(count, 3.0, 1.5, random)).std() == pytest.approx(1.5, rel=0.02)
    tail = np.sort(pareto(count, 3.0, 1.5, random))[-5000:]
    assert 1 / np.log(tail / tail[0]).mean() == pytest.approx(1.5, rel=0.08)  # Hill's estimate


def test_gavel_s_mixture() -> None:
    U = np.log10(gavel(100_000, np.random.default_rng(1)) * 3600 / 60)
    assert U.min() >= 1.5 and U.max() <= 4
    assert (U >= 3).mean() == pytest.approx(0.2, abs=0.005)
    assert U[U < 3].mean() == pytest.approx(2.25, abs=0.01)


# --- traces -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arrivals", ["poisson", "diurnal", "even"])
@pytest.mark.parametrize(
    "options", [{"load": 0.5}, {"load": 1.2, "pools": 3}, {"durations": "gavel", "load": 2.0}]
)
def test_the_load_is_hit(arrivals: str, options: dict[str, Any]) -> None:
    jobs = 4000
    found = told(jobs=jobs, arrivals=arrivals, **options)
    assert found.load_mean == pytest.approx(
        options["load"], rel=1e-3 if arrivals == "even" else 5 / np.sqrt(jobs)
    )
    assert not found.nowhere


def test_a_rate_instead_of_a_load() -> None:
    assert told(jobs=4000, rate=25.0, arrivals="even").per_hour == pytest.approx(25.0)
    assert told(jobs=1, rate=25.0).jobs == 1
    with refuses("load: found 0.5, expected none unless there is no rate", UsageError):
        made(rate=25.0, load=0.5)


def test_durations_are_those_in_the_fastest_pool() -> None:
    found = told(jobs=4000, pools=4, median=2.0, sigma=1.0)
    assert found.durations["p50"] == pytest.approx(2 * HOUR, rel=0.1)


def test_gangs_tenants_and_deadlines() -> None:
    found = told(jobs=5000, gangs=(0.2, 0.1, 0.0), tenants=3, deadlines=0.4, slack=(2.0, 3.0))
    shares = {part.name: part.jobs / 5000 for part in found.gangs}
    assert shares == {
        "1": pytest.approx(0.7, abs=0.03),
        "2": pytest.approx(0.2, abs=0.03),
        "4": pytest.approx(0.1, abs=0.03),
    }
    assert [part.jobs / 5000 for part in found.tenants] == pytest.approx(
        [6 / 11, 3 / 11, 2 / 11], abs=0.03
    )
    assert found.deadlines.jobs / 5000 == pytest.approx(0.4, abs=0.03)
    assert 1.99 < found.deadlines.tightness["min"] < 2.1  # type: ignore[operator]
    assert found.deadlines.tightness["p50"] == pytest.approx(2.5, abs=0.1)


@settings(max_examples=10, deadline=None)
@given(
    st.integers(0, 2**40),
    st.sampled_from(["poisson", "diurnal", "even"]),
    st.sampled_from(["lognormal", "pareto", "gavel"]),
)
def test_the_same_options_give_the_same_bytes(seed: int, arrivals: str, durations: str) -> None:
    options = {
        "jobs": 40,
        "arrivals": arrivals,
        "durations": durations,
        "deadlines": 0.5,
        "tenants": 2,
    }
    one, two = (instance_bytes(made(seed, **options), "json") for _ in range(2))
    assert one == two
    assert instance_bytes(made(seed + 1, **options), "json") != one


def test_what_moves_leaves_the_jobs_as_they_are() -> None:
    """Arrivals, deadlines and tenants have streams of random numbers of their own."""
    one, two = (
        made(jobs=50).jobs_table,
        made(jobs=50, arrivals="diurnal", deadlines=0.5, load=3.0).jobs_table,
    )
    assert one.steps.tolist() == two.steps.tolist()
    assert one.gpus_min.tolist() == two.gpus_min.tolist()


def test_gangs_that_no_pool_holds() -> None:
    with refuses(
        "gangs: found a share of 0.05 of gangs of 8, expected none, as pools have 4 GPUs",
        UsageError,
    ):
        made(nodes=1, gpus_per_node=4)
    assert told(nodes=1, gpus_per_node=4, gangs=(0.5, 0.5, 0.0)).jobs == 1000


def test_what_makes_no_sense() -> None:
    with refuses("slack: found [3.0, 2.0], expected the smaller one first", UsageError):
        made(deadlines=0.5, slack=(3.0, 2.0))
    with refuses("slack: found [1.0, 2.0], expected none unless deadlines is above 0", UsageError):
        made(slack=(1.0, 2.0))


def test_the_note() -> None:
    note = generate("trace", jobs=500, arrivals="even").notes()[0]
    assert note.endswith(
        "arrivals per hour; offered load 0.8 where pools take turns, 0.8 in the best ones"
    )
