"""Simulations as a page and as one picture: what was simulated, what came of it, how policies differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from optsched.errors import UsageError
from optsched.report.answers import count
from optsched.report.gpu_gantt import gpu_gantt_picture
from optsched.report.page import Section, page, write_page
from optsched.report.page_parts import facts_html, folded, picture_html, summary_html, words_html
from optsched.report.palette import MUTED, SMALL
from optsched.report.pictures import plain_frame, require_matplotlib, save_picture
from optsched.report.simulated import Simulated, seed_of
from optsched.report.simulation_facts import facts, named, notices
from optsched.report.simulation_shares import (
    DEFINITIONS,
    INSIDE,
    completion_times_picture,
    fairness_picture,
)
from optsched.report.simulation_tables import (
    COST,
    FAIRNESS,
    PLANNING,
    SUMMARY,
    TIMES,
    USE,
    Figure,
    comparison_table,
    jobs_table,
    metrics_table,
    runs_table,
)
from optsched.report.simulation_times import queue_picture, utilisation_picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from optsched.simulation import Simulation
    from optsched.simulation.options import RHO

MOST_GANTTS = 4
"""Policies whose GPUs are drawn."""


def write_simulation_page(
    simulations: Sequence[Simulation],
    path: str | Path,
    title: str = "Simulations",
    *,
    rho: RHO = "isolated",
    unfair: float = 1.0,
) -> None:
    """Write one self-contained page of HTML about simulations.

    Parameters
    ----------
    simulations : sequence of Simulation
        Of any policies, seeds and options; the first policy is the one that others are compared with.
    path : str or Path
    title : str
    rho : str
        Definition of finish-time ratios (`finish_time_ratios`).
    unfair : float
        A job is unfairly treated where its ratio is larger than this.

    Raises
    ------
    UsageError
        If there is no simulation, or the file cannot be written.
    SolverUnavailable
        If matplotlib is not installed.
    """
    shown = Simulated.of(simulations, rho, unfair)
    names = list(dict.fromkeys(run.trace.name for run in shown.simulations))
    lead = f"{count(len(shown.policies), 'policy', 'policies')} on {named(names)}; "
    lead += f"{count(len(shown.simulations), 'simulation')}, {count(shown.jobs, 'measured job')}"
    write_page(page(title, lead, simulation_sections(shown)), path)


def write_simulation_picture(simulations: Sequence[Simulation], path: str | Path) -> None:
    """Write completion times, finish-time ratios, utilisation and queues as one picture: png, svg or pdf.

    Raises
    ------
    UsageError
        If there is nothing to draw, or the file has another suffix or cannot be written.
    SolverUnavailable
        If matplotlib is not installed.
    """
    save_picture(simulation_picture(simulations), path)


def simulation_picture(simulations: Sequence[Simulation] | Simulated) -> Axes:
    """Draw the main pictures on one sheet; returns the first, whose figure has all."""
    shown = Simulated.of(simulations)
    require_matplotlib()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12.0, 8.0), layout="constrained")
    panels = figure.subplots(2, 2)
    figure.get_layout_engine().set(h_pad=0.12, w_pad=0.12, hspace=0.05, wspace=0.04)  # type: ignore[union-attr, call-arg]
    drawn = 0
    draws = (completion_times_picture, fairness_picture, utilisation_picture, queue_picture)
    for draw, ax in zip(draws, panels.ravel(), strict=True):
        try:
            draw(shown, ax)
            drawn += 1
        except UsageError as nothing:
            plain_frame(ax)
            ax.set_xticks([])
            ax.set_yticks([])
            ax.text(
                0.5, 0.5, str(nothing), ha="center", va="center", fontsize=SMALL + 1, color=MUTED
            )
        legend = ax.get_legend()
        if legend is not None:
            legend.remove()
    if not drawn:
        raise UsageError(
            "there is nothing to draw: no measured job was completed, and no time passes"
        )
    handles, names = next(
        found for ax in panels.ravel() if (found := ax.get_legend_handles_labels())[0]
    )
    figure.legend(handles, names, loc="outside lower left", ncols=4 if len(names) <= INSIDE else 3, frameon=False,
                  fontsize=SMALL + 1, handlelength=2.8)  # fmt: skip
    first: Axes = panels[0, 0]
    return first


def simulation_sections(
    simulations: Sequence[Simulation] | Simulated, *, rho: RHO = "isolated", unfair: float = 1.0
) -> list[Section]:
    """The sections of a page about simulations, to stand alone or among others; see `write_simulation_page`."""
    shown = Simulated.of(simulations, rho, unfair)
    sections = [
        Section("What was simulated", facts_html(facts(shown))),
        Section("Summary", _table(shown, "summary", SUMMARY, _summary_words(shown))),
        Section("Completion times", _drawn(lambda: completion_times_picture(shown), _shares_words(shown, "up to a "
                "completion time (JCT)")) + _table(shown, "times", TIMES)),
        Section("Fairness", _drawn(lambda: fairness_picture(shown), _shares_words(shown, "up to a finish-time ratio"))
                + _table(shown, "fairness", FAIRNESS, _rho_words(shown))),
        Section("Use of the cluster", _drawn(lambda: utilisation_picture(shown), "Part of the GPUs of the nodes that "
                "are up that jobs hold.") + _drawn(lambda: queue_picture(shown), "Jobs that have arrived and hold no "
                "GPUs.") + _table(shown, "use", USE)),
    ]  # fmt: skip
    if any(len(run.segments) for run in shown.simulations):
        sections.append(Section("Who held which GPUs", _gantts(shown)))
    if any(metrics[figure.metric] is not None for metrics in shown.metrics for figure in COST):
        words = (
            "Of the measured jobs, at the prices of the pools; "
            "energy of all GPUs until the end, idle ones included."
        )
        sections.append(Section("Cost and energy", _table(shown, "cost", COST, words)))
    sections.append(
        Section(
            "Planning",
            _table(shown, "planning", PLANNING, "Wall time on the machine that simulated."),
        )
    )
    if len(shown.policies) > 1:
        tables = (comparison_table(shown), jobs_table(shown))
        sections += [Section(table.title, summary_html(table)) for table in tables]
    if any(run.notices for run in shown.simulations):
        sections.append(Section("Notices", facts_html(notices(shown))))
    runs = runs_table(shown)
    return [
        *sections,
        Section(runs.title, folded(count(len(runs.rows), "row"), summary_html(runs))),
    ]


def _table(shown: Simulated, name: str, figures: Sequence[Figure], words: str = "") -> str:
    return summary_html(metrics_table(shown, name, "", figures, words))


def _drawn(draw: Callable[[], Axes], words: str) -> str:
    """A picture with its caption, or the sentence that says why there is none."""
    try:
        return picture_html(draw(), words)
    except UsageError as nothing:
        told = str(nothing)
        return words_html(f"{told[:1].upper()}{told[1:]}.")


def _summary_words(shown: Simulated) -> str:
    told = []
    if shown.seeds > 1:
        told.append(
            "Means over the seeds ± half of their 95 % interval (Student's t), without it where all seeds are alike. "
            "A dash stands where a run has no value."
        )
    else:
        told.append("A dash stands where there is no value.")
    if any(metrics["completed"] != metrics["jobs"] for metrics in shown.metrics):
        told.append(
            "Some jobs did not end: their completion times are in no mean, so means of policies that complete "
            "different jobs cannot be compared (job by job they can, below)."
        )
    return " ".join(told)


def _shares_words(shown: Simulated, what: str) -> str:
    return f"Share of the measured jobs {what}. Jobs that did not end count: a line ends below 1 where there are some."


def _rho_words(shown: Simulated) -> str:
    return (
        f"rho: completion time {DEFINITIONS[shown.rho]} ({shown.rho}); unfair are jobs with rho above "
        f"{shown.unfair:g}. Published definitions differ, and their numbers cannot be compared."
    )


def _gantts(shown: Simulated) -> str:
    """The GPUs of the first run of each policy; all but the first folded away."""
    parts = []
    for place, policy in enumerate(shown.policies[:MOST_GANTTS]):
        run = shown.simulations[policy.runs[0]]
        seed = f", seed {seed_of(run)}" if len(policy.runs) > 1 else ""
        made = _drawn(lambda run=run: gpu_gantt_picture(run), f"{policy.name}{seed}")  # type: ignore[misc]
        parts.append(folded(policy.name, made) if place else made)
    more = len(shown.policies) - MOST_GANTTS
    return "".join(parts) + words_html(
        f"{count(more, 'more policy', 'more policies')} not drawn." if more > 0 else ""
    )
