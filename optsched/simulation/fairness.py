"""Finish-time ratios rho: how long a job took, against how long it would have taken with a fair part to itself.

Published definitions differ, and their numbers cannot be compared:

``isolated``
    Themis, and Gavel's policy of that name: T / D with D = the time that the job takes with 1/n of every pool to
    itself, n = the mean number of jobs that were there while it was.
``contention``
    Sia, section 5.5: D = the time on its own GPUs without interruption, times max(1, n / GPUs), n as above.
``static``
    Shockwave: as ``contention``, with n = all jobs of the trace.
"""

from __future__ import annotations

import numpy as np

from optsched.arrays import AnyArray, FloatArray, IntArray
from optsched.simulation.options import RHO
from optsched.simulation.result import Simulation
from optsched.simulation.truth import Truth


def finish_time_ratios(simulation: Simulation, definition: RHO = "isolated") -> FloatArray:
    """rho of each job, shape (jobs,); NaN for one that never ended, or that no rate on a pool is known of."""
    trace = simulation.trace
    truth = Truth(trace)
    rates, table = truth.alone, truth.candidates.instance.jobs_table
    sizes = np.array([pool.node_gpus.sum() for pool in trace.instance.cluster.pools], float)
    if definition == "isolated":
        present = np.maximum(mean_present(simulation), 1.0)
        owner = np.concatenate([np.arange(truth.jobs), trace.regimes.job])
        alone = truth.seconds(isolated_rates(rates, table.gpus_min, sizes, present[owner]))
    else:
        others = mean_present(simulation) if definition == "contention" else float(truth.jobs)
        alone = truth.seconds(rates.max(axis=1, initial=0.0)) * np.maximum(
            others / max(sizes.sum(), 1.0), 1.0
        )
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = simulation.completion_times / alone
    return np.where(np.isfinite(ratio), ratio, np.nan)


def isolated_rates(rate: FloatArray, gang: IntArray, gpus: AnyArray, parts: AnyArray) -> FloatArray:
    """steps/s of jobs with 1/n of every pool to themselves (Gavel's ``isolated``), shape (jobs,).

    Parameters
    ----------
    rate : FloatArray, shape (jobs, pools)
        steps/s of a gang.
    gang : IntArray, shape (jobs,)
    gpus : array, shape (pools,)
    parts : array, shape (jobs,)
        n: how many share the cluster with a job, itself among them.
    """
    slices: FloatArray = gpus / np.maximum(parts * gang, 1.0)[:, np.newaxis]
    slices = slices / np.maximum(slices.sum(axis=1, keepdims=True), 1.0)
    isolated: FloatArray = (rate * slices).sum(axis=1)
    return isolated


def mean_present(simulation: Simulation) -> FloatArray:
    """Mean number of jobs there (itself among them) from the arrival of each job to its end, shape (jobs,)."""
    arrival, finish = simulation.trace.instance.jobs_table.arrival, simulation.jobs.finish
    last = simulation.rounds.end.max(initial=arrival.max(initial=0.0))
    end = np.where(np.isnan(finish), last, finish)
    times = np.unique(np.concatenate([arrival, end]))
    if not len(times):
        return np.zeros(0)
    there = np.searchsorted(np.sort(arrival), times, side="right") - np.searchsorted(
        np.sort(end), times, side="right"
    )
    area = np.concatenate([[0.0], np.cumsum(there[:-1] * np.diff(times))])
    first, stop = np.searchsorted(times, arrival), np.searchsorted(times, end)
    stay = end - arrival
    mean: FloatArray = np.divide(
        area[stop] - area[first], stay, out=np.ones(len(stay)), where=stay > 0
    )
    return mean
