"""Which rows of an allocation run now, so that their jobs can go on as they are."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from optsched.arrays import BoolArray, IntArray
from optsched.candidates import Classes, JobRows
from optsched.rounds.ledger import Ledger
from optsched.rounds.view import View


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
        """Jobs that hold such GPUs on no more nodes than these columns allow."""
        C = self.classes
        span = np.maximum(C.configurations.nodes[C.configuration[column]], 1)
        return self.same_gpus(jobs, column) & (self.view.running.nodes[jobs] <= span)

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
