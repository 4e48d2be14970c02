"""Maximum total throughput."""

from __future__ import annotations

from typing import Literal

import numpy as np

from formulations.reference_rates import fastest, proportional, refuse_rateless
from optsched.arrays.matrices import scaled_rows
from optsched.candidates import Classes
from optsched.formulation import Formulation, FormulationOptions
from optsched.program import AllocationProgram, Total


class MaxThroughput(Formulation):
    """Maximise the sum of throughputs.

    Sets, x, T, n, time and capacity as in `formulations.max_min_fairness`.
    Program
        maximise  sum_k sum_c T_kc x_c / m_k   s.t.  time, capacity;   x_c integer with ``integral``

    Options
        integral    whole jobs: each runs in one configuration all the time, or not at all (a MILP).
        normalise   ``none``: m_k = 1; ``proportional``: m_k = prop_k; ``best``: m_k = max_c T_kc alone.

    References
        D. Narayanan et al., OSDI 2020, repository policy ``max_sum_throughput_perf``.
    """

    name = "max-throughput"
    reads = frozenset({"gang"})
    sense = "max"
    generates_columns = True
    objective_words = "total throughput, steps/s"

    class Options(FormulationOptions):
        """Options of maximum throughput."""

        integral: bool = False
        normalise: Literal["none", "proportional", "best"] = "none"

    @property
    def integral(self) -> bool:
        return bool(self.options.integral)

    def build(self, C: Classes) -> AllocationProgram:
        refuse_rateless(C)
        m = np.ones(len(C))
        if self.options.normalise == "proportional":
            m = proportional(C)
        elif self.options.normalise == "best":
            m = fastest(C)
        levels = scaled_rows(C.throughput, 1.0 / m)
        return AllocationProgram(C, Total(np.ones(len(C))), levels, integral=self.integral)
