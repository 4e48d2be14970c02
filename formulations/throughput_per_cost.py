"""Throughput per cost: by the price of one GPU of each column,
or as the true ratio of the totals.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import numpy as np
import scipy.sparse as sp

from optsched.arrays import BoolArray, FloatArray
from optsched.candidates import Classes
from optsched.errors import InvalidInput
from optsched.formulation import Formulation, FormulationOptions
from optsched.formulation.procedure import Probe, Procedure
from optsched.instance import Instance
from optsched.program import AllocationProgram, Ratio, Total

NOTHING = 1e-9
"""Throughput at or below this part of what all columns could have together is none."""


class ThroughputPerCost(Formulation):
    """Maximise throughput per price of a GPU, summed, or total throughput per total cost.

    Sets, x, T, n, time and capacity as in `formulations.max_min_fairness`.
    Parameters
        price_j  USD per hour of one GPU of pool j; g_c GPUs (or share of one) that column c holds,
                 j(c) its pool
    Program
        sum     maximise  sum_c (sum_k T_kc) x_c / price_j(c)                          s.t.  time, capacity
        ratio   maximise  sum_c (sum_k T_kc) x_c  /  sum_c g_c price_j(c) x_c          s.t.  time, capacity

    The sum divides by the price of ONE GPU, whatever the gang, as the original does. The ratio is
    one linear program in y = x tau (`optsched.program.ratio`); of its optima the largest multiple
    that keeps all rows is taken.

    If all rows only limit (time, capacity, budgets, quotas), no solver is needed. With r_c = (sum_k
    T_kc) / (g_c price_j(c)),

        sum_c (sum_k T_kc) x_c  =  sum_c r_c g_c price_j(c) x_c  <=  (max_c r_c) sum_c g_c price_j(c) x_c

    with equality exactly where only columns of the best r_c run. As much as fits of these is taken,
    in their order. Most jobs get nothing: use the ratio with deadlines or a minimum service.

    Options
        objective   ``sum``: every column by the price of one of its GPUs; ``ratio``: total
                    throughput by total cost.

    References
        D. Narayanan et al., OSDI 2020, section 4.2 (cost policies); repository policies
        ``max_sum_throughput_normalized_by_cost_perf``, ``..._SLOs`` (the sum). A. Charnes, W. W.
        Cooper. "Programming with linear fractional functionals", Naval Research Logistics Quarterly
        9, 1962 (the ratio).
    """

    name = "throughput-per-cost"
    reads = frozenset({"gang"})
    sense = "max"
    leaves_idle = True
    objective_words = "throughput per cost, steps/s per USD/h"

    class Options(FormulationOptions):
        """Options of throughput per cost."""

        objective: Literal["sum", "ratio"] = "sum"

    def check(self, instance: Instance) -> None:
        """Some pool must have a price."""
        if instance.cluster.pools and all(
            pool.cost_per_gpu_hour is None for pool in instance.cluster.pools
        ):
            raise _without_price(instance, 0)

    def build(self, C: Classes) -> AllocationProgram:
        T, price = C.throughput, _prices(C)
        if self.options.objective == "ratio":
            return AllocationProgram(C, Ratio(_spending(C)), T)
        self._refuse_free(C, price <= 0)
        return AllocationProgram(
            C, Total(np.ones(len(C))), sp.csr_matrix(T @ sp.diags_array(1.0 / price))
        )

    def figures(self, C: Classes, x: FloatArray) -> Mapping[str, FloatArray]:
        """What each job costs: USD per hour, half of it where two share GPUs."""
        holds = sp.csr_matrix(C.member @ sp.diags_array(np.where(C.alone, 1.0, 0.5)))
        return {"cost_per_hour": holds @ (_spending(C) * x) / C.count}

    def procedure(self, C: Classes, seed: int) -> Procedure:
        """Refuse a ratio without bound before the program is solved."""
        program = self.program(C)
        assert isinstance(program, AllocationProgram)
        if self.options.objective == "ratio":
            yield from self._refuse_unbounded(program)
        yield program
        return None

    def _refuse_unbounded(self, program: AllocationProgram) -> Procedure:
        """Look for throughput at a cost of 0: free columns alone, within all rows.
        A point that has some is proof.
        """
        C, rows = program.classes, program.requirements
        free = _spending(C) <= 0
        # Rows of the caller that have columns beside these are refused by the program, with the
        # reason.
        if not free.any() or rows.shape[1] != C.columns:
            return None
        most = np.where(free, rows.implied_upper, 0.0)
        free_work = replace(rows, cost=program.gain, maximise=True, upper=most, implied_upper=most)
        found = yield Probe(free_work)
        if found.x is not None:
            some = program.gain * found.x > NOTHING * (program.gain @ C.limit)
            self._refuse_free(C, free & some)
        return None

    def _refuse_free(self, C: Classes, free: BoolArray) -> None:
        """Name what costs nothing."""
        if not free.any():
            return
        column = int(np.flatnonzero(free)[0])
        pool = int(C.pool[column])
        why = f"as {self.name} ({self.options.objective}) has no bound where work is free"
        if pool < 0:
            job = int(C.first[C.class_a[column]])
            name = C.instance.jobs_table.names[job]
            bare = np.isin(np.arange(len(C)), C.class_a[free & (C.pool < 0)])
            unbounded = InvalidInput(
                f"jobs[{job}].options", f"no pool (job {name!r})", f"a pool with a price, {why}"
            )
            raise unbounded.of_jobs(C.jobs_among(bare))
        raise InvalidInput(_path(pool), "0", f"a price above 0, {why}")


def _prices(C: Classes) -> FloatArray:
    """price_j(c) of each column; 0 without a pool.
    Raises `InvalidInput` for a pool in use without a price.
    """
    pools = C.instance.cluster.pools
    # The last entry is the price of pool -1: columns without a pool cost nothing.
    prices = np.array(
        [np.nan if pool.cost_per_gpu_hour is None else pool.cost_per_gpu_hour for pool in pools]
        + [0.0]
    )
    unknown = np.flatnonzero(np.isnan(prices[C.pool]))
    if len(unknown):
        without = _without_price(C.instance, int(C.pool[unknown].min()))
        raise without.of_jobs(C.jobs_among(C.member[:, unknown].sum(axis=1) > 0))
    return np.asarray(prices[C.pool], np.float64)


def _spending(C: Classes) -> FloatArray:
    """USD per hour of each column: g_c price_j(c)."""
    _prices(C)  # refuses a pool without a price
    return C.configurations.cost_per_hour(C.instance.cluster)[C.configuration]


def _without_price(instance: Instance, pool: int) -> InvalidInput:
    """The error of a pool that has no price."""
    name = instance.cluster.pools[pool].name
    return InvalidInput(
        _path(pool), f"none (pool {name!r})", "a price, as throughput-per-cost divides by it"
    )


def _path(pool: int) -> str:
    return f"cluster.pools[{pool}].cost_per_gpu_hour"
