"""Partial allocation: fair shares of time, with which no tenant gains by misreporting
throughputs."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import numpy as np
import scipy.sparse as sp

from formulations.discounts import WithoutOne
from formulations.reference_rates import proportional
from optsched.arrays import BoolArray, FloatArray
from optsched.arrays.matrices import scaled_rows
from optsched.candidates import Classes, Usage
from optsched.errors import UsageError
from optsched.formulation import Formulation, FormulationOptions
from optsched.formulation.procedure import Auxiliary, Optimum, Procedure, Reduced, Undecided
from optsched.program import AllocationProgram, Exponential, SideRows, Total
from optsched.solution import Status, Termination

log = logging.getLogger("optsched")

ACCURACY = 1e-4
ACCURACY_PER_JOB = 2e-9
"""Largest allowed error of a discount: the larger of the first, and the second times the number of
jobs, because the optima behind it have an error per job.
"""
AIM, AIM_PER_JOB = 1e-6, 1e-8
"""If bounds give a discount to within this error, no program is solved for it: the larger of the
first, and the second times the number of jobs, but never more than the allowed error.
"""
LEVELS = 1e-4
"""The levels at x*, and so the discounts, may differ by this fraction between two solvers, because
the product is flat near its optimum.
"""


def accuracy(C: Classes) -> float:
    """Largest allowed error of the discounts: 1e-4 for up to 50,000 jobs."""
    return max(ACCURACY, ACCURACY_PER_JOB * float(C.count.sum()))


def aim(C: Classes) -> float:
    """Error of a discount above which the program without its job is solved."""
    return min(max(AIM, AIM_PER_JOB * float(C.count.sum())), accuracy(C))


class PartialAllocation(Formulation):
    """Maximise the product of throughputs, then discount each job by its cost to the others,
    so that lies do not pay.

    Sets, x, T, n, s, p, prop, time and capacity as in `formulations.max_min_fairness`; jobs alone
    on their GPUs.
    Program
        x* = argmax  sum_k n_k w_k log(level_k),   level_k = m_k sum_c T_kc x_c / n_k     s.t.  time, capacity
        f_k   = ( prod over all other jobs i of  (level_i(x*) / level_i(x^-k)) ^ w_i ) ^ (1 / w_k)
        where x^-k is the optimum without one of the jobs of class k
        allocation:  f_k x*_kc

    f_k <= 1. A job's discounted throughput is the product over all jobs, which x* maximises,
    divided by what the others could have without it, which it cannot influence. So no job gains by
    lies about its throughputs, and each keeps at least 1/e of its part of x*.

    The objective is the geometric mean of the levels at x*, exp(sum_k n_k w_k log(level_k) / sum_k
    n_k w_k), BEFORE the discounts; bound, prices and certificate are of x* too. The figure
    ``discount`` of each job is f_k. Bounds of `formulations.discounts` for all classes together
    prove it to 1e-8 per job, but to no less than 1e-6 and no more than 1e-4 (for more than 50,000
    jobs, 2e-9 per job). For a class where they do not, the program without one of its jobs is
    solved. It also improves the bounds of other classes, and must prove f_k to 1e-4 (or 2e-9 per
    job). If that fails or a limit stops it, the answer is x*, ``feasible`` and without discounts.

    At x*, with prices q_r of the capacity and lambda_k of the time, sum_k n_k lambda_k + sum_r q_r
    W_r = sum_k n_k w_k
    and  w_k T_kc / (T_k x* / n_k)  <=  lambda_k + sum_r q_r usage_rc,  with equality where x*_c > 0.

    Side constraints must be upper limits of sums, such as budgets and quotas; others, such as
    deadlines, and jobs that share GPUs are refused.

    Options
        weights   ``ignored``: w_k = 1, m_k = s_k / (p_k prop_k); weights then scale levels and change no allocation;
                  ``exponent``: w_k = p_k, m_k = s_k / prop_k.

    References
        R. Cole, V. Gkatzelis, G. Goel, "Mechanism Design for Fair Division: Allocating Divisible
        Items without Payments", EC 2013; in D. Narayanan et al., OSDI 2020, repository policy
        ``max_min_fairness_strategy_proof_perf``.
    """

    name = "partial-allocation"
    reads = frozenset({"weight", "gang"})
    sense = "max"
    objective_words = "geometric mean of normalised throughputs before the discount"

    class Options(FormulationOptions):
        """Options of partial allocation."""

        weights: Literal["ignored", "exponent"] = "ignored"

    def build(self, C: Classes) -> AllocationProgram:
        """The program of x*, with levels in units that give it a value near the number of jobs."""
        pair = np.flatnonzero(~C.alone)
        if len(pair):
            a, b = C.job_name(int(C.class_a[pair[0]])), C.job_name(int(C.class_b[pair[0]]))
            raise UsageError(
                f"partial-allocation: {a} may share GPUs with {b}, "
                "and a discount of one job would also reduce the other; "
                "solve it without colocation"
            )
        prop = proportional(C)
        ignored = self.options.weights == "ignored"
        m, w = C.gang / prop, np.ones(len(C)) if ignored else C.weight
        program = AllocationProgram(C, Total(w, "log"), scaled_rows(C.throughput, m))
        total = float(C.count @ w)
        # 1 / p_k of ignored weights is a factor of the geometric mean: the program does not see it.
        scale = float(np.exp(-(C.count @ np.log(C.weight)) / total)) if ignored and len(C) else 1.0
        # Levels are divided by (geometric mean of an even split) / e. The value is then at least
        # the total weight: its relative gap is about that of the geometric mean, and it is never
        # near 0.
        even = program.value(program.even()) / total if len(C) else 0.0
        unit = float(np.exp(even - 1.0)) if np.isfinite(even) else 1.0
        units = Exponential(scale * unit, total)
        return replace(program, levels=sp.csr_matrix(program.levels / unit), units=units)

    def figures_within(self, C: Classes) -> float:
        """The discounts of two solvers may differ by as much as the levels, plus the error of
        each.
        """
        return LEVELS + 2 * accuracy(C)

    def optimum(self, C: Classes, x: FloatArray, figures: Mapping[str, FloatArray]) -> FloatArray:
        """x* from the discounted allocation; without discounts it is the allocation itself."""
        f = figures.get("discount", np.ones(len(C)))
        if not ((f > 0) & (f <= 1)).all():
            raise ValueError("expected a discount in (0, 1] of every job")
        return x / f[C.class_a]

    def procedure(self, C: Classes, seed: int) -> Procedure:
        """Solve for x*, then without one job of some classes, until all discounts are known."""
        program = self.program(C)
        assert isinstance(program, AllocationProgram)
        _refuse_demands(program.side)
        star = yield program
        if star.x is None:
            return None
        if star.status is not Status.OPTIMAL:
            return _no_discounts(star.termination, "x* is not known to be the optimum")
        x, w = star.x, program.total.weight
        welfare = w * np.log(program.level(x))
        others = float(C.count @ welfare) - welfare
        prices = _prices(program, star)
        known = WithoutOne(program, program.repaired(x), prices)
        tried, solved = np.zeros((2, len(C)), bool)
        while True:
            # f falls as the optimum of the others without k rises; that is between value and bound.
            low = np.exp((others - np.maximum(known.bound, known.value)) / w)
            high = np.exp((others - known.value) / w)
            wide = np.maximum(high - low, low - 1.0)
            uncertain = np.flatnonzero(wide > np.where(solved, accuracy(C), aim(C)))
            if not len(uncertain):
                break
            k = int(uncertain[wide[uncertain].argmax()])
            if solved[k]:
                why = f"that of {C.job_name(k)} is between {low[k]:.9g} and {high[k]:.9g}"
                return _no_discounts(Termination.IMPRECISE, why)
            same = known.like(k, uncertain[~solved[uncertain]])
            if known.mix(same):
                continue
            k = int(same[0])
            if not tried[k]:
                tried[k] = True
                known.add(*known.scaled(k))
                continue
            solved[k] = True
            rest = _without(program, k)
            if rest is None:  # there is no other job
                known.value[k] = known.bound[k] = 0.0
                continue
            without_k = yield Auxiliary(rest, prices=prices)
            value, bound, ended = without_k.value, without_k.bound, without_k.termination
            if without_k.status is not Status.OPTIMAL or value is None or bound is None:
                found = f"{len(C) - len(uncertain):,} of {len(C):,}"
                why = f"{found} were found until the run ended with {ended}"
                return _no_discounts(ended, why)
            known.value[k] = max(known.value[k], value)
            known.bound[k] = min(known.bound[k], bound)
            known.add(*_beside(program, k, x, rest, without_k))
        # f <= 1: without k the others can have at least what they have at x*.
        f = np.minimum(high, 1.0)
        return Reduced(f[C.class_a] * x, {"discount": f})


def _no_discounts(termination: Termination, why: str) -> Undecided:
    """x* is the answer as it is."""
    log.warning("no discounts: %s", why)
    return Undecided(termination, f"x* without discounts: {why}")


def _refuse_demands(side: tuple[SideRows, ...]) -> None:
    """Refuse rows that may be broken when every job gets less."""
    for rows in side:
        demands = (rows.lower > 0) | (
            (rows.matrix.min(axis=1).toarray().ravel() < 0) if rows.matrix.nnz else False
        )
        if np.any(demands):
            words = rows.describe(int(np.argmax(demands)))
            raise UsageError(
                "partial-allocation reduces what every job has, so it cannot keep a minimum: "
                f"{words}"
            )


def _prices(program: AllocationProgram, optimum: Optimum) -> FloatArray:
    """Duals of all that is limited, which prove the optimum."""
    duals = optimum.duals
    assert duals is not None
    return np.concatenate([duals["capacity"], *(duals[rows.name] for rows in program.side)])


def _beside(
    program: AllocationProgram, k: int, x: FloatArray, rest: AllocationProgram, optimum: Optimum
) -> tuple[FloatArray, FloatArray]:
    """The optimum of the other jobs plus one job of class k, and the prices of that optimum."""
    C, w, prices = program.classes, program.total.weight, _prices(rest, optimum)
    assert optimum.x is not None
    found, of_k = rest.repaired(optimum.x), C.class_a == k
    if C.count[k] > 1:
        # It gets as much as each of its equals.
        return np.where(of_k, found * (C.count[k] / (C.count[k] - 1.0)), found), prices
    # The job gets `part` times its x*, where w log(part) minus the cost is greatest.
    cost = float((program.limit_rows.matrix.T @ prices)[of_k] @ x[of_k])
    part = 1.0 / float(x[of_k].sum())
    together = np.where(of_k, x * (min(part, w[k] / cost) if cost > 0 else part), 0.0)
    together[~of_k] = found
    return together, prices


def _without(program: AllocationProgram, k: int) -> AllocationProgram | None:
    """The program without one job of a class; None without any job left.
    The units of levels and rows stay.
    """
    C, utility = program.classes, program.total
    if C.count[k] > 1:
        # One of several equal jobs: only their number changes.
        return replace(program, classes=replace(C, count=C.count - (np.arange(len(C)) == k)))
    if len(C) == 1:
        return None
    # Without its only job the class goes, with its columns and their coefficients in side rows.
    stays = np.arange(len(C)) != k
    columns = np.flatnonzero(C.class_a != k)
    number = np.cumsum(stays) - 1

    def of(matrix: sp.csr_matrix, rows: BoolArray | slice = slice(None)) -> sp.csr_matrix:
        return sp.csr_matrix(matrix[rows][:, columns])

    rest = replace(
        C,
        of_job=np.where((C.of_job >= 0) & (C.of_job != k), number[C.of_job], -1),
        first=C.first[stays],
        count=C.count[stays],
        origin=C.kind_column[columns],
        class_a=number[C.class_a[columns]],
        class_b=C.class_b[columns],
        rate_a=C.rate_a[columns],
        rate_b=C.rate_b[columns],
        throughput=of(C.throughput, stays),
        holds=Usage.of(of(C.usage)),
    )
    return replace(
        program,
        classes=rest,
        utility=replace(utility, weight=utility.weight[stays]),
        levels=of(program.levels, stays),
        side=tuple(replace(rows, matrix=of(rows.matrix)) for rows in program.side),
    )
