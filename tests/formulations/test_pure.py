"""A formulation remembers nothing: what one program means does not depend on others that were built before or after."""

from __future__ import annotations

import pytest

import optsched
from optsched.api import compile_for, make_formulation
from optsched.registry import load_formulation, names

NAMES = sorted({load_formulation(name).name for name in names("formulation")})


@pytest.mark.parametrize("name", NAMES)
def test_build_leaves_nothing_on_the_formulation(name: str) -> None:
    formulation = make_formulation(name)
    before = dict(vars(formulation))
    built = 0
    for instance in ("@quickstart", "@packing", "@knapsack", "@smd"):
        try:
            classes = formulation.classes(compile_for(formulation, optsched.load(instance)))
            formulation.build(classes)
        except optsched.OptschedError:
            continue  # it does not take such an instance
        built += 1
    assert built and vars(formulation) == before


@pytest.mark.parametrize("name", ["makespan", "alpha-fairness", "partial-allocation"])
def test_the_objective_of_a_program_does_not_depend_on_a_program_built_later(name: str) -> None:
    formulation = make_formulation(name)
    first, later = (
        formulation.classes(compile_for(formulation, optsched.load(instance)))
        for instance in ("@quickstart", "@large")
    )
    program = formulation.build(first)
    x = program.even()
    alone = program.objective(x)
    other = formulation.build(later)
    assert other.units != program.units
    assert program.objective(x) == alone
