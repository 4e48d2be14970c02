"""The instance as it is in the coming round (`View`),
and which rows go on as they run now (`InPlace`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray, mask_of, owners
from optsched.candidates import Classes, JobRows
from optsched.candidates.resources import Resources
from optsched.instance import Instance
from optsched.instance.staying import Running
from optsched.placement.occupied import (
    Occupied,
    crowded,
    held_of,
    occupied_by,
    without_held,
)
from optsched.placement.shares import FULL
from optsched.rounds.ledger import Configured, Ledger
from optsched.rounds.preemption import evicted
from optsched.rounds.state import RoundState, cluster_in_round

# --- the instance in the coming round --------------------------------------------------------

FEWEST = {"anti-affinity": 2}
"""Jobs that a constraint must name to mean anything, where it is more than one."""
MOST_NAMED = 4
"""Names that a notice has."""


@dataclass(frozen=True)
class View:
    """What a round is planned for.

    Attributes
    ----------
    instance : Instance
        Reserved nodes take no work; deadlines that have passed are gone; jobs within their exempt
        time cannot be preempted.
    running : Running
    configured : Configured
        How what runs runs, as far as it is known.
    must : BoolArray, shape (jobs,)
        Jobs that run on whatever happens: they cannot be preempted.
    outside : BoolArray, shape (jobs,)
        Those of them that hold GPUs of nodes that take no more work.
    awaits : BoolArray, shape (jobs,)
        Jobs whose predecessors are not done.
    crowded : BoolArray
        Jobs that can be preempted, on nodes that have less than what runs there needs.
    constraints : tuple of mappings
        Side constraints of the policy, as far as what they name is there; those of the instance are
        in the instance.
    notices : tuple of str
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

    @cached_property
    def evicted(self) -> BoolArray:
        """Running jobs that cannot stay on their nodes, unless they cannot be preempted."""
        return evicted(self.running, self.crowded)

    @cached_property
    def hosts(self) -> BoolArray:
        """Jobs that cannot be preempted, and whose GPUs,
        which they hold whole, a guest may share.
        """
        holds_whole = self.instance.jobs_table.options < 0
        return self.must & ~self.outside & ~self.together & holds_whole

    @property
    def never_starved(self) -> BoolArray:
        """Jobs that wait for no GPUs of others: they run whatever happens, or may not run yet."""
        return self.outside | self.awaits | self.must

    @cached_property
    def together(self) -> BoolArray:
        """Jobs that cannot be preempted and share GPUs with others that cannot,
        so that none can go on as if alone.
        """
        jobs = np.flatnonzero(self.must)
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
        """What running jobs hold, but on nodes that are down."""
        return self.occupied(np.flatnonzero(self.running.runs & ~self.running.lost))

    def later(self, instance: Instance) -> View:
        """The same view at a later time, at which the same runs on the same nodes."""
        later = copy(self)  # with the cached properties: none of them depends on the time
        object.__setattr__(later, "instance", instance)
        return later

    @classmethod
    def of(cls, state: RoundState) -> View:
        """The view of a state."""
        given = state.instance
        table = given.jobs_table
        # Who is stopped at the end of this round holds its GPUs for the grace time after it.
        until = state.until + state.policy.grace_time
        cluster = cluster_in_round(given.cluster, state.reservations, given.now, until)
        # A hard deadline that has passed would make every later program infeasible.
        late = np.flatnonzero((table.deadline <= given.now) & ~table.soft_deadline)
        notices = [
            f"job {table.names[job]} is late: its deadline was at {table.deadline[job]:.12g} s, "
            "and it is held to it no more"
            for job in late.tolist()
        ]
        if len(late):
            deadline = table.deadline.copy()
            deadline[late] = np.inf
            table = replace(table, deadline=deadline)
        # For this round it is the same whether a job cannot be preempted ever or not yet.
        may_stop = state.stops.preemptible
        if (may_stop != table.preemptible).any():
            table = replace(table, preemptible=may_stop)
        running = Running.of(replace(given, cluster=cluster))
        configured = Configured.of(state.ledger, running.pool, running.gpus)
        must = running.stays(table.preemptible)
        leaves = np.flatnonzero(
            must & running.leaves
        )  # in no row, and yet they hold what belongs to no nodes
        cluster = without_held(given, cluster, leaves, configured.option)
        awaits = mask_of([job for job, before in table.after.items() if before], len(table))
        # A constraint may name jobs that have left since: with no name left it would mean every
        # job.
        own, own_notices = still_meant(given.constraints, given)
        policys, policy_notices = still_meant(state.policy.constraints, given)
        instance = replace(given, cluster=cluster, jobs_table=table, constraints=own)
        return cls(
            instance,
            running,
            configured,
            must,
            must & running.leaves,
            awaits & ~must,
            crowded(instance, configured.option) & ~must,
            policys,
            (*notices, *own_notices, *policy_notices),
        )

    def occupied(self, jobs: IntArray) -> Occupied:
        """Running jobs that stay where they are and are in no row of an allocation."""
        return occupied_by(self.instance, jobs, self.configured.option)

    def left_beside(self, jobs: BoolArray, resources: Resources) -> FloatArray:
        """What is left of the capacities beside running jobs of a mask; shape (R,)."""
        if not jobs.any():
            return np.asarray(resources.capacity, np.float64)
        return self.occupied(np.flatnonzero(jobs)).left_of(resources)

    def why_it_left(self, job: int) -> str:
        """Why a job cannot run on where it is, if it is for its nodes; else nothing."""
        if self.running.lost[job]:
            return "a node that it held is down"
        if self.running.leaves[job]:
            return "its nodes take no more work: they drain, are reserved or not available"
        if self.crowded[job]:
            return "its nodes have less than what runs there needs"
        return ""


def still_meant(
    documents: Sequence[Mapping[str, Any]], instance: Instance
) -> tuple[tuple[Mapping[str, Any], ...], tuple[str, ...]]:
    """Side constraints without the jobs that are not there, and notices of it.

    One that names no job that is there, or a workload that went with its last job, has no effect
    and is left out: with no names at all it would speak of every job.
    """
    there = instance.jobs_table.names
    kept = []
    notices = []
    for document in documents:
        named = document.get("jobs")
        names = [named] if isinstance(named, str) else named
        if not isinstance(names, list | tuple):
            names = []  # the constraint itself refuses what is no list
        gone = [name for name in names if name not in there]
        workload = document.get("workload")
        lacks = workload is not None and workload not in instance.workloads.names
        if not gone and not lacks:
            kept.append(document)
            continue
        what = f"workload {workload}" if lacks else f"jobs {', '.join(map(str, gone[:MOST_NAMED]))}"
        what += " and more" if len(gone) > MOST_NAMED and not lacks else ""
        left = [name for name in names if name in there]
        kind = str(document.get("kind"))
        if lacks or len(left) < FEWEST.get(kind, 1):
            notices.append(f"the side constraint {kind} has no effect: {what} left")
            continue
        kept.append({**document, "jobs": left})
        notices.append(f"the side constraint {kind} goes on without {what}, which left")
    return tuple(kept), tuple(notices)


# --- rows that go on -------------------------------------------------------------------------


@dataclass(frozen=True)
class InPlace:
    """Compares rows with what runs now.

    Attributes
    ----------
    view : View
    classes : Classes
    ledger : Ledger
        Of the state: which rows ran in the last round.
    """

    view: View
    classes: Classes
    ledger: Ledger

    def same_gpus(self, jobs: IntArray, column: IntArray) -> BoolArray:
        """Jobs that hold as many GPUs, of the same pool, as these columns have."""
        running = self.view.running
        C = self.classes
        found: BoolArray = running.pool[jobs] == C.pool[column]
        found &= running.gpus[jobs] == C.gpus[column]
        return found

    def same_nodes(self, jobs: IntArray, column: IntArray) -> BoolArray:
        """Jobs that hold such GPUs on no more nodes than these columns allow, and in one group."""
        C = self.classes
        configuration = C.configuration[column]
        span = np.maximum(C.configurations.nodes[configuration], 1)
        level = C.configurations.levels[configuration]
        return self.same_gpus(jobs, column) & self.view.running.within(jobs, span, level)

    def same_setup(self, jobs: IntArray, column: IntArray) -> BoolArray:
        """Jobs (or -1) that run with the share, option, workers and servers of these columns."""
        # So it is in most instances: no labels need to be compared.
        if self._gpus_alone:
            return np.ones(len(jobs), bool)
        return self.view.configured.like(jobs, self.classes.labels_of(column))

    @cached_property
    def _gpus_alone(self) -> bool:
        """Whether no column, and no running job, has a setup besides its GPUs."""
        columns = self.classes.candidates.columns
        more = (columns.option >= 0).any() or columns.workers.any() or columns.servers.any()
        return not (more or (columns.share != 1.0).any() or self.view.configured.setups)

    def jobs_continue(self, jobs: IntArray, column: IntArray) -> BoolArray:
        """Jobs that run as these columns say, on nodes where they may stay."""
        stays = self.same_nodes(jobs, column) & ~self.view.evicted[jobs]
        return stays & self.same_setup(jobs, column)

    def rows_continue(self, rows: JobRows) -> BoolArray:
        """Rows of which all jobs can go on as they are."""
        if not len(rows):
            return np.zeros(0, bool)
        column = rows.column
        found = self.classes.gpus[column] > 0
        found &= self.jobs_continue(rows.job, column)
        found &= self.jobs_continue(rows.partner, column) | (rows.partner < 0)
        running = self.view.instance.jobs_table.running
        # Two jobs may hold as many GPUs of one pool, and yet not the same ones.
        for row in np.flatnonzero(found & (rows.partner >= 0)).tolist():
            gpus = running[int(rows.job[row])][1]
            found[row] = set(gpus) == set(running[int(rows.partner[row])][1])
        return found | self._continue_without_gpus(rows)

    def _continue_without_gpus(self, rows: JobRows) -> BoolArray:
        """Rows without GPUs of jobs that ran: only the ledger knows of these."""
        found = np.zeros(len(rows), bool)
        bare = np.flatnonzero(self.classes.gpus[rows.column] == 0)
        if len(bare) and self.ledger.runs.any():
            job = rows.job[bare]
            ran = self.ledger.jobs_of(self.ledger.runs)[job]
            found[bare] = ran & self.same_setup(job, rows.column[bare])
        return found
