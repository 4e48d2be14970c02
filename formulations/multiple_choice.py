"""The multiple-choice multi-dimensional knapsack:
at most one configuration per job, worth as much as fits.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import scipy.sparse as sp

from formulations.dominance import dominated
from optsched.arrays import FloatArray, quotient
from optsched.candidates import Candidates, Classes, Drop
from optsched.formulation import Formulation, FormulationOptions
from optsched.program import AllocationProgram, Total


class MultipleChoice(Formulation):
    """Choose at most one configuration per job with the largest total value: a knapsack.

    Sets
        jobs j, in classes k of n_k equal jobs; configurations c of each; resources r, renewable and
        consumable
    Parameters
        val_jc    value of j in c: ``value`` of an explicit option; mu(tau) with parameter servers;
                  else by the option ``generated``; of a pair the sum of its two jobs
        use_jc[r] what it holds of r;   C_r capacity
    Variables
        x_jc      1: j runs in c (summed over equal jobs)
    Program
        maximise  sum_jc val_jc x_jc
        s.t.      sum_c x_jc <= 1                    for every job
                  sum_jc use_jc[r] x_jc <= C_r       for every resource
                  x binary;  0 <= x <= 1 with ``relax``

    An option with a value needs no rate: it is an item of a knapsack.

    Options
        generated  value of a column without option and law, w_j being the weight: ``relative-rate``
                   w_j T_jc / max_c T_jc;  ``rate`` w_j T_jc;  ``weight`` w_j.
        relax      solve the linear relaxation, an upper bound. At a vertex, no more classes have a
                   fractional choice than there are full resources.
        prune      leave out columns dominated in value and use by another of the same job; the
                   optimum is the same. Not done with side constraints.

    References
        H. Kellerer, U. Pferschy, D. Pisinger, "Knapsack problems", 2004, chapters 9 and 11.
    """

    name = "multiple-choice"
    aliases = ("multidimensional-knapsack",)
    reads = frozenset({"weight"})
    also_reads = frozenset({"value"})
    sense = "max"
    objective_words = "total value"

    class Options(FormulationOptions):
        """Options of the multiple-choice knapsack."""

        generated: Literal["relative-rate", "rate", "weight"] = "relative-rate"
        relax: bool = False
        prune: bool = True

    @property
    def integral(self) -> bool:
        """See the option ``relax``."""
        return not self.options.relax

    def classes(self, candidates: Candidates) -> Classes:
        """Classes with options of rate 0, and without dominated columns."""
        candidates = candidates.admitting(Drop.ZERO_RATE, where=candidates.dropped.option >= 0)
        if self.options.prune and not self.constraints and self.extend is None:
            columns = candidates.columns
            g, _ = self._value_of_kinds(candidates)
            worse = dominated(columns.kind, g, candidates.usage, columns.partner < 0)
            candidates = candidates.without(
                np.where(worse, Drop.DOMINATED, Drop.KEPT).astype(np.uint8)
            )
        return super().classes(candidates)

    def build(self, C: Classes) -> AllocationProgram:
        return AllocationProgram(C, Total(np.ones(len(C))), self._val(C), integral=self.integral)

    def _val(self, C: Classes) -> sp.csr_matrix:
        """val, classes x columns; a pair has an entry for each of its classes."""
        columns = C.candidates.columns
        g, h = (value[C.kind_column] for value in self._value_of_kinds(C.candidates))
        # A pair has the lower class first, which may be of the partner's kind: values change
        # places.
        swapped = ~C.alone & (
            C.candidates.kinds.of_job[C.first[C.class_a]] != columns.kind[C.kind_column]
        )
        g, h = np.where(swapped, h, g), np.where(swapped, g, h)
        # A value that is stated counts as it is, one made of a rate by the weight of the job.
        w = np.where(_has_value(C.candidates)[C.kind_column], 1.0, C.weight[C.class_a])
        pair = np.flatnonzero(~C.alone)
        entries = np.concatenate([w * g, C.weight[C.class_b[pair]] * h[pair]])
        rows = np.concatenate([C.class_a, C.class_b[pair]])
        where = (rows, np.concatenate([np.arange(C.columns), pair]))
        return sp.csr_matrix((entries, where), shape=(len(C), C.columns))

    def _value_of_kinds(self, candidates: Candidates) -> tuple[FloatArray, FloatArray]:
        """Value of each kind column for its kind and for its partner;
        of generated columns without the weight.
        """
        columns, generated = candidates.columns, self.options.generated
        T, T_partner = columns.rate, columns.partner_rate
        if generated == "relative-rate":
            best = np.zeros(len(candidates.kinds))
            pair = columns.partner >= 0
            np.maximum.at(best, columns.kind, T)
            np.maximum.at(best, columns.partner[pair], T_partner[pair])
            scale = quotient(1.0, best)
            T = T * scale[columns.kind]
            T_partner = T_partner * np.where(pair, scale[columns.partner], 0.0)
        elif generated == "weight":
            T, T_partner = (T > 0).astype(np.float64), (T_partner > 0).astype(np.float64)
        return np.where(_has_value(candidates), columns.value, T), T_partner


def _has_value(candidates: Candidates) -> np.ndarray:
    """Kind columns that bring their value: options, and workers with parameter servers."""
    return (candidates.columns.option >= 0) | (candidates.columns.workers > 0)
