"""Max-min fairness over normalised effective throughputs."""

from __future__ import annotations

from typing import Literal

import numpy as np

from formulations.reference_rates import proportional
from formulations.shared_options import MayIgnoreRates
from optsched.arrays.matrices import scaled_rows
from optsched.candidates import Classes
from optsched.formulation import FormulationOptions
from optsched.program import AllocationProgram, Minimum


class MaxMinFairness(MayIgnoreRates):
    r"""Maximise the smallest normalised throughput per GPU and weight.

    Sets
        classes k of n_k equal jobs, columns c (a class, or two classes that share GPUs, in one
        configuration), pools j.
    Parameters
        T_kc      steps/s that one unit of column c gives to class k (``throughput``)
        s_k, p_k  gang size and weight; W_j GPUs of pool j. The factor s_k counts GPU time: a gang of 4
                  that runs a quarter of the time is as well off as a job of one GPU that always runs
        prop_k    = sum_j T_kj W_j / sum_j W_j, T_kj alone on pool j at the gang (`formulations.reference_rates`)
    Variables
        x_c >= 0  job-fractions of column c; t the common level
    Program
        maximise  t
        s.t.      (s_k / p_k) sum_c T_kc x_c / prop_k  >=  n_k t        for every class k       (levels)
                  sum_c member_kc x_c  <=  n_k                          for every class k       (time)
                  sum_c usage_rc x_c   <=  capacity_r                   for every resource r    (capacity)

    With pairs in the candidates the same rows are the packed (space-sharing) policy.

    Options
        agnostic   T_kc := 1 per job of the column, hence prop_k = 1. ``"literal"`` also admits pools where the job has
                   no rate, as the original does.

    References
        D. Narayanan et al. "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning
        Workloads" (Gavel), OSDI 2020, section 4.1 and appendix A.1.
    """

    name = "max-min-fairness"
    reads = frozenset({"weight", "gang"})
    sense = "max"
    generates_columns = True
    objective_words = "smallest normalised throughput per GPU and weight"

    class Options(FormulationOptions):
        """Options of max-min fairness."""

        agnostic: bool | Literal["literal"] = False

    def build(self, C: Classes) -> AllocationProgram:
        s, p = C.gang, C.weight
        if self.options.agnostic:
            throughput, prop = C.member, np.ones(len(C))
        else:
            throughput, prop = C.throughput, proportional(C)
        return AllocationProgram(C, Minimum(), scaled_rows(throughput, s / p / prop))
