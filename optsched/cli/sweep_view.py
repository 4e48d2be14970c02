"""Views of sweeps: rows of a benchmark, rows of simulations, and profiles of both."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from optsched.benchmarking.profiles import time_profile
from optsched.benchmarking.summary import MEANS
from optsched.cli.shell import terminal_width
from optsched.cli.tables import (
    bullets,
    heading,
    more,
    name,
    number,
    optional,
    percent,
    seconds,
    share,
    table,
)
from optsched.display import count
from optsched.display.columns import title, written

if TYPE_CHECKING:
    from rich.console import RenderableType

    from optsched.benchmarking.results import Results
    from optsched.benchmarking.summary_table import SummaryTable
    from optsched.traces import Trace


# --- a benchmark ----------------------------------------------------------------------------------

# Smaller improvements on the best known value count as rounding.
ROUNDING = 1e-9
# Rows that are listed one by one.
SHOWN = 40
# Errors that are listed.
ERRORS = 10


def bench_view(rows: Sequence[Mapping[str, Any]]) -> Iterator[RenderableType]:
    yield heading(f"{count(len(rows), 'task')}: {_counts(rows)}" if rows else "no task is done")
    if 0 < len(rows) <= SHOWN:
        columns = (
            "instance",
            "formulation",
            "solver",
            "status",
            "objective",
            "gap",
            "to best",
            "time",
        )
        yield table(*columns, rows=[_cells(row) for row in rows], left=4)
    errors = [f"{_title(row)}: {row['error']}" for row in rows if row.get("error")]
    if errors:
        yield ""
        yield heading("Without an answer:")
        yield bullets(errors[:ERRORS])
        if len(errors) > ERRORS:
            yield f"... and {len(errors) - ERRORS:,} more"


def _counts(rows: Sequence[Mapping[str, Any]]) -> str:
    statuses = [str(row["status"]) for row in rows]
    return ", ".join(f"{statuses.count(status)} {status}" for status in dict.fromkeys(statuses))


def _cells(row: Mapping[str, Any]) -> list[str]:
    solver = row.get("solver_used") or row["solver"]
    objective, gap, best, spent = (
        row.get(key) for key in ("objective", "gap", "gap_to_best", "total_s")
    )
    return [
        name(str(row["instance"])),
        f"{row['formulation'] or '-'}{' *' if row.get('options') else ''}",
        str(solver) if row["seed"] == 0 else f"{solver} seed {row['seed']}",
        str(row["status"]),
        optional(objective, number),
        optional(gap, share),
        "" if best is None else share(best) if best > -ROUNDING else f"-{share(-best)}",
        seconds(row["wall_s"] if spent is None else spent),
    ]


def _title(row: Mapping[str, Any]) -> str:
    named = [row["instance"], row["formulation"], row["solver"]]
    return " ".join(str(part) for part in named if part is not None)


# --- simulations ----------------------------------------------------------------------------------


LEGEND = {
    "worst_rho": "rho: completion time over that with a fair share of the cluster (--rho: "
    "which share); "
    "unfair: jobs with a rho above 1 (or --unfair)",
    "restarts_per_job": "restarts: starts after the first, of a job on average",
}
"""Explanations of headings of metrics."""


def simulate_view(trace: Trace, rows: Sequence[Mapping[str, Any]]) -> Iterator[RenderableType]:
    """Trace, policies, and failed tasks."""
    instance = trace.instance
    gpus = instance.cluster.size
    seeds = len({row["seed"] for row in rows})
    size = f"{count(len(instance.jobs_table), 'job')} on {count(gpus, 'GPU')}"
    over = f"; means over {seeds} seeds" if seeds > 1 else ""
    yield heading(f"{name(trace.name)}: {size}{over}")
    done = [row for row in rows if row["status"] == "ok"]
    policies = list(dict.fromkeys(str(row["policy"]) for row in done))
    shown = [metric for metric in MEANS if any(row.get(metric) is not None for row in done)]
    if done:
        by_policy = {
            policy: [row for row in done if row["policy"] == policy] for policy in policies
        }
        complete = (
            {} if all(row["completed"] == row["jobs"] for row in done) else {"complete": _complete}
        )
        cells = [
            [name(policy), *(said(runs) for said in complete.values()), *_means(runs, shown)]
            for policy, runs in by_policy.items()
        ]
        yield table("policy", *complete, *map(title, shown), rows=cells, left=1)
    words = [legend for metric, legend in LEGEND.items() if metric in shown and done]
    words += [
        f"{row['policy']}, seed {row['seed']}: {row['error']}" for row in rows if row.get("error")
    ]
    words += [
        f"{row['policy']}, seed {row['seed']}: {row['notices']}"
        for row in done
        if row.get("notices")
    ]
    if words:
        yield ""
        yield bullets(words)


def _complete(rows: Sequence[Mapping[str, Any]]) -> str:
    """The distinct numbers of completed jobs."""
    return " / ".join(sorted({f"{row['completed']:,} of {row['jobs']:,}" for row in rows}))


def _means(rows: Sequence[Mapping[str, Any]], metrics: Sequence[str]) -> list[str]:
    """Means over the seeds; a dash if a seed has no value."""
    cells = []
    for metric in metrics:
        found = [float(row[metric]) for row in rows if row.get(metric) is not None]
        cells.append(written(metric, float(np.mean(found))) if len(found) == len(rows) else "-")
    return cells


# --- a profile ------------------------------------------------------------------------------------

FACTORS = (1.0, 1.1, 1.5, 2.0, 5.0, 10.0, 100.0)


def profile_view(
    results: Results, tables: Sequence[SummaryTable], hidden: int = 0
) -> Iterator[RenderableType]:
    """Heading, tables, and words below each; ``hidden`` tables are only counted."""
    rows = count(len(results.rows), "row")
    problems = count(len(results.problems), "problem")
    yield heading(
        f"{rows}: {problems}, {count(len(results.methods), 'method')} by {' '.join(results.by)}"
    )
    for item in tables:
        left = sum(column.kind == "text" for column in item.columns)
        yield table(
            *(column.name for column in item.columns), rows=item.texts, left=left, title=item.title
        )
        yield from _words(item.words)
        if item.name == "times":
            yield from _profile(results)
    yield from more(hidden, "table", see="--full, -o or --json")


def _profile(results: Results) -> Iterator[RenderableType]:
    profile = time_profile(results)
    if profile is None or len(results.methods) < 2:
        return
    names = [results.method_name(method) for method in results.methods]
    rows = [[name, *(percent(profile.share(name, factor)) for factor in FACTORS)] for name in names]
    columns = (" ".join(results.by), *(f"x {factor:g}" for factor in FACTORS))
    yield table(*columns, rows=rows, title="Performance profile of times")
    yield from _words(
        "On what share of all problems a method settles them within so many times the least time."
    )


def _words(text: str) -> Iterator[str]:
    yield from textwrap.wrap(text, terminal_width())
