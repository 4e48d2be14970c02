"""Makespan over fractions of time: one linear program, no bisection."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from pydantic import Field

from formulations.reference_rates import on_reference_pool, reference_pool, without_rate
from optsched.candidates import Classes
from optsched.formulation import Formulation, FormulationOptions
from optsched.instance import Instance
from optsched.program import AllocationProgram, Inverse, Minimum


class Makespan(Formulation):
    """Minimise the time M in which every job can do its remaining steps under one constant allocation.

    Sets, x, T, n, time and capacity as in `formulations.max_min_fairness`.
    Parameters
        N_k       steps left of a job of class k
    Program
        minimise  M   s.t.  M sum_c T_kc x_c >= n_k N_k  for every class k,  time, capacity

        With t = S / M this is linear:   maximise t   s.t.   S sum_c T_kc x_c / N_k >= n_k t   (levels)
        S = median_k N_k / max_c T_kc, of columns alone where a class has one, is a mere scale that keeps t near 1.

    Options
        agnostic        every pool counts as the reference pool: T_kc := rate on ``reference_pool`` wherever the job
                        can run (pairs: the rate of each job alone there).
        reference_pool  name of a pool; needed with agnostic.

    References
        D. Narayanan et al., OSDI 2020, section 4.2 ("minimise makespan"); there by bisection to a ratio of 1.05, here
        exactly.
    """

    name = "makespan"
    reads = frozenset({"steps_left", "gang"})
    sense = "min"
    generates_columns = True
    objective_words = "makespan, s"

    class Options(FormulationOptions):
        """Options of the makespan."""

        agnostic: bool = False
        reference_pool: str | None = Field(
            default=None, description="pool whose rates stand for all (agnostic)"
        )

    def check(self, instance: Instance) -> None:
        """The reference pool must exist."""
        if self.options.agnostic:
            reference_pool(instance, self.options.reference_pool, self.name)

    def build(self, C: Classes) -> AllocationProgram:
        N = C.steps_left
        throughput = C.throughput
        if self.options.agnostic:
            reference = on_reference_pool(C, self.options.reference_pool, self.name)
            throughput = sp.csr_matrix(sp.diags_array(reference) @ C.member)
        alone = np.zeros(len(C))
        entries = throughput.tocoo()
        np.maximum.at(alone, entries.row, entries.data)
        if (alone <= 0).any():
            raise without_rate(C, np.flatnonzero(alone <= 0))
        own, mine = (
            np.zeros(len(C)),
            C.alone[entries.col],
        )  # which pairs there are must not change the unit
        np.maximum.at(own, entries.row[mine], entries.data[mine])
        S = float(np.median(N / np.where(own > 0, own, alone))) if len(C) else 1.0
        levels = sp.csr_matrix(sp.diags_array(S / N) @ throughput)
        return AllocationProgram(C, Minimum(), levels, units=Inverse(S))  # M = S / t
