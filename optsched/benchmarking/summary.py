"""What rows tell: outcomes, times, pairs, gaps, other figures, contradictions; each a table with
words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import mean, median
from typing import Any

from optsched.benchmarking.best_known import problem_of
from optsched.benchmarking.profiles import AT_BEST
from optsched.benchmarking.results import SETTLED, WORST_FIRST, Results, number
from optsched.benchmarking.statistics import (
    holm,
    mean_interval,
    paired,
    shifted_geometric_mean,
)
from optsched.benchmarking.summary_table import Column, SummaryTable
from optsched.display import count
from optsched.display.columns import title

AGREEMENT = 1e-6
"""An objective that is beyond a bound by more than this, relative, contradicts it."""
MOST_PAIRS = 28
MOST_REASONS = 15
MEANS = (
    "mean_jct",
    "p50_jct",
    "p99_jct",
    "makespan",
    "utilisation",
    "worst_rho",
    "unfair_fraction",
    "deadlines_met",
    "restarts_per_job",
    "cost",
    "energy",
)
"""Metrics of simulations that people judge policies by."""
KINDS = {
    **dict.fromkeys(("first", "second", "status", "words"), "text"),
    **dict.fromkeys(("instance", "formulation", "found by", "bound of"), "text"),
    **dict.fromkeys(("rows", "values", "objectives", "at best", "better", "without"), "count"),
    **dict.fromkeys(("settled", "both", "faster", "slower", "lower", "higher"), "count"),
    **dict.fromkeys(("p", "p Holm"), "p"),
    "ratio": "ratio",
}
"""Kinds of the columns that any table may have, by heading; other columns are of its own kind."""

Method = tuple[Any, ...]
Line = dict[str, Any]
"""A row of a table: values by the headings of their columns."""


@dataclass(frozen=True)
class Reading:
    """How rows are read: the kind of intervals, the seed of resamples, the shift of geometric means
    in seconds.
    """

    interval: str = "bootstrap"
    seed: int = 0
    shift: float = 1.0


def summary(
    results: Results, reading: Reading | None = None, metrics: Sequence[str] | None = None
) -> list[SummaryTable]:
    """All tables that the rows have something for; ``metrics`` are columns to be averaged (default:
    see `Results`).
    """
    chosen = results.metrics if metrics is None else metrics
    return [table for table in _tables(results, reading or Reading(), chosen) if table.rows]


def overview(results: Results, reading: Reading | None = None) -> list[SummaryTable]:
    """The tables of `summary` that fit on a screen: of simulations one of all metrics that policies
    are judged by.
    """
    metrics = [name for name in MEANS if name in results.metrics]
    if not metrics:
        return summary(results, reading)
    tables = (
        outcomes(results),
        reasons(results),
        means(results, metrics),
        figure_pairs(results, metrics[0], reading or Reading()),
    )
    return [table for table in tables if table.rows]


def _tables(results: Results, reading: Reading, metrics: Sequence[str]) -> Iterator[SummaryTable]:
    yield outcomes(results)
    yield reasons(results)
    if results.time_column is not None:
        yield times(results, results.time_column, reading)
        yield time_pairs(results, results.time_column, reading)
    yield gaps(results, reading)
    for name in metrics:
        yield figures(results, name, reading)
        yield figure_pairs(results, name, reading)
    yield contradictions(results)


def outcomes(results: Results) -> SummaryTable:
    """How many tasks of each method ended how."""
    found = {cell.status for cell in results.cells.values()}
    # Statuses that nobody foresaw come last.
    statuses = [status for status in reversed(WORST_FIRST) if status in found]
    statuses += sorted(found - {*WORST_FIRST})
    rows = []
    for method in results.methods:
        cells = [results.cell(problem, method) for problem in results.problems]
        ends = Counter(cell.status for cell in cells if cell is not None)
        counts = {status: ends[status] for status in statuses}
        rows.append({**_named(results, method), **counts, "not run": cells.count(None)})
    problems = count(len(results.problems), "problem")
    words = f"{problems}. Of several repetitions the worst counts."
    return _table("outcomes", "Outcomes", results, rows, "count", words)


def reasons(results: Results) -> SummaryTable:
    """Why tasks have no answer, the most frequent reasons first."""
    counted = Counter(
        (
            results.method_name(tuple(row.get(name) for name in results.by)),
            str(row.get("status")),
            str(row["error"]),
        )
        for row in results.rows
        if row.get("error")
    )
    rows: list[Line] = [
        {_by(results): name, "status": status, "words": words, "rows": count}
        for (name, status, words), count in counted.most_common(MOST_REASONS)
    ]
    rest = sum(counted.values()) - sum(row["rows"] for row in rows)
    words = f"{rest:,} more rows have other words." if rest else ""
    return _table("reasons", "Without an answer", results, rows, "text", words)


def times(results: Results, column: str, reading: Reading) -> SummaryTable:
    """Times of each method over what it settled, and over what all settled."""
    values = {method: results.values(column, method, settled=True) for method in results.methods}
    common = [
        problem
        for problem in results.problems
        if all(problem in found for found in values.values())
    ]
    shared = {
        method: shifted_geometric_mean([found[p] for p in common], reading.shift)
        for method, found in values.items()
    }
    least = min((mean for mean in shared.values() if mean is not None), default=None)
    rows = []
    for method, found in values.items():
        numbers = sorted(found.values())
        # Over the problems that all settled: a method that settles the easy ones alone has no
        # advantage.
        mean = shared[method]
        rows.append(
            {
                **_named(results, method),
                "settled": len(numbers),
                **_spread(numbers, reading),
                "geometric": shifted_geometric_mean(numbers, reading.shift),
                "longest": numbers[-1] if numbers else None,
                f"geometric of {len(common)}": mean,
                "ratio": None if mean is None or not least else mean / least,
            }
        )
    words = (
        f"{column} of the tasks that were settled ({', '.join(sorted(SETTLED))}); "
        "those that were not are in no mean. "
        f"Geometric means are shifted by {reading.shift:g} s. "
        "Only the last two columns compare methods: they are over "
        f"the {len(common):,} of {len(results.problems):,} problems that all methods settled."
    )
    return _table("times", "Times", results, rows, "seconds", words)


def time_pairs(results: Results, column: str, reading: Reading) -> SummaryTable:
    """Ratios of times, method against method."""
    words = (
        "First over second, on the problems that both settled: "
        "geometric mean of the ratios of times, its 95 % "
        "interval, on how many the first is faster and slower, "
        "p of Wilcoxon's signed-rank test on the logarithms, and "
        "p adjusted for the number of pairs (Holm)."
    )
    return _pairs(results, column, reading, "ratio", ("faster", "slower"), words)


def figure_pairs(results: Results, name: str, reading: Reading) -> SummaryTable:
    """Differences of a figure, method against method."""
    words = (
        "First minus second, on the problems in which both have the figure: mean difference, "
        "its 95 % interval, on how many the first is lower and higher, p of Wilcoxon's signed-rank "
        "test, and p adjusted for the pairs of this table (Holm), not for other figures."
    )
    return _pairs(results, name, reading, name, ("lower", "higher"), words)


def _pairs(
    results: Results, column: str, reading: Reading, kind: str, ends: tuple[str, str], words: str
) -> SummaryTable:
    """Method against method: ratios of times, or differences in the kind of their column."""
    ratio = kind == "ratio"
    values = {method: results.values(column, method, settled=ratio) for method in results.methods}
    pairs = list(combinations(results.methods, 2))
    # Tests of many pairs find nothing once they are adjusted for their number.
    if len(pairs) > MOST_PAIRS:
        pairs = pairs[: len(results.methods) - 1]
        words += f" Of {len(results.methods)} methods, the first against all others."
    compared = []
    for first, second in pairs:
        both = [
            problem
            for problem in results.problems
            if problem in values[first] and problem in values[second]
        ]
        a, b = ([values[method][problem] for problem in both] for method in (first, second))
        if ratio:
            # A time of 0 has no logarithm.
            a, b = ([max(value, 1e-9) for value in side] for side in (a, b))
        pair = paired(a, b, ratio=ratio, method=reading.interval, seed=reading.seed)
        compared.append((first, second, pair))
    adjusted = holm([pair.p for *_, pair in compared])
    lower, higher = ends
    rows = [
        {
            "first": results.method_name(first),
            "second": results.method_name(second),
            "both": pair.n,
            "ratio" if ratio else "difference": pair.estimate,
            "95 % from": pair.low,
            "to": pair.high,
            lower: pair.less,
            higher: pair.more,
            "p": pair.p,
            "p Holm": p,
        }
        for (first, second, pair), p in zip(compared, adjusted, strict=True)
    ]
    name, what = ("time", "Times") if ratio else (column, title(column))
    return _table(f"{name}_pairs", f"{what}, pair by pair", results, rows, kind, words)


def gaps(results: Results, reading: Reading) -> SummaryTable:
    """How far objectives are from the best known."""
    rows = []
    for method in results.methods:
        found = sorted(results.values("gap_to_best", method, settled=False).values())
        if found:
            rows.append(
                {
                    **_named(results, method),
                    "objectives": len(found),
                    "at best": sum(gap <= AT_BEST for gap in found),
                    # A table of best known objectives may be beaten.
                    "better": sum(gap < -AT_BEST for gap in found),
                    **_spread(found, reading),
                    "worst": found[-1],
                    "without": len(results.problems) - len(found),
                }
            )
    sources = [str(row["best_known_from"]) for row in results.rows if row.get("best_known_from")]
    origins = ", ".join(f"{sources.count(name):,} {name}" for name in dict.fromkeys(sources))
    words = (
        f"Gaps to the best known objective of each problem (rows by its origin: {origins}). "
        "'Proven' is an optimum with a proof of its own, 'claimed' one on a solver's word, "
        "'found' the "
        "best of these rows. Tasks without an objective are in no mean, but counted last."
    )
    return _table("gaps", "Gaps to the best known objective", results, rows, "percent", words)


def figures(results: Results, name: str, reading: Reading) -> SummaryTable:
    """Means of any other column of numbers."""
    rows = []
    for method in results.methods:
        found = sorted(results.values(name, method, settled=False).values())
        least, most = (found[0], found[-1]) if found else (None, None)
        rows.append(
            {
                **_named(results, method),
                "values": len(found),
                **_spread(found, reading),
                "least": least,
                "most": most,
                "without": len(results.problems) - len(found),
            }
        )
    words = "Problems without a value are in no mean, but counted last."
    return _table(name, title(name), results, rows, name, words)


def means(results: Results, metrics: Sequence[str]) -> SummaryTable:
    """The mean of each metric over the problems; none where a problem has no value."""
    rows = []
    for method in results.methods:
        line: list[Any] = [results.method_name(method)]
        for name in metrics:
            values = results.values(name, method, settled=False).values()
            line.append(mean(values) if len(values) == len(results.problems) else None)
        rows.append(tuple(line))
    # Every metric is of a kind of its own.
    columns = (Column(_by(results), "text"), *(Column(title(name), name) for name in metrics))
    words = (
        f"Means over {len(results.problems):,} problems; "
        "there is none where a problem has no value."
        if len(results.problems) > 1
        else ""
    )
    return SummaryTable("means", "Means", columns, tuple(rows), words)


def contradictions(results: Results) -> SummaryTable:
    """Answers of one problem that cannot both be right: an objective beyond the bound of another
    row.
    """
    groups: dict[Any, list[Any]] = {}
    for row in results.rows:
        if row.get("sense") in ("max", "min") and row.get("status") in (
            "optimal",
            "feasible",
            "infeasible",
        ):
            groups.setdefault(problem_of(row), []).append(row)
    rows = [line for group in groups.values() for line in _contradictions(group)]
    words = "An objective that is better than a bound says that one of the two is wrong."
    return _table("contradictions", "Contradictions", results, rows, "number", words)


def _contradictions(group: Sequence[Any]) -> Iterator[Line]:
    """Of rows of one problem: the best objective beside the tightest bound that it passes, or a
    claim that none is.
    """
    sign = 1.0 if group[0]["sense"] == "max" else -1.0
    points = [row for row in group if number(row.get("objective")) is not None]
    bounds = [row for row in group if number(row.get("bound")) is not None]
    if not points:
        return
    best = max(points, key=lambda row: sign * row["objective"])
    found = {
        "instance": str(best["instance"]),
        "formulation": str(best.get("formulation") or ""),
        "found by": _who(best),
        "objective": best["objective"],
    }
    if bounds:
        # The best point against the tightest bound: if these agree, all do.
        tight = min(bounds, key=lambda row: sign * row["bound"])
        if sign * (best["objective"] - tight["bound"]) > AGREEMENT * max(1.0, abs(tight["bound"])):
            yield {**found, "bound of": _who(tight), "bound": tight["bound"]}
    for row in group:
        if row["status"] == "infeasible":
            yield {**found, "bound of": f"{_who(row)}: infeasible", "bound": None}


def _who(row: Any) -> str:
    return str(row.get("solver_used") or row.get("solver"))


def _table(
    name: str, heading: str, results: Results, lines: Sequence[Line], kind: str, words: str
) -> SummaryTable:
    """A table of lines that have the same headings; ``kind`` is that of columns not in `KINDS`."""
    kinds = {_by(results): "text", **KINDS}
    columns = [Column(head, kinds.get(head, kind)) for head in (lines[0] if lines else ())]
    rows = [tuple(line.values()) for line in lines]
    return SummaryTable(name, heading, tuple(columns), tuple(rows), words)


def _named(results: Results, method: Method) -> Line:
    """The first column of most tables: the method."""
    return {_by(results): results.method_name(method)}


def _spread(values: Sequence[float], reading: Reading) -> Line:
    """Mean, both ends of its interval, and median; None where there are no values."""
    interval = mean_interval(values, reading.interval, reading.seed)
    middle = median(values) if values else None
    return {
        "mean": interval.mean,
        "95 % from": interval.low,
        "to": interval.high,
        "median": middle,
    }


def _by(results: Results) -> str:
    return " ".join(results.by)
