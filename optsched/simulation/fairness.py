"""Finish-time ratios rho: the time that a job took, divided by the time that it would have taken
with a fair share of the cluster.

Published definitions differ, and their numbers cannot be compared:

``isolated``
    Themis, and Gavel's policy of that name: T / D with D = the time that the job takes with 1/n of
    every pool to itself, n = the mean number of jobs present while the job was.
``contention``
    Sia, section 5.5: D = the time on its own GPUs without interruption, times max(1, n / GPUs), n
    as above.
``static``
    Shockwave: as ``contention``, with n = all jobs of the trace.
"""

from __future__ import annotations

import numpy as np

from optsched.arrays import AnyArray, FloatArray, IntArray, quotient
from optsched.simulation.options import RHO
from optsched.simulation.truth import Truth
from optsched.traces import Trace


def finish_time_ratios(
    trace: Trace, finish: FloatArray, end: float, definition: RHO = "isolated"
) -> FloatArray:
    """rho of each job, shape (jobs,).

    NaN for a job that never ended, or that has a known rate on no pool.

    Parameters
    ----------
    trace : Trace
    finish : FloatArray, shape (jobs,)
        When each job ended, seconds; NaN for one that did not.
    end : float
        When the simulation ended.
    definition : str
    """
    truth = Truth(trace)
    rates = truth.alone
    table = truth.candidates.instance.jobs_table
    sizes = np.array([pool.size for pool in trace.instance.cluster.pools], float)
    arrival = trace.instance.jobs_table.arrival
    present = mean_present(arrival, np.where(np.isnan(finish), end, finish))
    if definition == "isolated":
        # Rows of the truth: jobs, then their regimes.
        owner = np.concatenate([np.arange(truth.jobs), trace.regimes.job])
        parts = np.maximum(present, 1.0)[owner]
        alone = truth.seconds(isolated_rates(rates, table.gpus_min, sizes, parts))
    else:
        others = present if definition == "contention" else float(truth.jobs)
        # With more jobs than GPUs, each job gets only a fraction of the time.
        slowdown = np.maximum(others / max(sizes.sum(), 1.0), 1.0)
        alone = truth.seconds(rates.max(axis=1, initial=0.0)) * slowdown
    return quotient(finish - arrival, alone, np.nan)


def isolated_rates(rate: FloatArray, gang: IntArray, gpus: AnyArray, parts: AnyArray) -> FloatArray:
    """steps/s of jobs with 1/n of every pool to themselves (Gavel's ``isolated``), shape (jobs,).

    Parameters
    ----------
    rate : FloatArray, shape (jobs, pools)
        steps/s of a gang.
    gang : IntArray, shape (jobs,)
    gpus : array, shape (pools,)
    parts : array, shape (jobs,)
        n: number of jobs that share the cluster, including the job itself.
    """
    slices: FloatArray = gpus / np.maximum(parts * gang, 1.0)[:, np.newaxis]
    slices = slices / np.maximum(slices.sum(axis=1, keepdims=True), 1.0)
    isolated: FloatArray = (rate * slices).sum(axis=1)
    return isolated


def mean_present(arrival: FloatArray, end: FloatArray) -> FloatArray:
    """Mean number of jobs present (itself among them) from the arrival of each job to its end.

    Parameters
    ----------
    arrival, end : FloatArray, shape (jobs,)
        Seconds.
    """
    times = np.unique(np.concatenate([arrival, end]))
    if not len(times):
        return np.zeros(0)
    arrived = np.searchsorted(np.sort(arrival), times, side="right")
    present = arrived - np.searchsorted(np.sort(end), times, side="right")
    area = np.concatenate([[0.0], np.cumsum(present[:-1] * np.diff(times))])
    first = np.searchsorted(times, arrival)
    stop = np.searchsorted(times, end)
    stay = end - arrival
    return quotient(area[stop] - area[first], stay, 1.0)
