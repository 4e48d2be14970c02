"""SMD: each job's configuration by an inner problem of its own, then a knapsack over the jobs."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from formulations.job_limits import JobLimits
from optsched.arrays import BoolArray, IntArray, quotient
from optsched.candidates import Candidates, Classes, Drop
from optsched.formulation import Formulation
from optsched.program import AllocationProgram, SideRows, Total


class Smd(Formulation):
    """Maximise the value of admitted jobs, each in its fastest configuration;
    jobs reserve their limits (SMD).

    Sets
        jobs i, in classes of equal jobs; resources r
    Parameters
        theta_i   law of step times t_i(w, p) (`optsched.performance.parameter_server`); K_i steps
        O_i^r, G_i^r, v_i^r   what a worker and a server hold, and the job's limit; C^r capacity
        mu_i      value by duration, non-increasing
    Variables
        w_i, p_i  workers and parameter servers;   x_i  1: i is admitted
    Program
        maximise  sum_i x_i mu_i(tau_i(w_i, p_i)),   tau_i(w, p) = K_i t_i(w, p)
        s.t.      O_i^r w_i + G_i^r p_i <= v_i^r     for every i and r;   w_i, p_i = 1, 2, ...
                  sum_i x_i v_i^r <= C^r             for every r          (reservation)
                  x binary

    Decomposition. The rows that couple jobs contain v_i, not (w_i, p_i), and mu_i never grows with
    tau_i, so the best (w_i, p_i) minimises tau_i alone, for every x:

        inner     (w_i*, p_i*) = argmin tau_i(w, p)  inside the limit,   u_i = mu_i(tau_i*)
        outer     maximise  sum_i u_i x_i   s.t.  (reservation), x binary

    The inner problem is solved by enumeration, the outer one as a MILP. Pairs that need more than
    C^r are left out. `formulations.smd_rounding` rounds the relaxation of the outer problem
    instead.

    Of a job with explicit options, the inner problem takes the one with the greatest ``value``
    inside the limit (``parameters.limit`` of its workload), then the fastest. A job with neither a
    law nor options is refused. Columns of two jobs are left out.

    References
        M. Yu, C. Wu, B. Ji, J. Liu, "A sum-of-ratios multi-dimensional-knapsack decomposition for
        DNN resource scheduling", INFOCOM 2021, arXiv:2105.13855 (there both parts are relaxed and
        rounded, with guarantees).
    """

    name = "smd"
    also_reads = frozenset({"value"})
    reads_pairs = False
    sense = "max"
    objective_words = "total value"
    reserve: ClassVar[bool] = True
    """Whether a job that is admitted holds its limit, instead of what it uses."""

    @property
    def integral(self) -> bool:
        """Jobs are admitted as a whole."""
        return True

    def classes(self, candidates: Candidates) -> Classes:
        """Classes with the column that the inner problem chooses for each kind."""
        return super().classes(candidates.without(inner(candidates, JobLimits.of(candidates))))

    def build(self, C: Classes) -> AllocationProgram:
        """The outer problem: which job runs, given the best column of each."""
        limits = JobLimits.of(C.candidates)
        limits.check(C.candidates, self.name)
        columns = C.candidates.columns
        number = np.arange(C.columns)
        u = sp.csr_matrix(
            (columns.value[C.kind_column], (C.class_a, number)), shape=(len(C), C.columns)
        )
        side = (_reservation(C, limits),) if self.reserve else ()
        return AllocationProgram(C, Total(np.ones(len(C))), u, side=side, integral=True)


class SmdTight(Smd):
    """As SMD, but admitted jobs reserve what they use, not their limits.

    Symbols as in ``smd``.
    Program
        inner     (w_i*, p_i*) = argmin tau_i(w, p)  inside the limit,   u_i = mu_i(tau_i*)
        outer     maximise  sum_i u_i x_i
                  s.t.      sum_i x_i (O_i^r w_i* + G_i^r p_i*) <= C^r    for every r;   x binary

    A job could use less and leave room for others, which `formulations.multiple_choice` decides
    jointly. Hence

        value(smd)  <=  value(smd-tight)  <=  value(multiple-choice).

    References
        As for ``smd``.
    """

    name = "smd-tight"
    reserve = False


def inner(candidates: Candidates, limits: JobLimits, epsilon: float = 0.0) -> np.ndarray:
    """`Drop` of each kind column:
    kept are the choices of the inner problems, and kinds that `build` refuses.

    Parameters
    ----------
    candidates : Candidates
    limits : JobLimits
    epsilon : float
        Durations by laws may be 1 + epsilon times the shortest.
    """
    columns, kinds = candidates.columns, candidates.kinds
    w, p, _ = kinds.laws.fastest(epsilon)
    law = kinds.law[columns.kind]
    # Each line overrules those before. Kinds that `build` refuses keep their columns until then.
    drop = np.full(len(columns), Drop.NOT_CHOSEN, np.uint8)
    by_law = columns.workers > 0
    if len(kinds.laws):
        drop[by_law & (columns.workers == w[law]) & (columns.servers == p[law])] = Drop.KEPT
    optional = (columns.option >= 0) & (columns.partner < 0)
    over = limits.exceeded(candidates)
    drop[optional & over] = Drop.OVER_LIMIT
    drop[_best_options(candidates, optional & ~over)] = Drop.KEPT
    drop[limits.refused(candidates)] = Drop.KEPT
    return drop


def _best_options(candidates: Candidates, among: BoolArray) -> IntArray:
    """Of each kind the option with the greatest value, of these the fastest, of these the first."""
    columns = candidates.columns
    rows = np.flatnonzero(among)
    steps = candidates.instance.jobs_table.steps[candidates.kinds.first[columns.kind[rows]]]
    rate, duration = columns.rate[rows], columns.duration[rows]
    from_rate = quotient(steps, rate, np.inf)
    duration = np.where(np.isnan(duration), from_rate, duration)
    rows = rows[np.lexsort((rows, duration, -columns.value[rows], columns.kind[rows]))]
    _, first = np.unique(columns.kind[rows], return_index=True)
    return rows[first]


def _reservation(C: Classes, limits: JobLimits) -> SideRows:
    """sum_i v_i^r x_i <= C^r."""
    kind = C.candidates.kinds.of_job[C.first[C.class_a]]
    v = sp.csr_matrix(np.nan_to_num(limits.limit)[kind].T)
    return SideRows(
        name="reservation",
        matrix=v,
        lower=np.full(len(limits.names), -np.inf),
        upper=limits.capacity,
        describe=partial(_at_most, limits),
    )


def _at_most(limits: JobLimits, row: int) -> str:
    return (
        f"the limits of the jobs that are admitted reserve at most {limits.capacity[row]:g} of "
        f"{limits.names[row]}"
    )
