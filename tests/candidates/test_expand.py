"""From class totals to jobs: fair inside a class, within everybody's time, and with few rows."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from compile_cases import compiled, document, random_candidates
from hypothesis import given, settings
from hypothesis import strategies as st

from optsched.candidates import Classes, JobRows, compile, expand, expand_first
from optsched.instance import Instance
from optsched.performance import TableModel
from optsched.solution import Allocation

pytestmark = pytest.mark.property


@cache
def mixed(counts: tuple[int, ...], per_job: bool = False) -> Classes:
    """Classes of these sizes that can run alone in two pools and in pairs with everybody, also of their own class.

    The jobs of the classes take turns in the file.
    """
    names = [f"w{row}" for row in range(len(counts))]
    workloads = {
        name: {"throughput": {"a": 1.0 + row, "b": 2.5 - row / 4}} for row, name in enumerate(names)
    }
    jobs = [
        {"workload": name}
        for turn in range(max(counts))
        for name, n in zip(names, counts, strict=True)
        if turn < n
    ]
    entries = [
        {
            "workloads": [first, second],
            "pool": pool,
            "gpus": 1,
            "throughput": [0.3 + row, 0.7 * column],
        }
        for row, first in enumerate(names)
        for column, second in enumerate(names[row:], row)
        for pool in "ab"
    ]
    candidates = compiled(document({"a": 3, "b": 3}, jobs, workloads=workloads, colocation=entries))
    return (candidates.per_job() if per_job else candidates).classes(frozenset())


def feasible(classes: Classes, weights: np.ndarray) -> np.ndarray:
    """A point in the direction of the weights, on the border of the time rows."""
    x = weights * classes.limit
    use = classes.member @ x
    most = np.max(use / classes.count, initial=0.0)
    return x / most if most > 0 else x


def totals(rows: JobRows, jobs: int) -> tuple[np.ndarray, np.ndarray]:
    """Time and steps/s of each job."""
    time, rate = np.zeros(jobs), np.zeros(jobs)
    for job, partner, fraction, mine, other in zip(
        rows.job, rows.partner, rows.fraction, rows.rate, rows.partner_rate, strict=True
    ):
        time[job] += fraction
        rate[job] += mine * fraction
        if partner >= 0:
            time[partner] += fraction
            rate[partner] += other * fraction
    return time, rate


def check(classes: Classes, x: np.ndarray) -> JobRows:
    """Everything that `expand` promises of fractions."""
    rows = expand(classes, x)
    jobs = len(classes.instance.jobs_table)
    assert (rows.fraction > 0).all()
    assert (rows.fraction <= 1 + 1e-12).all()
    assert len({*zip(rows.job, rows.partner, rows.column, strict=True)}) == len(rows)
    assert (rows.job != rows.partner).all()
    np.testing.assert_allclose(
        np.bincount(rows.column, rows.fraction, classes.columns), x, rtol=1e-12, atol=1e-15
    )
    assert np.array_equal(classes.of_job[rows.job], classes.class_a[rows.column])
    shared = rows.partner >= 0
    assert np.array_equal(shared, classes.class_b[rows.column] >= 0)
    assert np.array_equal(
        classes.of_job[rows.partner[shared]], classes.class_b[rows.column[shared]]
    )
    assert np.array_equal(rows.rate, classes.rate_a[rows.column])
    assert np.array_equal(rows.partner_rate, classes.rate_b[rows.column])
    keys = list(zip(rows.job.tolist(), rows.column.tolist(), strict=True))
    assert keys == sorted(keys)

    time, rate = totals(rows, jobs)
    assert (time <= 1 + 1e-12).all()
    total = classes.throughput @ x
    used = classes.member @ x
    for number in range(len(classes)):
        mine = classes.jobs_of(number)
        np.testing.assert_allclose(
            rate[mine], total[number] / classes.count[number], rtol=1e-12, atol=1e-15
        )
        np.testing.assert_allclose(
            time[mine], used[number] / classes.count[number], rtol=1e-12, atol=1e-15
        )
    assert time[classes.of_job < 0].sum() == 0

    length = np.bincount(rows.column, minlength=classes.columns)
    for column in np.flatnonzero(x > 0):
        a, b = classes.class_a[column], classes.class_b[column]
        n_a, n_b = int(classes.count[a]), int(classes.count[b])
        if b < 0:
            assert length[column] == n_a
        elif a != b:
            assert max(n_a, n_b) <= length[column] <= n_a + n_b - 1
        else:
            assert length[column] == (1 if n_a == 2 else n_a)
    return rows


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.integers(1, 7), min_size=1, max_size=3).map(tuple),
    st.integers(0, 2**32 - 1),
    st.sampled_from([0.2, 0.7, 1.0]),
    st.booleans(),
)
def test_fractions_of_any_feasible_point(
    counts: tuple[int, ...], seed: int, density: float, per_job: bool
) -> None:
    classes = mixed(counts, per_job)
    rng = np.random.default_rng(seed)
    check(
        classes,
        feasible(classes, rng.random(classes.columns) * (rng.random(classes.columns) < density)),
    )


@pytest.mark.parametrize("seed", range(40))
def test_fractions_on_random_instances(seed: int) -> None:
    classes = random_candidates(seed).classes(frozenset({"weight"}))
    check(classes, feasible(classes, np.random.default_rng(seed).random(classes.columns)))


def only(classes: Classes, a: int, b: int) -> int:
    return int(np.flatnonzero((classes.class_a == a) & (classes.class_b == b))[0])


@pytest.mark.parametrize(
    ("count", "edges"), [(2, [(0, 1)]), (3, [(0, 1), (1, 2), (2, 0)]), (5, None)]
)
def test_a_pair_inside_a_class_goes_round_a_cycle(
    count: int, edges: list[tuple[int, int]] | None
) -> None:
    classes = mixed((count,))
    x = np.zeros(classes.columns)
    x[only(classes, 0, 0)] = count / 2
    rows = check(classes, x)
    pairs = set(zip(rows.job.tolist(), rows.partner.tolist(), strict=True))
    assert pairs == set(edges or [(i, (i + 1) % count) for i in range(count)])
    time, _ = totals(rows, count)
    np.testing.assert_allclose(time, 1.0, rtol=1e-12)


@pytest.mark.parametrize("counts", [(1, 1), (1, 6), (2, 3), (4, 6), (5, 5), (7, 1000)])
def test_a_class_pair_is_spread_by_the_north_west_corner_rule(counts: tuple[int, int]) -> None:
    classes = mixed(counts)
    x = np.zeros(classes.columns)
    x[only(classes, 0, 1)] = min(counts)
    rows = check(classes, x)
    assert len(rows) == counts[0] + counts[1] - np.gcd(*counts)


def test_pairs_of_two_jobs_are_taken_as_they_are() -> None:
    classes = mixed((2, 2), per_job=True)
    x = np.zeros(classes.columns)
    x[only(classes, 0, 3)], x[only(classes, 1, 2)] = 0.25, 0.5
    rows = check(classes, x)
    assert [(*row,) for row in zip(rows.job, rows.partner, rows.fraction, strict=True)] == [
        (0, 3, 0.25),
        (1, 2, 0.5),
    ]


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple),
    st.integers(1, 8),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=60)
def test_the_rows_of_the_first_jobs(counts: tuple[int, ...], jobs: int, seed: int) -> None:
    """Made alone they are those among all rows that belong to these jobs."""
    classes, rng = mixed(counts), np.random.default_rng(seed)
    x = feasible(classes, rng.random(classes.columns) * (rng.random(classes.columns) < 0.3))
    whole = expand(classes, x)
    rows = expand_first(classes, x, jobs)
    first = whole.take(np.isin(whole.job, np.unique(rows.job)))
    assert not len(whole) or 2 * len(np.unique(rows.job)) >= min(jobs, len(np.unique(whole.job)))
    for name in ("job", "partner", "column", "fraction", "rate", "partner_rate"):
        np.testing.assert_array_equal(getattr(rows, name), getattr(first, name))


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple), st.integers(0, 2**32 - 1))
@settings(max_examples=60)
def test_rates_and_who_is_served_need_no_rows(counts: tuple[int, ...], seed: int) -> None:
    classes, rng = mixed(counts), np.random.default_rng(seed)
    x = feasible(classes, rng.random(classes.columns) * (rng.random(classes.columns) < 0.2))
    allocation = Allocation(classes, x)
    time, rate = totals(expand(classes, x), len(classes.instance.jobs_table))
    np.testing.assert_allclose(allocation.throughput, rate, rtol=1e-12, atol=1e-15)
    np.testing.assert_array_equal(allocation.served, time > 0)
    assert "rows" not in allocation.__dict__


def test_nothing_expands_to_nothing() -> None:
    classes = mixed((2, 3))
    for integral in (False, True):
        rows = expand(classes, np.zeros(classes.columns), integral)
        assert len(rows) == 0
        assert rows.job.dtype == rows.partner.dtype == rows.column.dtype == np.int64
        assert rows.fraction.dtype == np.float64
    empty = compiled(document({"a": 1}, [])).classes(frozenset())
    assert len(expand(empty, np.zeros(0))) == len(expand(empty, np.zeros(0), True)) == 0


def test_a_negative_noise_is_nothing() -> None:
    classes = mixed((2, 3))
    assert len(expand(classes, np.full(classes.columns, -1e-12))) == 0


# --- whole jobs ----------------------------------------------------------------------------------------------------


def whole_point(classes: Classes, seed: int) -> np.ndarray:
    """A random integer point within the time rows, with the noise of a solver."""
    rng = np.random.default_rng(seed)
    left, x = classes.count.copy(), np.zeros(classes.columns)
    for column in rng.permutation(classes.columns):
        member = classes.member[:, [column]].toarray().ravel()
        most = int(np.min(left[member > 0] // member[member > 0]))
        x[column] = rng.integers(0, most + 1) if most else 0
        left -= member * x[column]
    return x


def check_whole(classes: Classes, x: np.ndarray) -> None:
    noise = np.random.default_rng(0).uniform(-1e-7, 1e-7, len(x))
    rows = expand(classes, x + noise, integral=True)
    assert (rows.fraction == 1).all()
    assert np.array_equal(np.bincount(rows.column, minlength=classes.columns), x)
    taken = np.concatenate([rows.job, rows.partner[rows.partner >= 0]])
    assert len(set(taken.tolist())) == len(taken)
    shared = rows.partner >= 0
    assert np.array_equal(classes.of_job[rows.job], classes.class_a[rows.column])
    assert np.array_equal(shared, classes.class_b[rows.column] >= 0)
    assert np.array_equal(
        classes.of_job[rows.partner[shared]], classes.class_b[rows.column[shared]]
    )
    for number in range(
        len(classes)
    ):  # in order: the first jobs of a class, one column after the other
        of_class = taken[classes.of_job[taken] == number]
        assert set(of_class.tolist()) == set(classes.jobs_of(number)[: len(of_class)].tolist())
    alone = rows.partner < 0
    for number in range(len(classes)):
        mine = alone & (classes.of_job[rows.job] == number)
        assert (np.diff(rows.column[mine]) >= 0).all()


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(1, 7), min_size=1, max_size=3).map(tuple),
    st.integers(0, 2**32 - 1),
    st.booleans(),
)
def test_an_integral_point_gives_whole_jobs_once_each(
    counts: tuple[int, ...], seed: int, per_job: bool
) -> None:
    classes = mixed(counts, per_job)
    check_whole(classes, whole_point(classes, seed))


@pytest.mark.parametrize("seed", range(40))
def test_whole_jobs_on_random_instances(seed: int) -> None:
    classes = random_candidates(seed).classes(frozenset({"weight"}))
    check_whole(classes, whole_point(classes, seed))


def test_whole_pairs_inside_a_class() -> None:
    classes = mixed((5,))
    x = np.zeros(classes.columns)
    x[only(classes, 0, -1)], x[only(classes, 0, 0)] = 1, 2
    rows = expand(classes, x, integral=True)
    assert [(*row,) for row in zip(rows.job, rows.partner, strict=True)] == [
        (0, -1),
        (1, 3),
        (2, 4),
    ]


@pytest.mark.parametrize(
    "columns", [{(0, -1): 6}, {(0, 0): 3}, {(0, -1): 4, (0, 0): 1}, {(0, 1): 3}]
)
def test_more_jobs_than_a_class_has_are_refused(columns: dict[tuple[int, int], float]) -> None:
    classes = mixed((5, 2))
    x = np.zeros(classes.columns)
    for pair, value in columns.items():
        x[only(classes, *pair)] = value
    with pytest.raises(ValueError, match="more jobs of a class than it has"):
        expand(classes, x, integral=True)


def test_jobs_of_a_huge_class_are_spread_without_products() -> None:
    """n_k x n_l is far above 2^31; the rows stay n_k + n_l - 1."""
    n = 60_000
    instance = Instance.from_arrays(
        pools={"a": 10},
        workloads={name: {"throughput": {"a": 1.0}} for name in "kl"},
        workload=np.repeat([0, 1], [n, n + 1]),
        colocation=[{"workloads": ["k", "l"], "pool": "a", "gpus": 1, "throughput": [1.0, 2.0]}],
    )
    classes = compile(instance, TableModel(instance.rates, instance)).classes(frozenset())
    x = np.zeros(classes.columns)
    x[only(classes, 0, 1)] = n
    rows = expand(classes, x)
    assert len(rows) == 2 * n
    np.testing.assert_allclose(np.bincount(rows.job, rows.fraction)[:n], 1.0, rtol=1e-9)
