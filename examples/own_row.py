#!/usr/bin/env python
"""A constraint of one's own.

What you learn
--------------
- how ``extend=`` adds a row to any linear formulation: it is called with the program, its variables by name, and the
  classes (jobs that the formulation cannot tell apart; it does not read tenants, so here every job is a class);
- how to write a row with numpy: one number per column of the program;
- that bound, certificate, duals and infeasibility cover the new row too: its dual is what it costs.
"""

from collections.abc import Mapping

import numpy as np

import optsched
from optsched.candidates import Classes
from optsched.program import LinearProgram, Variables

TENANT, POOL = "vision", "v100"


def gpus_of_tenant(C: Classes) -> np.ndarray:
    """GPUs of the pool that one unit of each column gives to the tenant's jobs, shape (columns,)."""
    tenant = [tenant.name for tenant in C.instance.tenants].index(TENANT)
    pool = C.instance.cluster.pool_index[POOL]
    theirs = C.instance.jobs_table.tenant[C.first] == tenant
    return np.where(theirs[C.class_a] & (C.pool == pool), C.gpus, 0)


def main() -> None:
    """Tighten the quota step by step."""
    candidates = optsched.compile(optsched.load("@quickstart")).per_job()
    gpus = candidates.instance.cluster.pools[0].capacity(candidates.instance.now)
    free = optsched.solve(candidates, "max-min-fairness")
    held = gpus_of_tenant(free.allocation.classes) @ free.allocation.x
    print(f"without a quota: level {free.objective:.4f}, {TENANT} holds {held:.2f} of the {gpus} GPUs of {POOL}\n")

    print(f"{'quota, GPUs':<14}{'level':>9}{'GPUs held':>12}{'dual: level per GPU':>22}")
    for quota in (3.0, 2.0, 1.0, 0.5, 0.0):

        def extend(lp: LinearProgram, variables: Mapping[str, Variables], C: Classes, quota: float = quota) -> None:
            lp.constrain(gpus_of_tenant(C) @ variables["x"] <= quota, name="quota")

        solution = optsched.solve(candidates, "max-min-fairness", extend=extend)
        assert solution.certificate.ok, solution.certificate.problems
        held = gpus_of_tenant(solution.allocation.classes) @ solution.allocation.x
        assert held <= quota + 1e-9
        print(f"{quota:<14g}{solution.objective:>9.4f}{held:>12.3f}{solution.duals['quota'][0]:>22.4f}")


if __name__ == "__main__":
    main()
