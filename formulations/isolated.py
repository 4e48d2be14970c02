"""The isolated allocation: every job gets its own slice of the cluster."""

from __future__ import annotations

import time

import numpy as np

from formulations.reference_rates import pool_gpus, reference_columns, refuse_rateless
from optsched.arrays import FloatArray
from optsched.candidates import Candidates, Classes
from optsched.engine import Engine
from optsched.errors import UsageError
from optsched.formulation import Formulation
from optsched.program import AllocationProgram, Total
from optsched.solution import Allocation, Solution, SolverRecord, Termination, certify_point


class Isolated(Formulation):
    """Give every job 1/n of each pool (a closed form; the baseline and normaliser of the family).

    Parameters
        n jobs in the program, s_kj GPUs of the reference column on pool j (the gang where there is none), W_j GPUs
    Rule
        y_kj = W_j / (n s_kj) where the job can run on pool j;  each row divided by max(1, sum_j W_j / (n s_kj))

    The objective reported is the total throughput sum_k n_k sum_j T_kj y_kj, which the rule does not optimise: there is
    no bound. The rule keeps time and capacity of the GPUs; where CPUs, memory or another resource would be exceeded,
    the columns that use it are scaled down into it.

    References
        D. Narayanan et al., OSDI 2020, repository policy ``isolated``.
    """

    name = "isolated"
    reads = frozenset({"gang"})
    sense = "rule"
    objective_words = "total throughput, steps/s"

    def build(self, C: Classes) -> AllocationProgram:
        """The polyhedron that the rule's allocation must lie in, with the total throughput as its value."""
        refuse_rateless(C)
        return AllocationProgram(C, Total(np.ones(len(C))), C.throughput)

    def shares(self, C: Classes) -> FloatArray:
        """y of the class, as totals x over the columns of the classes, shape (N,)."""
        column, _ = reference_columns(C)
        W, n = pool_gpus(C), float(C.count.sum())
        x = np.zeros(C.columns)
        runs = column >= 0
        held = C.gpus * C.configurations.share[C.configuration]
        s = np.where(runs, held[column] if C.columns else 0.0, C.gang[:, np.newaxis])
        y = W[np.newaxis, :] / (n * s)
        y /= np.maximum(1.0, y.sum(axis=1, keepdims=True))
        x[column[runs]] = (y * C.count[:, np.newaxis])[runs]
        return self.build(C).repaired(x)

    def solve(self, candidates: Candidates, engine: Engine) -> Solution:
        """Evaluate the rule and certify its feasibility."""
        if not all(constraint.of_placement for constraint in self.constraints) or self.extend is not None:
            raise UsageError("isolated is a rule and takes no side constraints; solve another formulation with them")
        started = time.perf_counter()
        C = self.classes(candidates)
        if len(C) == 0:
            return self._empty(candidates, C)
        program = self.build(C)
        x = self.shares(C)
        engine.timings["solve"] = time.perf_counter() - started
        value = program.value(x)
        certificate = certify_point(program.to_linear().arrays, x, value, "rule")
        return self._bare(
            candidates,
            solver=SolverRecord("closed form", "1"),
            objective=value,
            termination=Termination.CLOSED_FORM,
            certificate=certificate,
            allocation=Allocation(C, x),
        )
