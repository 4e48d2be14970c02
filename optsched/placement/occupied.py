"""GPUs that are in use before anything is placed.

`Occupied` says who holds which GPUs and stays: rows of an allocation, and jobs that are in no
program any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, islice
from typing import Any

import numpy as np

from optsched.arrays import EMPTY, BoolArray, FloatArray, IntArray, mask_of, owners
from optsched.candidates import NO_SLICE, Classes, JobRows, Slices
from optsched.candidates.resources import Resources
from optsched.candidates.slices import layouts_of
from optsched.instance import Instance
from optsched.instance.cluster import NONE, Cluster
from optsched.instance.layouts import MIG
from optsched.instance.reading import listed, show
from optsched.performance.parameter_server import KEY
from optsched.placement.cut_gpus import CutGpus
from optsched.placement.requests import (
    OWN,
    needs_per_gpu,
)
from optsched.placement.shares import FULL

# --- GPUs that are held ----------------------------------------------------------------------

MOST_NAMED = 4
"""Holders of a GPU that a message names."""


@dataclass(frozen=True)
class Occupied:
    """GPUs that S holders have and keep, on nodes of any state.

    A node that takes no work keeps its jobs. They do not affect other nodes, except that they use
    part of a resource that several nodes share.

    Attributes
    ----------
    instance : Instance
    job, partner : IntArray, shape (S,)
        Rows of the job table; -1 for a job that is not in it, and for the partner of a job alone.
    share : FloatArray, shape (S,)
        Share of each of its GPUs, in (0, 1].
    profile : IntArray, shape (S,)
        Profile of its slices (MIG), among those of the pool; `NO_SLICE` for none.
    need : FloatArray, shape (S, 2)
        CPUs and memory (GB) per GPU.
    group_need : FloatArray, shape (S, G)
        Of each renewable resource that belongs to some nodes, per GPU on these nodes.
    gpu : IntArray, shape (F,)
        GPUs that are held, by their number in the cluster (`Cluster.numbering`).
    owner : IntArray, shape (F,)
        Who holds each of them, ascending.

    """

    instance: Instance
    job: IntArray
    partner: IntArray
    share: FloatArray
    profile: IntArray
    need: FloatArray
    group_need: FloatArray
    gpu: IntArray
    owner: IntArray

    def checked(self) -> Occupied:
        """Itself; raises ValueError if a job is there twice,
        or GPUs are held by more than they can be.
        """
        twice = np.flatnonzero(np.bincount(self.jobs) > 1)
        if len(twice):
            raise ValueError(f"job {self.instance.jobs_table.names[int(twice[0])]} has GPUs twice")
        # GPUs of a holder are nearly always ascending, and then none is there twice: no sort.
        rising = (self.gpu[1:] > self.gpu[:-1]) | (self.owner[1:] > self.owner[:-1])
        if not rising.all():
            self._refuse_gpus_listed_twice()
        over = np.flatnonzero(self.load > FULL)
        if len(over):
            gpu = int(over[0])
            holders = [self.named(owner) for owner in self.owner[self.gpu == gpu].tolist()]
            text = ", ".join(holders[:MOST_NAMED])
            text += " and more" if len(holders) > MOST_NAMED else ""
            raise ValueError(
                f"{self.load[gpu]:g} of {self._gpu(gpu)} is held (by {text}), expected at most 1"
            )
        return self

    def _refuse_gpus_listed_twice(self) -> None:
        key = np.sort(self.gpu * (len(self) + 1) + self.owner)
        again = np.flatnonzero(key[1:] == key[:-1])
        if len(again):
            gpu, owner = divmod(int(key[again[0]]), len(self) + 1)
            raise ValueError(f"{self.named(owner)} has {self._gpu(gpu)} twice")

    @classmethod
    def none(cls, instance: Instance) -> Occupied:
        groups = len(instance.cluster.groups)
        own, group = np.zeros((0, len(OWN))), np.zeros((0, groups))
        nobody, nothing = EMPTY, np.zeros(0)
        return cls(instance, nobody, nobody, nothing, nobody, own, group, nobody, nobody)

    @classmethod
    def of_rows(
        cls,
        classes: Classes,
        rows: JobRows,
        chosen: IntArray,
        gpus: Sequence[Sequence[str]],
    ) -> Occupied:
        """Rows of an allocation, each on the GPUs that its jobs have.

        Parameters
        ----------
        classes : Classes
        rows : JobRows
            The allocation row by row.
        chosen : IntArray, shape (S,)
            Rows that have GPUs.
        gpus : sequence of sequences of str, length S
            ``node/index``.

        Raises
        ------
        ValueError
            The number of GPUs of a row differs from that of its column, one of them is not in its
            pool, a job is there twice, or GPUs are held by more than they can be.
        """
        chosen = np.asarray(chosen, np.int64)
        job = rows.job[chosen]
        gpu, owner = _numbered(classes.instance, gpus, job)
        count = np.bincount(owner, minlength=len(chosen))
        _check_gpus_of_columns(classes, rows.column[chosen], job, gpu, count, owner)
        return cls.of_numbers(classes, rows, chosen, gpu, count).checked()

    @classmethod
    def of_numbers(
        cls,
        classes: Classes,
        rows: JobRows,
        chosen: IntArray,
        gpu: IntArray,
        count: IntArray,
    ) -> Occupied:
        """The same by the numbers of the GPUs, row by row, and how many each row has; nothing is checked."""
        column = rows.column[chosen]
        need, group_need = needs_per_gpu(classes, column)
        return cls(
            classes.instance,
            rows.job[chosen],
            rows.partner[chosen],
            classes.configurations.share[classes.configuration[column]],
            Slices.of(classes).profile[column],
            need,
            group_need,
            gpu,
            owners(count),
        )

    @classmethod
    def of_jobs(
        cls,
        instance: Instance,
        jobs: IntArray,
        gpus: Sequence[Sequence[str]],
        *,
        share: FloatArray | float = 1.0,
        needs: Mapping[str, FloatArray | float] | None = None,
    ) -> Occupied:
        """Jobs that no allocation has, with what they need.

        Parameters
        ----------
        instance : Instance
        jobs : IntArray, shape (S,)
            Rows of the job table, -1 for a job that is not in it.
        gpus : sequence of sequences of str, length S
            ``node/index``.
        share : FloatArray, shape (S,), or float
            Share of each GPU, in (0, 1].
        needs : mapping of str to FloatArray of shape (S,) or float, optional
            What each needs per GPU: ``cpu``, ``memory`` (GB), or a renewable resource of some
            nodes.

        Raises
        ------
        ValueError
            A share, a need or its name is wrong, a job is there twice, or GPUs are held by more
            than they can be.
        """
        job = np.asarray(jobs, np.int64)
        shares = np.broadcast_to(np.asarray(share, np.float64), len(job))
        gpu, owner = _numbered(instance, gpus, job)
        need = _needs_by_name(instance, len(job), needs or {})
        _check_shares_and_needs(shares, need)
        partner = np.full(len(job), NONE, np.int64)
        own = need[:, : len(OWN)]
        group = need[:, len(OWN) :]
        profile = np.full(len(job), NO_SLICE, np.int64)
        return cls(instance, job, partner, shares, profile, own, group, gpu, owner).checked()

    def and_also(self, other: Occupied) -> Occupied:
        """All that is occupied by either of the two, in the same instance.

        Raises
        ------
        ValueError
            A job is in both, or GPUs are held by more than they can be.
        """
        if not len(self) or not len(other):
            return other if len(other) else self
        names = ("job", "partner", "share", "profile", "need", "group_need", "gpu")
        joined: dict[str, Any] = {
            name: np.concatenate([getattr(self, name), getattr(other, name)]) for name in names
        }
        owner = np.concatenate([self.owner, other.owner + len(self)])
        return replace(self, **joined, owner=owner).checked()

    def part(self, stays: BoolArray) -> Occupied:
        """Without the holders that a mask of shape (S,) leaves out."""
        mine = stays[self.owner]
        number = np.cumsum(stays) - 1
        names = ("job", "partner", "share", "profile", "need", "group_need")
        kept = {name: getattr(self, name)[stays] for name in names}
        return replace(self, **kept, gpu=self.gpu[mine], owner=number[self.owner[mine]])

    def around(self, pool: int) -> Occupied:
        """Those that can be in the way in a pool:
        they hold GPUs of it, or need resources of some nodes.
        """
        stays = np.asarray(self.group_need.any(axis=1))
        stays[self.owner[self.instance.cluster.numbering.pool[self.node] == pool]] = True
        return self.part(stays)

    def __len__(self) -> int:
        return len(self.job)

    @cached_property
    def load(self) -> FloatArray:
        """Share of every GPU of the cluster that is held."""
        total = np.bincount(
            self.gpu,
            self.share[self.owner],
            self.instance.cluster.numbering.gpus,
        )
        return np.asarray(total, np.float64)

    @cached_property
    def node(self) -> IntArray:
        """The node of every GPU that is held, by its number in the cluster, shape (F,)."""
        return self.instance.cluster.numbering.node_of(self.gpu)

    def cut_into(self, cut: CutGpus, spot_of: IntArray) -> None:
        """Add what is on some GPUs to how these are cut into slices.

        Parameters
        ----------
        cut : CutGpus
            Changed in place.
        spot_of : IntArray, shape (GPUs of the cluster,)
            Place of each GPU in ``cut.code``, flat; -1 for none.
        """
        pool = self.instance.cluster.numbering.pool[self.node]
        shared = (self.share[self.owner] < 1.0) & (spot_of[self.gpu] >= 0)
        for place in np.flatnonzero(shared).tolist():
            owner = self.owner[place]
            spot = spot_of[self.gpu[[place]]]
            cut.add(int(pool[place]), spot, int(self.profile[owner]), float(self.share[owner]))

    @cached_property
    def used(self) -> FloatArray:
        """CPUs and memory (GB) that are in use on every node of the cluster, shape (nodes, 2)."""
        total = np.zeros((self.instance.cluster.numbering.nodes, len(OWN)))
        for own in np.flatnonzero(self.need.any(axis=0)).tolist():
            amount = self.need[self.owner, own]
            total[:, own] = np.bincount(self.node, amount, len(total))
        return total

    @cached_property
    def group_used(self) -> FloatArray:
        """What is in use of each renewable resource that belongs to some nodes, shape (G,)."""
        member = self.instance.cluster.members[:, self.node]
        return np.asarray((self.group_need[self.owner].T * member).sum(axis=1))

    def left_of(self, resources: Resources) -> FloatArray:
        """What is left of the capacities of resources, shape (R,).

        Where a node has less than its jobs need, they hold what it has, and nothing of other nodes;
        on nodes that take no work they hold nothing that counts.
        """
        cluster = self.instance.cluster
        usable = cluster.usable(self.instance.now)
        gpus = np.bincount(self.node, self.share[self.owner], len(usable))
        # Jobs cannot hold more of a node than it has, though they may need it after it shrank.
        own = np.minimum(self.used, cluster.own_capacity)
        used: dict[str, float] = {}
        for suffix, amount in (
            ("", gpus),
            *((f".{name}", own[:, at]) for at, name in enumerate(OWN)),
        ):
            pool_of_node = cluster.numbering.pool
            total = np.bincount(pool_of_node, np.where(usable, amount, 0.0), len(cluster.pools))
            names = [pool.name + suffix for pool in cluster.pools]
            used.update(zip(names, total.tolist(), strict=True))
        groups = [group.name for group in cluster.groups]
        used.update(zip(groups, self.group_used.tolist(), strict=True))
        held = [used.get(name, 0.0) for name in resources.names]
        return np.asarray(resources.capacity - held, np.float64)

    @property
    def jobs(self) -> IntArray:
        """Rows of all of these jobs that are in the job table."""
        jobs = np.concatenate([self.job, self.partner])
        return jobs[jobs >= 0]

    def nodes_of(self, jobs: IntArray) -> IntArray:
        """Nodes of the cluster on which any of these jobs has GPUs."""
        mine = np.isin(self.job, jobs) | np.isin(self.partner, jobs)
        return np.unique(self.node[mine[self.owner]])

    def named(self, holder: int) -> str:
        """``job a``, ``jobs a and b``, or the number of a job that is not in the job table."""
        partner = int(self.partner[holder])
        names = self.instance.jobs_table.names
        if partner >= 0:
            return f"jobs {names[int(self.job[holder])]} and {names[partner]}"
        return _named(self.instance, self.job, holder)

    def _gpu(self, number: int) -> str:
        return self.instance.cluster.numbering.gpu_name(number)


def refuse_placed_twice(occupied: Occupied, jobs: IntArray) -> None:
    """Raise ValueError where one of these jobs, which are to be placed, has GPUs already."""
    names = occupied.instance.jobs_table.names
    placed = mask_of(occupied.jobs, len(names))
    both = jobs[placed[jobs]]
    if len(both):
        raise ValueError(f"job {names[int(both[0])]} has GPUs and is to be placed as well")


def _check_gpus_of_columns(
    classes: Classes,
    column: IntArray,
    job: IntArray,
    gpu: IntArray,
    count: IntArray,
    owner: IntArray,
) -> None:
    """Raise ValueError where a row has not as many GPUs as its column, or one of another pool."""
    instance = classes.instance
    wrong_count = np.flatnonzero(count != classes.gpus[column])
    if len(wrong_count):
        holder = int(wrong_count[0])
        wanted = classes.gpus[column[holder]]
        text = f"{_named(instance, job, holder)} has {count[holder]} GPUs"
        raise ValueError(f"{text}, expected the {wanted} of its row")
    numbering = instance.cluster.numbering
    pool = classes.pool[column]
    wrong_pool = np.flatnonzero(numbering.pool[numbering.node_of(gpu)] != pool[owner])
    if len(wrong_pool):
        first = int(wrong_pool[0])
        holder = int(owner[first])
        name = numbering.gpu_name(int(gpu[first]))
        wanted = instance.cluster.pools[int(pool[holder])].name
        text = f"{_named(instance, job, holder)} has {show(name)}"
        raise ValueError(f"{text}, expected GPUs of pool {show(wanted)}")


def _needs_by_name(
    instance: Instance, holders: int, needs: Mapping[str, FloatArray | float]
) -> FloatArray:
    """What each holder needs per GPU of each resource of nodes,
    shape (S, 2 + G); 0 unless stated.
    """
    names = instance.cluster.node_resources
    table = np.zeros((holders, len(names)))
    for name, amount in needs.items():
        if name not in names:
            raise ValueError(f"needs: found {show(name)}, expected one of {listed(names)}")
        table[:, names.index(name)] = amount
    return table


def _check_shares_and_needs(share: FloatArray, need: FloatArray) -> None:
    """Raise ValueError where a share is not in (0, 1], or a need is negative or infinite."""
    # Conditions are written so that NaN breaks them.
    wrong = np.flatnonzero(~((share > 0) & (share <= 1)))
    if len(wrong):
        found = f"{share[wrong[0]]:g}"
        raise ValueError(f"share[{wrong[0]}]: found {found}, expected a number above 0, at most 1")
    wrong = np.flatnonzero(~((need >= 0) & (need < np.inf)).all(axis=1))
    if len(wrong):
        found = f"{need[wrong[0]].tolist()} of job {wrong[0]}"
        raise ValueError(f"needs: found {found}, expected numbers from 0 on")


def _named(instance: Instance, job: IntArray, holder: int) -> str:
    row = int(job[holder])
    return (
        f"job {instance.jobs_table.names[row]}"
        if row >= 0
        else f"job {holder} of those that have GPUs"
    )


def _numbered(
    instance: Instance, gpus: Sequence[Sequence[str]], job: IntArray
) -> tuple[IntArray, IntArray]:
    """Numbers of GPUs, and who holds each."""
    if len(gpus) != len(job):
        raise ValueError(
            f"gpus: found {len(gpus)} entries, expected {len(job)}, one for each holder"
        )
    gpu = instance.cluster.numbering.numbers(chain.from_iterable(gpus))
    owner = owners(np.array(list(map(len, gpus)), np.int64))
    wrong = np.flatnonzero(gpu == NONE)
    if len(wrong):
        name = next(islice(chain.from_iterable(gpus), int(wrong[0]), None))
        holder = _named(instance, job, int(owner[wrong[0]]))
        raise ValueError(
            f"{holder} has {show(name)}, expected a GPU of the cluster, written node/index"
        )
    return gpu, owner


# --- what running jobs hold ------------------------------------------------------------------


def held_of(
    instance: Instance, jobs: IntArray, option: IntArray, names: Sequence[str]
) -> tuple[FloatArray, FloatArray]:
    """Share of each of its GPUs that each of some running jobs holds,
    and what it needs of some resources per GPU of these, shape (jobs, names).

    A job with options holds what the one says in which it runs (``option``, shape (jobs,), -1: not
    known), else what those say that are like the place where it runs; where several are, the most
    of them. What workers and servers need is not known here.
    """
    table = instance.jobs_table
    options = instance.options
    workload = table.workload[jobs]
    demand = instance.workloads.demand
    needs = np.zeros((len(jobs), len(names)))
    for column, name in enumerate(names):
        if name in demand:
            needs[:, column] = demand[name][workload]
    # Workers and servers need what their law says.
    needs[instance.workloads.with_parameter(KEY)[workload]] = 0.0
    share = np.ones(len(jobs))
    for nth_job in np.flatnonzero(table.options[jobs] >= 0).tolist():
        job = int(jobs[nth_job])
        gpus = len(table.running[job][1])
        rows = _options_in_use(instance, job, int(option[job]))
        share[nth_job] = options.share[rows].max(initial=0.0) or 1.0
        needs[nth_job] = 0.0
        if len(rows):
            used = [[options.uses[row].get(name, 0.0) for name in names] for row in rows.tolist()]
            needs[nth_job] = np.max(np.array(used) / gpus, axis=0)
    return share, needs


def without_held(instance: Instance, cluster: Cluster, jobs: IntArray, option: IntArray) -> Cluster:
    """A cluster with less of the renewable resources that belong to no nodes:
    by what these running jobs hold.
    """
    spread = [item for item in cluster.resources if item.nodes is None and item.kind == "renewable"]
    if not len(jobs) or not spread:
        return cluster
    table = instance.jobs_table
    running = [table.running[job] for job in jobs.tolist()]
    count, pool = np.array([(len(gpus), row) for row, gpus, _ in running]).T
    _, per_gpu = held_of(instance, jobs, option, [item.name for item in spread])
    # Options name what they use, wherever they run.
    stated = table.options[jobs] >= 0
    left = {}
    for item, need in zip(spread, per_gpu.T, strict=True):
        used = need * count
        if item.pool is not None:
            used = used[stated | (pool == cluster.pool_index[item.pool])]
        left[item.name] = item._replace(capacity=max(item.capacity - float(used.sum()), 0.0))
    resources = tuple(left.get(item.name, item) for item in cluster.resources)
    return replace(cluster, resources=resources)


def occupied_by(instance: Instance, jobs: IntArray, option: IntArray) -> Occupied:
    """Running jobs that stay where they are and are in no row of an allocation.

    Jobs that share GPUs have equal parts of them, unless their options say which.
    """
    if not len(jobs):
        return Occupied.none(instance)
    places = instance.jobs_table.places
    numbering = instance.cluster.numbering
    share, need = held_of(instance, jobs, option, instance.cluster.node_resources)
    holder = places.among(len(instance.jobs_table))[jobs]
    gpu = places.numbers_of(holder, numbering)
    owner = owners(places.length[holder])
    load = np.bincount(gpu, share[owner], numbering.gpus)
    holders = np.bincount(gpu, minlength=numbering.gpus)
    # Whole GPUs held by two: they run as a pair, and the instance does not say in which parts.
    over = load[gpu] > FULL
    np.minimum.at(share, owner[over], 1.0 / holders[gpu[over]])
    alone = np.full(len(jobs), NONE, np.int64)
    own, group = need[:, : len(OWN)], need[:, len(OWN) :]
    profile = _profiles_of(instance, jobs, option)
    return Occupied(instance, jobs, alone, share, profile, own, group, gpu, owner).checked()


def _profiles_of(instance: Instance, jobs: IntArray, option: IntArray) -> IntArray:
    """Profile of the slices (MIG) in which each of some running jobs runs; `NO_SLICE` for none.

    Of several options that are like the place where it runs, that of the largest share.
    """
    table, options = instance.jobs_table, instance.options
    profile = np.full(len(jobs), NO_SLICE, np.int64)
    for nth_job in np.flatnonzero(table.options[jobs] >= 0).tolist():
        job = int(jobs[nth_job])
        rows = _options_in_use(instance, job, int(option[job]))
        if not len(rows):
            continue
        row = int(rows[options.share[rows].argmax()])
        name = options.attributes[row].get(MIG)
        if name is not None and options.share[row] < 1.0:
            number = table.running[job][0]
            pool = instance.cluster.pools[number]
            profile[nth_job] = layouts_of(pool, number).row(
                name, f"option of job {table.names[job]}"
            )
    return profile


def _options_in_use(instance: Instance, job: int, option: int) -> IntArray:
    """The option in which a job runs if it is known,
    else all that are like the place where it runs.
    """
    options = instance.options
    own = int(instance.jobs_table.options[job])
    pool, gpus, _ = instance.jobs_table.running[job]
    first = int(options.indptr[own])
    rows = np.arange(first, options.indptr[own + 1])
    rows = rows[(options.pool[rows] == pool) & (options.gpus[rows] == len(gpus))]
    exact: IntArray = rows[rows - first == option]
    return exact if len(exact) else rows


def crowded(instance: Instance, option: IntArray) -> BoolArray:
    """Mask of the jobs that run on nodes which have less than what runs there needs,
    as happens when they shrink.
    """
    table = instance.jobs_table
    hit = np.zeros(len(table), bool)
    # Most instances state no needs: then no node can be short of anything.
    demanding = instance.workloads.demand or instance.options.needs
    if not table.running or not demanding:
        return hit
    jobs = table.places.job
    occupied = occupied_by(instance, jobs, option)
    node = occupied.node
    owner = occupied.owner
    short = occupied.used > instance.cluster.own_capacity * FULL
    needs_it = (occupied.need[owner] > 0) & short[node]
    capacity = np.array([group.capacity for group in instance.cluster.groups])
    group_short = occupied.group_used > capacity * FULL
    on_short_group = instance.cluster.members[:, node].T & group_short
    needs_group = (occupied.group_need[owner] > 0) & on_short_group
    hit[jobs[owner[needs_it.any(axis=1) | needs_group.any(axis=1)]]] = True
    return hit
