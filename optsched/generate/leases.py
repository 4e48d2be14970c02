"""Gangs with deadlines on one pool. A round is a lease: a job keeps its GPUs to the end of the
round.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from pydantic import Field

from optsched.arrays import IntArray
from optsched.generate.generator import Generated, Generator, GeneratorOptions, SmallCount
from optsched.generate.profiles import Site
from optsched.instance import Instance

GANGS, GANG_SHARES = np.array([1, 2, 4, 8]), np.array([0.5, 0.2, 0.2, 0.1])
WEIGHTS, WEIGHT_SHARES = np.array([1, 2, 4]), np.array([0.8, 0.15, 0.05])


class LeasesOptions(GeneratorOptions):
    jobs: SmallCount = Field(40, description="Jobs.")
    nodes: int = Field(2, ge=1, le=10_000, description="Nodes of the pool.")
    gpus_per_node: int = Field(8, ge=1, le=64, description="GPUs of a node.")
    lease: float = Field(
        1800.0,
        ge=1,
        le=1e7,
        description="Length of a lease, seconds; also the round.",
    )
    longest: int = Field(6, ge=1, le=1000, description="Most leases that a job needs.")
    tightness: float = Field(
        0.8,
        ge=0.01,
        le=100,
        description=(
            "At most 1: a plan keeps all deadlines; above, deadlines are earlier than in that plan."
        ),
    )


@dataclass(frozen=True)
class Leases:
    """Jobs in units of leases, arrays of shape (jobs,).

    Attributes
    ----------
    gang, needed : IntArray
        GPUs g_i, and leases b_i that the job must have.
    planned : IntArray
        End of the job in the plan that the generator made: the number of the lease after its last
        one.
    due : IntArray
        Leases from 0 to due - 1 may be used.
    gpus : int
    """

    gang: IntArray
    needed: IntArray
    planned: IntArray
    due: IntArray
    gpus: int

    def overfull(self) -> tuple[int, int] | None:
        """A lease T and the GPU leases that are needed before it, if they exceed T x gpus (then no
        plan keeps all deadlines); else None.

        A plan exists only if, for every T, the sum of g_i b_i over jobs with due_i <= T is at most
        T x gpus.
        """
        needed = np.cumsum(np.bincount(self.due, weights=self.gang * self.needed))
        wrong = np.flatnonzero(needed > np.arange(len(needed)) * self.gpus)
        return None if len(wrong) == 0 else (int(wrong[-1]), int(needed[wrong[-1]]))


def draw(options: LeasesOptions) -> Leases:
    """Draw gangs and lengths, make a plan, and derive the deadlines from it:
    due_i = max(b_i, ceil(planned_i / tightness)).

    The plan gives each job, in a drawn order, the first b_i leases that have g_i GPUs left.
    """
    random = options.random()
    gpus = options.nodes * options.gpus_per_node
    fits = gpus >= GANGS
    gang = random.choice(GANGS[fits], options.jobs, p=GANG_SHARES[fits] / GANG_SHARES[fits].sum())
    needed = random.integers(1, options.longest, options.jobs, endpoint=True)
    free = np.full(2 * options.longest, gpus)
    planned = np.zeros(options.jobs, np.int64)
    # Leases before it are full
    start = 0
    for job in range(options.jobs):
        # Extend the plan until the job finds enough leases with free GPUs
        while (
            len(chosen := start + np.flatnonzero(free[start:] >= gang[job])[: needed[job]])
            < needed[job]
        ):
            free = np.concatenate([free, np.full(len(free), gpus)])
        free[chosen] -= gang[job]
        planned[job] = chosen[-1] + 1
        while start < len(free) and free[start] == 0:
            start += 1
    due = np.maximum(needed, np.ceil(planned / options.tightness).astype(np.int64))
    return Leases(gang, needed, planned, due, gpus)


def leases(options: LeasesOptions) -> Generated:
    """One pool; every job runs at 1 step/s, so its steps are seconds,
    and needs b_i leases, the last one not full.
    """
    plan = draw(options)
    random = np.random.default_rng([options.seed, 1])
    seconds = np.ceil((plan.needed - 0.9 * random.random(options.jobs)) * options.lease)
    # Rounding up must not add a lease
    seconds = np.minimum(seconds, plan.needed * options.lease)
    weights = random.choice(WEIGHTS, options.jobs, p=WEIGHT_SHARES)
    instance = Instance.from_arrays(
        pools=[Site("v100", "V100-SXM2-16GB", options.nodes, options.gpus_per_node).document()],
        throughput=np.ones((options.jobs, 1)),
        gpus=plan.gang,
        steps=seconds,
        weight=weights,
        deadline=plan.due * options.lease,
        name=options.titled(f"leases-{options.jobs}-{plan.gpus}"),
        round=options.lease,
    )
    return Generated(instance, lambda: (_verdict(plan, options),))


def _verdict(plan: Leases, options: LeasesOptions) -> str:
    if options.tightness <= 1:
        return "a plan that keeps all deadlines exists, by construction"
    overfull = plan.overfull()
    if overfull is None:
        return "whether all deadlines can be kept is not known"
    lease, needed = overfull
    return (
        f"not all deadlines can be kept: the jobs due by {lease * options.lease:g} s need "
        f"{needed:,} GPU leases, "
        f"and there are {lease * plan.gpus:,}"
    )


LEASES = Generator(
    LeasesOptions,
    leases,
    "Gangs with deadlines on one pool, where the round is a lease.",
    lambda options: "lease",
)
