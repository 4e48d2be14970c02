"""What rows tell, against tables worked out by hand; what is missing is never averaged over."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refuses

from optsched.benchmarking import Results

# Private names: statistics, rows and their files are checked without a sweep
from optsched.benchmarking.profiles import gap_profile, profile_of, time_profile
from optsched.benchmarking.statistics import holm, mean_interval, paired, shifted_geometric_mean
from optsched.benchmarking.summary import Reading, summary
from optsched.benchmarking.summary_table import cell_text
from optsched.errors import UsageError


def row(
    instance: str,
    solver: str,
    status: str,
    seconds: float,
    objective: float | None = None,
    **more: Any,
) -> Any:
    given = {
        "instance": instance,
        "formulation": "f",
        "solver": solver,
        "seed": 0,
        "status": status,
    }
    return {
        **given,
        "total_s": seconds,
        "objective": objective,
        "sense": "min",
        "proof": "dual",
        **more,
    }


ROWS = [
    row("p1", "a", "optimal", 1.0, 10.0), row("p1", "b", "optimal", 2.0, 10.0), row("p1", "c", "optimal", 4.0, 10.0),
    row("p2", "a", "optimal", 3.0, 20.0), row("p2", "b", "optimal", 1.0, 20.0), row("p2", "c", "feasible", 9.0, 22.0),
    row("p3", "a", "limit", 9.0), row("p3", "b", "optimal", 8.0, 30.0), row("p3", "c", "error", 0.1, error="broken"),
    row("p4", "a", "infeasible", 2.0), row("p4", "b", "infeasible", 3.0), row("p4", "c", "memory", 5.0, error="full"),
    row("p5", "a", "limit", 9.0), row("p5", "b", "limit", 9.0),
]  # fmt: skip
"""Three solvers: one fast, one that solves more, one that fails; the last problem was never given to c."""


def tables(rows: list[Any], **more: Any) -> dict[str, list[dict[str, Any]]]:
    results = Results.of(rows, more.pop("by", None))
    return {item.name: item.to_document() for item in summary(results, **more)}


def test_outcomes_are_counted_apart() -> None:
    told = tables(ROWS)["outcomes"]
    assert list(told[0]) == [
        "solver",
        "optimal",
        "feasible",
        "infeasible",
        "limit",
        "memory",
        "error",
        "not run",
    ]
    assert [tuple(line.values()) for line in told] == [
        ("a", 2, 0, 1, 2, 0, 0, 0), ("b", 3, 0, 1, 1, 0, 0, 0), ("c", 1, 1, 0, 0, 1, 1, 1),
    ]  # fmt: skip
    assert [tuple(line.values()) for line in tables(ROWS)["reasons"]] == [
        ("c", "error", "broken", 1), ("c", "memory", "full", 1),
    ]  # fmt: skip


def test_times_are_those_of_settled_tasks_alone() -> None:
    a, b, c = tables(ROWS)["times"]
    assert (a["settled"], a["mean"], a["median"], a["longest"]) == (3, 2.0, 2.0, 3.0)
    assert (b["settled"], b["mean"], b["median"]) == (4, 3.5, 2.5)  # 1, 2, 3, 8
    assert (c["settled"], c["mean"], c["95 % from"]) == (1, 4.0, None)
    assert a["geometric"] == pytest.approx((2 * 4 * 3) ** (1 / 3) - 1)
    assert [line["geometric of 1"] for line in (a, b, c)] == pytest.approx(
        [1.0, 2.0, 4.0]
    )  # p1 alone
    assert [line["ratio"] for line in (a, b, c)] == pytest.approx([1.0, 2.0, 4.0])


def test_pairs_are_over_what_both_settled() -> None:
    first, second, third = tables(ROWS)["time_pairs"]
    assert (first["first"], first["second"], first["both"]) == ("a", "b", 3)
    assert first["ratio"] == pytest.approx((0.5 * 3 * 2 / 3) ** (1 / 3))
    assert (first["faster"], first["slower"]) == (2, 1)
    assert (second["both"], second["ratio"], second["95 % from"]) == (1, pytest.approx(0.25), None)
    assert (third["first"], third["second"], third["both"]) == ("b", "c", 1)


def test_gaps_are_over_what_has_an_objective() -> None:
    told = {line["solver"]: line for line in tables(ROWS)["gaps"]}
    assert [(told[name]["objectives"], told[name]["at best"], told[name]["without"]) for name in "abc"] == [
        (2, 2, 3), (3, 3, 2), (2, 1, 3),
    ]  # fmt: skip
    assert (told["c"]["mean"], told["c"]["worst"]) == (pytest.approx(0.05), pytest.approx(0.1))


def test_the_profile_of_times() -> None:
    profile = time_profile(Results.of(ROWS))
    assert profile is not None and profile.problems == 5
    assert {name: ratios.tolist() for name, ratios in profile.ratios.items()} == {
        "a": [1.0, 1.0, 3.0], "b": [1.0, 1.0, 1.5, 2.0], "c": [4.0],
    }  # fmt: skip
    shares = [
        [profile.share(name, factor) for factor in (1, 1.5, 2, 3.99, 4, 1e9)] for name in "abc"
    ]
    assert shares == [
        [0.4, 0.4, 0.4, 0.6, 0.6, 0.6],
        [0.4, 0.6, 0.8, 0.8, 0.8, 0.8],
        [0, 0, 0, 0, 0.2, 0.2],
    ]


def test_the_profile_of_gaps() -> None:
    profile = gap_profile(Results.of(ROWS))
    assert profile is not None and profile.problems == 3
    assert [profile.share(name, 1.0) for name in "abc"] == pytest.approx([2 / 3, 1, 1 / 3])
    assert [profile.share(name, 1.1 + 1e-12) for name in "abc"] == pytest.approx([2 / 3, 1, 2 / 3])


def test_repetitions_are_one_problem() -> None:
    rows = [
        row("p", "a", "optimal", seconds, 1.0, repeat=turn)
        for turn, seconds in enumerate((1.0, 9.0, 2.0))
    ]
    rows += [row("p", "b", "optimal", 1.0, 1.0, repeat=0), row("p", "b", "limit", 9.0, repeat=1)]
    told = tables(rows)
    assert [(line["solver"], line["settled"], line["mean"]) for line in told["times"]] == [
        ("a", 1, 2.0),
        ("b", 0, None),
    ]
    assert [line["optimal"] for line in told["outcomes"]] == [1, 0]  # the worst repetition counts


def test_contradictions_are_told() -> None:
    wrong = [
        row("p1", "d", "optimal", 1.0, 12.0, bound=12.0),
        row("p2", "d", "feasible", 1.0, 21.0, bound=20.0),
    ]
    (line,) = tables([*ROWS, *wrong])["contradictions"]
    assert (line["instance"], line["objective"], line["bound"]) == ("p1", 10.0, 12.0)
    (line,) = tables([*ROWS, row("p1", "d", "infeasible", 1.0)])["contradictions"]
    assert (line["instance"], line["found by"], line["bound of"], line["bound"]) == (
        "p1",
        "a",
        "d: infeasible",
        None,
    )
    assert "contradictions" not in tables(ROWS)


def test_figures_of_simulations() -> None:
    rows = [
        {"trace": "t", "policy": policy, "seed": seed, "status": "ok", "jct": jct, "wall_s": 1.0}
        for policy, values in (("fifo", (4.0, 6.0, 5.0)), ("srtf", (2.0, 3.0, None))) for seed, jct in enumerate(values)
    ]  # fmt: skip
    told = tables(rows)
    assert [(line["policy"], line["values"], line["mean"], line["without"]) for line in told["jct"]] == [
        ("fifo", 3, 5.0, 0), ("srtf", 2, 2.5, 1),
    ]  # fmt: skip
    (pair,) = told["jct_pairs"]
    assert (pair["both"], pair["difference"], pair["lower"], pair["higher"]) == (2, 2.5, 0, 2)
    assert "gaps" not in told


def test_methods_are_told_by_any_column() -> None:
    assert (
        next(line["solver seed"] for line in tables(ROWS, by=["solver", "seed"])["outcomes"])
        == "a seed 0"
    )
    with refuses("by: found 'colour', expected one of instance, formulation...", UsageError):
        Results.of(ROWS, ["colour"])
    assert Results.of([item for item in ROWS if item["solver"] == "a"]).by == ("solver",)


# --- statistics ----------------------------------------------------------------------------------------------------


def test_intervals() -> None:
    values = [1.0, 2.0, 3.0, 4.0]
    interval = mean_interval(values, "t")
    half = 3.182446305284263 * math.sqrt(5 / 3) / 2  # t(0.975, 3) s / sqrt(n)
    assert interval.mean == 2.5
    assert (interval.low, interval.high) == (pytest.approx(2.5 - half), pytest.approx(2.5 + half))
    resampled = mean_interval(values)
    assert resampled == mean_interval(values)
    many = np.random.default_rng(0).random(50).tolist()
    assert mean_interval(many) != mean_interval(many, seed=1)
    assert (
        resampled.low is not None
        and resampled.high is not None
        and 1.0 <= resampled.low < 2.5 < resampled.high <= 4
    )
    assert (mean_interval([]).mean, mean_interval([7.0]).low) == (None, None)
    with refuses("interval: found 'normal', expected one of bootstrap, t", UsageError):
        mean_interval(values, "normal")


def test_shifted_geometric_means() -> None:
    assert shifted_geometric_mean([1.0, 7.0], 1.0) == pytest.approx(3.0)
    assert shifted_geometric_mean([1.0, 4.0], 0.0) == pytest.approx(2.0)
    assert shifted_geometric_mean([]) is None


def test_pairs() -> None:
    told = paired([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [2.0, 4.0, 6.0, 8.0, 10.0, 12.0], ratio=True)
    assert (told.n, told.estimate, told.less, told.more, told.equal) == (
        6,
        pytest.approx(0.5),
        6,
        0,
        0,
    )
    assert told.p == pytest.approx(2 / 2**6)  # all six signs alike
    same = paired([1.0, 2.0], [1.0, 2.0], ratio=False)
    assert (same.estimate, same.equal, same.p) == (0.0, 2, None)
    assert paired([], [], ratio=True).n == 0
    # One pair says nothing of chance
    assert paired([1.0], [2.0], ratio=True).p is None
    # Rounding is not a difference
    noise = paired([1.756, 2.0], [1.756 + 7e-16, 2.0], ratio=False)
    assert (noise.estimate, noise.less, noise.equal, noise.p) == (0.0, 0, 2, None)


def test_simulations_are_not_summarised_beside_solved_problems() -> None:
    rows = [
        {"instance": "i", "formulation": "f", "status": "optimal"},
        {"trace": "t", "policy": "las", "status": "ok"},
    ]
    with refuses(
        "rows: found 1 simulation and 1 solved problem, expected results of one kind...", UsageError
    ):
        Results.of(rows)


def test_p_values_adjusted_by_holm() -> None:
    assert holm([0.01, 0.04, None, 0.03]) == pytest.approx([0.03, 0.06, None, 0.06], nan_ok=True)
    assert holm([0.9, 0.8]) == [1.0, 1.0] and holm([]) == []


@given(
    st.lists(
        st.lists(st.one_of(st.none(), st.floats(0.01, 100)), min_size=3, max_size=3),
        min_size=1,
        max_size=9,
    )
)
def test_a_profile_is_its_definition(times: list[list[float | None]]) -> None:
    problems = list(range(len(times)))
    values = [{p: t for p in problems if (t := times[p][s]) is not None} for s in range(3)]
    profile = profile_of(values, ["x", "y", "z"], problems)
    for s, name in enumerate("xyz"):
        for factor in (1.0, 1.5, 10.0, 1e9):
            within = 0
            for p in problems:
                own, known = times[p][s], [t for t in times[p] if t is not None]
                within += own is not None and own / min(known) <= factor
            assert profile.share(name, factor) == within / len(problems)


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (None, "seconds", "-"), (0.0123456, "seconds", "12.3 ms"), (0.5, "seconds", "500 ms"),
        (-1.0, "seconds", "-1 s"), (12.345, "seconds", "12.3 s"),
        (12345.6, "seconds", "12,346 s"), (0.123456, "percent", "12.3 %"), (1e-12, "percent", "0 %"),
        (1234, "count", "1,234"), (0.00004, "p", "< 0.001"), (np.float64(0.25), "ratio", "0.25"), ("x", "text", "x"),
    ],
)  # fmt: skip
def test_cells(value: Any, kind: str, text: str) -> None:
    assert cell_text(value, kind) == text


def test_reading_changes_the_intervals_alone() -> None:
    plain, other = tables(ROWS), tables(ROWS, reading=Reading(interval="t", shift=0.0))
    assert plain["times"][1]["95 % from"] != other["times"][1]["95 % from"]
    assert plain["times"][1]["mean"] == other["times"][1]["mean"]
    assert other["times"][0]["geometric"] == pytest.approx(6 ** (1 / 3))
