"""The objective in words, and the resources: capacity, use, and what one more is worth in units of the objective."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from optsched.cli.tables import name, number, percent, rounded, seconds, table
from optsched.registry import objective_words
from optsched.solution import Solution, Status

if TYPE_CHECKING:
    from rich.console import RenderableType


def quantity(value: float, unit: str) -> str:
    """A number with its unit; seconds also as a readable duration."""
    if not unit:
        return number(value)
    long = f" ({seconds(value)})" if unit == "s" and 120 <= value < float("inf") else ""
    return f"{number(value)} {unit}{long}"


SHOWN = 40
"""Pools and resources in a table, at most."""


def resource_tables(solution: Solution) -> Iterator[RenderableType]:
    """GPUs of the pools, then further resources: capacity, use, and what one more is worth."""
    allocation = solution.allocation
    assert allocation is not None
    resources, usage = allocation.classes.resources, allocation.usage
    known = solution.prices if solution.status is Status.OPTIMAL else {}
    prices = known if any(known.values()) else {}
    for title, unit, rows in (
        ("pool", "GPUs", np.flatnonzero(resources.pool >= 0)),
        ("resource", "capacity", np.flatnonzero(resources.pool < 0)),
    ):
        if len(rows) == 0:
            continue
        columns = [title, unit, "used", "utilisation"] + (["one more is worth"] if prices else [])
        lines = []
        for row in rows[:SHOWN].tolist():
            capacity, used = float(resources.capacity[row]), float(usage[row])
            line = [name(resources.names[row]), number(capacity), number(round(used, 6))]
            line.append(percent(min(used / capacity, 1.0)) if capacity > 0 else "")
            lines.append(line + ([price(prices[resources.names[row]])] if prices else []))
        yield table(*columns, rows=lines)
        if len(rows) > SHOWN:
            yield f"... and {len(rows) - SHOWN:,} more (use -o or --json)"
    if known and not prices:
        yield "One more of any would not help: all prices are 0."
    elif prices:
        yield worth_words(solution)


def worth_words(solution: Solution) -> str:
    """What the prices are."""
    words, unit = objective_words(solution.formulation)
    change = "fall" if solution.sense == "min" else "rise"
    return (
        f"worth: {change} of the {words}{f' ({unit})' if unit else ''} for one more, at the margin"
    )


def price(value: float) -> str:
    """A price; what is zero is left out."""
    return "" if value == 0 else rounded(value)
