"""What rules have in common: allocations that are computed, not searched for."""

from __future__ import annotations

import time
from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from formulations.max_throughput import MaxThroughput
from formulations.reference_rates import refuse_rateless
from optsched.arrays import FloatArray
from optsched.candidates import Absence, Candidates, Classes
from optsched.errors import SolverCrashed, UsageError
from optsched.formulation import Formulation, FormulationOptions, by_job
from optsched.program import AllocationProgram, Total
from optsched.solution import (
    Allocation,
    Certificate,
    Solution,
    SolverRecord,
    Status,
    Termination,
    certify_point,
    gap_of,
)
from optsched.solution.certificate import OPTIMALITY
from optsched.solving.engine import Engine
from optsched.solving.outcome import Outcome


@dataclass(frozen=True)
class RuleDecision:
    """What a rule decided.

    Attributes
    ----------
    classes : Classes
        They may be finer than `Formulation.classes`: a rule decides job by job.
    x : FloatArray, shape (N,)
        Job-fractions of the columns of the classes.
    bound : (float, str) or None
        Bound on the rule's objective and its source, where deciding proved one.
    """

    classes: Classes
    x: FloatArray
    bound: tuple[float, str] | None = None


class Unfinished(Exception):
    """A program that the rule needs was stopped by a limit."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.values.words)
        self.outcome = outcome


LARGEST_SEED = 2**31 - 1


class Rule(Formulation):
    """A rule: its allocation is computed, its feasibility is certified, and nothing is optimised.

    Options
        bound    also solve the program that the rule stands in for: the solution then carries its bound, and the gap is
                 what the rule leaves. Here that is total throughput with jobs that share time and GPUs
                 (`formulations.max_throughput`), unless the rule says otherwise.
    """

    sense = "rule"
    takes_rows = False
    objective_words = "total throughput, steps/s"

    class Options(FormulationOptions):
        """Options of every rule."""

        bound: bool = False

    def build(self, C: Classes) -> AllocationProgram:
        """The polyhedron that the rule's allocation must lie in, with the total throughput as its value."""
        refuse_rateless(C)
        return AllocationProgram(C, Total(np.ones(len(C))), C.throughput, integral=self.integral)

    def random(self, engine: Engine) -> np.random.Generator:
        """Draws of a rule with an option ``seed``."""
        seed = self.options.seed
        return np.random.default_rng(engine.limits.seed if seed is None else seed)

    @abstractmethod
    def decide(self, candidates: Candidates, engine: Engine) -> RuleDecision:
        """The allocation; may raise `Unfinished`."""

    def value(self, C: Classes, x: FloatArray) -> float:
        """The objective of an allocation."""
        return self.build(C).value(x)

    def relaxation(self, candidates: Candidates, engine: Engine) -> tuple[float, str]:
        """A bound on the objective of every allocation, and its source; may raise `Unfinished`."""
        ideal = MaxThroughput()
        C = ideal.classes(candidates)
        return proved(engine.solve_allocation(ideal.build(C))), "relaxation"

    def solve(self, candidates: Candidates, engine: Engine) -> Solution:
        """Evaluate the rule and certify its feasibility.

        Raises
        ------
        UsageError
            A rule has no program that side constraints or rows of one's own could be added to.
        """
        if (
            not all(constraint.of_placement for constraint in self.constraints)
            or self.extend is not None
        ):
            told = f"{self.name} is a rule and takes no side constraints; solve another formulation with them"
            raise UsageError(told)
        if not (candidates.absence == Absence.PRESENT).any():
            return self._empty(candidates, self.classes(candidates))
        started = time.perf_counter()
        try:
            decision = self.decide(candidates, engine)
            engine.timings["solve"] = time.perf_counter() - started
            bound = None
            if self.options.bound:
                bound = decision.bound or self.relaxation(candidates, engine)
        except Unfinished as stopped:
            return self._stopped(candidates, engine, stopped.outcome)
        return self._decided(candidates, engine, decision, bound)

    def _decided(
        self,
        candidates: Candidates,
        engine: Engine,
        decision: RuleDecision,
        bound: tuple[float, str] | None,
    ) -> Solution:
        C, x = decision.classes, decision.x
        program, value = self.build(C), self.value(C, x)
        proof = "claimed" if bound is not None and bound[1] == "solver" else "rule"
        certificate = certify_point(program.to_linear().arrays, x, program.value(x), proof)
        status = Status.OPTIMAL
        if bound is not None:
            gap = gap_of(value, bound[0])
            status = Status.OPTIMAL if gap is not None and gap <= OPTIMALITY else Status.FEASIBLE
            if status is Status.FEASIBLE and value > bound[0]:
                told = (
                    f"the bound {bound[0]:.9g} is worse than the objective of the rule, {value:.9g}"
                )
                certificate = Certificate(
                    False, proof, certificate.residuals, (*certificate.problems, told)
                )
        return self._bare(
            candidates,
            solver=self._record(engine),
            objective=value,
            bound=None if bound is None else bound[0],
            bound_source="none" if bound is None else bound[1],
            status=status,
            certificate=certificate,
            allocation=Allocation(C, x, self.integral),
            reproducible=not engine.by_clock,
            figures=by_job(C, self.figures(C, x)),
            timings=dict(engine.timings),
        )

    def _stopped(self, candidates: Candidates, engine: Engine, outcome: Outcome) -> Solution:
        """Nothing: a limit was reached before a program that the rule or its bound needs was solved."""
        termination = outcome.values.termination
        return self._bare(
            candidates,
            solver=self._record(engine),
            termination=termination,
            status=Status.LIMIT,
            certificate=Certificate(True, "none", {}),
            reproducible=termination not in (Termination.TIME_LIMIT, Termination.INTERRUPTED),
            timings=dict(engine.timings),
        )

    def _record(self, engine: Engine) -> SolverRecord:
        if engine.chosen is None:
            return SolverRecord("closed form", "1", seed=engine.limits.seed)
        return engine.solver_record(engine.chosen)


def proved(outcome: Outcome) -> float:
    """The bound of a program that was solved to the end.

    Raises `Unfinished` if a limit stopped it, and `SolverCrashed` if its certificate does not hold.
    """
    if not outcome.certificate.ok:
        told = "; ".join(outcome.certificate.problems)
        raise SolverCrashed(
            f"solver {outcome.solver.name} left a certificate that does not hold: {told}"
        )
    if outcome.status is not Status.OPTIMAL or outcome.bound is None:
        raise Unfinished(outcome)
    return outcome.bound
