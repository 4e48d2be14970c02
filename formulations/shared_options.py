"""Options that several formulations have, with what they change."""

from __future__ import annotations

import scipy.sparse as sp
from pydantic import Field

from formulations.reference_rates import reference_rates
from optsched.arrays import FloatArray
from optsched.arrays.matrices import scaled_rows
from optsched.candidates import Candidates, Classes, Drop
from optsched.errors import InvalidArgument, UsageError
from optsched.formulation import Formulation, FormulationOptions
from optsched.instance import Instance


class ReferencePoolOptions(FormulationOptions):
    """Options of formulations in which the rates of one pool may stand for those of all."""

    agnostic: bool = False
    reference_pool: str | None = Field(
        default=None, description="pool whose rates stand for all (agnostic)"
    )


class OnReferencePool(Formulation):
    """A formulation with the options ``agnostic`` and ``reference_pool``."""

    def check(self, instance: Instance) -> None:
        """The reference pool must exist."""
        if self.options.agnostic:
            self._reference_pool(instance)

    def throughputs(self, C: Classes) -> sp.csr_matrix:
        """T; with ``agnostic`` the rate on the reference pool wherever a job can run."""
        return scaled_rows(C.member, self.reference(C)) if self.options.agnostic else C.throughput

    def reference(self, C: Classes) -> FloatArray:
        """Rate of each class on the reference pool, shape (K,); raises `UsageError` for one that
        cannot run there.
        """
        reference = reference_rates(C)[:, self._reference_pool(C.instance)]
        if (reference <= 0).any():
            job, pool = C.job_name(int(reference.argmin())), self.options.reference_pool
            nowhere = UsageError(f"{self.name}: {job} cannot run on the reference pool {pool}")
            raise nowhere.of_jobs(C.jobs_among(reference <= 0))
        return reference

    def _reference_pool(self, instance: Instance) -> int:
        name, pools = self.options.reference_pool, instance.cluster.pool_index
        if name not in pools:
            one_of = f"one of {', '.join(pools)}"
            raise InvalidArgument(
                f"option of {self.name}: reference_pool",
                repr(name),
                one_of,
                sentence=f"{self.name}: agnostic needs reference_pool, {one_of}; found {name!r}",
            )
        return int(pools[name])


class MayIgnoreRates(Formulation):
    """A formulation with the option ``agnostic``: false, true or ``literal``."""

    def classes(self, candidates: Candidates) -> Classes:
        """Classes of the candidates; the literal agnostic variant admits columns without a rate."""
        if self.options.agnostic == "literal":
            candidates = candidates.admitting(Drop.ZERO_RATE, Drop.NO_RATE)
        return super().classes(candidates)


class ByTenants(Formulation):
    """A formulation with the option ``tenants``, without which it reads nothing of them."""

    @property
    def own_reads(self) -> frozenset[str]:
        """See the option ``tenants``."""
        unread = () if self.options.tenants else ("tenant", "tenant_weight", "queue")
        return super().own_reads.difference(unread)
