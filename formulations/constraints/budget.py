"""A budget in USD per hour on what the GPUs that jobs hold cost."""

from __future__ import annotations

import numpy as np

from formulations.constraints.holdings import sum_row
from formulations.constraints.names import Amount, of_tenant, tenant_row
from optsched.arrays import IntArray
from optsched.candidates import Classes
from optsched.errors import InvalidArgument
from optsched.formulation import ConstraintOptions, SideConstraint
from optsched.instance import Cluster, Instance
from optsched.program import SideRows


class Budget(SideConstraint):
    """The GPUs in use cost at most so much per hour, on average over time.

    With p_c the price of column c in USD per hour (GPUs x share of each x ``cost_per_gpu_hour`` of
    the pool), f_c the tenant's part of column c (1 without ``tenant``; each job of a pair pays
    half), and B the limit:

        sum_c f_c p_c x_c  <=  B                                                     (budget)

    Idle GPUs cost nothing; ``cost`` of options does not count. To limit the total spending until
    the jobs end, use a consumable resource. If no pool states a price every GPU costs 1, with a
    note. If only some do, a pool without a price on which a paying job could run is refused.

    Options
        limit    B, USD per hour.
        tenant   tenant whose jobs pay; without it all jobs.

    References
        D. Narayanan et al., "Analysis and Exploitation of Dynamic Pricing in the Public Cloud for
        ML Training", DISPA 2020 (prices per GPU hour, allocations as fractions of time).
    """

    kind = "budget"
    also_reads = frozenset({"tenant"})

    class Options(ConstraintOptions):
        """Options of the budget."""

        limit: Amount
        tenant: str | None = None

    options: Options

    def check(self, instance: Instance) -> None:
        """The tenant must exist."""
        if self.options.tenant is not None:
            tenant_row(self.kind, self.options.tenant, instance)

    def note(self, instance: Instance) -> str:
        if _priced(instance.cluster):
            return ""
        return (
            "no pool states cost_per_gpu_hour, so every GPU costs 1 per hour: "
            f"the budget of {self.options.limit:g} "
            "is a number of GPUs in use"
        )

    def labels(self, instance: Instance) -> IntArray | None:
        """Whether a job pays."""
        if self.options.tenant is None:
            return None
        return of_tenant(self.kind, self.options.tenant, instance).astype(np.int64)

    def rows(self, C: Classes) -> SideRows | None:
        B, cluster = self.options.limit, C.instance.cluster
        pays = self.labels(C.instance)
        f = np.ones(C.columns) if pays is None else C.part_of(C.common(pays) == 1)
        prices = C.configurations.cost_per_hour(cluster)
        if not _priced(cluster):
            prices = C.configurations.gpus * C.configurations.share
        p = prices[C.configuration]
        # NaN: the pool states no price.
        unpriced = np.flatnonzero(np.isnan(p) & (f > 0))
        if len(unpriced):
            pool = int(C.pool[unpriced[0]])
            job = C.job_name(int(C.class_a[unpriced[0]]))
            path = f"cluster.pools[{pool}].cost_per_gpu_hour"
            expected = f"a price in USD (0 if free of charge): {job} can run there and has a budget"
            raise InvalidArgument(path, "nothing", expected).of_jobs(
                C.jobs_among(C.member[:, unpriced].sum(axis=1) > 0)
            )
        who = (
            "all jobs"
            if self.options.tenant is None
            else f"the jobs of tenant {self.options.tenant}"
        )
        spend = (
            f"spend at most {B:g} USD per hour" if _priced(cluster) else f"use at most {B:g} GPUs"
        )
        spending = np.where(f > 0, f * p, 0.0)
        return sum_row(self.kind, spending, f"{who} together {spend} (budget)", most=B)


def _priced(cluster: Cluster) -> bool:
    return any(pool.cost_per_gpu_hour is not None for pool in cluster.pools)
