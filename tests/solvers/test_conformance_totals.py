"""The known optima of the bank ``allocation``, by another method; and back-ends that lie about totals."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest

from optsched.arrays import FloatArray
from optsched.conformance import CaseVerdict, check_case

# Private names: sessions and steps of one back-end, without the engine
from optsched.conformance.allocation import (
    CASES,
    KnownOptimum,
    alpha_fair,
    levels,
    linear,
    proportional,
    smallest,
)
from optsched.program import AllocationProgram, Total
from optsched.registry import load_solver
from optsched.solution import Values
from optsched.solvers import Limits
from optsched.solvers.prices.solver import PriceMethod
from optsched.solving import Engine

pytestmark = pytest.mark.oracle

KNOWN = [*linear(), *proportional(), *alpha_fair(), *levels(), *smallest()]


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: known.words)
def test_every_optimum_is_that_of_a_general_solver(known: KnownOptimum) -> None:
    solver = "clarabel" if known.program.conic else "highs"
    outcome = Engine(load_solver, solver).solve_directly(known.program)
    assert outcome.certificate.ok
    assert outcome.value == pytest.approx(known.optimum, rel=1e-7, abs=1e-7 * known.scale)


class Liar(PriceMethod):
    """Prices, with something done to the program or to the answer."""

    name: ClassVar[str] = "liar"

    def solve_allocation(
        self, program: AllocationProgram, limits: Limits, start: FloatArray | None = None
    ) -> Values:
        return self.told(super().solve_allocation(self.taken(program), limits, start), program)

    def taken(self, program: AllocationProgram) -> AllocationProgram:
        return program

    def told(self, values: Values, program: AllocationProgram) -> Values:
        return values


class NoWeights(Liar):
    """Counts every job the same."""

    def taken(self, program: AllocationProgram) -> AllocationProgram:
        utility = program.utility
        if not isinstance(utility, Total):
            return program
        return replace(program, utility=replace(utility, weight=np.ones_like(utility.weight)))


class Lazy(Liar):
    """An even split, called the optimum."""

    def told(self, values: Values, program: AllocationProgram) -> Values:
        point = program.even()
        x = point if isinstance(program.utility, Total) else program.complete(point)
        return replace(values, x=x, objective=program.value(point))


class WrongSigns(Liar):
    """Duals as some libraries have them."""

    def told(self, values: Values, program: AllocationProgram) -> Values:
        return replace(values, y=None if values.y is None else -values.y)


class Coarse(Liar):
    """Right to a thousandth."""

    def told(self, values: Values, program: AllocationProgram) -> Values:
        assert values.x is not None
        x = values.x * (1.0 - 1e-3)
        return replace(values, x=x, objective=program.value(x[: program.classes.columns]))


@pytest.mark.parametrize("liar", [NoWeights, Lazy, WrongSigns, Coarse])
def test_a_back_end_that_lies_is_found(liar: type[Liar]) -> None:
    results = [check_case(item, "allocation", liar) for item in CASES]
    assert any(result.verdict is CaseVerdict.FAILED for result in results)


@pytest.mark.unit
def test_a_back_end_that_takes_no_totals_is_held_to_the_rest() -> None:
    class LevelsAlone(PriceMethod):
        name: ClassVar[str] = "levels-alone"

        @classmethod
        def refuses(cls, program: AllocationProgram) -> str | None:
            return (
                "it is a total" if isinstance(program.utility, Total) else super().refuses(program)
            )

    verdicts = {item.name: check_case(item, "allocation", LevelsAlone) for item in CASES}
    assert verdicts["total throughputs that are known"].verdict is CaseVerdict.SKIPPED
    assert verdicts["total throughputs that are known"].reason == "refuses them all: it is a total"
    assert verdicts["smallest levels of degenerate data"].verdict is CaseVerdict.PASSED
