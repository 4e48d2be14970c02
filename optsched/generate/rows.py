"""Rates of generated jobs: a closed form for the workload on each pool, and noise of each job's own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from optsched.arrays import FloatArray, IntArray, group_rows
from optsched.generate.generator import significant
from optsched.generate.profiles import Site
from optsched.generate.rates import fits, rate
from optsched.generate.workloads import WORKLOADS, Training

COUNTS = (1, 2, 4, 8)
"""GPUs that a gang may have; an elastic job may have any of them."""
NOISE = 0.2
"""Standard deviation of the log of a rate around its closed form: jobs differ in more than their model."""
DIGITS = 9
TRIES = 50

TYPES = (
    # pool, GPU type, GPUs in a full node, network card of a node in GB/s per direction
    ("v100", "V100-SXM2-16GB", 8, 12.5),
    ("a100", "A100-SXM4-40GB", 8, 12.5),
    ("h100", "H100-SXM5-80GB", 8, 50.0),
    ("t4", "T4", 4, 12.5),
    ("p100", "P100-PCIe-16GB", 4, 12.5),
    ("a100-80", "A100-SXM4-80GB", 8, 25.0),
    ("k80", "K80", 8, 1.25),
)
"""Pools in the order in which they are taken; beyond seven they come again with a letter behind."""


def sites_of(pools: int, gpus: float) -> list[Site]:
    """Pools to be, of about so many GPUs each: nodes are made small where full ones would be too few; nodes to come."""
    sites = []
    for row in range(pools):
        name, gpu, full, bandwidth = TYPES[row % len(TYPES)]
        size = next((size for size in (8, 4, 2) if size <= full and 4 * size <= gpus), 1)
        sites.append(
            Site(
                name + ("abc"[row // len(TYPES)] if row >= len(TYPES) else ""),
                gpu,
                1,
                size,
                bandwidth,
            )
        )
    return sites


def workloads_of(sites: Sequence[Site]) -> list[Training]:
    """Workloads that fit somewhere; not the one that is as fast on every GPU (alone it would set the level)."""
    return [
        w
        for w in WORKLOADS.values()
        if w.model != "LSTM" and any(fits(w, site.type) for site in sites)
    ]


def closed_forms(workloads: Sequence[Training], sites: Sequence[Site]) -> FloatArray:
    """steps/s without noise, shape (workloads, pools, COUNTS): on as few nodes as can be; 0 where it doesn't fit."""
    table = np.zeros((len(workloads), len(sites), len(COUNTS)))
    for i, workload in enumerate(workloads):
        for j, site in enumerate(sites):
            if fits(workload, site.type):
                table[i, j] = [
                    rate(
                        workload,
                        site.type,
                        gpus,
                        math.ceil(gpus / site.gpus_per_node),
                        site.node_bandwidth,
                    )
                    for gpus in COUNTS
                ]
    return table


@dataclass(frozen=True)
class Rows:
    """Rates of jobs, or of kinds of jobs; no two rows are equal.

    Attributes
    ----------
    workload : IntArray, shape (rows,)
    gang : IntArray, shape (rows,)
        GPUs of a gang; 0 for an elastic job.
    slow, fast : FloatArray, shape (rows, pools)
        steps/s at the gang; of an elastic job on 1 and on 8 GPUs.
    factor : FloatArray, shape (rows, pools)
        The noise: rates are the closed form times it.
    """

    workload: IntArray
    gang: IntArray
    slow: FloatArray
    fast: FloatArray
    factor: FloatArray

    def at(self, rows: IntArray, table: FloatArray, count: int) -> FloatArray:
        """Rates of some rows at a count of `COUNTS`, shape (rows, pools), in full digits of the file."""
        return significant(
            table[self.workload[rows], :, COUNTS.index(count)] * self.factor[rows], DIGITS
        )


def draw_rows(
    count: int,
    table: FloatArray,
    gang_shares: Sequence[float],
    elastic: float,
    widest: int,
    random: np.random.Generator,
) -> Rows:
    """Draw workloads, gangs (at most ``widest``), elastic jobs and noise.

    Noise is drawn again where two rows come out equal.
    """
    workload = random.integers(0, len(table), count)
    one = max(0.0, 1.0 - sum(gang_shares))
    shares = np.array([one, *gang_shares])
    gang = np.minimum(random.choice(np.array(COUNTS), count, p=shares / shares.sum()), widest)
    gang[random.random(count) < elastic] = 0
    factor = np.exp(NOISE * random.standard_normal((count, table.shape[1])))
    low = np.where(gang == 0, 0, np.searchsorted(COUNTS, gang))
    slow = significant(table[workload, :, low] * factor, DIGITS)
    for _ in range(TRIES):
        groups = group_rows([gang, *slow.T], count)
        again = np.ones(count, bool)
        again[groups.first] = False
        if not again.any():
            break
        factor[again] = np.exp(NOISE * random.standard_normal((int(again.sum()), table.shape[1])))
        slow[again] = significant(table[workload[again], :, low[again]] * factor[again], DIGITS)
    else:
        raise RuntimeError(f"{count} rows could not be made different")
    fast = slow.copy()
    rows = np.flatnonzero(gang == 0)
    fast[rows] = significant(table[workload[rows], :, -1] * factor[rows], DIGITS)
    return Rows(workload, gang, slow, fast, factor)
