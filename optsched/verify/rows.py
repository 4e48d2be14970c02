"""The allocation of a solution file: each row is matched to a column of the classes, and summed to
x.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from typing import Any

import numpy as np

from optsched.arrays import AnyArray, BoolArray, FloatArray, IntArray, find_rows, group_rows
from optsched.candidates import Classes, JobRows
from optsched.instance.reading import join, listed, show
from optsched.solution import Allocation
from optsched.solution.certificate import FEASIBILITY
from optsched.solution.document import AllocationRow, RowColumns
from optsched.verify.findings import RELATIVE, Findings

ROWS_SHOWN = 50
"""Rows of one job that are named where their sum is wrong."""

ALONE = -1


@dataclass(frozen=True)
class AllocationRows:
    """The rows in the order of the file; of a pair ``job`` is the one whose class comes first.

    Attributes
    ----------
    classes : Classes
    job, partner : IntArray, shape (A,)
        Rows of the job table; partner -1 for a job alone.
    column : IntArray, shape (A,)
        Column of the classes.
    fraction : FloatArray, shape (A,)
    """

    classes: Classes
    job: IntArray
    partner: IntArray
    column: IntArray
    fraction: FloatArray

    @cached_property
    def x(self) -> FloatArray:
        """Totals of the class columns."""
        x = np.zeros(self.classes.columns)
        # Several rows may be about the same column: a plain x[column] += would count one of them.
        np.add.at(x, self.column, self.fraction)
        return x

    @cached_property
    def throughput(self) -> FloatArray:
        """steps/s of each job, summed in the order in which `Allocation.throughput` sums."""
        return self._per_job(self.classes.rate_a[self.column], self.classes.rate_b[self.column])

    @cached_property
    def time(self) -> FloatArray:
        """Fraction of the time in which each job runs."""
        ones = np.ones(len(self.job))
        return self._per_job(ones, ones)

    def _per_job(self, of_job: FloatArray, of_partner: FloatArray) -> FloatArray:
        total = np.zeros(len(self.classes.of_job))
        np.add.at(total, self.job, of_job * self.fraction)
        shared = self.partner >= 0
        np.add.at(total, self.partner[shared], (of_partner * self.fraction)[shared])
        return total

    def of_job(self, job: int) -> list[int]:
        """Rows in which a job takes part."""
        return np.flatnonzero((self.job == job) | (self.partner == job)).tolist()

    def blame(self, job: int, message: str, findings: Findings) -> None:
        """Add a finding at every row of a job, or at the allocation if it has none."""
        rows = self.of_job(job)
        for row in rows[:ROWS_SHOWN]:
            findings.add(f"allocation[{row}].fraction", message)
        if not rows:
            findings.add("allocation", message)


class Resolver:
    """Finds the columns of rows of the file."""

    def __init__(self, classes: Classes) -> None:
        self.classes = classes
        # Index -1 (no job) picks the last entry.
        self._class_of = np.append(classes.of_job, ALONE)
        table = classes.configurations
        pools = classes.instance.cluster.pools
        texts = [_text(attributes) for attributes in table.attribute_sets]
        # Ways without a pool have the row -1, which picks the last name.
        names = [*(pool.name for pool in pools), None]
        self._configuration = {
            (names[pool], gpus, nodes, share, texts[attributes]): row
            for row, (pool, gpus, nodes, share, attributes) in enumerate(
                zip(*(getattr(table, name).tolist() for name in FIELDS), strict=True)
            )
        }
        self._option = classes.candidates.columns.option[classes.kind_column]
        self._columns = np.column_stack(
            [classes.class_a, classes.class_b, classes.configuration, self._option]
        )

    def resolve(
        self, rows: RowColumns[AllocationRow], path: str, findings: Findings
    ) -> tuple[IntArray, IntArray, IntArray]:
        """(job, partner, column) of the rows; column -1 with a finding where there is none."""
        job, partner = self._rows_of_jobs(rows, path, findings)
        class_a, class_b = self._class_of[job], self._class_of[partner]
        attributes = [_text(given) if given else "{}" for given in rows.column("attributes")]
        fields = map(rows.column, ("pool", "gpus", "nodes", "share"))
        ways = zip(*fields, attributes, strict=True)
        known = map(self._configuration.get, ways, repeat(-1))
        configuration = np.fromiter(known, np.int64, len(rows))
        option = np.full(len(rows), -1)
        for number, given in enumerate(rows.column("option")):
            if given is not None and job[number] >= 0:
                option[number] = self._option_row(job[number], given)
        column = find_rows(
            self._columns, np.column_stack([class_a, class_b, configuration, option])
        )
        for number in np.flatnonzero((column < 0) & (job >= 0)).tolist():
            classes = int(class_a[number]), int(class_b[number])
            self._explain(rows[number], *classes, f"{path}[{number}]", findings)
        return job, partner, column

    def _rows_of_jobs(
        self, rows: RowColumns[AllocationRow], path: str, findings: Findings
    ) -> tuple[IntArray, IntArray]:
        """Job and partner of each row, the one of the smaller class first; -1 for none,
        with a finding if the jobs are wrong.
        """
        names = self.classes.instance.jobs_table.names
        job = names.rows(rows.column("job"))
        partner = np.full(len(rows), -1)
        shared = np.array([jobs is not None for jobs in rows.column("jobs")], bool)
        # A job alone that is in the program needs no further check.
        for number in np.flatnonzero(shared | (self._class_of[job] < 0)).tolist():
            both = self._jobs(rows[number], f"{path}[{number}]", findings)
            job[number], partner[number] = (-1, -1) if both is None else both
        return job, partner

    def _jobs(self, row: AllocationRow, path: str, findings: Findings) -> tuple[int, int] | None:
        """Rows of the job table; None with a finding where they are wrong."""
        if (row.job is None) == (row.jobs is None):
            findings.add(path, "expected either job or jobs")
            return None
        if row.job is not None:
            job = self._job(row.job, path, "job", findings)
            return None if job is None else (job, -1)
        assert row.jobs is not None
        first, second = (
            self._job(name, path, f"jobs[{i}]", findings) for i, name in enumerate(row.jobs)
        )
        if first is None or second is None:
            return None
        if first == second:
            findings.add(f"{path}.jobs", f"found {show(row.jobs[0])} twice, expected two jobs")
            return None
        # Columns of pairs have the class with the smaller number first.
        swap = self._class_of[first] > self._class_of[second]
        return (second, first) if swap else (first, second)

    def _job(self, name: str, path: str, field: str, findings: Findings) -> int | None:
        try:
            job = self.classes.instance.jobs_table.names.index(name)
        except KeyError:
            findings.add(f"{path}.{field}", f"found {show(name)}, expected a job of the instance")
            return None
        if self._class_of[job] < 0:
            findings.add(
                f"{path}.{field}",
                f"found {show(name)}, expected a job that is in the program; see unplaced",
            )
            return None
        return job

    def _option_row(self, job: int, option: int) -> int:
        """Row of the option table; -2 if the job has no such option."""
        options = self.classes.instance.options
        number = self.classes.instance.jobs_table.options[job]
        if number < 0 or not 0 <= option < options.indptr[number + 1] - options.indptr[number]:
            return -2
        return int(options.indptr[number]) + option

    def _explain(
        self,
        row: AllocationRow,
        class_a: int,
        class_b: int,
        path: str,
        findings: Findings,
    ) -> None:
        """Add a finding at the field of the row that matches no column of its jobs."""
        C = self.classes
        left = np.flatnonzero((C.class_a == class_a) & (C.class_b == class_b))
        if len(left) == 0:
            findings.add(
                f"{path}.jobs", f"found {listed(row.jobs or ())}, expected jobs that can share GPUs"
            )
            return
        # Field by field fewer columns match; the first field that leaves none is reported.
        for name, found in (
            ("pool", row.pool),
            ("gpus", row.gpus),
            ("nodes", row.nodes),
            ("share", row.share),
            ("attributes", row.attributes),
            ("option", row.option),
        ):
            there = [self._value(name, column) for column in left.tolist()]
            keep = [value == found for value in there]
            if not any(keep):
                known = list(dict.fromkeys(map(show, there)))
                choices = ", ".join(known[:6]) + (", ..." if len(known) > 6 else "")
                expected = choices if len(known) == 1 else f"one of {choices}"
                findings.add(
                    f"{path}.{name}",
                    f"found {show(found)}, expected {expected}, as the job can run",
                )
                return
            left = left[np.array(keep)]
        findings.add(path, "expected a way in which the job can run")

    def _value(self, name: str, column: int) -> object:
        """The value that a row of the file states for a column."""
        C = self.classes
        table = C.configurations
        configuration = C.configuration[column]
        if name == "option":
            option = int(self._option[column])
            options_of_job = C.instance.jobs_table.options[C.first[C.class_a[column]]]
            return None if option < 0 else option - int(C.instance.options.indptr[options_of_job])
        value = getattr(table, name)[configuration].item()
        if name == "pool":
            return None if value < 0 else C.instance.cluster.pools[value].name
        return dict(table.attribute_sets[value]) if name == "attributes" else value


FIELDS = ("pool", "gpus", "nodes", "share", "attributes")


def _text(attributes: Mapping[str, Any]) -> str:
    """Free attributes as a text that can be a key."""
    return json.dumps(attributes, sort_keys=True) if attributes else "{}"


def resolve_rows(
    classes: Classes, rows: RowColumns[AllocationRow], findings: Findings
) -> AllocationRows | None:
    """All rows of the file; None with findings if a row matches no column or has an impossible
    fraction.
    """
    before = len(findings)
    job, partner, column = Resolver(classes).resolve(rows, "allocation", findings)
    fraction = np.array(rows.column("fraction"), np.float64)
    for row in np.flatnonzero((fraction < 0) | (fraction > 1 + RELATIVE)).tolist():
        findings.add(
            f"allocation[{row}].fraction",
            f"found {rows[row].fraction!r}, expected a fraction of the time, from 0 to 1",
        )
    if len(findings) > before:
        return None
    return AllocationRows(classes, job, partner, column, fraction)


def check_time(rows: AllocationRows, findings: Findings) -> bool:
    """Check that no job runs longer than all the time, which totals of its class would not show."""
    names = rows.classes.instance.jobs_table.names
    over = np.flatnonzero(rows.time > 1 + FEASIBILITY).tolist()
    for job in over:
        rows.blame(
            job,
            f"job {names[job]} runs for {rows.time[job]:.9g} of the time, expected at most 1",
            findings,
        )
    return not over


def check_throughput(
    rows: AllocationRows, throughput: dict[str, float], findings: Findings
) -> None:
    """Check the throughput of each job against its rows; findings name both."""
    classes = rows.classes
    jobs = np.flatnonzero(classes.of_job >= 0)
    written = classes.instance.jobs_table.names.written()
    names = list(map(written.__getitem__, jobs.tolist()))
    if not throughput.keys() <= (known := set(names)):
        for name in [name for name in throughput if name not in known]:
            why = "expected no entry: the job is not in the program"
            findings.add(join("throughput", [name]), why)
    found = np.fromiter(map(throughput.get, names, repeat(np.nan)), np.float64, len(names))
    due = rows.throughput[jobs]
    for place in np.flatnonzero(_apart(found, due, 1e-12)).tolist():
        job, name, total = int(jobs[place]), names[place], float(due[place])
        path = join("throughput", [name])
        if name not in throughput:
            findings.add(path, f"found nothing, expected {total!r}: the job is in the program")
        else:
            findings.differ(path, throughput[name], total, "what its rows give")
            rows.blame(
                job,
                f"the rows of job {name} give {total:.12g} steps/s, {path} says otherwise",
                findings,
            )


def check_shares(rows: AllocationRows, integral: bool, findings: Findings) -> Allocation | None:
    """Check that jobs of a class share its totals as `expand` does.

    Returns the allocation of the class totals; None if no allocation has such totals.
    """
    if not check_time(rows, findings):
        return None
    if integral:
        broken = np.flatnonzero((rows.fraction != 0) & (rows.fraction != 1)).tolist()
        for row in broken:
            findings.add(
                f"allocation[{row}].fraction",
                f"found {rows.fraction[row]!r}, expected 0 or 1: jobs are whole",
            )
        if broken:
            return None
    allocation = Allocation(rows.classes, rows.x, integral)
    compare_rows(
        rows,
        allocation.rows,
        "jobs that are alike share equally",
        0.0,
        findings,
    )
    return allocation


def compare_rows(
    rows: AllocationRows,
    expected: JobRows,
    why: str,
    absolute: float,
    findings: Findings,
) -> None:
    """Compare the fractions of the file with those of an allocation, row by row."""
    C, count = rows.classes, len(rows.job)
    both = zip(_keys(C, rows), _keys(C, expected), strict=True)
    alike = group_rows([np.concatenate(pair) for pair in both], count + len(expected.job))
    # A row may be split in the file; its parts count together, and the finding is at the last one.
    of_row, of_expected = alike.inverse[:count], alike.inverse[count:]
    found = np.bincount(of_row, rows.fraction, len(alike))
    due = np.bincount(of_expected, expected.fraction, len(alike))
    last = np.full(len(alike), -1)
    last[of_row] = np.arange(count)
    differs = _apart(found, due, RELATIVE, absolute)
    for group in np.flatnonzero(differs & (last >= 0)).tolist():
        path = f"allocation[{last[group]}].fraction"
        findings.differ(path, float(found[group]), float(due[group]), why)
    # Rows with a negligible fraction need not be written.
    names = C.instance.jobs_table.names
    for group in np.flatnonzero((last < 0) & (due > absolute)).tolist():
        job = names[int(expected.job[alike.first[group] - count])]
        findings.add(
            "allocation", f"job {job} lacks a row with the fraction {due[group]:.9g}: {why}"
        )


def _apart(found: AnyArray, due: AnyArray, relative: float, absolute: float = 0.0) -> BoolArray:
    """Which numbers differ by more than rounding; NaN, for what is missing, does."""
    allowed = np.maximum(relative * np.maximum(np.abs(found), np.abs(due)), absolute)
    return np.asarray(~(np.abs(found - due) <= allowed))


def _keys(C: Classes, rows: AllocationRows | JobRows) -> tuple[IntArray, IntArray, IntArray]:
    """Job, partner and column of each row, two jobs of one class in order."""
    inside = C.class_a[rows.column] == C.class_b[rows.column]
    swap = inside & (rows.partner < rows.job)
    first = np.where(swap, rows.partner, rows.job)
    return first, np.where(swap, rows.job, rows.partner), rows.column
