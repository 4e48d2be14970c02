"""Gittins' index: the job with the best odds of ending soon,
for the service that this takes, goes first.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

from optsched.arrays import FloatArray, IntArray
from optsched.instance.documents import Positive
from optsched.ranking import RankedJobs, Ranking, RankingOptions


class GittinsIndex(Ranking):
    """Jobs by Gittins' index of the GPU time that they have had, the greatest first.

    Sets and parameters
        S           GPU seconds that a job takes in all: a sample S_1 <= ... <= S_N of them
        D           quantum: GPU seconds for which a job would be run
        a_j         GPU seconds that job j has had

    Key
        -G(a_j)     G(a) = P(S - a <= D | S > a) / E[min(S - a, D) | S > a]

    the probability that a job ends within the quantum, over the service that it is expected to take
    of it. With i samples up to a, and k up to a + D,

        G(a) = (k - i) / (S_{i+1} + ... + S_k - (k - i) a + (N - k) D),

    and 0 where no sample is above a: of jobs that have had more than all the sample, nothing is
    known, and they go last. Where the hazard rate of S decreases so does G, and the order is that
    of `2d-las`; where it increases, jobs that have had more go first. In a queue of one GPU with D
    chosen anew for each job so that G is greatest, it minimises the mean completion time among all
    rules that know no more than this.

    With ``legacy`` the index is the one that published simulators compute: S where S - a is meant,
    without the last sample where a + D is beyond it, and rounded. It is the same as G at a = 0 only
    (but for the rounding), and ranks jobs that have had much too low.

    Options
        sample  S: GPU seconds of jobs that are done, as of a trace.
        delta   D, GPU seconds.
        legacy  the index as it was published.

    References
        J. C. Gittins, "Bandit processes and dynamic allocation indices", Journal of the Royal
        Statistical Society B 41, 1979; S. Aalto, U. Ayesta, R. Righter, "On the Gittins index in
        the M/G/1 queue", Queueing Systems 63, 2009; J. Gu et al., "Tiresias: A GPU cluster manager
        for distributed deep learning", NSDI 2019, and its simulator (SymbioticLab/Tiresias) for
        ``legacy`` and the default of D.
    """

    name = "gittins"
    reads = frozenset()

    class Options(RankingOptions):
        """Options of Gittins' index."""

        sample: Annotated[list[Positive], Field(min_length=1)]
        delta: Positive = 3250.0
        legacy: bool = False

    options: Options

    def index(self, attained: FloatArray) -> FloatArray:
        """G of some amounts of GPU seconds, per GPU second."""
        S, D, a = np.sort(np.array(self.options.sample)), self.options.delta, attained
        total = np.concatenate(([0.0], np.cumsum(S)))
        N = len(S)
        i = np.searchsorted(S, a, side="right")
        k = np.searchsorted(S, a + D, side="right")
        if self.options.legacy:
            return _published(S, D, a, total, i, k)
        taken = total[k] - total[i] - (k - i) * a + (N - k) * D
        index: FloatArray = np.divide(k - i, taken, out=np.zeros(len(a)), where=i < N)
        return index

    def keys(self, jobs: RankedJobs) -> tuple[FloatArray, ...]:
        return (-self.index(jobs.attained),)


def _published(
    S: FloatArray, D: float, a: FloatArray, total: FloatArray, i: IntArray, k: IntArray
) -> FloatArray:
    """The index as published simulators compute it,
    in the same steps and with the same rounding.
    """
    N = len(S)
    k = np.where(a + D > S[-1] - 1, N - 1, k)
    left = np.maximum(N - i, 1)
    p = np.round((k - i) / left, 5)
    e = np.round((total[k] - total[i] + D * (N - k)) / left, 5)
    known = a <= S[-1] - 1
    return np.asarray(
        np.round(np.divide(p * 1e6, e, out=np.zeros(len(a)), where=known & (e > 0)), 4) / 1e6
    )
