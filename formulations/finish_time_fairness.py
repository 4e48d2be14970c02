"""Finish-time fairness (Themis):
no job is much later than with a slice of the cluster to itself.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import scipy.sparse as sp

from formulations.reference_rates import (
    fastest,
    reference_rates,
)
from formulations.shared_options import OnReferencePool, ReferencePoolOptions
from formulations.slices import reference_slices
from optsched.arrays import FloatArray
from optsched.arrays.matrices import scaled_rows
from optsched.candidates import Classes
from optsched.errors import InvalidInput
from optsched.program import AllocationProgram, DelayedMinimum, Inverse, Minimum

LONGEST_AGE = 1e15
"""Age in units of the time that a job needs alone:
with 1 / 2^53 of precision the sum of both is the age beyond it.
"""


class FinishTimeFairness(OnReferencePool):
    """Minimise the largest ratio of a job's finish time to its finish time on 1/n
    of the cluster (Themis).

    Sets, x, T, n, time and capacity as in `formulations.max_min_fairness`.
    Parameters
        t_k       seconds since the arrival (age);  N_k steps left
        iso_k     = sum_j T_kj y_kj, the isolated throughput, y as in `formulations.isolated`
                  (of a job that uses no pool: its fastest)
        C_k       isolated time so far (``history.isolated_time``): what the steps done would have
                  taken isolated, s
        D_k       = C_k + N_k / iso_k, the job's finish time in isolation, s
        thr_k(x)  = sum_c T_kc x_c / n_k
    Program
        minimise  max_k rho_k,   rho_k = ( t_k + N_k / thr_k(x) ) / D_k    s.t.  time, capacity

        With level_k = thr_k D_k / N_k and a_k = t_k / D_k this is  rho_k = a_k + 1 / level_k,  so that

        maximise  v = 1 / rho   s.t.   level_k(x) >= v / (1 - a_k v)  for every class k,  time, capacity

        which is convex. The right side is replaced by its tangent, a linear program whose optimum
        is a bound; the next tangent is taken there, until value and bound agree (Newton's method).
        Weights don't count.

    Options
        agnostic        T_kc := rate on ``reference_pool`` wherever the job can run.
        reference_pool  name of a pool; needed with agnostic.

    References
        K. Mahajan et al. "Themis: Fair and Efficient GPU Cluster Scheduling", NSDI 2020 (the
        metric); D. Narayanan et al., OSDI 2020, section 4.2 (the program; there one convex program,
        without a certificate).
    """

    name = "finish-time-fairness"
    aliases = ("themis",)
    reads = frozenset({"steps_left", "arrival", "isolated_time", "gang"})
    sense = "min"
    objective_words = "largest finish-time ratio rho"

    class Options(ReferencePoolOptions):
        """Options of finish-time fairness."""

    def build(self, C: Classes) -> AllocationProgram:
        D, levels = self._terms(C)
        program = AllocationProgram(C, _utility(C, D), levels, units=Inverse())  # rho = 1 / value
        age = C.instance.now - C.arrival
        _refuse_endless_ages(C, age, age / D * program.highest_level)
        return program

    def _terms(self, C: Classes) -> tuple[FloatArray, sp.csr_matrix]:
        """D, and the levels (D_k / N_k) sum_c T_kc x_c."""
        N = C.steps_left
        D = C.isolated_time + N / self.isolated_rates(C)
        return D, scaled_rows(self.throughputs(C), D / N)

    def isolated_rates(self, C: Classes) -> FloatArray:
        """iso_k = sum_j T_kj y_kj."""
        T = reference_rates(C)
        if self.options.agnostic:
            T = np.where(T > 0, self.reference(C)[:, np.newaxis], 0.0)
        _, y = reference_slices(C, np.array(1.0 / max(C.count.sum(), 1)))
        iso = (T * y).sum(axis=1)
        return np.where(iso > 0, iso, fastest(C)) if (iso <= 0).any() else iso

    def figures(self, C: Classes, x: FloatArray) -> Mapping[str, FloatArray]:
        """rho of every job."""
        D, levels = self._terms(C)
        reached = _utility(C, D).reached(levels @ x / C.count)
        with np.errstate(divide="ignore"):  # a job that gets nothing never ends
            return {"rho": 1.0 / reached}


def _utility(C: Classes, D: FloatArray) -> Minimum:
    """The smallest of 1 / (t_k / D_k + 1 / level_k);
    without ages t_k that is the smallest level.
    """
    t = C.instance.now - C.arrival
    return DelayedMinimum(t / D) if (t > 0).any() else Minimum()


def _refuse_endless_ages(C: Classes, t: FloatArray, times: FloatArray) -> None:
    """Raise `InvalidInput` where an age is so many ``times`` what a job still needs
    that their sum is the age alone.
    """
    if not (times <= LONGEST_AGE).all():
        k = int(times.argmax())
        job = int(C.first[k])
        raise InvalidInput(
            f"jobs[{job}].arrival",
            f"{C.arrival[k]:g} s, {t[k]:g} s before now (job {C.instance.jobs_table.names[job]})",
            f"at most {t[k] / times[k] * LONGEST_AGE:.3g} s before now: beside a longer age, "
            "the time that the job "
            "still needs is lost in rounding",
        ).of_jobs(C.jobs_among(~(times <= LONGEST_AGE)))
