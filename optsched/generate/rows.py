"""Rates of generated jobs: a closed form for the workload on each pool, and each job's own noise.

Also the pairs of them that may share a GPU, at which rates, and what that does to demand.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from optsched.arrays import FloatArray, IntArray, group_rows
from optsched.errors import InvalidArgument
from optsched.generate.generator import significant
from optsched.generate.jobs import with_rest
from optsched.generate.profiles import Document, Site, rounded
from optsched.generate.rates import fits, rate, slowdown
from optsched.generate.workloads import WORKLOADS, TrainedModel

# GPUs that a gang may have; an elastic job may have any of them.
COUNTS = (1, 2, 4, 8)
# Standard deviation of the log of a rate around its closed form: jobs differ in more than their
# model.
NOISE = 0.2
DIGITS = 9
TRIES = 50
# Most co-location entries: they are documents, not arrays.
MOST_ENTRIES = 200_000

# Pools in the order in which they are used; beyond seven they come again with a letter behind.
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


def sites_of(pools: int, gpus: float) -> list[Site]:
    """Descriptions of future pools of about ``gpus`` GPUs each. If a pool would have too few full
    nodes, its nodes are smaller. The numbers of nodes are set later.
    """
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


def workloads_of(sites: Sequence[Site]) -> list[TrainedModel]:
    """Workloads that fit somewhere. The one that is equally fast on every GPU is left out, because
    it alone would determine the level.
    """
    return [
        w
        for w in WORKLOADS.values()
        if w.model != "LSTM" and any(fits(w, site.type) for site in sites)
    ]


def closed_forms(workloads: Sequence[TrainedModel], sites: Sequence[Site]) -> FloatArray:
    """steps/s without noise, shape (workloads, pools, COUNTS):
    on as few nodes as can be; 0 where it doesn't fit.
    """
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
class RateRows:
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
        """Rates of some rows at a count of `COUNTS`, shape (rows, pools),
        in full digits of the file.
        """
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
) -> RateRows:
    """Draw workloads, gangs (at most ``widest``), elastic jobs and noise.

    Noise is drawn again where two rows come out equal.
    """
    workload = random.integers(0, len(table), count)
    gang = np.minimum(random.choice(np.array(COUNTS), count, p=with_rest(gang_shares)), widest)
    gang[random.random(count) < elastic] = 0
    factor = np.exp(NOISE * random.standard_normal((count, table.shape[1])))
    low = np.where(gang == 0, 0, np.searchsorted(COUNTS, gang))
    slow = significant(table[workload, :, low] * factor, DIGITS)
    for _ in range(TRIES):
        # Equal rows would be one class: a cluster of distinct rows must have none
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
    return RateRows(workload, gang, slow, fast, factor)


# --- pairs that share a GPU -----------------------------------------------------------------------


@dataclass(frozen=True)
class SharingPairs:
    """Pairs of rows that may share one GPU, arrays of shape (pairs,)."""

    first: IntArray
    second: IntArray

    def __len__(self) -> int:
        return len(self.first)


def slowdowns(workloads: Sequence[TrainedModel], sites: Sequence[Site]) -> FloatArray:
    """Factor by which two workloads slow each other down,
    shape (workloads, workloads, pools); inf: no memory.
    """
    # Two jobs whose memory does not fit on one GPU never share it
    table = np.full((len(workloads), len(workloads), len(sites)), np.inf)
    for j, site in enumerate(sites):
        for a, first in enumerate(workloads):
            for b, second in enumerate(workloads):
                if fits(first, site.type, second):
                    table[a, b, j] = slowdown(first, second, site.type)
    return table


def draw_pairs(
    rows: RateRows, share: float, repeated: bool, random: np.random.Generator
) -> SharingPairs:
    """A share of the pairs of rows with one GPU each.

    Of kinds: of all pairs, a kind with itself too. Of single jobs: the jobs are put in couples
    first, as all pairs of many jobs are too many. Raises `InvalidArgument` for more than
    `MOST_ENTRIES` entries.
    """
    single = np.flatnonzero(rows.gang == 1)
    possible = len(single) * (len(single) + 1) // 2 if repeated else len(single) // 2
    wanted = round(share * possible)
    pools = rows.slow.shape[1]
    if wanted * pools > MOST_ENTRIES:
        most = MOST_ENTRIES / pools / possible
        raise InvalidArgument(
            "colocation", f"{share:g}, up to {wanted * pools:,} entries", f"at most {most:.3g} here"
        )
    if repeated:
        order = np.sort(random.choice(possible, wanted, replace=False))
        first, second = (index[order] for index in np.triu_indices(len(single)))
    else:
        first, second = random.permutation(single)[: 2 * wanted].reshape(2, -1)
    return SharingPairs(single[first], single[second]) if repeated else SharingPairs(first, second)


def pair_entries(
    pairs: SharingPairs,
    rows: RateRows,
    factors: FloatArray,
    sites: Sequence[Site],
    key: str,
    letter: str,
) -> tuple[list[Document], FloatArray]:
    """Entries for every pair in every pool that holds both,
    and `optsched.generate.load.GpuDemand.sharing` of the rows.

    Parameters
    ----------
    factors : FloatArray
        Of `slowdowns`.
    key, letter : str
        What the rows are, ``workloads`` or ``jobs``, and the letter before their numbers.
    """
    factor = factors[rows.workload[pairs.first], rows.workload[pairs.second]]
    factor = np.where((rows.slow[pairs.first] > 0) & (rows.slow[pairs.second] > 0), factor, np.inf)
    sharing = np.ones(len(rows.gang))
    least = np.minimum(1.0, factor.min(axis=1, initial=np.inf) / 2.0)
    for members in (pairs.first, pairs.second):
        # A row may be in several pairs; the best one counts
        np.minimum.at(sharing, members, least)
    documents = []
    for pair, pool in np.argwhere(np.isfinite(factor)).tolist():
        both = [int(pairs.first[pair]), int(pairs.second[pair])]
        rates = [rounded(float(rows.slow[row, pool] / factor[pair, pool])) for row in both]
        documents.append(
            {
                key: [f"{letter}{row}" for row in both],
                "pool": sites[pool].name,
                "gpus": 1,
                "throughput": rates,
            }
        )
    # Rates were rounded to four digits
    return documents, sharing * (1.0 - 1e-3)
