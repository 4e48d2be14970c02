"""SMD by rounding: the relaxation of its knapsack, cheap, with a stated part of the optimum."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
import scipy.sparse as sp
from pydantic import Field

from formulations.all_assigned import FITS, jobs_alone
from formulations.job_limits import JobLimits
from formulations.multiple_choice import MultipleChoice
from formulations.rule import Deciding, Rule
from formulations.smd import Smd, SmdTight, inner
from optsched.arrays import BoolArray, FloatArray, quotient
from optsched.candidates import Candidates, Classes, Drop
from optsched.errors import UsageError
from optsched.formulation import Formulation, FormulationOptions
from optsched.formulation.procedure import Auxiliary, PricedRows
from optsched.program import AllocationProgram

EXACT: dict[str, type[Formulation]] = {
    "smd": Smd,
    "smd-tight": SmdTight,
    "multiple-choice": MultipleChoice,
}
"""The programs that can be rounded."""
SAME = 1e-9
"""Relative difference of two values that is rounding."""
NO_PART = (
    "no part of the optimum is promised: a job is worth nothing, "
    "and could be worth something if it were faster"
)
"""Where s is 0."""


class SmdRounding(Rule):
    """Admit jobs by rounding the relaxation of SMD; the value is at least a stated part of the
    optimum.

    Symbols as in ``smd``; K is the number of resources.
    Rule
        1. inner     (w_i, p_i)  with  t_i(w_i, p_i) <= (1 + epsilon) min t_i  inside the limit: the best of those
                     with w on the grid  1, 2, ..., w, max(w + 1, floor((1 + epsilon) w)), ...
        2. LP        maximise  sum_i u'_i x_i   s.t.  (reservation), 0 <= x <= 1,   u'_i = mu_i(tau_i / (1 + epsilon))
        3. rounding  x is a vertex: at most K jobs are fractional. It is rounded down. The job of greatest value alone
                     is tried too. Both are filled up with jobs that still fit; the better one is
                     the answer.
    Guarantee
        value  >=  s / (K + 1) LP,   s = min_i u_i / u'_i  over u'_i > 0,   u_i = mu_i(tau_i);   s = 1 for epsilon = 0
        LP     >=  the optimum of the program: it is the bound of the solution

    Rounding down loses at most K jobs, each worth at most what the best job is worth alone; so the
    two points together are worth LP / (K + 1) at least. The shortest duration is at least tau_i /
    (1 + epsilon), so no job is worth more than u'_i. A note states the part, and the certificate
    checks it. Where kappa_i is the elasticity of mu_i, s is at least (1 + epsilon)^-kappa. Where s
    is 0, nothing is promised.

    Columns of two jobs are left out: of ``multiple-choice`` the bound is that of the program
    without them, which pairs may exceed.

    For real w and p there is a grid of the ratios 1/w and w/p, with a linear program for each of
    its points, whose optimum is the smallest w and p there. For whole w and p a grid of w does the
    same without a program.

    Options
        program     which program is rounded: ``smd`` (jobs hold their limits), ``smd-tight`` (what
                    they use), or ``multiple-choice`` (configurations are chosen jointly, and there
                    is no inner problem).
        epsilon     how far the inner problem may be from its optimum; of ``smd`` alone.
        relaxation  ``lp``, or ``lagrangian``: the rows of resources get prices, which a bundle
                    method finds without a linear program. Its bound is the same in the limit. Its
                    average is rounded, for which nothing is promised beforehand.

    References
        M. Yu, C. Wu, B. Ji, J. Liu, "A sum-of-ratios multi-dimensional-knapsack decomposition for
        DNN resource scheduling", INFOCOM 2021, arXiv:2105.13855; A. M. Frieze, M. R. B. Clarke,
        "Approximation algorithms for the m-dimensional 0-1 knapsack problem", European Journal of
        Operational Research 15 (1984).
    """

    name = "smd-rounding"
    also_reads = frozenset({"value"})
    reads_pairs = False
    leaves_idle = True
    objective_words = "total value"

    class Options(FormulationOptions):
        """Options of the rounding."""

        program: Literal["smd", "smd-tight", "multiple-choice"] = "smd"
        epsilon: Annotated[float, Field(ge=0.0, le=10.0)] = 0.0
        relaxation: Literal["lp", "lagrangian"] = "lp"

    @property
    def wants_bound(self) -> bool:
        """Always: the guarantee is about it."""
        return True

    @property
    def integral(self) -> bool:
        """Jobs are admitted as a whole."""
        return True

    @property
    def rounds_what_is_known(self) -> bool:
        """A linear program is solved to its optimum, prices as long as there is time."""
        return bool(self.options.relaxation == "lagrangian")

    @property
    def _reserves(self) -> bool:
        return bool(self.options.program == "smd")

    def classes(self, candidates: Candidates) -> Classes:
        """Those of the program, without columns that never fit, as part of one would, and without
        pairs.
        """
        epsilon, program = self.options.epsilon, self.options.program
        if epsilon > 0 and not self._reserves:
            raise UsageError(
                f"smd-rounding: epsilon goes with the program smd, not with {program}: "
                "there other configurations leave other room"
            )
        if program == "multiple-choice":
            candidates = jobs_alone(candidates)
        drop = np.full(len(candidates.columns), Drop.KEPT, np.uint8)
        drop[self._never_fit(candidates)] = Drop.OVER_CAPACITY
        candidates = candidates.without(drop)
        if epsilon > 0:
            near = inner(candidates, JobLimits.of(candidates), epsilon)
            return super().classes(candidates.without(near))
        return EXACT[program]().classes(candidates)

    def _never_fit(self, candidates: Candidates) -> BoolArray:
        """Mask of kind columns that need or reserve more than there is."""
        use = candidates.usage.tocoo()
        over = np.zeros(len(candidates.columns), bool)
        over[use.col[use.data > candidates.resources.capacity[use.row] * FITS]] = True
        if self._reserves:
            limits = JobLimits.of(candidates)
            wide: BoolArray = np.any(limits.limit > limits.capacity * FITS, axis=1)
            over |= wide[candidates.columns.kind]
        return over

    def build(self, C: Classes) -> AllocationProgram:
        """The program that is rounded."""
        program = EXACT[self.options.program]().build(C)
        assert isinstance(program, AllocationProgram)
        return program

    def decide(self, C: Classes, seed: int) -> Deciding:
        """Solve the relaxation and round it."""
        program = self.build(C)
        relaxed = self._relaxed(program)
        promise: float | None = None
        notes: tuple[str, ...] = ()
        if self.options.relaxation == "lp":
            optimum = yield Auxiliary(relaxed.to_linear(), required=True, vertex=True)
            assert optimum.x is not None and optimum.bound is not None
            x, bound = relaxed.allocation_of(optimum.x), optimum.bound
            part, why = self._promise(program, relaxed)
            if part > 0:
                promise, notes = part, (f"at least {part:.4g} of the optimum: {why}",)
            else:
                notes = (NO_PART,)
        else:
            optimum = yield _priced_rows(relaxed)
            assert optimum.x is not None and optimum.bound is not None
            x, bound = optimum.x, -optimum.bound
        best_alone = np.zeros(C.columns)
        best_alone[np.argmax(program.gain)] = 1.0
        points = [program.kept(point) for point in (x, best_alone)]
        decision = self.decision(C, max(points, key=program.value))
        # Where the relaxation is whole the two are the same sum in another order
        rounding = SAME * max(1.0, abs(bound))
        least = decision.value if 0.0 < decision.value - bound <= rounding else bound
        return decision._replace(bound=(least, "relaxation"), promise=promise, notes=notes)

    def _relaxed(self, program: AllocationProgram) -> AllocationProgram:
        """The program in fractions, with the values u' of columns by law."""
        relaxed = replace(program, integral=False)
        C = program.classes
        columns, kinds = C.candidates.columns, C.candidates.kinds
        by_law = columns.workers > 0
        if self.options.epsilon == 0 or not by_law.any():
            return relaxed
        shortest = columns.duration[by_law] / (1.0 + self.options.epsilon)
        value = columns.value.copy()
        value[by_law] = kinds.laws.utility(kinds.law[columns.kind[by_law]], shortest)
        u = value[C.kind_column]
        levels = sp.csr_matrix((u, (C.class_a, np.arange(C.columns))), shape=(len(C), C.columns))
        return replace(relaxed, levels=levels)

    def _promise(self, program: AllocationProgram, relaxed: AllocationProgram) -> tuple[float, str]:
        """The part of the bound that the value reaches, and why."""
        rows = program.side[0].matrix if self._reserves else program.classes.usage
        K = int(np.count_nonzero(np.diff(sp.csr_matrix(rows).indptr)))
        part, why = 1.0 / (K + 1), f"1/{K + 1} by rounding in {K} resources"
        if self.options.epsilon > 0:
            inside = float(quotient(program.gain, relaxed.gain, 1.0).min())
            part, why = part * inside, f"{why}, {inside:.4g} by the inner problems"
        return part, why


def _priced_rows(program: AllocationProgram) -> PricedRows:
    """The program with prices of its resources: each job takes the column that is worth most at
    them.
    """
    C, limits, gain = program.classes, program.limit_rows, program.gain
    used = np.flatnonzero(np.isfinite(limits.most) & (limits.most > 0))
    # Parts of what there is: the bundle method measures all rows alike
    use = sp.csr_matrix(sp.diags_array(1.0 / limits.most[used]) @ limits.matrix[used])

    def solve(y: FloatArray) -> tuple[FloatArray, float, FloatArray]:
        worth = gain + use.T @ y
        order = np.lexsort((-worth, C.class_a))
        klass, first = np.unique(C.class_a[order], return_index=True)
        best, x = order[first], np.zeros(C.columns)
        x[best] = np.where(worth[best] > 0, C.count[klass], 0.0)
        return x, -float(gain @ x), use @ x

    return PricedRows(np.full(len(used), -np.inf), np.ones(len(used)), solve)
