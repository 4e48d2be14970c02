"""True rates of every stage of every job, whatever the scheduler believes."""

from __future__ import annotations

import numpy as np

from optsched.arrays import FloatArray, IntArray, find_sorted, gathered
from optsched.arrays.values import cached_property, replace
from optsched.assembly import compile, model_of
from optsched.candidates import Candidates
from optsched.errors import UsageError
from optsched.instance import Instance
from optsched.instance.tables import ARRAY_FIELDS, JobNames
from optsched.traces import Regimes, Trace


class Truth:
    """True rates of the jobs of a trace by stage. A job begins in stage 0; each of its regimes is
    one more stage.

    Attributes
    ----------
    candidates : Candidates
        Of an instance whose first rows are the jobs, followed by one row for each regime.
    """

    def __init__(self, trace: Trace) -> None:
        instance = trace.instance
        self.jobs = len(trace.instance.jobs_table)
        self.regimes = trace.regimes
        self.done: FloatArray = instance.jobs_table.steps_done.copy()
        """Steps done before the simulation begins."""
        # One compile serves all stages: each regime is added as a separate job after the real ones.
        staged = _with_regimes(instance, trace.regimes)
        self.candidates: Candidates = compile(
            staged, model_of(staged), future=True, later_nodes=True
        )
        bare = self.candidates.columns.kind[self.candidates.columns.pool < 0]
        if len(bare):
            row = int(np.flatnonzero(np.isin(self.candidates.kinds.of_job, bare))[0])
            name = instance.jobs_table.names[
                row if row < self.jobs else int(self.regimes.job[row - self.jobs])
            ]
            raise UsageError(f"job {name} may run without any pool, which is not simulated")

    def row(self, job: IntArray, stage: IntArray) -> IntArray:
        """Row of jobs in their stages (0, 1, ...)."""
        return np.where(stage > 0, self._before_regimes[job] + stage, job)

    @cached_property
    def _before_regimes(self) -> IntArray:
        """The row before that of the first regime of each job, shape (jobs,)."""
        first = np.searchsorted(self.regimes.job, np.arange(self.jobs)).astype(np.int64)
        return self.jobs + first - 1

    @cached_property
    def stages(self) -> IntArray:
        """Number of regimes of each job."""
        return np.bincount(self.regimes.job, minlength=self.jobs).astype(np.int64)

    def next_change(self, job: IntArray, stage: IntArray) -> FloatArray:
        """Steps done at which the next stage of jobs begins; inf in the last stage."""
        return self._until[self.row(job, stage)]

    @cached_property
    def _until(self) -> FloatArray:
        """Steps done at which the stage of each row ends, shape (rows,)."""
        until = np.full(self.jobs + len(self.regimes), np.inf)
        jobs = np.arange(self.jobs)
        some = self.stages > 0
        until[jobs[some]] = self.regimes.after[self._before_regimes[some] + 1 - self.jobs]
        # A regime ends where the next one of the same job begins. The last one does not end.
        again = np.flatnonzero(self.regimes.job[1:] == self.regimes.job[:-1])
        until[self.jobs + again] = self.regimes.after[again + 1]
        return until

    # --- rates --------------------------------------------------------------------------------

    @cached_property
    def _keys(self) -> tuple[IntArray, FloatArray, FloatArray]:
        """Sorted keys of columns, each (kind, partner, pool, GPUs, nodes) as one number, with the
        rates of kind and partner.
        """
        columns = self.candidates.columns
        # Columns of options and of workers are left out: pool and GPUs do not identify them.
        generated = np.flatnonzero((columns.option < 0) & (columns.workers == 0))
        key = self._key(
            *(
                getattr(columns, name)[generated]
                for name in ("kind", "partner", "pool", "gpus", "nodes")
            )
        )
        order = np.argsort(key, kind="stable")
        return key[order], columns.rate[generated[order]], columns.partner_rate[generated[order]]

    @cached_property
    def _radix(self) -> tuple[int, int, int]:
        """The radices of a key: numbers of kinds, pools and GPU counts."""
        widest = int(self.candidates.columns.gpus.max(initial=0)) + 2
        pools = len(self.candidates.instance.cluster.pools)
        return len(self.candidates.kinds) + 1, pools + 1, widest

    def _key(
        self, kind: IntArray, partner: IntArray, pool: IntArray, gpus: IntArray, nodes: IntArray
    ) -> IntArray:
        kinds, pools, widest = self._radix
        return (
            ((kind * kinds + partner + 1) * pools + pool + 1) * widest + gpus
        ) * widest + np.minimum(nodes, widest - 1)

    def rates(
        self, row: IntArray, partner: IntArray, pool: IntArray, gpus: IntArray, nodes: IntArray
    ) -> FloatArray:
        """steps/s of rows (`row`) beside a partner (-1: alone) on so many GPUs of a pool;
        NaN where none is known.
        """
        of_job = self.candidates.kinds.of_job
        kind = of_job[row]
        other = partner
        swapped = partner >= 0
        if swapped.any():
            other = np.where(swapped, of_job[partner], -1)
            # Columns name the smaller kind first.
            swapped &= other < kind
            kind, other = np.where(swapped, other, kind), np.where(swapped, kind, other)
        key, rate, beside = self._keys
        place = find_sorted(key, self._key(kind, other, pool, gpus, nodes))
        first, second = (gathered(rates, place, np.nan) for rates in (rate, beside))
        return np.where(swapped, second, first)

    @cached_property
    def alone(self) -> FloatArray:
        """steps/s of each row on each pool at its smallest number of GPUs, shape (rows, pools).
        Rows without steps have no columns, so they have 0.
        """
        columns = self.candidates.columns
        kinds = self.candidates.kinds
        pools = len(self.candidates.instance.cluster.pools)
        gang = self.candidates.instance.jobs_table.gpus_min
        (runs,) = (kinds.of_job >= 0).nonzero()
        of_kind = np.full(len(kinds), np.iinfo(np.int64).max)
        np.minimum.at(of_kind, kinds.of_job[runs], gang[runs])
        usual = np.flatnonzero(
            (columns.partner < 0) & (columns.pool >= 0) & (columns.gpus == of_kind[columns.kind])
        )
        table = np.zeros((len(kinds), pools))
        np.maximum.at(table, (columns.kind[usual], columns.pool[usual]), columns.rate[usual])
        alone = np.zeros((len(kinds.of_job), pools))
        alone[runs] = table[kinds.of_job[runs]]
        return alone

    @cached_property
    def fastest(self) -> FloatArray:
        """steps/s of each row in its fastest column, shape (rows,); 0 for rows that can run
        nowhere.
        """
        columns = self.candidates.columns
        kinds = self.candidates.kinds
        best = np.zeros(len(kinds) + 1)  # the last entry is for rows without columns
        np.maximum.at(best, columns.kind, columns.rate)
        np.maximum.at(
            best, columns.partner[columns.partner >= 0], columns.partner_rate[columns.partner >= 0]
        )
        return best[kinds.of_job]

    def seconds(self, rate: FloatArray, job: IntArray | None = None) -> FloatArray:
        """Seconds that jobs take from first to last step if every row runs
        at ``rate`` (steps/s, one per row).
        """
        table = self.candidates.instance.jobs_table
        jobs = np.arange(self.jobs) if job is None else job
        total = np.zeros(len(jobs))
        begun = np.zeros(len(jobs))
        for stage in range(int(self.stages[jobs].max(initial=0)) + 1):
            # Loop over stages, vectorised over jobs; jobs without this stage add 0.
            live = stage <= self.stages[jobs]
            row = self.row(jobs, np.where(live, stage, 0))
            until = np.minimum(self._until[row], table.steps[jobs])
            with np.errstate(divide="ignore", invalid="ignore"):
                part = np.maximum(until - begun, 0.0) / rate[row]
            total += np.where(live, part, 0.0)
            begun = np.where(live, np.maximum(begun, until), begun)
        return total


def _with_regimes(instance: Instance, regimes: Regimes) -> Instance:
    """The jobs, then each regime as a job. No job is running, and none has predecessors."""
    table = instance.jobs_table
    rows = np.concatenate([np.arange(len(table), dtype=np.int64), regimes.job])
    arrays = {name: getattr(table, name)[rows] for name in ARRAY_FIELDS}
    # A regime has the rates of its workload, not the rates of the job.
    arrays["workload"][len(table) :] = regimes.workload
    arrays["rates"][len(table) :] = -1
    arrays["options"][len(table) :] = -1
    arrays["steps_done"] = np.zeros(len(rows))
    staged = replace(table, names=JobNames(len(rows)), running={}, after={}, awaits={}, **arrays)
    colocation = (
        instance.colocation
        if not len(regimes)
        else tuple(c for c in instance.colocation if c.jobs is None)
    )
    return replace(instance, jobs_table=staged, constraints=(), colocation=colocation)
