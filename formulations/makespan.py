"""Makespan over fractions of time: one linear program, no bisection."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from formulations.reference_rates import (
    without_rate,
)
from formulations.shared_options import OnReferencePool, ReferencePoolOptions
from optsched.arrays import FloatArray
from optsched.arrays.matrices import scaled_rows
from optsched.candidates import Classes
from optsched.program import AllocationProgram, Inverse, Minimum


class Makespan(OnReferencePool):
    """Minimise the time M in which every job can do its remaining steps under one constant
    allocation.

    Sets, x, T, n, time and capacity as in `formulations.max_min_fairness`.
    Parameters
        N_k       steps left of a job of class k
    Program
        minimise  M   s.t.  M sum_c T_kc x_c >= n_k N_k  for every class k,  time, capacity

        With t = S / M this is linear:   maximise t   s.t.   S sum_c T_kc x_c / N_k >= n_k t   (levels)
        with the scale S = median_k N_k / max_c T_kc, c without a partner if there is one; it keeps t near 1.

    Options
        agnostic        T_kc := rate on ``reference_pool`` wherever the job can run (of each job of a pair: alone).
        reference_pool  name of a pool; needed with agnostic.

    References
        D. Narayanan et al., OSDI 2020, section 4.2 ("minimise makespan"); there by bisection to a
        ratio of 1.05, here exactly.
    """

    name = "makespan"
    reads = frozenset({"steps_left", "gang"})
    sense = "min"
    generates_columns = True
    objective_words = "makespan, s"

    class Options(ReferencePoolOptions):
        """Options of the makespan."""

    def build(self, C: Classes) -> AllocationProgram:
        N = C.steps_left
        T = self.throughputs(C)
        S = float(np.median(N / _best_rates(C, T))) if len(C) else 1.0
        return AllocationProgram(C, Minimum(), scaled_rows(T, S / N), units=Inverse(S))  # M = S / t


def _best_rates(C: Classes, T: sp.csr_matrix) -> FloatArray:
    """Best rate of a class in its columns without a partner; if it has none, in all its columns.

    The unit of the program must not depend on which pairs exist, because column generation adds
    pairs later.
    """
    best, alone = np.zeros(len(C)), np.zeros(len(C))
    entries = T.tocoo()
    is_alone = C.alone[entries.col]
    np.maximum.at(best, entries.row, entries.data)
    np.maximum.at(alone, entries.row[is_alone], entries.data[is_alone])
    if (best <= 0).any():
        raise without_rate(C, np.flatnonzero(best <= 0))
    return np.where(alone > 0, alone, best)
