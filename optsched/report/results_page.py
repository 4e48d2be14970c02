"""The page of a sweep: what was run where, tables, profiles, every row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from optsched.benchmarking.profiles import FLOOR, Profile, gap_profile, time_profile
from optsched.benchmarking.results import Results
from optsched.benchmarking.summary_table import SummaryTable, cell_text
from optsched.report.page import Section
from optsched.report.page_parts import (
    facts_html,
    folded,
    picture_html,
    summary_html,
    table_html,
    words_html,
)
from optsched.report.performance_profile import profile_picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_ROWS = 5000
"""Rows that are listed."""
SHOWN = (
    ("instance", "text"), ("trace", "text"), ("formulation", "text"), ("options", "text"), ("policy", "text"),
    ("solver", "text"), ("seed", "count"), ("status", "text"), ("objective", "number"), ("bound", "number"),
    ("proof", "text"), ("gap", "percent"), ("gap_to_best", "percent"), ("total_s", "seconds"), ("wall_s", "seconds"),
    ("iterations", "count"), ("nodes", "count"), ("peak_memory_mb", "number"), ("error", "text"),
)  # fmt: skip


def result_sections(
    results: Results, tables: Sequence[SummaryTable], files: Sequence[str]
) -> list[Section]:
    """The sections of a sweep, to stand alone or among others."""
    sections = [Section("What was run", facts_html(facts(results, files)))]
    by_name = {table.name: table for table in tables}
    pictures: dict[str, Callable[[Results], Axes | None]] = {
        "times": time_picture,
        "gaps": gap_picture,
    }
    captions = {
        "times": f"On what share of the problems a method takes at most so many times the least time (Dolan and Moré "
        f"2002). Times below {1000 * FLOOR:g} ms count as equal.",
        "gaps": "On what share of the problems a method is within a factor of the best known objective.",
    }
    for name, table in by_name.items():
        picture = pictures[name](results) if name in pictures else None
        drawn = "" if picture is None else picture_html(picture, captions[name])
        sections.append(Section(table.title, drawn + summary_html(table)))
    return [*sections, Section("Rows", rows_html(results))]


def facts(results: Results, files: Sequence[str]) -> list[tuple[str, str]]:
    """Where rows come from, how many, when and with what they were made."""

    def told(name: str) -> str:
        found = dict.fromkeys(str(row[name]) for row in results.rows if row.get(name) is not None)
        return ", ".join(islice(found, 8)) + (
            f" and {len(found) - 8} more" if len(found) > 8 else ""
        )

    dates = sorted(str(row["date"]) for row in results.rows if row.get("date"))
    size = f"{len(results.rows):,} of {len(results.problems):,} problems and {len(results.methods):,} methods"
    solvers = dict.fromkeys(
        f"{row['solver_used']} {row['solver_version']}"
        for row in results.rows
        if row.get("solver_version")
    )
    entries = [
        ("files", ", ".join(files)),
        ("rows", size),
        ("methods by", " ".join(results.by)),
        ("problems by", " ".join(results.problem_columns)),
        ("solvers", ", ".join(solvers)),
        ("optsched", told("optsched")),
        ("Python", told("python")),
        ("processor", told("cpu")),
        ("cores", told("cores")),
        ("threads", told("threads")),
        (
            "time limit",
            ", ".join(
                cell_text(float(item), "seconds")
                for item in told("time_limit_s").split(", ")
                if item
            ),
        ),
        ("made", " to ".join(dict.fromkeys((dates[0], dates[-1]))) if dates else ""),
    ]
    return [(name, words) for name, words in entries if words]


def rows_html(results: Results) -> str:
    """Every row, folded away."""
    columns = [
        (name, kind)
        for name, kind in SHOWN
        if any(row.get(name) is not None for row in results.rows)
    ]
    columns += [(name, "number") for name in results.metrics if name not in dict(SHOWN)]
    listed = results.rows[:MOST_ROWS]
    rows = [[cell_text(row.get(name), kind) for name, kind in columns] for row in listed]
    table = table_html([name for name, _ in columns], rows, [kind == "text" for _, kind in columns])
    more = len(results.rows) - len(listed)
    words = words_html(f"{more:,} more are in the file alone." if more else "")
    return folded(f"{len(listed):,} rows", table) + words


def time_picture(results: Results) -> Axes | None:
    """The profile of times; None where there are not two methods to compare, or no times."""
    return _picture(
        results,
        time_profile(results),
        "Performance profile of times",
        "time over the least time of all methods",
    )


def gap_picture(results: Results) -> Axes | None:
    """The profile of objectives; None where there are not two methods to compare, or no objectives."""
    return _picture(
        results,
        gap_profile(results),
        "Performance profile of objectives",
        "factor to the best known objective (1 + gap)",
    )


def _picture(results: Results, profile: Profile | None, title: str, axis: str) -> Axes | None:
    if (
        profile is None
        or len(results.methods) < 2
        or not any(len(ratios) for ratios in profile.ratios.values())
    ):
        return None
    return profile_picture(profile, title, axis)
