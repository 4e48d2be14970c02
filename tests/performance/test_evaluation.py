"""Splits of profiles, and the errors of models on what was left out."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refuses
from small_time_model import Linear, planted

from optsched.errors import UsageError
from optsched.performance import Profiles, Source
from optsched.performance.evaluation import (
    RANDOM,
    SPLITS,
    Evaluation,
    Split,
    evaluate,
    splits_of,
)
from optsched.performance.times import Times
from optsched.performance.ways import Ways

# Private names: a model by its class, where the registry knows it by name
from optsched.study.fitting import evaluate_models

pytestmark = pytest.mark.property

PROFILES = planted()
WAYS = PROFILES.ways
LINEAR = {"linear": lambda profiles: Linear.fit(profiles, {}).times}


def names(rows: np.ndarray) -> set[tuple[str, str, int, int]]:
    ways = WAYS.take(rows)
    return set(
        zip(
            (WAYS.workloads[w] for w in ways.workload), (WAYS.gpu_types[g] for g in ways.gpu),
            ways.gpus.tolist(), ways.nodes.tolist(), strict=True,
        )
    )  # fmt: skip


# --- splits --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SPLITS)
@given(seed=st.integers(0, 50))
def test_every_split_parts_all_rows(name: str, seed: int) -> None:
    splits = splits_of(PROFILES, name, seed, {})
    assert splits
    for split in splits:
        assert len(split.train) and len(split.test)
        assert sorted([*split.train, *split.test]) == list(range(len(PROFILES)))
    again = splits_of(PROFILES, name, seed, {})
    assert [split.test.tolist() for split in again] == [split.test.tolist() for split in splits]


def test_seeds_matter_to_random_splits_alone() -> None:
    for name in SPLITS:
        drawn = {tuple(splits_of(PROFILES, name, seed, {})[0].test.tolist()) for seed in range(4)}
        assert (len(drawn) > 1) is (name in RANDOM), name


@pytest.mark.parametrize(("fraction", "kept"), [(0.5, 10), (0.1, 2), (0.9, 19), (0.001, 1)])
def test_a_random_fraction_of_each_workload_on_each_type(fraction: float, kept: int) -> None:
    (split,) = splits_of(PROFILES, "random", 3, {"fraction": fraction})
    train = WAYS.take(split.train)
    _, counts = np.unique(train.workload * 2 + train.gpu, return_counts=True)
    assert counts.tolist() == [kept] * 4


def test_repeats_of_one_way_stay_together() -> None:
    twice = PROFILES.take(np.repeat(np.arange(len(PROFILES)), 2))
    (split,) = splits_of(twice, "random", 0, {})
    assert not set((split.train // 2).tolist()) & set((split.test // 2).tolist())


def test_what_the_splits_leave_out() -> None:
    out = splits_of(PROFILES, "workload-out", 0, {})
    assert [{w for w, *_ in names(split.test)} for split in out] == [{"bert"}, {"vgg"}]
    types = splits_of(PROFILES, "gpu-out", 0, {})
    for split, gpu in zip(types, ("T4", "A100"), strict=True):
        assert {(g, k > 1) for _, g, k, _ in names(split.test)} == {(gpu, True)}
        assert ("bert", gpu, 1, 1) in names(split.train)
    (more,) = splits_of(PROFILES, "more-gpus", 0, {"most": 4})
    assert {k for *_, k, _ in names(more.train)} == {1, 2, 4} and {
        k for *_, k, _ in names(more.test)
    } == {8, 16}


@given(seed=st.integers(0, 1000))
def test_a_few_shots_are_one_placement_of_each_level(seed: int) -> None:
    (split,) = splits_of(PROFILES, "few-shot", seed, {})
    train = names(split.train)
    for workload in WAYS.workloads:
        for gpu in WAYS.gpu_types:
            own = [(k, n) for w, g, k, n in train if (w, g) == (workload, gpu)]
            assert sorted((k > 1) + (n > 1) for k, n in own) == [0, 1, 2]
    assert not train & names(split.test)  # a placement comes with all its batches


def test_no_split_where_nothing_can_be_left_out() -> None:
    one = PROFILES.take(np.flatnonzero((WAYS.workload == 0) & (WAYS.gpus == 1)))
    assert [
        splits_of(one, name, 0, {}) for name in ("workload-out", "gpu-out", "more-gpus", "few-shot")
    ] == [[]] * 4
    assert splits_of(one.take(np.array([0])), "random", 0, {}) == []
    for split in splits_of(one, "random", 0, {}):
        assert isinstance(split, Split)


# --- errors --------------------------------------------------------------------------------------------------------


def by_hand(found: Evaluation) -> None:
    """The row of all workloads, recomputed from the points one by one."""
    points, row = found.points[0], found.rows[0]
    errors, covered = [], []
    for place in range(len(points.row)):
        if math.isnan(points.predicted[place]):
            continue
        told, true = points.predicted[place], found.profiles.seconds[points.row[place]]
        errors.append(told / true - 1)
        covered.append(abs(math.log(told / true)) <= 1.6448536269514722 * points.log_sd[place])
    assert (row.tested, row.known) == (len(points.row), len(errors))
    assert row.mape == pytest.approx(np.mean(np.abs(errors)))
    assert row.median_ape == pytest.approx(np.median(np.abs(errors)))
    assert row.bias == pytest.approx(np.mean(np.log1p(errors)))
    assert row.coverage == pytest.approx(np.mean(covered))


@pytest.mark.parametrize("name", SPLITS)
def test_measures_against_a_plain_loop(name: str) -> None:
    if name != "workload-out":  # there nothing is known
        by_hand(evaluate(PROFILES, LINEAR, [(name, {})], seeds=2))


def test_rows_of_workloads_and_seeds() -> None:
    found = evaluate(PROFILES, LINEAR, [("random", {"fraction": 0.5}), ("more-gpus", {})], seeds=3)
    told = [(row.split, row.workload, row.fits) for row in found.rows]
    assert told == [(split, workload, fits) for split, fits in (("random:fraction=0.5", 3), ("more-gpus", 1))
                    for workload in (None, "bert", "vgg")]  # fmt: skip
    assert found.rows[0].mape_sd is not None and found.rows[3].mape_sd is None
    assert found.rows[0].tested == found.rows[1].tested + found.rows[2].tested == 3 * 44
    assert (
        evaluate(PROFILES, LINEAR, [("random", {"fraction": 0.5})], seeds=3).rows == found.rows[:3]
    )


def test_a_perfect_model_has_no_error_and_a_bias_is_told() -> None:
    exact = planted(noise=0.0, sync=0.0)
    for factor in (1.0, 2.0, 0.5):

        def fit(train: Profiles, factor: float = factor) -> Callable[[Ways], Times]:
            return lambda ways: Times.of(0.01 * factor * ways.samples, Source.PRIOR, 0.5)

        row = evaluate(exact, {"exact": fit}, [("random", {})]).rows[0]
        assert row.mape == pytest.approx(abs(factor - 1)) == row.median_ape
        assert row.bias == pytest.approx(math.log(factor))
        assert row.coverage == 1.0  # log 2 = 0.69 < 1.64 x 0.5


@pytest.mark.parametrize("nominal", [0.5, 0.9])
def test_intervals_of_the_right_width_cover_what_they_should(nominal: float) -> None:
    many = planted(noise=0.2, sync=0.0)
    many = many.take(np.tile(np.arange(len(many)), 30))
    noise = np.exp(0.2 * np.random.default_rng(1).standard_normal(len(many)))
    many = Profiles(many.ways, 0.01 * many.ways.samples * noise, many.sync)
    fit = lambda train: lambda ways: Times.of(0.01 * ways.samples, Source.PARAMETRIC, 0.2)  # noqa: E731
    row = evaluate(many, {"true": fit}, [("random", {})], nominal=nominal).rows[0]
    assert row.coverage == pytest.approx(nominal, abs=0.04)


def test_what_a_model_cannot_say_is_not_counted_as_an_error() -> None:
    found = evaluate(PROFILES, LINEAR, [("workload-out", {})])
    assert (found.rows[0].fits, found.rows[0].tested, found.rows[0].known) == (2, 84, 0)
    assert (
        found.rows[0].mape is None
        and found.rows[0].coverage is None
        and len(found.points[0].known) == 0
    )


def test_a_model_that_cannot_be_fitted_is_a_row_that_says_why() -> None:
    several = PROFILES.take(np.flatnonzero(WAYS.gpus > 1))
    found = evaluate(several, LINEAR, [("random", {})])
    assert found.rows[0].fits == 0 and found.rows[0].mape is None
    with refuses("profiles: found no row on 1 GPU, expected at least one") as refused:
        LINEAR["linear"](several)
    assert found.rows[0].refused == str(refused.value)
    one = PROFILES.take(np.flatnonzero(WAYS.gpus == 1))
    assert (
        evaluate(one, LINEAR, [("more-gpus", {})]).rows[0].refused
        == "nothing in these profiles can be left out"
    )


@pytest.mark.parametrize(
    ("split", "more", "words"),
    [
        (("leave", {}), {}, "split: found 'leave', expected one of random, few-shot..."),
        (
            ("random", {"fraction": 1.5}),
            {},
            "random: fraction: found 1.5, expected a number between 0 and 1",
        ),
        (("random", {"fraction": "half"}), {}, "random: fraction: found 'half', expected a number"),
        (
            ("random", {"most": 3}),
            {},
            "option of random: found most, expected fraction",
        ),
        (("gpu-out", {"most": 3}), {}, "option of gpu-out: found most, expected none"),
        (("random", {}), {"seeds": 0}, "seeds: found 0, expected a number from 1 to 1000"),
        (("random", {}), {"nominal": 1.0}, "nominal: found 1, expected a share between 0 and 1"),
    ],
)
def test_wrong_words(
    split: tuple[str, dict[str, object]], more: dict[str, float], words: str
) -> None:
    with refuses(words, UsageError):
        evaluate(PROFILES, LINEAR, [split], **more)  # type: ignore[arg-type]


def test_ways_are_asked_without_their_times() -> None:
    asked: list[Ways] = []

    def fit(train: Profiles) -> object:
        def predict(ways: Ways) -> Times:
            asked.append(ways)
            return Times.of(np.full(len(ways), np.nan), Source.PRIOR)

        return predict

    evaluate(PROFILES, {"spy": fit}, [("more-gpus", {})])  # type: ignore[dict-item]
    assert len(asked) == 1 and set(asked[0].gpus.tolist()) == {8, 16}


@pytest.mark.process
def test_an_evaluation_is_the_same_in_other_processes() -> None:
    models, splits = ["pollux", "interpolation"], [("random", {}), ("gpu-out", {})]
    one, many = (
        evaluate_models(PROFILES, models, splits, chain=True, seeds=2, processes=processes)
        for processes in (1, 2)
    )
    assert one.rows == many.rows and one.rows[0].fits == 2
