"""Co-location entries of generated clusters: which pairs share a GPU, at what rates, and what that does to demand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from optsched.arrays import FloatArray, IntArray
from optsched.errors import InvalidArgument
from optsched.generate.profiles import Document, Site, rounded
from optsched.generate.rates import in_half, slowdown
from optsched.generate.rows import Rows
from optsched.generate.workloads import Training

MOST = 200_000
"""Entries are documents, so there are limits."""


@dataclass(frozen=True)
class Pairs:
    """Pairs of rows that may share one GPU, arrays of shape (pairs,)."""

    first: IntArray
    second: IntArray

    def __len__(self) -> int:
        return len(self.first)


def slowdowns(workloads: Sequence[Training], sites: Sequence[Site]) -> FloatArray:
    """Factor by which two workloads slow each other down, shape (workloads, workloads, pools); inf: no memory."""
    table = np.full((len(workloads), len(workloads), len(sites)), np.inf)
    for j, site in enumerate(sites):
        for a, first in enumerate(workloads):
            for b, second in enumerate(workloads):
                memory = sum(
                    workload.memory(in_half(workload, site.type)) for workload in (first, second)
                )
                if memory <= site.type.memory:
                    table[a, b, j] = slowdown(first, second, site.type)
    return table


def draw_pairs(rows: Rows, share: float, repeated: bool, random: np.random.Generator) -> Pairs:
    """A share of the pairs of rows with one GPU each.

    Of kinds: of all pairs, a kind with itself too. Of single jobs: the jobs are put in couples first, as all pairs of
    many jobs are too many. Raises `InvalidArgument` for more than `MOST` entries.
    """
    single = np.flatnonzero(rows.gang == 1)
    possible = len(single) * (len(single) + 1) // 2 if repeated else len(single) // 2
    wanted, pools = round(share * possible), rows.slow.shape[1]
    if wanted * pools > MOST:
        most = MOST / pools / possible
        raise InvalidArgument(
            "colocation", f"{share:g}, up to {wanted * pools:,} entries", f"at most {most:.3g} here"
        )
    if repeated:
        order = np.sort(random.choice(possible, wanted, replace=False))
        first, second = (index[order] for index in np.triu_indices(len(single)))
    else:
        first, second = random.permutation(single)[: 2 * wanted].reshape(2, -1)
    return Pairs(single[first], single[second]) if repeated else Pairs(first, second)


def entries(
    pairs: Pairs, rows: Rows, factors: FloatArray, sites: Sequence[Site], key: str, letter: str
) -> tuple[list[Document], FloatArray]:
    """Entries for every pair in every pool that holds both, and `optsched.generate.load.Demand.sharing` of the rows.

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
        np.minimum.at(sharing, members, least)
    documents: list[Document] = []
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
    return documents, sharing * (1.0 - 1e-3)  # rates were rounded to four digits
