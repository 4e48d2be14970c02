"""Tables of simulations: metrics of each policy, each policy against the first, every run."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from optsched.arrays import FloatArray
from optsched.benchmarking.statistics import holm, mean_interval, paired
from optsched.benchmarking.summary_table import NO_VALUE, Column, SummaryTable, cell_text
from optsched.display import amount
from optsched.display.columns import DURATION, KINDS, SHARE, title, written
from optsched.display.text import enumerated, signed_percent
from optsched.report.pictures import time_unit
from optsched.report.simulated import Policy, Simulated, seed_of

# Most decimals of a mean with an interval.
DIGITS = 6
# Fewest seeds for an interval of a mean; with two, it would be too wide to be useful.
ENOUGH = 3
# Significance level of differences.
SIGNIFICANT = 0.05


JOBS = ("jobs", "completed")
TIMES = ("mean_jct", "p50_jct", "p99_jct", "makespan")
FAIRNESS = ("mean_rho", "worst_rho", "unfair_fraction", "deadlines_met")
USE = (
    "utilisation",
    "progress",
    "fragmentation",
    "mean_queue",
    "mean_contention",
    "gpu_hours",
    "gpu_hours_per_job",
    "restarts_per_job",
    "lost_steps",
)
COST = ("cost", "energy")
PLANNING = ("rounds", "solves", "fallbacks", "mean_solve_ms", "p99_solve_ms")
SUMMARY = (
    *JOBS,
    "mean_jct",
    "p99_jct",
    "makespan",
    "utilisation",
    "unfair_fraction",
    "deadlines_met",
)
# Figures that need data of the trace; without these they have no column.
STATED = ("deadlines_met", *COST)
# Figures for which the best policy is named, and whether the smallest or the largest value is best.
BEST = {
    "mean_jct": min,
    "p99_jct": min,
    "makespan": min,
    "worst_rho": min,
    "unfair_fraction": min,
    "deadlines_met": max,
    "utilisation": max,
    "restarts_per_job": min,
    "cost": min,
}
# Figures by which policies are compared.
COMPARED = (*TIMES, *FAIRNESS, "utilisation", "gpu_hours", "restarts_per_job", *COST)


def metrics_table(
    shown: Simulated, name: str, heading: str, metrics: Sequence[str], words: str = ""
) -> SummaryTable:
    """A row for each policy:
    means over its seeds, with half of the 95 % interval where they differ.

    If one run of a policy has no value, the policy has none: a mean over only the known values
    would be misleading.
    """
    columns = [Column("policy", "text")]
    cells = []
    several = shown.seeds > 1
    if several:
        columns.append(Column("seeds", "count"))
    for metric in metrics:
        known = _known(shown, metric)
        if metric in STATED and not len(known):
            continue
        scale, words_and_unit = _scale(metric, known)
        most = 1 / scale if KINDS.get(metric) is SHARE else None
        columns.append(Column(words_and_unit, "formatted"))
        cells.append(
            [_mean_text(_values(shown, metric, policy), scale, most) for policy in shown.policies]
        )
    rows = tuple(
        (policy.name, *([len(policy.runs)] if several else []), *(column[row] for column in cells))
        for row, policy in enumerate(shown.policies)
    )
    return SummaryTable(name, heading, tuple(columns), rows, words)


def best_policies(shown: Simulated) -> list[tuple[str, str]]:
    """Which policy is best in each figure, which is worst, and by means over the seeds.

    Policies without a value in some run, and figures that are equal for all policies, are left out.
    """
    found = []
    all_end = all(metrics["completed"] == metrics["jobs"] for metrics in shown.metrics)
    for metric, best in BEST.items():
        # Means over completed jobs would favour policies that leave long jobs unfinished
        if metric in (*TIMES, *FAIRNESS) and not all_end:
            continue
        means = {
            policy.name: float(np.mean([value for value in values if value is not None]))
            for policy in shown.policies
            if None not in (values := _values(shown, metric, policy))
        }
        if len(means) < 2 or np.ptp([*means.values()]) <= 1e-9 * max(map(abs, means.values())):
            continue
        first, last = best(means.values()), (max if best is min else min)(means.values())
        who, worst = (
            enumerated([name for name, mean in means.items() if mean == end], "and")
            for end in (first, last)
        )
        text = f"{who}: {written(metric, first)}; worst {worst}: {written(metric, last)}"
        found.append((title(metric), text))
    return found


def comparison_table(shown: Simulated) -> SummaryTable:
    """Difference of each policy from the first, on simulations of the same trace with the same
    seed.
    """
    first = shown.policies[0]
    rows = []
    for metric in COMPARED:
        known = _known(shown, metric)
        if not len(known):
            continue
        scale, words_and_unit = _scale(metric, known)
        compared = [_compared(shown, metric, first, other, scale) for other in shown.policies[1:]]
        # Adjust p within a figure, as in `figure_pairs`. Over all figures, which depend on each
        # other, the few seeds of a simulation could never reach significance
        adjusted = holm([p for _, p in compared])
        rows += [
            (words_and_unit, *cells, cell_text(p, "p"), cell_text(value, "p"))
            for (cells, p), value in zip(compared, adjusted, strict=True)
        ]
    names = (
        "figure",
        "policy",
        "pairs",
        "first",
        "policy's",
        "difference",
        "95 % from",
        "to",
        "relative",
        "p",
        "p Holm",
    )
    columns = tuple(
        Column(name, "text" if place < 2 else "formatted") for place, name in enumerate(names)
    )
    words = (
        f"Each policy less the first ({first.name}), on the same trace with the same seed: "
        "means over the pairs in "
        "which both have the figure, mean difference, its 95 % interval (Student's t), "
        "the difference relative to the "
        "first, p of Wilcoxon's signed-rank test, and p adjusted for the number of policies "
        "that a figure compares (Holm), not for the number of figures. "
        "One pair, or pairs "
        "that all differ by the same, say nothing of chance and have no interval."
    )
    least = _least_pairs(len(shown.policies) - 1)
    if 1 < shown.seeds < least:
        words += f" With fewer than {least} pairs no p Holm can be below {SIGNIFICANT:g}."
    return SummaryTable("comparison", "Compared with the first policy", columns, tuple(rows), words)


def _least_pairs(comparisons: int) -> int:
    """Pairs from which an adjusted p can be below `SIGNIFICANT`.

    The signed-rank test of n pairs finds no p below 2 / 2**n, that of differences of one sign.
    """
    return 2 + math.floor(math.log2(max(comparisons, 1) / SIGNIFICANT))


def _compared(
    shown: Simulated, metric: str, first: Policy, other: Policy, scale: float
) -> tuple[list[str], float | None]:
    """Cells of a row of the comparison after the name of the metric, and p."""
    both = [
        (a / scale, b / scale)
        for a, b in (
            (shown.metrics[run][metric], shown.metrics[other_run][metric])
            for run, other_run in shown.pairs(first, other)
        )
        if a is not None and b is not None
    ]
    base = np.array([pair[0] for pair in both])
    values = np.array([pair[1] for pair in both])
    cells = [other.name, f"{len(both):,}"]
    if not both:
        return [*cells, *[NO_VALUE] * 6], None
    result = paired(values.tolist(), base.tolist(), ratio=False, method="t")
    assert result.estimate is not None
    # If all differences are equal, there is no spread; an interval of width 0 would be misleading
    varies = bool(np.ptp(values - base) > 1e-12 * np.abs([values, base]).max())
    mean = float(base.mean())
    relative = NO_VALUE if mean == 0 else signed_percent(result.estimate / abs(mean))
    low, high = (_text(limit) if varies else NO_VALUE for limit in (result.low, result.high))
    cells += [
        amount(mean),
        amount(float(values.mean())),
        _text(result.estimate),
        low,
        high,
        relative,
    ]
    return cells, result.p if varies else None


def jobs_table(shown: Simulated) -> SummaryTable:
    """Each policy against the first, job by job."""
    first = shown.policies[0]
    rows = []
    for other in shown.policies[1:]:
        ratios = [np.zeros(0)]
        before = 0
        after = 0
        for run, other_run in shown.pairs(first, other):
            a = shown.simulations[run]
            b = shown.simulations[other_run]
            counted = a.measured & b.measured
            ends = (a.completed & counted, b.completed & counted)
            before = before + int((ends[0] & ~ends[1]).sum())
            after = after + int((ends[1] & ~ends[0]).sum())
            both = ends[0] & ends[1] & (a.completion_times > 0) & (b.completion_times > 0)
            ratios.append(b.completion_times[both] / a.completion_times[both])
        rows.append((other.name, *_of_ratios(np.concatenate(ratios)), before, after))
    columns = (
        Column("policy", "text"),
        Column("jobs", "count"),
        Column("geometric mean", "ratio"),
        Column("lowest", "ratio"),
        Column("median", "ratio"),
        Column("highest", "ratio"),
        Column("shorter", "count"),
        Column("longer", "count"),
        Column("same", "count"),
        Column("only first ends", "count"),
        Column("only policy ends", "count"),
    )
    words = (
        f"Completion time of a job over that under the first policy ({first.name}), "
        "on the same trace with the same "
        "seed, for jobs that end under both. Jobs of one cluster depend on each other: "
        "there is no test."
    )
    return SummaryTable("job_by_job", "Job by job", columns, tuple(rows), words)


def _of_ratios(ratios: FloatArray) -> tuple[int | float | None, ...]:
    """How many, geometric mean, lowest, median, highest, how many below, above and at 1."""
    if not len(ratios):
        return (0, None, None, None, None, 0, 0, 0)
    equal = np.abs(ratios - 1) <= 1e-9
    shape = (float(np.exp(np.log(ratios).mean())), *np.quantile(ratios, [0, 0.5, 1]).tolist())
    return (
        len(ratios),
        *shape,
        int((~equal & (ratios < 1)).sum()),
        int((~equal & (ratios > 1)).sum()),
        int(equal.sum()),
    )


def runs_table(shown: Simulated) -> SummaryTable:
    """Every simulation with all its metrics, in their own units."""
    names = list(shown.metrics[0])
    owner = {run: policy.name for policy in shown.policies for run in policy.runs}
    rows = tuple(
        (
            owner[number],
            run.trace.name,
            seed_of(run),
            *(shown.metrics[number][name] for name in names),
        )
        for number, run in enumerate(shown.simulations)
    )
    columns = (
        Column("policy", "text"),
        Column("trace", "text"),
        Column("seed", "count"),
        *map(Column, names),
    )
    return SummaryTable(
        "runs", "Every simulation", columns, rows, "Times in s, cost in USD, energy in kWh."
    )


def _values(shown: Simulated, metric: str, policy: Policy) -> list[float | None]:
    return [shown.metrics[run][metric] for run in policy.runs]


def _known(shown: Simulated, metric: str) -> FloatArray:
    """The known values of all runs."""
    found = (metrics[metric] for metrics in shown.metrics)
    return np.array([value for value in found if value is not None], np.float64)


def _scale(metric: str, known: FloatArray) -> tuple[float, str]:
    """Divisor that converts a metric to the unit that is shown, and its heading with that unit."""
    kind = KINDS.get(metric)
    if kind is SHARE:
        return 0.01, f"{title(metric)}, %"
    if kind is DURATION and len(known):
        unit, name = time_unit(float(known.max()))
        return unit, f"{title(metric)}, {name}"
    return 1.0, title(metric)


def _mean_text(values: Sequence[float | None], scale: float, most: float | None = None) -> str:
    """A mean with its interval; a share is at most ``most`` and at least 0."""
    known = [value / scale for value in values if value is not None]
    # A mean over only the seeds with a value would favour the policy
    if len(known) < len(values):
        return NO_VALUE
    interval = mean_interval(known, "t")
    assert interval.mean is not None
    alike = np.ptp(known) <= 1e-12 * max(np.abs(known))
    if interval.low is None or interval.high is None or len(known) < ENOUGH or alike:
        return amount(interval.mean)
    half = interval.high - interval.mean
    digits = min(max(0, 1 - math.floor(math.log10(half))), DIGITS)
    if most is not None and not 0 <= interval.low <= interval.high <= most:
        low, high = max(interval.low, 0.0), min(interval.high, most)
        return f"{interval.mean:,.{digits}f} ({low:,.{digits}f} to {high:,.{digits}f})"
    return f"{interval.mean:,.{digits}f} ± {half:,.{digits}f}"


def _text(value: float | None) -> str:
    return NO_VALUE if value is None else amount(value)
