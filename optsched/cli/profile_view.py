"""The tables of a sweep on the shell, with the shares of its performance profile."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from optsched.benchmarking.profiles import time_profile
from optsched.cli.shell import terminal_width
from optsched.cli.tables import count, heading, percent, table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from optsched.benchmarking.results import Results
    from optsched.benchmarking.summary_table import SummaryTable

FACTORS = (1.0, 1.1, 1.5, 2.0, 5.0, 10.0, 100.0)


def profile_view(results: Results, tables: Sequence[SummaryTable]) -> Iterator[RenderableType]:
    """Heading, tables, and words below each."""
    rows, problems = count(len(results.rows), "row"), count(len(results.problems), "problem")
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
