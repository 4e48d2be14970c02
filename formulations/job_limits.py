"""Limits of jobs: how much of each resource one job may hold,
for formulations that reserve or fill them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray, mask_of
from optsched.candidates import Candidates
from optsched.errors import InvalidArgument, InvalidInput, OptschedError
from optsched.instance.documents import Document, Name, NonNegative
from optsched.instance.reading import join, key, listed, show, validate

SLACK = 1e-9
"""Relative slack of a use at its limit."""


class LimitDocument(Document):
    """``parameters.limit`` of a workload whose jobs have options:
    amount by resource, of the whole job.
    """

    limit: dict[Name, NonNegative]


@dataclass(frozen=True)
class JobLimits:
    """Limits of the kinds of some candidates.

    Attributes
    ----------
    names : tuple of str
        Everything with a capacity, as `optsched.instance.Cluster.capacities` names it.
    capacity : FloatArray, shape (R,)
    limit : FloatArray, shape (kinds, R)
        Of a law, or of ``parameters.limit`` for kinds with options; NaN where that doesn't name a
        resource.
    known : BoolArray, shape (kinds,)
        Kinds with a limit.
    wrong : mapping of workload row -> InvalidInput
        Limits that cannot be read.
    """

    names: tuple[str, ...]
    capacity: FloatArray
    limit: FloatArray
    known: BoolArray
    wrong: Mapping[int, InvalidInput]

    @classmethod
    def of(cls, candidates: Candidates) -> JobLimits:
        """The limits; `check` reports what is wrong with them,
        of the kinds that are in the program.
        """
        instance, kinds = candidates.instance, candidates.kinds
        capacities = instance.cluster.capacities(instance.now)
        row_of = {name: row for row, name in enumerate(capacities)}
        limit = np.full((len(kinds), len(row_of)), np.nan)
        by_law = np.flatnonzero(kinds.law >= 0)
        rows = np.array([row_of[name] for name in kinds.laws.names], np.int64)
        limit[by_law[:, np.newaxis], rows] = kinds.laws.limit[kinds.law[by_law]]
        known, wrong = kinds.law >= 0, {}
        optional = np.flatnonzero(kinds.options >= 0)
        for workload in np.unique(kinds.workload[optional]).tolist():
            if workload < 0 or "limit" not in instance.workloads[workload].parameters:
                continue
            of_workload = optional[kinds.workload[optional] == workload]
            try:
                amounts = _read(
                    instance.workloads[workload].parameters["limit"],
                    _path(candidates, workload),
                    row_of,
                )
            except InvalidInput as error:
                # Not refused here: its jobs may not be in the program (`check`).
                wrong[workload] = error
                continue
            known[of_workload] = True
            rows = np.array([row_of[name] for name in amounts], np.int64)
            limit[of_workload[:, np.newaxis], rows] = np.array(list(amounts.values()))
        return cls(tuple(capacities), np.array(list(capacities.values())), limit, known, wrong)

    def exceeded(self, candidates: Candidates) -> BoolArray:
        """Mask of the kind columns with a use above the limit of their kind."""
        column, row, use = self._uses(candidates)
        return mask_of(
            column[use > self.limit[candidates.columns.kind[column], row] * (1 + SLACK)],
            len(candidates.columns),
        )

    def refused(self, candidates: Candidates) -> BoolArray:
        """Mask of the kind columns that `check` speaks of:
        all those of a kind that has no limit or too short a one.
        """
        columns = candidates.columns
        column, row, _ = self._uses(candidates)
        bad = ~self.known
        bad[columns.kind[column[np.isnan(self.limit[columns.kind[column], row])]]] = True
        return bad[columns.kind] | ((columns.partner >= 0) & bad[columns.partner])

    def check(self, candidates: Candidates, name: str) -> None:
        """Every kind with a column has a limit, which names everything that its columns use.

        Raises
        ------
        UsageError
            If a job has neither a law nor options, or options without a limit.
        InvalidInput
            If a limit cannot be read, or leaves out what an option uses.
        """
        columns = candidates.columns
        # Kinds of which no job is to be dealt with have their columns, but need no limit.
        needed = mask_of(candidates.kinds.of_job[candidates.present], len(candidates.kinds))
        together = np.concatenate([columns.kind, columns.partner[columns.partner >= 0]])
        unknown = together[(needed & ~self.known)[together]]
        if len(unknown):
            raise self._without_limit(candidates, int(unknown.min()), name).of_jobs(
                _jobs(candidates, unknown)
            )
        column, row, _ = self._uses(candidates)
        asked = columns.kind[column]
        unnamed = np.flatnonzero(needed[asked] & np.isnan(self.limit[asked, row]))
        if len(unnamed):
            kind, resource = int(columns.kind[column[unnamed[0]]]), self.names[int(row[unnamed[0]])]
            job = candidates.instance.jobs_table.names[int(candidates.kinds.first[kind])]
            path = _path(candidates, int(candidates.kinds.workload[kind]))
            raise InvalidInput(
                f"{path}.{key(resource)}",
                "nothing",
                f"a limit, as an option of job {show(job)} uses {resource}",
            ).of_jobs(_jobs(candidates, columns.kind[column[unnamed]]))

    def _uses(self, candidates: Candidates) -> tuple[IntArray, IntArray, FloatArray]:
        """(kind column, row of ``names``, amount) of every use by a job alone."""
        row_of = {name: row for row, name in enumerate(self.names)}
        rows = np.array([row_of[name] for name in candidates.resources.names], np.int64)
        use = candidates.usage.tocoo()
        alone = candidates.columns.partner[use.col] < 0
        return use.col[alone].astype(np.int64), rows[use.row[alone]], use.data[alone]

    def _without_limit(self, candidates: Candidates, kind: int, name: str) -> OptschedError:
        kinds, instance = candidates.kinds, candidates.instance
        job, workload = instance.jobs_table.names[int(kinds.first[kind])], int(kinds.workload[kind])
        if workload in self.wrong and kinds.options[kind] >= 0:
            return self.wrong[workload]
        if kinds.options[kind] < 0:
            needed = "options, or a workload with parameters.parameter_server"
            return InvalidArgument(
                f"job {show(job)}",
                "plain rates",
                needed,
                sentence=f"{name}: job {show(job)} has plain rates, expected {needed}",
            )
        place = (
            f"{_path(candidates, workload)}"
            if workload >= 0
            else "a workload with parameters.limit"
        )
        return InvalidArgument(
            f"job {show(job)}",
            "options and no limit",
            place,
            sentence=f"{name}: job {show(job)} has options and no limit, expected {place}",
        )


def _read(given: object, path: str, row_of: Mapping[str, int]) -> dict[str, float]:
    amounts = validate(LimitDocument, {"limit": given}, path.removesuffix(".limit")).limit
    for name in amounts:
        if name not in row_of:
            raise InvalidInput(
                f"{path}.{key(name)}", "an unknown resource", f"one of {listed(row_of)}"
            )
    return amounts


def _jobs(candidates: Candidates, kinds: IntArray) -> list[int]:
    """Jobs of some kinds that are to be dealt with."""
    there = candidates.present
    return np.flatnonzero(there & np.isin(candidates.kinds.of_job, kinds)).tolist()


def _path(candidates: Candidates, workload: int) -> str:
    return f"{join('workloads', [candidates.instance.workloads[workload].name])}.parameters.limit"
