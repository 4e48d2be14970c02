"""Rows of simulations as tables for people: a policy in a line, means over its seeds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from optsched.cli.tables import bullets, count, heading, name, number, seconds, share, table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from optsched.traces import Trace

# Heading, metric, and how it is written; a column that no row has is left out.
COLUMNS: Sequence[tuple[str, str, Any]] = (
    ("mean JCT", "mean_jct", seconds),
    ("p50", "p50_jct", seconds),
    ("p99", "p99_jct", seconds),
    ("makespan", "makespan", seconds),
    ("used", "utilisation", share),
    ("worst rho", "worst_rho", lambda value: f"{value:.2f}"),
    ("unfair", "unfair_fraction", share),
    ("in time", "deadlines_met", share),
    ("restarts", "restarts_per_job", lambda value: f"{value:.1f}"),
    ("cost, USD", "cost", number),
    ("kWh", "energy", number),
)


def simulate_view(trace: Trace, rows: Sequence[Mapping[str, Any]]) -> Iterator[RenderableType]:
    """Trace, policies, what could not be done."""
    instance = trace.instance
    gpus = sum(int(pool.node_gpus.sum()) for pool in instance.cluster.pools)
    seeds = len({row["seed"] for row in rows})
    title = f"{name(trace.name)}: {count(len(instance.jobs_table), 'job')} on {count(gpus, 'GPU')}"
    yield heading(title + (f"; means over {seeds} seeds" if seeds > 1 else ""))
    done = [row for row in rows if row["status"] == "ok"]
    policies = list(dict.fromkeys(str(row["policy"]) for row in done))
    shown = [column for column in COLUMNS if any(row.get(column[1]) is not None for row in done)]
    if done:
        cells = [
            _cells(policy, [row for row in done if row["policy"] == policy], shown)
            for policy in policies
        ]
        whole = all(row["completed"] == row["jobs"] for row in done)
        titles = [*(() if whole else ("complete",)), *(title for title, _, _ in shown)]
        yield table(
            "policy",
            *titles,
            rows=[[line[0], *line[2 if whole else 1 :]] for line in cells],
            left=1,
        )
    words = [
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


def _cells(
    policy: str, rows: Sequence[Mapping[str, Any]], shown: Sequence[tuple[str, str, Any]]
) -> list[str]:
    """Means over the seeds; a dash where a seed has none."""
    complete = {f"{row['completed']:,} of {row['jobs']:,}" for row in rows}
    cells = [name(policy), " / ".join(sorted(complete))]
    for _, metric, written in shown:
        found = [float(row[metric]) for row in rows if row.get(metric) is not None]
        cells.append(written(float(np.mean(found))) if len(found) == len(rows) else "-")
    return cells
