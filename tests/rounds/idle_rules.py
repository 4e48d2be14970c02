"""Whether GPUs idle that jobs could use, found by trying everything: nothing here comes from `optsched.rounds.idle`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from optsched.rounds import Plan

SLACK = 1e-6


class Way(NamedTuple):
    """A configuration of a job: GPUs of a pool on at most so many nodes, at a rate in steps/s."""

    pool: str
    gpus: int
    nodes: int
    rate: float
    rack: bool = False
    """Whether all GPUs must be in one rack."""


def ways(job: Mapping[str, Any], *, least: bool = False) -> list[Way]:
    """All configurations that a job document states; with ``least`` those of its fewest GPUs."""
    wanted = job.get("gpus", 1)
    counts = [wanted] if isinstance(wanted, int) else list(wanted["levels"])
    found = []
    for pool, rates in job["throughput"].items():
        for gpus in counts[:1] if least else counts:
            rate = rates[str(gpus)] if isinstance(rates, Mapping) else rates
            by_nodes = rate if isinstance(rate, Mapping) else {str(gpus): rate}
            for nodes, value in by_nodes.items():
                most = gpus if nodes in ("rack", "cluster") else int(nodes)
                found.append(Way(pool, gpus, most, value, nodes == "rack"))
    return found


@dataclass
class World:
    """A small cluster, and what its jobs have been through.

    Attributes
    ----------
    nodes : mapping of a node to (pool, GPUs, CPUs)
    cpus : CPUs that a job needs per GPU
    racks : mapping of a node to its rack
    quotas : mapping of a tenant to the GPUs that its jobs may have together
    in_rack : set of tenants whose jobs stay inside one rack
    jobs : mapping of a job to its document
    closed : set of nodes that take no work
    grace, every : seconds of the policy: grace time, and time between two checkpoints
    restarts : mapping of a workload to its ``restart_cost``
    starts : mapping of a job to how often it was started
    resumes : mapping of a job to when it makes progress again, seconds
    held : mapping of a running job to its GPUs
    free : mapping of a GPU to when jobs that were stopped leave it
    speed : mapping of a running job to its steps/s
    """

    nodes: Mapping[str, tuple[str, int, float]]
    cpus: Mapping[str, float]
    racks: Mapping[str, str] = field(default_factory=dict)
    quotas: Mapping[str, float] = field(default_factory=dict)
    in_rack: frozenset[str] = frozenset()
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    closed: set[str] = field(default_factory=set)
    starts: dict[str, int] = field(default_factory=dict)
    resumes: dict[str, float] = field(default_factory=dict)
    grace: float = 0.0
    every: float = 0.0
    restarts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    held: dict[str, tuple[str, ...]] = field(default_factory=dict)
    free: dict[str, float] = field(default_factory=dict)
    speed: dict[str, float] = field(default_factory=dict)

    def follow(self, plan: Plan) -> list[str]:
        """Remember who starts; who is said to begin at another time than GPUs become free."""
        found = []
        stopped = [item.job for item in (*plan.move, *plan.preempt)]
        for job in stopped:
            for gpu in self.held[job] if self.grace else ():
                self.free[gpu] = max(self.free.get(gpu, 0.0), plan.now + self.grace)
        for item in (*plan.start, *plan.move):
            begins = max([plan.now, *(self.free.get(gpu, 0.0) for gpu in item.gpus)])
            if item.job in stopped:
                begins = max(begins, plan.now + self.grace)
            if (item.begins or plan.now) != begins:
                found.append(f"{item.job} begins at {item.begins}, its GPUs are free at {begins}")
            assert item.pool is not None
            cost = self.restart(item.job, item.pool, len(item.gpus))
            self.resumes[item.job] = begins + (cost if self.starts.get(item.job) else 0.0)
            self.starts[item.job] = self.starts.get(item.job, 0) + 1
        running = (*plan.start, *plan.keep, *plan.move)
        self.held = {item.job: item.gpus for item in running}
        names = plan.instance.jobs_table.names
        self.speed = {item.job: float(plan.speed[names.index(item.job)]) for item in running}
        return found

    def moves_in_vain(self, plan: Plan, left: Mapping[str, float]) -> list[str]:
        """Jobs that left GPUs on which they could have gone on, to end sooner, and do not."""
        names = plan.instance.jobs_table.names
        found = []
        for item in plan.move:
            if "sooner" not in item.reason:
                continue
            assert item.pool is not None
            there = left[item.job] / float(plan.speed[names.index(item.job)])
            there += self.restart(item.job, item.pool, len(item.gpus))
            there += self.leaving(item.job, plan.now)
            here = left[item.job] / self.speed[item.job]
            here += max(self.resumes[item.job] - plan.now, 0.0)
            if there >= here:
                found.append(
                    f"{item.job} would end after {here:g} s, moves and ends after {there:g} s"
                )
        return found

    def restart(self, job: str, pool: str, gpus: int) -> float:
        """Seconds to restore the state of a job there: straight lines between what is stated."""
        document = self.jobs[job]
        stated = self.restarts.get(document.get("workload", ""), {}).get(pool, 0.0)
        points = sorted(stated.items() if isinstance(stated, dict) else [("1", stated)])
        more = float(points[0][1] if gpus <= int(points[0][0]) else points[-1][1])
        for (low, first), (high, last) in itertools.pairwise(points):
            if int(low) <= gpus <= int(high):
                more = first + (last - first) * (gpus - int(low)) / (int(high) - int(low))
        return float(document.get("restart_cost", 0.0)) + more

    def leaving(self, job: str, now: float) -> float:
        """Seconds lost before a running job can start elsewhere: unsaved work, and its grace time."""
        ran = max(now - self.resumes[job], 0.0)
        return self.grace + (ran % self.every if self.every else 0.0)

    def idle(self, plan: Plan) -> tuple[dict[str, int], dict[str, float]]:
        """GPUs and CPUs of each node that nobody has."""
        gpus = {
            name: 0 if name in self.closed else count for name, (_, count, _) in self.nodes.items()
        }
        cpus = {name: cpu for name, (_, _, cpu) in self.nodes.items()}
        taken: dict[str, set[Any]] = {name: set() for name in gpus}
        for item in (*plan.start, *plan.keep, *plan.move):
            for node, held in item.nodes.items():
                taken[node] |= set(held)
                cpus[node] -= len(held) * self.cpus[item.job]
        return {name: count - len(taken[name]) for name, count in gpus.items()}, cpus

    def unused(self, plan: Plan) -> dict[str, float]:
        """GPUs that the jobs of each tenant with a quota may still have."""
        left = dict(self.quotas)
        for item in (*plan.start, *plan.keep, *plan.move):
            tenant = self.jobs[item.job].get("tenant", "")
            if tenant in left:
                left[tenant] -= len(item.gpus)
        return left

    def allows(self, job: str, way: Way, most: float) -> bool:
        """Whether the tenant of a job, which may have so many GPUs more, lets it run so."""
        tenant = self.jobs[job].get("tenant", "")
        apart = not way.rack and way.nodes > 1
        return way.gpus <= most and not (apart and tenant in self.in_rack)

    def places(
        self, job: str, way: Way, gpus: Mapping[str, int], cpus: Mapping[str, float]
    ) -> Iterator[dict[str, int]]:
        """All ways to spread a gang over nodes that have so much free."""
        here = [name for name, (pool, _, _) in self.nodes.items() if pool == way.pool]
        need = self.cpus[job]
        for count in itertools.product(*(range(gpus[name] + 1) for name in here)):
            taken = {name: n for name, n in zip(here, count, strict=True) if n}
            if sum(count) != way.gpus or len(taken) > way.nodes:
                continue
            if way.rack and len({self.racks.get(name, name) for name in taken}) > 1:
                continue
            if all(n * need <= cpus[name] + SLACK for name, n in taken.items()):
                yield taken


def idle_gpus(
    world: World, plan: Plan, left: Mapping[str, float], *, least: bool = False, moves: bool = True
) -> list[str]:
    """Who waits, or runs slower, though idle GPUs would serve it.

    Parameters
    ----------
    world : World
        As before the plan.
    plan : Plan
    left : mapping of a job to the steps that it has left
    least : bool
        Whether elastic jobs run on their fewest GPUs alone.
    moves : bool
        Whether jobs may still move.
    """
    gpus, cpus = world.idle(plan)
    unused = world.unused(plan)
    found = []
    for item in (*plan.hold, *plan.preempt):
        if left[item.job] <= 0 or "cannot run on the reference pool" in item.reason:
            continue
        most = unused.get(world.jobs[item.job].get("tenant", ""), math.inf)
        for way in ways(world.jobs[item.job], least=least):
            if world.allows(item.job, way, most) and any(world.places(item.job, way, gpus, cpus)):
                found.append(f"{item.job} waits, though {way} is free")
                break
    kept = {item.job for item in plan.keep}
    running = (*plan.start, *plan.keep, *plan.move)
    for item in running:
        job = world.jobs[item.job]
        if not job.get("preemptible", True) or not (moves or item.job not in kept):
            continue
        own = {node: len(held) for node, held in item.nodes.items()}
        partners = [other for other in running if other.gpus == item.gpus and other != item]
        if partners:
            own = {}  # whoever shares GPUs leaves them to its partner, if that can use them alone
            alone = ways(world.jobs[partners[0].job], least=least)
            place = (item.pool, len(item.gpus))
            if not any(
                (way.pool, way.gpus) == place and way.nodes >= len(item.nodes) for way in alone
            ):
                continue
        with_own = {node: gpus[node] + own.get(node, 0) for node in gpus}
        with_own |= {node: own.get(node, 0) for node in world.closed}
        with_cpus = {node: cpus[node] + own.get(node, 0) * world.cpus[item.job] for node in cpus}
        rate = float(plan.speed[plan.instance.jobs_table.names.index(item.job)])
        assert item.pool is not None
        ran = bool(world.starts.get(item.job))
        leaving = world.leaving(item.job, plan.now) if item.job in world.held else 0.0
        here = leaving + world.restart(item.job, item.pool, len(item.gpus)) if ran else 0.0
        restoring = max(world.resumes.get(item.job, 0.0) - plan.now, 0.0)
        ends = (restoring if item.job in kept else here) + left[item.job] / rate
        most = unused.get(job.get("tenant", ""), math.inf) + len(item.gpus)
        for way in ways(job, least=least):
            if not world.allows(item.job, way, most):
                continue
            there = leaving + world.restart(item.job, way.pool, way.gpus) if ran else 0.0
            sooner = there + left[item.job] / way.rate
            if way.rate <= rate * (1 + SLACK) or sooner >= ends * (1 - SLACK):
                continue
            for place in world.places(item.job, way, with_own, with_cpus):
                if any(gpus[node] > 0 for node in place):
                    found.append(
                        f"{item.job} ends after {ends:g} s, though {way} would end after {sooner:g} s"
                    )
                    break
    return found
