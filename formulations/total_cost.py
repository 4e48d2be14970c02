"""Total cost: the cheapest allocation that keeps the side constraints,
and an objective to trade others against.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from optsched.candidates import Classes
from optsched.errors import InvalidInput
from optsched.formulation import Formulation, FormulationOptions
from optsched.instance import Instance
from optsched.program import AllocationProgram, Multiple, Total


class TotalCost(Formulation):
    """Minimise the cost per hour of the GPUs in use.

    Sets, x, n, time and capacity as in `formulations.max_min_fairness`.
    Parameters
        price_c   USD/h of one unit of column c: GPUs * share of a GPU * cost per GPU hour of its pool; 0 without a pool
    Program
        minimise  sum_c price_c x_c   s.t.  time, capacity;   x_c integer with ``integral``

    Without side constraints nothing runs. With deadlines it is the cheapest way to meet them;
    `optsched pareto` trades it against other objectives. With ``integral`` and
    ``minimum-throughput`` it is a cover: the cheapest replicas that carry the demands of services.

    Options
        integral    whole jobs: each runs in one configuration all the time, or not at all (a MILP).

    References
        The cost of policies is that of D. Narayanan et al., OSDI 2020, section 4.3 (Gavel divides
        by it instead).
    """

    name = "cost"
    sense = "min"
    leaves_idle = True
    objective_words = "cost, USD/h"

    class Options(FormulationOptions):
        """Options of the total cost."""

        integral: bool = False

    @property
    def integral(self) -> bool:
        return bool(self.options.integral)

    def check(self, instance: Instance) -> None:
        """Some pool must have a price."""
        if instance.cluster.pools and all(
            pool.cost_per_gpu_hour is None for pool in instance.cluster.pools
        ):
            raise _without_price(0)

    def build(self, C: Classes) -> AllocationProgram:
        """See the class; the program maximises the cost with its sign changed."""
        cluster = C.instance.cluster
        price = C.configurations.cost_per_hour(cluster)[C.configuration]
        unknown = np.flatnonzero(np.isnan(price))
        if len(unknown):
            raise _without_price(int(C.pool[unknown[0]])).of_jobs(
                C.jobs_among(C.member[:, unknown].sum(axis=1) > 0)
            )
        rows = (-price, (C.class_a, np.arange(C.columns)))  # a pair of classes costs once
        levels = sp.csr_matrix(rows, shape=(len(C), C.columns))
        return AllocationProgram(
            C, Total(np.ones(len(C))), levels, integral=self.integral, units=Multiple(-1.0)
        )


def _without_price(pool: int) -> InvalidInput:
    """The error of a pool that has no price."""
    path = f"cluster.pools[{pool}].cost_per_gpu_hour"
    return InvalidInput(path, "nothing", "a price in USD, as cost is to be minimised")
