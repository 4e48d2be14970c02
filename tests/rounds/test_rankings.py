"""The rankings of the catalogue, each against its rule written down a second time."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from beside import SHARED
from hypothesis import given, settings
from hypothesis import strategies as st
from ranked_cases import order_of, seen
from refusals import refuses

from optsched.errors import UsageError
from optsched.ranking import RankedJobs, Ranking
from optsched.registry import load_ranking
from optsched.rounds import RoundPolicy

# Private names: single rules and files of a round, without a scheduler
from optsched.rounds.order import Order

QUICK = settings(max_examples=60, deadline=None, derandomize=True)


def made(name: str, **options: object) -> Ranking:
    return load_ranking(name)(options)


def ranked(name: str, jobs: RankedJobs, **options: object) -> list[int]:
    return np.argsort(Order.of(made(name, **options), jobs).position).tolist()


# --- one key -------------------------------------------------------------------------------------------------------


def test_simple_rankings() -> None:
    jobs = seen(
        arrival=[3.0, 1.0, 2.0, 1.0], weight=[1.0, 2.0, 8.0, 1.0], gpus=[1, 8, 2, 1], remaining=[5.0, 1.0, 3.0, 9.0],
        executed=[4.0, 3.0, 2.0, 1.0], attained=[4.0, 24.0, 4.0, 1.0],
    )  # fmt: skip
    assert ranked("fcfs", jobs) == [1, 3, 2, 0]
    assert ranked("priority", jobs) == [2, 1, 3, 0]
    assert ranked("srtf", jobs) == [1, 2, 0, 3]
    assert ranked("srtf", jobs, service=True) == [0, 2, 1, 3]  # 5, 6, 8, 9
    assert ranked("srtf", jobs, weighted=True) == [2, 1, 0, 3]  # 3/8, 1/2, 5, 9
    assert ranked("srtf", jobs, service=True, weighted=True) == [2, 1, 0, 3]  # 6/8, 4, 5, 9
    assert ranked("las", jobs) == [3, 2, 1, 0]
    assert ranked("2d-las", jobs) == [
        3,
        2,
        0,
        1,
    ]  # jobs 0 and 2 have had the same, and 2 arrived first


def test_an_unknown_remaining_time_goes_last() -> None:
    assert ranked("srtf", seen(remaining=[np.inf, 1e9, 2.0]), weighted=True) == [2, 1, 0]


def test_ties_go_to_the_first_to_arrive_then_to_the_first_submitted() -> None:
    jobs = seen(arrival=[2.0, 1.0, 2.0, 1.0])
    for name in ("fcfs", "priority", "srtf", "las", "2d-las", "tiresias", "edf", "slack-first"):
        assert ranked(name, jobs) == [1, 3, 0, 2]


# --- deadlines -----------------------------------------------------------------------------------------------------


def test_deadlines_that_passed() -> None:
    jobs = seen(
        now=10.0,
        deadline=[np.inf, 30.0, 9.0, 20.0, 8.0, 10.0, np.inf, 5.0],
        soft=[False, False, False, True, True, False, False, False],
        arrival=[-1.0, 0.0, 0.0, 0.0, 0.0, 0.0, -2.0, 0.0],
    )
    # late but soft, in time, late by their deadlines (one passes at this moment), none
    assert ranked("edf", jobs) == [4, 3, 1, 7, 2, 5, 6, 0]
    assert ranked("edf", jobs, late="kept") == [7, 4, 2, 5, 3, 1, 6, 0]


def test_deadlines_that_cannot_be_met_any_more() -> None:
    jobs = seen(
        now=10.0,
        deadline=[np.inf, 30.0, 15.0, 40.0, 12.0, 14.0],
        remaining=[1.0, 20.0, 6.0, 29.0, 3.0, np.inf],
        soft=[False, False, False, False, True, False],
    )
    # Slack: none, 0, -1, 1, -1 but soft, unknown; the deadlines alone say 4, 5, 2, 1, 3, 0.
    assert ranked("edf", jobs, late="hopeless") == [4, 1, 3, 5, 2, 0]
    assert ranked("slack-first", jobs) == [4, 1, 3, 5, 2, 0]
    assert ranked("slack-first", jobs, late="kept") == [5, 2, 4, 1, 3, 0]


def test_without_a_deadline_a_job_of_unknown_length_can_wait_for_ever() -> None:
    with np.errstate(invalid="raise"):
        assert seen(deadline=[np.inf, 5.0], remaining=np.inf).slack.tolist() == [np.inf, -np.inf]


@QUICK
@given(st.lists(st.integers(0, 20), min_size=1, max_size=8), st.integers(1, 5))
def test_slack_is_the_deadline_where_all_jobs_need_the_same(due: list[int], needs: int) -> None:
    jobs = seen(deadline=np.array(due, float), remaining=float(needs))
    assert ranked("slack-first", jobs, late="kept") == ranked("edf", jobs, late="kept")


# --- Tiresias ------------------------------------------------------------------------------------------------------

times = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 6)), min_size=1, max_size=12)


@QUICK
@given(times)
def test_one_queue_is_fcfs(drawn: list[tuple[int, int]]) -> None:
    jobs = seen(attained=[float(a) for a, _ in drawn], arrival=[float(t) for _, t in drawn])
    assert ranked("tiresias", jobs, limits=[]) == ranked("fcfs", jobs)
    assert ranked("tiresias", jobs, limits=[13.0]) == ranked("fcfs", jobs)


@QUICK
@given(times)
def test_thin_queues_are_least_attained_service(drawn: list[tuple[int, int]]) -> None:
    jobs = seen(attained=[a / 4 for a, _ in drawn], arrival=[float(t) for _, t in drawn])
    assert ranked("tiresias", jobs, limits=[(k + 1) / 4 for k in range(12)]) == ranked(
        "2d-las", jobs
    )


@pytest.mark.parametrize(
    ("options", "queues"),
    [
        ({}, [0, 0, 1, 1, 1, 2, 2]),
        ({"limits": [3250.0, 7200.0, 18000.0]}, [0, 0, 1, 1, 1, 2, 3]),
        ({"classes": True}, [0, 0, 0, 1, 1, 1, 1]),
        ({"classes": True, "limits": [3250.0]}, [0, 0, 1, 1, 1, 1, 1]),
    ],
)
def test_a_job_is_demoted_when_it_reaches_a_limit(
    options: dict[str, object], queues: list[int]
) -> None:
    jobs = seen(attained=[0.0, 3249.9, 3250.0, 3600.0, 7199.9, 7200.0, 18000.0])
    assert made("tiresias", **options).queue(jobs).tolist() == queues  # type: ignore[attr-defined]


def test_the_knob_renews_jobs_that_wait_and_are_not_in_the_first_queue() -> None:
    jobs = seen(
        executed=[10.0, 10.0, 10.0, 1.0, 0.0, 10.0],
        attained=[20.0, 20.0, 20.0, 2.0, 0.0, 20.0],
        waited=[29.0, 30.0, 31.0, 99.0, 99.0, 0.0],
    )
    ranking = made("tiresias", limits=[5.0], knob=3.0)
    assert ranking.renews(jobs).tolist() == [False, True, True, False, False, False]
    order = Order.of(ranking, jobs)
    assert order.renewed.tolist() == [False, True, True, False, False, False]
    assert np.argsort(order.position).tolist() == [1, 2, 3, 4, 0, 5]
    assert not Order.of(made("tiresias", limits=[5.0]), jobs).renewed.any()


def test_a_tiny_knob_renews_no_job_that_runs() -> None:
    jobs = seen(executed=[1e-3], attained=[9.0], waited=[0.0])
    assert not made("tiresias", limits=[5.0], knob=1e-9).renews(jobs).any()


@QUICK
@given(
    st.lists(
        st.tuples(st.sampled_from([1, 2, 4]), st.integers(0, 9), st.integers(0, 5)),
        min_size=1,
        max_size=14,
    ),
    st.integers(0, 40),
)
def test_classes_have_their_part_of_the_gpus(drawn: list[tuple[int, int, int]], M: int) -> None:
    """Every class has at least as many jobs among the first as fit its part of M GPUs, each class in its own order."""
    gpus, attained, arrival = (np.array(values) for values in zip(*drawn, strict=True))
    jobs = seen(gpus=gpus, attained=attained.astype(float), arrival=arrival.astype(float))
    order = ranked("tiresias", jobs, classes=True, limits=[4.0])
    reserved = 0
    for g in (1, 2, 4):
        mine = [row for row in order if gpus[row] == g]
        assert mine == sorted(mine, key=lambda row: (attained[row] >= 4, arrival[row], row))
        reserved += len(mine) * g * min(M, gpus.sum()) // gpus.sum() // g
    first = order[:reserved]
    for g in (1, 2, 4):
        mine = (gpus == g).sum()
        assert (gpus[first] == g).sum() == mine * g * min(M, gpus.sum()) // gpus.sum() // g


# --- Gittins' index ------------------------------------------------------------------------------------------------


def textbook(S: list[float], a: float, delta: float) -> float:
    """P(S - a <= delta | S > a) / E[min(S - a, delta) | S > a], job by job."""
    left = [s - a for s in S if s > a]
    if not left:
        return 0.0
    return (sum(x <= delta for x in left) / len(left)) / (
        sum(min(x, delta) for x in left) / len(left)
    )


@QUICK
@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=30),
    st.integers(1, 30),
    st.lists(st.integers(0, 50), min_size=1),
)
def test_the_index_is_the_textbook_s(S: list[int], delta: int, attained: list[int]) -> None:
    found = made("gittins", sample=S, delta=delta).index(np.array(attained, float))  # type: ignore[attr-defined]
    assert found == pytest.approx(
        [textbook([float(s) for s in S], a, delta) for a in attained], rel=1e-12
    )


def lattice(hazards: list[float], count: int) -> list[float]:
    """A sample on 1, 2, ..., of which the given parts of those left end at each of these times, and the rest after."""
    sample: list[float] = []
    for k, hazard in enumerate(hazards):
        sample += [k + 1.0] * round(hazard * (count - len(sample)))
    return sample + [len(hazards) + 1.0] * (count - len(sample))


def test_the_index_follows_the_hazard_rate() -> None:
    falling, ages = [1 / 2, 1 / 3, 1 / 4, 1 / 5, 1 / 6], np.arange(5.0)
    index = made("gittins", sample=lattice(falling, 7200), delta=1.0).index(ages)  # type: ignore[attr-defined]
    assert index == pytest.approx(falling)
    rising = falling[::-1]
    index = made("gittins", sample=lattice(rising, 7200), delta=1.0).index(ages)  # type: ignore[attr-defined]
    assert index == pytest.approx(rising)
    jobs = seen(attained=[3.0, 1.0, 4.0, 0.0, 2.0])
    assert ranked("gittins", jobs, sample=lattice(falling, 7200), delta=1.0) == ranked(
        "2d-las", jobs
    )
    assert (
        ranked("gittins", jobs, sample=lattice(rising, 7200), delta=1.0)
        == ranked("2d-las", jobs)[::-1]
    )


def test_a_heavy_tail_is_least_attained_service() -> None:
    pareto = [(1 - (k + 0.5) / 4000) ** (-1 / 1.2) for k in range(4000)]
    ages = np.geomspace(1.0, 20.0, 12)
    index = made("gittins", sample=pareto, delta=2.0).index(ages)  # type: ignore[attr-defined]
    assert (np.diff(index) < 0).all()


def test_beyond_the_sample_all_are_last_in_the_order_of_arrival() -> None:
    jobs = seen(attained=[90.0, 1.0, 10.0, 11.0], arrival=[2.0, 3.0, 1.0, 0.0])
    assert ranked("gittins", jobs, sample=[5.0, 10.0], delta=4.0) == [1, 3, 2, 0]


def test_the_published_index_is_the_textbook_s_for_new_jobs_only() -> None:
    S = [float(3 * k * k + 1) for k in range(1, 40)]
    ages = np.array([0.0, 20.0, 100.0, 1000.0])
    ours, published = (
        made("gittins", sample=S, delta=300.0, legacy=legacy).index(ages)  # type: ignore[attr-defined]
        for legacy in (False, True)
    )
    assert published[0] == pytest.approx(ours[0], rel=1e-3)
    assert (published[1:] < 0.99 * ours[1:]).all()


def oracle() -> tuple[list[float], list[dict[str, float]]]:
    sample, cases = (
        SHARED / "data/tiresias/yarn-gput1000.csv",
        SHARED / "oracles/tiresias/gittins_cases.json",
    )
    if not (sample.is_file() and cases.is_file()):
        pytest.skip("needs the sample and the index values in ../shared")
    with sample.open() as file:
        return [float(row["duration"]) for row in csv.DictReader(file)], json.loads(
            cases.read_text()
        )["cases"]


@pytest.mark.parametrize("legacy", [False, True])
def test_reference_values_of_the_index(legacy: bool) -> None:
    sample, cases = oracle()
    assert len(cases) == 14
    for case in cases:
        ranking = made("gittins", sample=sample, delta=case["delta"], legacy=legacy)
        (found,) = ranking.index(np.array([case["attained"]], float))  # type: ignore[attr-defined]
        expected = case["peer_index" if legacy else "textbook_index"]
        assert found * 1e6 == pytest.approx(expected, abs=6e-5 if legacy else 0.0, rel=1e-12)


def test_more_reference_values_of_the_index() -> None:
    sample, _ = oracle()
    values = {
        (0, 1000): 337.6113,
        (500, 1000): 355.2516,
        (1000, 3250): 236.8615,
        (5000, 3250): 83.2954,
    }
    values |= {(20000, 10000): 12.6203, (5000, 1000): 155.4274}
    for (a, delta), expected in values.items():
        (found,) = made("gittins", sample=sample, delta=delta).index(np.array([a], float))  # type: ignore[attr-defined]
        assert found * 1e6 == pytest.approx(expected, abs=5e-5)
    (found,) = made("gittins", sample=sample, delta=1000, legacy=True).index(  # type: ignore[attr-defined]
        np.array([5000.0])
    )
    assert found * 1e6 == pytest.approx(87.4584, abs=1e-4)


# --- what all have in common ---------------------------------------------------------------------------------------

OPTIONS: dict[str, dict[str, object]] = {
    "fcfs": {}, "priority": {}, "srtf": {"service": True}, "las": {}, "2d-las": {}, "edf": {}, "slack-first": {},
    "tiresias": {"limits": [2.0, 5.0], "knob": 2.0}, "gittins": {"sample": [1.0, 4.0, 9.0], "delta": 2.0},
}  # fmt: skip


@QUICK
@given(st.integers(0, 2**32 - 1))
def test_an_order_does_not_depend_on_how_jobs_are_numbered(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 9))
    columns = {
        name: rng.integers(1, 6, count).astype(float)
        for name in ("weight", "remaining", "executed", "attained")
    }
    columns |= {
        "waited": rng.integers(0, 9, count) * 1.0,
        "deadline": rng.choice([2.0, 4.0, np.inf], count),
    }
    columns |= {
        "soft": rng.random(count) < 0.5,
        "gpus": rng.integers(1, 4, count),
        "arrival": rng.permutation(count) / 9,
    }
    turned = rng.permutation(count)
    for name, options in OPTIONS.items():
        order = ranked(name, seen(now=3.0, **columns), **options)
        other = ranked(
            name,
            seen(now=3.0, **{key: values[turned] for key, values in columns.items()}),
            **options,
        )
        assert order == turned[other].tolist()
        ranking = made(name, **options)
        jobs = seen(now=3.0, **columns)
        jobs = jobs.renewed(ranking.renews(jobs))
        assert order == order_of(ranking.keys(jobs), jobs)


def test_no_jobs_are_in_no_order() -> None:
    nobody = np.zeros(0)
    for name, options in {**OPTIONS, "tiresias": {"classes": True, "knob": 1.0}}.items():
        jobs = seen(executed=nobody, attained=nobody, arrival=nobody, weight=nobody, gpus=nobody)
        assert len(Order.of(made(name, **options), jobs).position) == 0


@pytest.mark.parametrize(
    ("ranking", "options", "words"),
    [
        ("sjf", {}, "ranking: found 'sjf', expected one of 2d-las, ..."),
        ("tiresia", {}, "ranking: found 'tiresia'"),
        ("las", {"limits": [1]}, "option of las: found 'limits', expected one of gpus, moves"),
        ("tiresias", {"limit": [1]}, "option of tiresias: found 'limit'"),
        ("tiresias", {"limits": 5}, "option of tiresias: limits: found 5, expected a list"),
    ],
)
def test_names_are_checked_when_the_policy_is_made(
    ranking: str, options: dict[str, object], words: str
) -> None:
    with refuses(words, UsageError):
        RoundPolicy(ranking=ranking, options=options)


@pytest.mark.parametrize(
    ("ranking", "options", "refusal"),
    [
        ("tiresias", {"limits": [1, 0]}, "limits[1]: found 0, expected a number above 0"),
        (
            "tiresias",
            {"limits": [1, 5, 5]},
            "limits[2]: found 5, expected more than the limit before it, 5",
        ),
        ("tiresias", {"knob": 0}, "knob: found 0, expected a number above 0"),
        ("tiresias", {"knob": float("nan")}, "knob: found NaN, expected a finite number"),
        ("gittins", {}, "sample: found nothing, expected this key"),
        ("gittins", {"sample": []}, "sample: found [], expected at least 1 entry"),
        ("gittins", {"sample": [1, -2]}, "sample[1]: found -2, expected a number above 0"),
        ("gittins", {"sample": [1], "delta": 0}, "delta: found 0, expected a number above 0"),
        (
            "las",
            {"gpus": 4},
            "gpus: found 4, expected one of 'least', 'most', 'fastest' or 'deadline'",
        ),
        (
            "edf",
            {"late": "first"},
            "late: found \"first\", expected one of 'last', 'kept' or 'hopeless'",
        ),
        ("fcfs", {"strict": 1}, "strict: found 1, expected true or false"),
    ],
)
def test_options_are_checked_when_the_policy_is_made(
    ranking: str, options: dict[str, object], refusal: str
) -> None:
    with refuses(refusal, UsageError):
        RoundPolicy(ranking=ranking, options=options)


def test_options_from_python() -> None:
    policy = RoundPolicy(
        ranking="gittins", options={"sample": np.array([3.0, 1.0]), "delta": np.float64(2.0)}
    )
    assert policy.made_ranking().options.sample == [3.0, 1.0]
    assert RoundPolicy(
        ranking="tiresias", options={"limits": (1, 2)}
    ).made_ranking().options.limits == [1.0, 2.0]


def test_a_strict_ranking_is_not_filled_up() -> None:
    with pytest.raises(ValueError, match="a strict ranking or fill, not both"):
        RoundPolicy(ranking="fcfs", options={"strict": True}, fill=True)
    RoundPolicy(ranking="fcfs", options={"strict": True}, fill=False)
    RoundPolicy(ranking="fcfs", fill=True)
