"""The isolated allocation: every job gets its own slice of the cluster."""

from __future__ import annotations

import numpy as np

from formulations.rule import Deciding, Rule
from formulations.slices import reference_slices, totals_alone
from optsched.arrays import FloatArray
from optsched.candidates import Classes


class Isolated(Rule):
    """Give every job 1/n of each pool: the baseline, and a normaliser of other formulations.

    Parameters
        n jobs in the program, s_kj GPUs of the reference column on pool j (the gang where there is
        none), W_j GPUs
    Rule
        y_kj = W_j / (n s_kj) where the job can run on pool j;
        each row divided by max(1, sum_j W_j / (n s_kj))

    The objective reported is the total throughput sum_k n_k sum_j T_kj y_kj. If CPUs, memory or
    another resource would be exceeded, the columns that use it are scaled down.

    Options
        bound    also solve max-throughput with jobs that share time and GPUs, for a bound and a
                 gap.

    References
        D. Narayanan et al., OSDI 2020, repository policy ``isolated``.
    """

    name = "isolated"
    reads = frozenset({"gang"})
    reads_pairs = False

    def decide(self, C: Classes, seed: int) -> Deciding:
        """y of the class, as totals x over the columns of the classes."""
        yield from ()
        return self.decision(C, self.totals(C))

    def totals(self, C: Classes) -> FloatArray:
        """y of all jobs of a class together, over the columns of the classes, shape (N,)."""
        column, y = reference_slices(C, np.array(1.0 / C.count.sum()))
        return self.build(C).repaired(totals_alone(C, column, y))
