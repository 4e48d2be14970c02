"""Alpha-fairness, and its most common case, proportional fairness."""

from __future__ import annotations

from typing import Literal

import numpy as np
import scipy.sparse as sp
from pydantic import Field, field_validator

from formulations.reference_rates import pool_gpus, proportional
from optsched.arrays import FloatArray
from optsched.arrays.matrices import scaled_rows
from optsched.candidates import Classes
from optsched.formulation import Formulation, FormulationOptions
from optsched.instance.documents import refused
from optsched.instance.reading import show
from optsched.program import AllocationProgram, Multiple, Total

LEAST_ALPHA = 1e-3
"""Smallest alpha above 0: solvers find no optimum of utilities that are nearly linear."""


class AlphaFairness(Formulation):
    """Maximise the total alpha-fair utility of levels.

    Sets, x, T, n, s, p, prop, time and capacity as in `formulations.max_min_fairness`.
    Program
        maximise  sum_k n_k w_k f(level_k)   s.t.  time, capacity
        level_k = sum_c T_kc x_c / (n_k m_k)
        f(v) = v^(1 - alpha) / (1 - alpha);   f(v) = log v for alpha = 1

    Options
        alpha      0: total of the levels, else from 0.001 on; 1: proportional fairness; larger (at most 10): closer to
                   max-min fairness.
        normalise  levels and weights:
                   ``none``          m_k = 1, w_k = p_k (with alpha = 0 and weights 1 this is max-throughput);
                   ``proportional``  m_k = prop_k, w_k = p_k;
                   ``max-min``       m_k = prop_k p_k / s_k, w_k = 1 (the levels of max-min fairness).

    The bound comes from the duals of the tangent program (`optsched.program.total.Total.tangent`):
    tangents of f lie above f.

    References
        J. Mo, J. Walrand. "Fair end-to-end window-based congestion control", IEEE/ACM Transactions
        on Networking 8(5), 2000.
    """

    name = "alpha-fairness"
    reads = frozenset({"weight", "gang"})
    sense = "max"
    generates_columns = True
    objective_words = "total alpha-fair utility"

    class Options(FormulationOptions):
        alpha: float = Field(default=2.0, ge=0.0, le=10.0)
        normalise: Literal["none", "proportional", "max-min"] = "proportional"

        @field_validator("alpha")
        @classmethod
        def _curved(cls, alpha: float) -> float:
            if 0.0 < alpha < LEAST_ALPHA:
                raise refused(show(alpha), f"0, or a number from {LEAST_ALPHA:g} to 10")
            return alpha

    @property
    def alpha(self) -> float:
        """The exponent; proportional fairness fixes it."""
        return float(self.options.alpha)

    def build(self, C: Classes) -> AllocationProgram:
        m, w = self._normaliser(C)
        levels = scaled_rows(C.throughput, 1.0 / m)
        if self.alpha == 1.0:
            return AllocationProgram(C, Total(w, "log"), levels)
        if self.alpha == 0.0:
            return AllocationProgram(C, Total(w), levels)
        utility = Total(w, "power", 1.0 - self.alpha)
        # In units of S levels are near 1, and f(v / S) = f(v) S^(alpha - 1): a mere factor, taken
        # back by the units.
        S = _attainable_level(C, levels)
        return AllocationProgram(
            C, utility, sp.csr_matrix(levels / S), units=Multiple(S ** (1.0 - self.alpha))
        )

    @property
    def normalise(self) -> str:
        """What a level is."""
        return str(self.options.normalise)

    def _normaliser(self, C: Classes) -> tuple[FloatArray, FloatArray]:
        """Normalisers m_k of the levels and weights w_k of the utilities, shape (K,)."""
        prop = proportional(C)  # also refuses jobs without any rate
        if self.normalise == "none":
            return np.ones(len(C)), C.weight
        if self.normalise == "proportional":
            return prop, C.weight
        return prop * C.weight / C.gang, np.ones(len(C))


def _attainable_level(C: Classes, levels: sp.csr_matrix) -> float:
    """Estimate of the max-min level, an upper one where no jobs share GPUs.

    GPUs of the cluster / GPUs that one unit of level for every job needs at least; never above what
    the slowest job reaches alone.
    """
    entries = levels.tocoo()
    use = entries.data > 0
    need = np.full(len(C), np.inf)
    np.minimum.at(need, entries.row[use], C.gpus[entries.col[use]] / entries.data[use])
    total = float(C.count @ np.where(np.isfinite(need), need, 0.0))
    highest = np.zeros(len(C))
    np.maximum.at(highest, entries.row, entries.data)
    alone = float(highest[highest > 0].min(initial=np.inf))
    together = float(pool_gpus(C).sum()) / total if total > 0 else alone
    return min(alone, together) if np.isfinite(alone) else 1.0


class ProportionalFairness(AlphaFairness):
    """Maximise the weighted sum of the logarithms of throughputs (Nash welfare).

    Sets, x, T, n, p, prop, time and capacity as in `formulations.max_min_fairness`.
    Program
        maximise  sum_k n_k p_k log( sum_c T_kc x_c / (n_k prop_k) )   s.t.  time, capacity

    prop_k only sets the zero of the objective. At the optimum, with the prices q_r of resource r
    and lambda_k of the time of class k,

        p_k T_kc / (level_k prop_k)  <=  lambda_k member_kc + sum_r q_r usage_rc    with equality where x_c > 0.

    References
        F. Kelly, A. Maulloo, D. Tan. "Rate control for communication networks: shadow prices,
        proportional fairness and stability", Journal of the Operational Research Society 49(3),
        1998.
    """

    name = "proportional-fairness"
    objective_words = "weighted sum of log normalised throughputs"

    class Options(FormulationOptions):
        """It has no options of its own."""

    @property
    def alpha(self) -> float:
        return 1.0

    @property
    def normalise(self) -> str:
        """Levels relative to the proportional share."""
        return "proportional"
