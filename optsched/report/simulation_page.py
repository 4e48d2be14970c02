"""Simulations as a page and as one picture: setup, results, and differences between policies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import optsched
from optsched.display import count, first_of
from optsched.display.html import facts_html
from optsched.errors import UsageError
from optsched.report.gpu_gantt import gpu_gantt_picture
from optsched.report.page import (
    Section,
    folded,
    page,
    picture_html,
    summary_html,
    words_html,
    write_page,
)
from optsched.report.palette import MUTED, SMALL
from optsched.report.pictures import (
    new_panels,
    plain_frame,
    save_picture,
    time_words,
)
from optsched.report.simulated import Simulated, seed_of
from optsched.report.simulation_pictures import (
    DEFINITIONS,
    INSIDE,
    completion_times_picture,
    fairness_picture,
    queue_picture,
    utilisation_picture,
)
from optsched.report.simulation_tables import (
    COST,
    ENOUGH,
    FAIRNESS,
    PLANNING,
    SUMMARY,
    TIMES,
    USE,
    best_policies,
    comparison_table,
    jobs_table,
    metrics_table,
    runs_table,
)
from optsched.traces import Trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from optsched.simulation import Simulation
    from optsched.simulation.options import RHO


# --- facts ---------------------------------------------------------------------------------------


def facts(shown: Simulated) -> list[tuple[str, str]]:
    """Facts about traces and options."""
    traces = list({run.trace.sha256: run.trace for run in shown.simulations}.values())
    options = [
        {name: value for name, value in run.options.items() if name != "seed"}
        for run in shown.simulations
    ]
    shared = [
        f"{name}={value}"
        for name, value in options[0].items()
        if all(given.get(name) == value for given in options)
    ]
    events = dict.fromkeys(", ".join(trace.events_in_words) for trace in traces)
    events.pop("", None)
    entries = [
        ("policies", ", ".join(policy.name for policy in shown.policies)),
        ("trace" if len(traces) == 1 else "traces", first_of([trace.name for trace in traces], 8)),
        ("jobs", first_of(dict.fromkeys(_jobs_words(run) for run in shown.simulations), 8)),
        ("pools", first_of(dict.fromkeys(_pools_words(trace) for trace in traces), 8)),
        ("arrivals", first_of(dict.fromkeys(_arrival_words(trace) for trace in traces), 8)),
        ("in the trace", first_of(events, 8)),
        ("options", ", ".join(shared) or "the defaults"),
        ("seeds", first_of(dict.fromkeys(str(seed_of(run)) for run in shown.simulations), 16)),
        ("finish-time ratio", f"{shown.rho}: completion time {DEFINITIONS[shown.rho]}"),
        ("unfairly treated", f"jobs with a ratio above {shown.unfair:g}"),
        ("optsched", optsched.__version__),
        ("sha256", first_of([trace.sha256 for trace in traces], 8)),
    ]
    return [(name, text) for name, text in entries if text]


def _jobs_words(run: Simulation) -> str:
    jobs = len(run.measured)
    measured = int(run.measured.sum())
    return f"{jobs:,}" if measured == jobs else f"{jobs:,}, of which {measured:,} measured"


def _pools_words(trace: Trace) -> str:
    return "; ".join(
        f"{pool.name}: {count(pool.size, 'GPU')} on {count(len(pool.node_gpus), 'node')}"
        for pool in trace.instance.cluster.pools
    )


def _arrival_words(trace: Trace) -> str:
    arrival = trace.instance.jobs_table.arrival
    return f"over {time_words(float(np.ptp(arrival)))}" if len(arrival) else ""


def notices(shown: Simulated) -> list[tuple[str, str]]:
    """Notices by policy; equal ones of several seeds are listed once."""
    notes = []
    for policy in shown.policies:
        found = Counter(
            notice
            for run in policy.runs
            for notice in dict.fromkeys(shown.simulations[run].notices)
        )
        for notice, runs in found.items():
            notes.append(
                (
                    policy.name,
                    notice
                    + (f" ({runs} of {len(policy.runs)} runs)" if len(policy.runs) > 1 else ""),
                )
            )
    return notes


# --- the page ------------------------------------------------------------------------------------

# Most policies whose GPUs are drawn.
MOST_GANTTS = 4


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
        Any policies, seeds and options; the others are compared with the first policy.
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
    lead = f"{count(len(shown.policies), 'policy', 'policies')} on {first_of(names, 8)}; "
    lead += f"{count(len(shown.simulations), 'simulation')}, {count(shown.jobs, 'measured job')}"
    write_page(page(title, lead, simulation_sections(shown)), path)


def write_simulation_picture(simulations: Sequence[Simulation], path: str | Path) -> None:
    """Write completion times, finish-time ratios,
    utilisation and queues as one picture: png, svg or pdf.

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
    figure, panels = new_panels(12.0, 8.0)
    drawn = 0
    draws = (completion_times_picture, fairness_picture, utilisation_picture, queue_picture)
    for draw, ax in zip(draws, panels.ravel(), strict=True):
        # Skip pictures without data, such as completion times of a run that was stopped early
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
    figure.legend(
        handles,
        names,
        loc="outside lower left",
        ncols=4 if len(names) <= INSIDE else 3,
        frameon=False,
        fontsize=SMALL + 1,
        handlelength=2.8,
    )
    first: Axes = panels[0, 0]
    return first


def simulation_sections(
    simulations: Sequence[Simulation] | Simulated, *, rho: RHO = "isolated", unfair: float = 1.0
) -> list[Section]:
    """The sections of a page about simulations, for their own page or a part of another page;
    see `write_simulation_page`.
    """
    shown = Simulated.of(simulations, rho, unfair)
    sections = [] if len(shown.policies) < 2 else [Section("Which policy is best", _verdict(shown))]
    sections += [
        Section("Summary", _table(shown, "summary", SUMMARY, _summary_words(shown))),
        Section(
            "Completion times",
            _drawn(
                lambda: completion_times_picture(shown),
                _shares_words("up to a completion time (JCT)"),
            )
            + _table(shown, "times", TIMES),
        ),
        Section(
            "Fairness",
            _drawn(lambda: fairness_picture(shown), _shares_words("up to a finish-time ratio"))
            + _table(shown, "fairness", FAIRNESS, _rho_words(shown)),
        ),
        Section(
            "Use of the cluster",
            _drawn(
                lambda: utilisation_picture(shown),
                "Part of the GPUs of the nodes that are up that jobs hold.",
            )
            + _drawn(lambda: queue_picture(shown), "Jobs that have arrived and hold no GPUs.")
            + _table(shown, "use", USE),
        ),
    ]
    if any(len(run.segments) for run in shown.simulations):
        sections.append(Section("Who held which GPUs", _gantts(shown)))
    if any(metrics[metric] is not None for metrics in shown.metrics for metric in COST):
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
        Section("What was simulated", facts_html(facts(shown))),
        Section(runs.title, folded(count(len(runs.rows), "row"), summary_html(runs))),
    ]


def _verdict(shown: Simulated) -> str:
    """The best policies by figure, or a sentence that there is no difference."""
    best = best_policies(shown)
    if not best:
        return words_html(
            "No figure tells the policies apart. On a trace where jobs hardly wait, or where some "
            "jobs did not end, this is to be expected."
        )
    words = (
        "By means over the seeds. Whether a difference may be chance, the comparison below says."
    )
    return facts_html(best) + words_html(words)


def _table(shown: Simulated, name: str, metrics: Sequence[str], words: str = "") -> str:
    return summary_html(metrics_table(shown, name, "", metrics, words))


def _drawn(draw: Callable[[], Axes], words: str) -> str:
    """A picture with its caption, or the reason why there is none."""
    try:
        return picture_html(draw(), words)
    except UsageError as nothing:
        reason = str(nothing)
        return words_html(f"{reason[:1].upper()}{reason[1:]}.")


def _summary_words(shown: Simulated) -> str:
    notes = []
    if 1 < shown.seeds < ENOUGH:
        notes.append(
            f"Means over the seeds; below {ENOUGH} seeds they have no interval. "
            "A dash means that a run has no value."
        )
    elif shown.seeds > 1:
        notes.append(
            "Means over the seeds ± half of their 95 % interval (Student's t), "
            "without it where all seeds are alike; "
            "for shares whose interval would pass 0 or 100 %, "
            "its ends in brackets. "
            "A dash means that a run has no value."
        )
    else:
        notes.append("A dash means that there is no value.")
    if any(metrics["completed"] != metrics["jobs"] for metrics in shown.metrics):
        notes.append(
            "Some jobs did not end: their completion times are in no mean, "
            "so means of policies that complete "
            "different jobs cannot be compared (job by job they can, below)."
        )
    return " ".join(notes)


def _shares_words(what: str) -> str:
    return (
        f"Share of the measured jobs {what}. Jobs that did not end count: "
        "a line ends below 1 where there are some."
    )


def _rho_words(shown: Simulated) -> str:
    return (
        f"rho: completion time {DEFINITIONS[shown.rho]} ({shown.rho}); "
        "unfair are jobs with rho above "
        f"{shown.unfair:g}. Published definitions differ, and their numbers cannot be compared."
    )


def _gantts(shown: Simulated) -> str:
    """The GPU Gantt charts of the first run of each policy; all except the first are collapsed."""
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
