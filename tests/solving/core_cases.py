"""The core of an integer program, at the duals of its relaxation."""

from __future__ import annotations

from typing import Any

import optsched
from optsched.assembly import make_formulation
from optsched.instance import Instance
from optsched.solvers import Highs, Limits

# Private: a core without the engine that runs it
from optsched.solving.core import Core


def core_of(instance: Instance, name: str = "multiple-choice", **options: Any) -> Core:
    """The core at the duals of the relaxation."""
    formulation = make_formulation(name, options)
    program = formulation.program(formulation.classes(optsched.compile(instance)))
    arrays = program.to_linear().arrays
    values = Highs().open(arrays.relaxed()).run(Limits())
    assert values.y is not None
    core = Core.of(program.classes, arrays, values.y)
    assert core is not None
    return core
