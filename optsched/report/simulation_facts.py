"""What was simulated, in words: traces, jobs, pools, options, seeds; and what simulations have to say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

import optsched
from optsched.report.answers import count
from optsched.report.pictures import time_words
from optsched.report.simulated import Simulated, seed_of
from optsched.report.simulation_shares import DEFINITIONS
from optsched.traces import Trace

if TYPE_CHECKING:
    from optsched.simulation import Simulation

LISTED = 8
"""Traces, seeds and such that are named."""


def facts(shown: Simulated) -> list[tuple[str, str]]:
    """What was simulated, and how."""
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
    entries = [
        ("policies", named([policy.name for policy in shown.policies], len(shown.policies))),
        ("trace" if len(traces) == 1 else "traces", named([trace.name for trace in traces])),
        ("sha256", named([trace.sha256 for trace in traces])),
        ("jobs", named(dict.fromkeys(_jobs_words(run) for run in shown.simulations))),
        ("pools", named(dict.fromkeys(_pools_words(trace) for trace in traces))),
        ("arrivals", named(dict.fromkeys(_arrival_words(trace) for trace in traces))),
        ("in the trace", named(dict.fromkeys(filter(None, map(_events_words, traces))))),
        ("options", ", ".join(shared) or "the defaults"),
        ("seeds", named(dict.fromkeys(str(seed_of(run)) for run in shown.simulations), 2 * LISTED)),
        ("finish-time ratio", f"{shown.rho}: completion time {DEFINITIONS[shown.rho]}"),
        ("unfairly treated", f"jobs with a ratio above {shown.unfair:g}"),
        ("optsched", optsched.__version__),
    ]
    return [(name, told) for name, told in entries if told]


def named(names: Iterable[str], most: int = LISTED) -> str:
    """The first names, and how many more there are."""
    found = list(names)
    return ", ".join(islice(found, most)) + (
        f" and {len(found) - most} more" if len(found) > most else ""
    )


def _jobs_words(run: Simulation) -> str:
    jobs, measured = len(run.measured), int(run.measured.sum())
    return f"{jobs:,}" if measured == jobs else f"{jobs:,}, of which {measured:,} measured"


def _pools_words(trace: Trace) -> str:
    return "; ".join(
        f"{pool.name}: {count(int(pool.node_gpus.sum()), 'GPU')} on {count(len(pool.node_gpus), 'node')}"
        for pool in trace.instance.cluster.pools
    )


def _arrival_words(trace: Trace) -> str:
    arrival = trace.instance.jobs_table.arrival
    return f"over {time_words(float(np.ptp(arrival)))}" if len(arrival) else ""


def _events_words(trace: Trace) -> str:
    told = [
        count(len(trace.regimes), "change of rates", "changes of rates")
        if len(trace.regimes)
        else "",
        count(len(trace.node_events), "change of nodes", "changes of nodes")
        if len(trace.node_events)
        else "",
    ]
    return ", ".join(filter(None, told))


def notices(shown: Simulated) -> list[tuple[str, str]]:
    """Who said what; equal words of several seeds once."""
    told = []
    for policy in shown.policies:
        found = Counter(
            notice
            for run in policy.runs
            for notice in dict.fromkeys(shown.simulations[run].notices)
        )
        for notice, runs in found.items():
            told.append(
                (
                    policy.name,
                    notice
                    + (f" ({runs} of {len(policy.runs)} runs)" if len(policy.runs) > 1 else ""),
                )
            )
    return told
