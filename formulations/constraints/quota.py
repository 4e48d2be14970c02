"""Quota and minimum share: how many GPUs a tenant's jobs hold at most, and at least."""

from __future__ import annotations

import numpy as np
from pydantic import model_validator

from formulations.constraints.holdings import first_names, gpus_held, sum_row, usable_gpus
from formulations.constraints.names import Amount, Names, Share, of_tenant, pool_rows, tenant_row
from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.candidates import Classes
from optsched.formulation import ConstraintOptions, Infeasible, SideConstraint
from optsched.instance import Instance
from optsched.instance.documents import refused
from optsched.program import SideRows
from optsched.solution import Conflict


class TenantGpus(ConstraintOptions):
    """Options that name a tenant and an amount of GPUs."""

    tenant: str
    gpus: Amount | None = None
    share: Share | None = None
    pools: Names | None = None

    @model_validator(mode="after")
    def _one_amount(self) -> TenantGpus:
        if (self.gpus is None) == (self.share is None):
            found = "neither" if self.gpus is None else "both"
            raise refused(found, "either gpus (a number of GPUs) or share (a fraction of them)")
        return self


class _OfTenant(SideConstraint):
    """What quota and minimum share have in common."""

    also_reads = frozenset({"tenant"})
    options: TenantGpus

    def check(self, instance: Instance) -> None:
        """Tenant and pools must exist."""
        tenant_row(self.kind, self.options.tenant, instance)
        pool_rows(self.kind, self.options.pools, instance)

    def labels(self, instance: Instance) -> IntArray | None:
        """Whether a job is the tenant's."""
        return of_tenant(self.kind, self.options.tenant, instance).astype(np.int64)

    def _of_tenant(self, C: Classes) -> BoolArray:
        return C.common(of_tenant(self.kind, self.options.tenant, C.instance))

    def _held(self, C: Classes) -> FloatArray:
        """f_c g_c of each column on the pools that count, shape (N,)."""
        pools = pool_rows(self.kind, self.options.pools, C.instance)
        return np.where(np.isin(C.pool, pools), C.part_of(self._of_tenant(C)) * gpus_held(C), 0.0)

    def _amount(self, C: Classes) -> float:
        """G: the number of GPUs, or the share of those that are usable."""
        if self.options.gpus is not None:
            return self.options.gpus
        assert self.options.share is not None
        pools = pool_rows(self.kind, self.options.pools, C.instance)
        return self.options.share * float(usable_gpus(C, pools).sum())

    def _words(self, bound: str, amount: float) -> str:
        pools = "" if self.options.pools is None else f" of {first_names(self.options.pools)}"
        what = f"{amount:g} GPU" + ("s" if amount != 1 else "")
        share = (
            ""
            if self.options.share is None
            else f" ({100 * self.options.share:g} % of those usable)"
        )
        return (
            f"the jobs of tenant {self.options.tenant} hold "
            f"{bound} {what}{pools}{share} ({self.kind})"
        )


class Quota(_OfTenant):
    """A tenant's jobs hold at most so many GPUs, on average over time.

    With g_c the GPUs of column c (GPUs x share of each) on the pools that count, and f_c the
    tenant's part of the column (1; 1/2 for a pair with a job of another tenant):

        sum_c f_c g_c x_c  <=  G                                                     (quota)

    Options
        tenant   name of the tenant.
        gpus     G, GPUs.
        share    G as a fraction of the usable GPUs; either this or ``gpus``.
        pools    names of the pools that count; without it all.

    References
        A. Ghodsi et al., "Dominant Resource Fairness", NSDI 2011, section 1 (slots and quotas of
        users); A. Verma et al., "Large-scale cluster management at Google with Borg", EuroSys 2015,
        section 2.5.
    """

    kind = "quota"

    class Options(TenantGpus):
        """Options of the quota."""

    options: Options

    def rows(self, C: Classes) -> SideRows | None:
        G = self._amount(C)
        return sum_row(self.kind, self._held(C), self._words("at most", G), most=G)


class MinimumShare(_OfTenant):
    """A tenant's jobs hold at least so many GPUs, on average over time.

    f_c and g_c as in ``quota``; d_k GPUs of the largest column of class k alone on the pools that
    count:

        sum_c f_c g_c x_c  >=  min(G, D),    D = sum_k n_k d_k over the tenant's classes           (minimum-share)

    D is the tenant's demand if each job ran in its largest configuration all the time, whatever the
    capacities and other constraints, which may make it infeasible. With ``up_to_demand=false`` the
    right-hand side is G.

    Options
        tenant         name of the tenant.
        gpus           G, GPUs.
        share          G as a fraction of the usable GPUs; either this or ``gpus``.
        pools          names of the pools that count; without it all.
        up_to_demand   whether the demand D limits the share.

    References
        A. Verma et al., "Large-scale cluster management at Google with Borg", EuroSys 2015, section
        2.5 (quota as a promise); Apache Hadoop, "Fair Scheduler", property ``minResources``.
    """

    kind = "minimum-share"

    class Options(TenantGpus):
        """Options of the minimum share."""

        up_to_demand: bool = True

    options: Options

    def rows(self, C: Classes) -> SideRows | None:
        # Up to the demand, or else all of it, if the tenant's jobs could ever hold as much.
        held, G = self._held(C), self._amount(C)
        if self.options.up_to_demand:
            G = min(G, self._demand(C, held, C.alone))
        elif (most := self._demand(C, held, np.ones(C.columns, bool))) * (1 + 1e-9) < G:
            can = f"in all they can hold {most:g}" if most > 0 else "none of them can hold any now"
            raise Infeasible([Conflict(self.kind, -1, f"{self._words('at least', G)}, but {can}")])
        if G <= 0:
            return None
        return sum_row(self.kind, held, self._words("at least", G), least=G)

    def _demand(self, C: Classes, held: FloatArray, among: BoolArray) -> float:
        """GPUs of the tenant's classes,
        each job in the column where it holds most; half of a shared one.
        """
        largest = np.zeros(len(C))
        of_tenant = self._of_tenant(C)
        for members, there in ((C.class_a, among), (C.class_b, among & ~C.alone)):
            column = np.flatnonzero(there)
            column = column[of_tenant[members[column]]]
            both = ~C.alone[column] & of_tenant[C.class_a[column]] & of_tenant[C.class_b[column]]
            np.maximum.at(largest, members[column], held[column] / np.where(both, 2.0, 1.0))
        return float(C.count @ largest)
