#!/usr/bin/env python
"""A constraint of your own.

What you learn
--------------
- how ``extend=`` adds a row to any linear formulation: it is called with the program, its variables by name, and the
  classes (jobs that the formulation cannot tell apart);
- why a row about a tenant needs ``per_job()``: jobs of one class may be of several tenants, so every job must be a
  class, and ``C.tenant`` refuses to be read otherwise;
- how to write a row with numpy: one number per column of the program;
- that certificate and duals cover the new row (its dual is what it costs), and that the exported program has it.
"""

import numpy as np

import optsched
from optsched.assembly import make_formulation
from optsched.candidates import Classes
from optsched.formats.mps import allocation_names, program_text
from optsched.formulation import Extend

TENANT, POOL = "vision", "v100"


def gpus_of_tenant(C: Classes) -> np.ndarray:
    """GPUs of the pool that one unit of each column gives to the tenant's jobs, shape (columns,)."""
    tenants = [tenant.name for tenant in C.instance.tenants]
    theirs = C.tenant == tenants.index(TENANT)
    # A column of two jobs that share GPUs has a second class; of one job alone, class_b is -1.
    theirs = theirs[C.class_a] | (~C.alone & theirs[C.class_b])
    return np.where(theirs & (C.pool == C.instance.cluster.pool_index[POOL]), C.gpus, 0)


def quota(limit: float) -> Extend:
    """The row: the tenant holds at most so many GPUs of the pool, on average over time."""

    def extend(lp, variables, C):
        lp.constrain(gpus_of_tenant(C) @ variables["x"] <= limit, name="quota")

    return extend


def main() -> None:
    """Tighten the quota step by step, then look at the program."""
    candidates = optsched.compile(optsched.load("@quickstart")).per_job()
    print(f"{'quota, GPUs':<14}{'level':>9}{'GPUs held':>12}{'dual: level per GPU':>22}")
    for limit in (4.0, 2.0, 1.0, 0.5, 0.0):
        solution = optsched.solve(candidates, "max-min-fairness", extend=quota(limit))
        assert solution.certificate.ok
        held = gpus_of_tenant(solution.allocation.classes) @ solution.allocation.x
        print(
            f"{limit:<14g}{solution.objective:>9.4f}{held:>12.3f}{solution.duals['quota'][0]:>22.4f}"
        )

    formulation = make_formulation("max-min-fairness", extend=quota(2.0))
    program = formulation.program(formulation.classes(candidates))
    arrays = program.to_linear().arrays
    print("\nblocks of rows:", ", ".join(f"{block.name} ({len(block)})" for block in arrays.rows))
    lines = program_text(arrays, allocation_names(program, arrays), "lp").decode().splitlines()
    print("in the LP file:", next(line for line in lines if "quota" in line)[:80], "...")


if __name__ == "__main__":
    main()
