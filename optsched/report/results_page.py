"""The page of a sweep: description, tables, profiles, all rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from optsched.benchmarking.profiles import FLOOR, PerformanceProfile, gap_profile, time_profile
from optsched.benchmarking.results import Results
from optsched.benchmarking.summary_table import SummaryTable, cell_text
from optsched.display import count, first_of
from optsched.display.html import facts_html, table_html
from optsched.errors import UsageError
from optsched.report.page import (
    Section,
    folded,
    picture_html,
    summary_html,
    words_html,
)
from optsched.report.palette import line_style
from optsched.report.pictures import (
    fixed_ticks,
    grid_below,
    head,
    legend_beside,
    new_axes,
    plain_frame,
    round_factors,
)

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes


# --- performance profiles ------------------------------------------------------------------------

# Factor by which lines extend beyond the last step.
ROOM = 1.15


def profile_picture(
    profile: PerformanceProfile | None,
    title: str = "Performance profile",
    axis: str = "time over the least time",
    ax: Axes | None = None,
) -> Axes:
    """Draw a performance profile: the left end shows how often a method is the best, the right end
    how many problems it solves.

    Parameters
    ----------
    profile : PerformanceProfile
    title, axis : str
    ax : matplotlib axes, optional
        Where to draw; by default on a new figure.

    Raises
    ------
    UsageError
        If there is nothing to draw.
    SolverUnavailable
        If matplotlib is not installed.
    """
    if profile is None or not any(len(ratios) for ratios in profile.ratios.values()):
        raise UsageError("there is no profile to draw: no task was solved")
    ax = ax or new_axes(7.6, 4.4)
    end = max(1.001, profile.largest**ROOM)
    plain_frame(ax, "left", "bottom")
    for place, (name, ratios) in enumerate(profile.ratios.items()):
        share = np.arange(len(ratios) + 1) / profile.problems
        steps = np.concatenate([[1.0], ratios, [end]])
        colour, style = line_style(place)
        ax.step(
            steps,
            [*share, share[-1]],
            where="post",
            color=colour,
            linestyle=style,
            linewidth=1.8,
            label=name,
            clip_on=False,
            zorder=3,
        )
    ax.set_xscale("log")
    ax.set_xlim(1.0, end)
    ax.set_ylim(0.0, 1.0)
    _ticks(ax, end)
    grid_below(ax)
    legend_beside(ax, _by_height(ax, [len(ratios) for ratios in profile.ratios.values()]))
    head(
        ax,
        title,
        f"{count(profile.problems, 'problem')}; what a method does not solve counts as "
        "infinitely far",
        axis,
        "share of the problems",
    )
    return ax


def _ticks(ax: Axes, end: float) -> None:
    """Ticks at common factors (1, 2, 5, 10 ...); near 1, in percent above the best."""
    if end >= 2:
        factors = [1] if end >= 1e3 else [1, 2, 5] if end >= 10 else [1, 1.5, 2, 3, 5, 7]
        fixed_ticks(ax, round_factors(1.0, end, factors))
        return
    # About five steps of 1, 2 or 5 times a power of ten, in percent
    most = 100 * (end - 1)
    step = next(width for width in round_factors(most / 100, most, (1, 2, 5)) if most / width <= 6)
    percents = np.arange(0.0, most + step / 100, step)
    fixed_ticks(ax, (1 + percents / 100).tolist(), [f"+{percent:.3g} %" for percent in percents])


def _by_height(ax: Axes, solved: Sequence[int]) -> list[Artist]:
    """Entries of the legend in the order in which the lines end, the highest first."""
    handles, _ = ax.get_legend_handles_labels()
    order = sorted(range(len(solved)), key=lambda place: -solved[place])
    return [handles[place] for place in order]


# --- the page ------------------------------------------------------------------------------------

# Most rows that are listed.
MOST_ROWS = 5000
ROW_COLUMNS = (
    ("instance", "text"),
    ("trace", "text"),
    ("formulation", "text"),
    ("options", "text"),
    ("policy", "text"),
    ("solver", "text"),
    ("seed", "count"),
    ("status", "text"),
    ("objective", "number"),
    ("bound", "number"),
    ("proof", "text"),
    ("gap", "percent"),
    ("gap_to_best", "percent"),
    ("total_s", "seconds"),
    ("wall_s", "seconds"),
    ("iterations", "count"),
    ("nodes", "count"),
    ("peak_memory_mb", "number"),
    ("error", "text"),
)


def result_sections(
    results: Results, tables: Sequence[SummaryTable], files: Sequence[str]
) -> list[Section]:
    """The sections of a sweep, for their own page or a part of another page."""
    sections = [Section("What was run", facts_html(facts(results, files)))]
    by_name = {table.name: table for table in tables}
    pictures = {
        "times": time_picture,
        "gaps": gap_picture,
    }
    captions = {
        "times": "On what share of the problems a method takes at most so many times the least "
        "time (Dolan and Moré "
        f"2002). Times below {1000 * FLOOR:g} ms count as equal.",
        "gaps": (
            "On what share of the problems a method is within a factor of the best known objective."
        ),
    }
    for name, table in by_name.items():
        picture = pictures[name](results) if name in pictures else None
        drawn = "" if picture is None else picture_html(picture, captions[name])
        sections.append(Section(table.title, drawn + summary_html(table)))
    return [*sections, Section("Rows", rows_html(results))]


def facts(results: Results, files: Sequence[str]) -> list[tuple[str, str]]:
    """Facts about the rows: files, number, date, versions and machine."""

    def values_of(name: str) -> str:
        found = dict.fromkeys(str(row[name]) for row in results.rows if row.get(name) is not None)
        return first_of(found, 8)

    dates = sorted(str(row["date"]) for row in results.rows if row.get("date"))
    size = (
        f"{len(results.rows):,} of {len(results.problems):,} problems and "
        f"{len(results.methods):,} methods"
    )
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
        ("optsched", values_of("optsched")),
        ("Python", values_of("python")),
        ("processor", values_of("cpu")),
        ("cores", values_of("cores")),
        ("threads", values_of("threads")),
        (
            "time limit",
            ", ".join(
                cell_text(float(item), "seconds")
                for item in values_of("time_limit_s").split(", ")
                if item
            ),
        ),
        ("made", " to ".join(dict.fromkeys((dates[0], dates[-1]))) if dates else ""),
    ]
    return [(name, words) for name, words in entries if words]


def rows_html(results: Results) -> str:
    """A collapsed table of all rows."""
    columns = [
        (name, kind)
        for name, kind in ROW_COLUMNS
        if any(row.get(name) is not None for row in results.rows)
    ]
    columns += [(name, "number") for name in results.metrics if name not in dict(ROW_COLUMNS)]
    listed = results.rows[:MOST_ROWS]
    rows = [[cell_text(row.get(name), kind) for name, kind in columns] for row in listed]
    table = table_html([name for name, _ in columns], rows, [kind == "text" for _, kind in columns])
    more = len(results.rows) - len(listed)
    words = words_html(f"{more:,} more are in the file alone." if more else "")
    return folded(f"{len(listed):,} rows", table) + words


def time_picture(results: Results) -> Axes | None:
    """The profile of times; None if there are fewer than two methods, or no times."""
    return _picture(
        results,
        time_profile(results),
        "Performance profile of times",
        "time over the least time of all methods",
    )


def gap_picture(results: Results) -> Axes | None:
    """The profile of objectives;
    None if there are fewer than two methods, or no objectives.
    """
    return _picture(
        results,
        gap_profile(results),
        "Performance profile of objectives",
        "factor to the best known objective (1 + gap)",
    )


def _picture(
    results: Results, profile: PerformanceProfile | None, title: str, axis: str
) -> Axes | None:
    if (
        profile is None
        or len(results.methods) < 2
        or not any(len(ratios) for ratios in profile.ratios.values())
    ):
        return None
    return profile_picture(profile, title, axis)
