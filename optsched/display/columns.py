"""How columns of tables are written for people,
by the names that they have in frames and documents.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from optsched.display.text import amount, clock, number, percent, rounded, seconds, share


class ColumnFormat(NamedTuple):
    """How the numbers of a column are written,
    and the unit that their heading states for all of them.
    """

    write: Callable[[float], str]
    unit: str = ""


# What cells say with their unit.
SHARE, GAP, DURATION = ColumnFormat(percent), ColumnFormat(share), ColumnFormat(seconds)
# A time on the clock keeps its digits: two starts must not look alike, as 2.1 h would.
CLOCK = ColumnFormat(clock, "h:mm:ss")
RATE = ColumnFormat(rounded, "steps/s")
OBJECTIVE = ColumnFormat(number)
PLAIN = ColumnFormat(amount)

KINDS: Mapping[str, ColumnFormat] = {
    **dict.fromkeys(("arrival", "start", "end", "first_start", "finish", "deadline"), CLOCK),
    "waiting_since": CLOCK,
    **dict.fromkeys(("seconds", "executed", "completion_time", "makespan", "last_end"), DURATION),
    **dict.fromkeys(("mean_jct", "p50_jct", "p99_jct"), DURATION),
    **dict.fromkeys(("load_s", "compile_s", "build_s", "solve_s", "certify_s"), DURATION),
    **dict.fromkeys(("total_s", "wall_s"), DURATION),
    **dict.fromkeys(("fraction", "used", "smallest_share", "mean_share", "deadlines_met"), SHARE),
    **dict.fromkeys(("utilisation", "progress", "fragmentation", "unfair_fraction"), SHARE),
    **dict.fromkeys(("mape", "median_ape", "mape_sd", "coverage"), SHARE),
    **dict.fromkeys(("gap", "gap_to_best"), GAP),
    **dict.fromkeys(("rate", "partner_rate", "throughput"), RATE),
    **dict.fromkeys(("objective", "bound", "best_known", "capacity"), OBJECTIVE),
    "fairness": ColumnFormat("{:.3f}".format),
    "cost": ColumnFormat("{:,.2f}".format, "USD"),
    "cost_per_hour": ColumnFormat("{:,.2f}".format, "USD/h"),
    "energy": ColumnFormat(amount, "kWh"),
}
"""Columns that are more than plain numbers."""


RECORDED = frozenset({"key", "sha256", "optsched", "python", "cpu", "cores", "date"})
"""Columns that say how a row of a sweep came about: frames have them, notebooks leave them out."""

HEADINGS: Mapping[str, str] = {
    "gpus": "GPUs",
    "gpus_min": "least GPUs",
    "gpus_max": "most GPUs",
    "owed": "rounds owed",
    "mean_jct": "mean JCT",
    "p50_jct": "median JCT",
    "p99_jct": "p99 JCT",
    "mean_rho": "mean rho",
    "worst_rho": "worst rho",
    "unfair_fraction": "unfair",
    "deadlines_met": "deadlines met",
    "progress": "with progress",
    "mean_queue": "jobs that wait",
    "mean_contention": "jobs there",
    "gpu_hours": "GPU-hours",
    "gpu_hours_per_job": "GPU-hours of a job",
    "restarts_per_job": "restarts of a job",
    "lost_steps": "steps lost",
    "solves": "plans made",
    "mean_solve_ms": "mean time of a plan, ms",
    "p99_solve_ms": "p99 time of a plan, ms",
}
"""What people call columns, where their names do not say it."""


def title(name: str, kind: ColumnFormat | None = None) -> str:
    """What people call a column, with its unit where the cells do not say it:
    ``mean JCT``, ``cost, USD``.
    """
    unit = (kind or KINDS.get(name, PLAIN)).unit
    words = HEADINGS.get(name, name.replace("_", " "))
    return f"{words}, {unit}" if unit else words


def written(name: str, value: Any, kind: ColumnFormat | None = None) -> str:
    """A value of a column as text; nothing where there is none."""
    if value is None:
        return ""
    if isinstance(value, float):
        if value != value:  # NaN: there is no value
            return ""
        sign = "-" if value < 0 else ""
        if math.isinf(value):  # in no unit: there is no infinite number of days
            return f"{sign}inf"
        return sign + (kind or KINDS.get(name, PLAIN)).write(abs(value))
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        return ", ".join(written(name, item) for item in value)
    if isinstance(value, dict):
        return ", ".join(f"{key} {written(key, item)}" for key, item in value.items())
    return str(value)
