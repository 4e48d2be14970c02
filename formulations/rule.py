"""What rules have in common: allocations that are computed, not searched for."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator

import numpy as np

from formulations.max_throughput import MaxThroughput
from formulations.reference_rates import refuse_rateless
from optsched.arrays import FloatArray
from optsched.candidates import Classes
from optsched.formulation import Formulation, FormulationOptions
from optsched.formulation.procedure import Auxiliary, Optimum, Procedure, RuleDecision, Step
from optsched.program import AllocationProgram, LinearProgram, Total

Deciding = Generator[Step, Optimum, RuleDecision]
"""A procedure that ends in a decision; most rules need no program, and yield none."""

LARGEST_SEED = 2**31 - 1


class Rule(Formulation):
    """A rule: its allocation is computed, its feasibility is certified, and nothing is optimised.

    Options
        bound    also solve the program that the rule replaces: the solution then carries its bound,
                 and the gap is what the rule leaves. Here that is total throughput with jobs that
                 share time and GPUs (`formulations.max_throughput`), unless the rule says
                 otherwise.
    """

    sense = "rule"
    takes_rows = False
    objective_words = "total throughput, steps/s"

    class Options(FormulationOptions):
        """Options of every rule."""

        bound: bool = False

    @property
    def wants_bound(self) -> bool:
        """Whether the solution carries a bound."""
        return bool(self.options.bound)

    def build(self, C: Classes) -> AllocationProgram:
        """The polyhedron that the rule's allocation must lie in,
        with the total throughput as its value.
        """
        refuse_rateless(C)
        return AllocationProgram(C, Total(np.ones(len(C))), C.throughput, integral=self.integral)

    def random(self, seed: int) -> np.random.Generator:
        """Draws of a rule with an option ``seed``, by default that of the run."""
        option = self.options.seed
        return np.random.default_rng(seed if option is None else option)

    @abstractmethod
    def decide(self, C: Classes, seed: int) -> Deciding:
        """The allocation, of classes that have a job at least."""

    def value(self, C: Classes, x: FloatArray) -> float:
        """The objective of an allocation."""
        return self.build(C).value(x)

    def ideal(self, C: Classes) -> AllocationProgram | LinearProgram | None:
        """The program that the rule replaces:
        it bounds every allocation. None: 0 is a bound.
        """
        total = MaxThroughput()
        return total.build(total.classes(C.candidates))

    def decision(
        self, C: Classes, x: FloatArray, bound: tuple[float, str] | None = None
    ) -> RuleDecision:
        """An allocation over classes, which may be finer than those of the formulation."""
        return RuleDecision(self.build(C), x, self.value(C, x), bound)

    def procedure(self, C: Classes, seed: int) -> Procedure:
        """Evaluate the rule, and solve the program that it replaces
        where its bound is asked for.

        Raises
        ------
        UsageError
            A rule has no program that side constraints or extra rows could be added to.
        """
        of_placement = all(constraint.of_placement for constraint in self.constraints)
        if not of_placement or self.extend is not None:
            raise self.no_rows
        if len(C) == 0:
            return self.decision(C, np.zeros(C.columns))
        decision = yield from self.decide(C, seed)
        # A rule may come by a bound without being asked: it is shown only where it is.
        if not self.wants_bound:
            return decision._replace(bound=None)
        if decision.bound is not None:
            return decision
        ideal, bound = self.ideal(C), 0.0
        if ideal is not None:
            optimum = yield Auxiliary(ideal, required=True)
            assert optimum.bound is not None
            bound = optimum.bound
        return decision._replace(bound=(bound, "relaxation"))
