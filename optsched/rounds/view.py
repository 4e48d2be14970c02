"""The instance as it is in the coming round (`View`),
and the rows in which running jobs can continue on their GPUs (`InPlace`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray, mask_of, owners
from optsched.arrays.values import cached_property, replace
from optsched.assembly import make_constraint, reserves_cells
from optsched.candidates import Classes, JobRows
from optsched.candidates.held import held_of
from optsched.candidates.resources import Resources
from optsched.errors import OptschedError
from optsched.instance import Instance
from optsched.instance.staying import Running
from optsched.placement.bound_cells import BoundCells, bind_cells
from optsched.placement.occupied import (
    Occupied,
    crowded,
    occupied_by,
    without_held,
)
from optsched.placement.shares import FULL
from optsched.placement.staying import holds
from optsched.rounds.ledger import Configured, Ledger
from optsched.rounds.preemption import evicted
from optsched.rounds.state import RoundState, cluster_in_round

# --- the instance in the coming round --------------------------------------------------------

FEWEST = {"anti-affinity": 2}
"""Fewest jobs that a constraint of this kind must name to have an effect; 1 for other kinds."""
MOST_NAMED = 4
"""Jobs that a notice names."""


@dataclass(frozen=True)
class View:
    """The instance and the running jobs as a round is planned for them.

    Attributes
    ----------
    instance : Instance
        Reserved nodes take no work; hard deadlines that have passed are removed; jobs within their
        exempt time cannot be preempted.
    running : Running
    configured : Configured
        The configurations in which jobs run, as far as they are known.
    must : BoolArray, shape (jobs,)
        Running jobs that cannot be preempted: they continue in any case.
    outside : BoolArray, shape (jobs,)
        Jobs of ``must`` on nodes that take no more work: they are in no row of the allocation.
    awaits : BoolArray, shape (jobs,)
        Jobs whose predecessors are not complete.
    crowded : BoolArray, shape (jobs,)
        Preemptible jobs on nodes that have less CPUs, memory or other resources than their jobs
        need.
    constraints : tuple of mappings
        Side constraints of the policy, without jobs that have left; those of the instance are in
        the instance.
    notices : tuple of str
    cells : BoundCells or None
        Cells that are reserved for tenants, with their GPUs in this round. ``constraints``, and
        those of the instance, count no others.
    reserved : tuple of mappings
        The side constraints that reserve them, as they are given.
    refusal : str
        Why no round can be planned; empty if nothing is known against it.
    """

    instance: Instance
    running: Running
    configured: Configured
    must: BoolArray
    outside: BoolArray
    awaits: BoolArray
    crowded: BoolArray
    constraints: tuple[Mapping[str, Any], ...]
    notices: tuple[str, ...]
    cells: BoundCells | None = None
    reserved: tuple[Mapping[str, Any], ...] = ()
    refusal: str = ""

    @cached_property
    def evicted(self) -> BoolArray:
        """Running jobs that must leave their GPUs, unless they cannot be preempted; shape
        (jobs,).
        """
        leave = evicted(self.running, self.crowded)
        return leave if self.cells is None else leave | (self.cells.outside & ~self.must)

    @cached_property
    def hosts(self) -> BoolArray:
        """Jobs that cannot be preempted and hold whole GPUs, which a guest may share; shape
        (jobs,).
        """
        holds_whole = self.instance.jobs_table.options < 0
        return self.must & ~self.outside & ~self.together & holds_whole

    @property
    def not_ready(self) -> BoolArray:
        """Jobs that may not start in this round: they have not arrived, or their predecessors are
        not complete; shape (jobs,). Plans of deadlines have rows for the former.
        """
        return self.awaits | (self.instance.jobs_table.arrival > self.instance.now)

    @property
    def never_starved(self) -> BoolArray:
        """Jobs to which patience does not apply: they run in any case, or may not run yet."""
        return self.outside | self.awaits | self.must

    @cached_property
    def together(self) -> BoolArray:
        """Jobs that cannot be preempted and share GPUs with another such job: neither can continue
        alone; shape (jobs,).
        """
        jobs = self.must.nonzero()[0]
        if not len(jobs):
            return np.zeros(len(self.must), bool)
        gpus = [self.instance.jobs_table.running[job][1] for job in jobs.tolist()]
        owner = owners([len(names) for names in gpus])
        numbering = self.instance.cluster.numbering
        gpu = numbering.numbers(chain.from_iterable(gpus))
        load = np.bincount(
            gpu,
            held_of(self.instance, jobs, self.configured.option, ())[0][owner],
            numbering.gpus,
        )
        return mask_of(jobs[owner[load[gpu] > FULL]], len(self.must))

    @cached_property
    def holding(self) -> Occupied:
        """GPUs of running jobs, without those of nodes that are down."""
        return self.occupied((self.running.runs & ~self.running.lost).nonzero()[0])

    def later(self, instance: Instance) -> View:
        """The same view at a later time, if the same jobs run on the same GPUs."""
        later = copy(self)  # cached properties are kept: none of them depends on the time
        object.__setattr__(later, "instance", instance)
        return later

    @classmethod
    def of(cls, state: RoundState) -> View:
        """The view of a state."""
        given = state.instance
        table = given.jobs_table
        # A job that is stopped at the end of this round holds its GPUs for the grace time after it.
        until = state.until + state.policy.grace_time
        cluster = cluster_in_round(given.cluster, state.reservations, given.now, until)
        # A hard deadline that has passed would make every program infeasible.
        late = ((table.deadline <= given.now) & ~table.soft_deadline).nonzero()[0]
        notices = [
            f"job {table.names[job]} is late: its deadline was at {table.deadline[job]:.12g} s, "
            "and it is held to it no more"
            for job in late.tolist()
        ]
        if len(late):
            deadline = table.deadline.copy()
            deadline[late] = np.inf
            table = replace(table, deadline=deadline)
        # Within a round, exempt jobs are the same as jobs that can never be preempted.
        may_stop = state.stops.preemptible
        if (may_stop != table.preemptible).any():
            table = replace(table, preemptible=may_stop)
        running = Running.of(replace(given, cluster=cluster))
        configured = Configured.of(state.ledger, running.pool, running.gpus)
        must = running.stays(table.preemptible)
        # These jobs are in no row, but they hold resources that belong to no nodes.
        outside = must & running.leaves
        cluster = without_held(given, cluster, outside.nonzero()[0], configured.option)
        awaits = mask_of([job for job, before in table.after.items() if before], len(table))
        of_instance, instance_notices = still_meant(given.constraints, given)
        of_policy, policy_notices = still_meant(state.policy.constraints, given)
        instance = replace(given, cluster=cluster, jobs_table=table, constraints=of_instance)
        reserved = [one for one in (*of_instance, *of_policy) if reserves_cells(one)]
        cells, refusal = _bound_cells(instance, reserved, must)
        if cells is not None:
            left = [{**one, "owns": cells.owned(row)} for row, one in enumerate(reserved)]
            of_instance = _replaced(of_instance, reserved, left)
            of_policy = _replaced(of_policy, reserved, left)
            instance = replace(instance, constraints=of_instance)
        return cls(
            instance,
            running,
            configured,
            must,
            outside,
            awaits & ~must,
            crowded(instance, configured.option) & ~must,
            of_policy,
            (
                *notices,
                *instance_notices,
                *policy_notices,
                *(() if cells is None else cells.notices),
            ),
            cells,
            tuple(reserved),
            refusal,
        )

    def occupied(self, jobs: IntArray) -> Occupied:
        """GPUs of running jobs that stay where they are and are in no row of an allocation."""
        return occupied_by(self.instance, jobs, self.configured.option)

    def left_beside(self, jobs: BoolArray, resources: Resources) -> FloatArray:
        """Amount of each resource that the running jobs of a mask leave free; shape (R,)."""
        if not jobs.any():
            return np.asarray(resources.capacity, np.float64)
        return self.occupied(jobs.nonzero()[0]).left_of(resources)

    def why_it_left(self, job: int) -> str:
        """Why a job must leave its nodes; empty if it need not."""
        if self.running.lost[job]:
            return "a node that it held is down"
        if self.running.leaves[job]:
            return "its nodes take no more work: they drain, are reserved or not available"
        if self.crowded[job]:
            return "its nodes have less than what runs there needs"
        if self.cells is not None and self.cells.outside[job]:
            return "its GPUs are in reserved cells of others, or in no cell of its tenant"
        return ""


def _bound_cells(
    instance: Instance, reserved: Sequence[Mapping[str, Any]], must: BoolArray
) -> tuple[BoundCells | None, str]:
    """The reserved cells of some side constraints on GPUs; or why they cannot be bound."""
    if not reserved:
        return None, ""
    try:
        cells = [make_constraint(one).reserves(instance) for one in reserved]
        return bind_cells(instance, [one for one in cells if one is not None], must), ""
    except OptschedError as error:
        return None, str(error)


def _replaced(
    documents: Sequence[Mapping[str, Any]],
    old: Sequence[Mapping[str, Any]],
    new: Sequence[Mapping[str, Any]],
) -> tuple[Mapping[str, Any], ...]:
    """Documents with others in the place of some of them."""
    known = {id(before): after for before, after in zip(old, new, strict=True)}
    return tuple(known.get(id(one), one) for one in documents)


def still_meant(
    documents: Sequence[Mapping[str, Any]], instance: Instance
) -> tuple[tuple[Mapping[str, Any], ...], tuple[str, ...]]:
    """Side constraints without the jobs that have left, and notices about these changes.

    A constraint is dropped if all its jobs have left, or its workload went with the last job of it:
    without any name it would apply to every job.
    """
    present = instance.jobs_table.names
    kept = []
    notices = []
    for document in documents:
        named = document.get("jobs")
        names = [named] if isinstance(named, str) else named
        if not isinstance(names, list | tuple):
            names = []  # the constraint itself refuses this value
        gone = [name for name in names if name not in present]
        workload = document.get("workload")
        lacks = workload is not None and workload not in instance.workloads.names
        if not gone and not lacks:
            kept.append(document)
            continue
        what = f"workload {workload}" if lacks else f"jobs {', '.join(map(str, gone[:MOST_NAMED]))}"
        what += " and more" if len(gone) > MOST_NAMED and not lacks else ""
        remaining = [name for name in names if name in present]
        kind = str(document.get("kind"))
        if lacks or len(remaining) < FEWEST.get(kind, 1):
            notices.append(f"the side constraint {kind} has no effect: {what} left")
            continue
        kept.append({**document, "jobs": remaining})
        notices.append(f"the side constraint {kind} goes on without {what}, which left")
    return tuple(kept), tuple(notices)


# --- rows that continue ----------------------------------------------------------------------


@dataclass(frozen=True)
class InPlace:
    """Compares rows with the jobs that run now.

    Attributes
    ----------
    view : View
    classes : Classes
    ledger : Ledger
        That of the state, with the rows that ran in the last round.
    """

    view: View
    classes: Classes
    ledger: Ledger

    def same_nodes(self, jobs: IntArray, column: IntArray) -> BoolArray:
        """Mask of the jobs that hold the GPUs of these columns (`holds`)."""
        return holds(self.classes, self.view.running, jobs, column)

    def same_setup(self, jobs: IntArray, column: IntArray) -> BoolArray:
        """Mask of the jobs (or -1) that run with the share, option, workers and servers of the
        columns.
        """
        # In most instances no labels need to be compared.
        if self._gpus_alone:
            return np.ones(len(jobs), bool)
        return self.view.configured.like(jobs, self.classes.labels_of(column))

    @cached_property
    def _gpus_alone(self) -> bool:
        """Whether the setup of all columns, and of all running jobs, is their whole GPUs."""
        columns = self.classes.candidates.columns
        more = (columns.option >= 0).any() or columns.workers.any() or columns.servers.any()
        return not (more or (columns.share != 1.0).any() or self.view.configured.setups)

    def jobs_continue(self, jobs: IntArray, column: IntArray) -> BoolArray:
        """Mask of the jobs that run in the configuration of these columns and may stay on their
        nodes.
        """
        stays = self.same_nodes(jobs, column) & ~self.view.evicted[jobs]
        return stays & self.same_setup(jobs, column)

    def rows_continue(self, rows: JobRows) -> BoolArray:
        """Mask of the rows whose jobs all can continue on the GPUs that they hold."""
        if not len(rows):
            return np.zeros(0, bool)
        column = rows.column
        found = self.classes.gpus[column] > 0
        found &= self.jobs_continue(rows.job, column)
        pairs = (found & (rows.partner >= 0)).nonzero()[0]
        if len(pairs):
            found[pairs] = self.jobs_continue(rows.partner[pairs], column[pairs])
        running = self.view.instance.jobs_table.running
        # The two jobs of a pair must hold the same GPUs.
        for row in pairs[found[pairs]].tolist():
            gpus = running[int(rows.job[row])][1]
            found[row] = set(gpus) == set(running[int(rows.partner[row])][1])
        return found | self._continue_without_gpus(rows)

    def _continue_without_gpus(self, rows: JobRows) -> BoolArray:
        """Mask of the rows without GPUs of jobs that ran: only the ledger records these."""
        found = np.zeros(len(rows), bool)
        without_gpus = (self.classes.gpus[rows.column] == 0).nonzero()[0]
        if len(without_gpus) and self.ledger.runs.any():
            job = rows.job[without_gpus]
            ran = self.ledger.jobs_of(self.ledger.runs)[job]
            found[without_gpus] = ran & self.same_setup(job, rows.column[without_gpus])
        return found
