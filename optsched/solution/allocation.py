"""`Allocation`: fractions of time by class column, and by job when somebody looks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray, blocks, quotient, without_repeats
from optsched.arrays.values import cached_property
from optsched.candidates import Classes, JobRows, expand, expand_first
from optsched.display import DisplayedTable, TableColumns, columns_of, count, first_of, number
from optsched.display.picture import Picture
from optsched.lazy import convenience

if TYPE_CHECKING:  # few programs know nodes
    from optsched.program import GangSeats

EVERYTHING = slice(None)
NEGLIGIBLE = 1e-10
"""Fractions below this are taken as zero: they are a solver's noise, and shorter than any round."""

MOST_PAIR_ROWS = 1_000_000
"""Rows of pairs above which a table does not make them all."""


class ColumnRecords:
    """Columns of classes in the words of the solution format."""

    def __init__(self, classes: Classes) -> None:
        self._instance, table = classes.instance, classes.configurations
        self._row = classes.configuration
        self._option = classes.candidates.columns.option
        self._has_options = bool((without_repeats(self._option) >= 0).any())
        self._kind_column = classes.kind_column
        # Ways without a pool have the row -1, which picks the last name.
        pools = [*(pool.name for pool in self._instance.cluster.pools), None]
        ways = zip(table.pool.tolist(), table.gpus.tolist(), table.nodes.tolist(), strict=True)
        self._ways: list[dict[str, Any]] = [
            {"pool": pools[pool], "gpus": gpus, "nodes": nodes} for pool, gpus, nodes in ways
        ]
        self._details: list[dict[str, Any]] = [{} for _ in self._ways]
        for details, share in zip(self._details, table.share.tolist(), strict=True):
            if share != 1.0:
                details["share"] = share
        for row in np.flatnonzero(table.attributes).tolist():
            self._details[row]["attributes"] = dict(table.attribute_sets[table.attributes[row]])

    def configuration(self, column: int) -> dict[str, Any]:
        """Pool, GPUs and nodes of a column."""
        return self._ways[int(self._row[column])].copy()

    def option(self, column: int, job: int) -> dict[str, Any]:
        """``option``: its number in the job's own list; empty for a column that is no option."""
        option = int(self._option[self._kind_column[column]]) if self._has_options else -1
        if option < 0:
            return {}
        own_list = self._instance.jobs_table.options[job]
        return {"option": option - int(self._instance.options.indptr[own_list])}

    def stated(self, column: int, job: int) -> dict[str, Any]:
        """What an option without a pool uses, a text for each resource, and its value and cost;
        empty for other columns.
        """
        record = self.configuration(column) | self.option(column, job)
        if record["pool"] is not None or "option" not in record:
            return {}
        options = self._instance.options
        row = int(self._option[self._kind_column[column]])
        uses = [f"{resource} {number(used)}" for resource, used in options.uses[row].items()]
        return {
            "uses": uses,
            "value": float(options.value[row]),
            "cost": float(options.cost[row]),
        }

    def table(
        self, records: Iterable[Mapping[str, Any]], column: IntArray, job: IntArray
    ) -> TableColumns:
        """Records of some columns and jobs as a table, with one text for all that a column uses."""
        rows = []
        for record, c, j in zip(records, column.tolist(), job.tolist(), strict=True):
            stated = self.stated(c, j)
            rows.append({**record, **(stated and stated | {"uses": ", ".join(stated["uses"])})})
        return columns_of(rows)

    def details(self, column: int) -> dict[str, Any]:
        """``share`` and ``attributes``, where a column has them."""
        return self._details[int(self._row[column])].copy()


@dataclass(frozen=True, repr=False, eq=False)
class Allocation(DisplayedTable):
    """The allocation matrix of a solution.

    Attributes
    ----------
    classes : Classes
    x : FloatArray, shape (N,)
        Job-fractions of each class column.
    integral : bool
        Whole jobs.
    seats : GangSeats or None
        Which nodes hold which parts of the jobs, where the program that was solved knows it.
    """

    classes: Classes
    x: FloatArray
    integral: bool = False
    seats: GangSeats | None = None

    @classmethod
    def cleaned(cls, classes: Classes, x: FloatArray, integral: bool) -> Allocation:
        """The allocation of a solver's point, without noise.

        Parameters
        ----------
        classes : Classes
        x : FloatArray, shape (N,)
            Job-fractions of each class column; clipped to [0, limit].
        integral : bool
            Whether to round to whole jobs; else negligible fractions are dropped.

        Returns
        -------
        Allocation
        """
        if integral:
            return cls(classes, np.rint(np.clip(x, 0.0, classes.limit)), True)
        kept, limit = np.empty(len(x)), classes.limit
        members = limit if classes.all_alone else classes.count[classes.class_a]
        for part in blocks(len(x)):
            # In blocks and into one array: with millions of columns each copy would count.
            some = np.maximum(np.minimum(x[part], limit[part]), 0.0)
            np.multiply(some, some >= NEGLIGIBLE * without_repeats(members[part]), out=kept[part])
        return cls(classes, kept)

    @cached_property
    def rows(self) -> JobRows:
        """The allocation job by job (made when first asked for)."""
        return expand(self.classes, self.x, self.integral)

    def first_rows(self, jobs: int) -> tuple[JobRows, bool]:
        """All rows where they are few, else those of the first jobs that may have any.

        Parameters
        ----------
        jobs : int
            How many of the first jobs.

        Returns
        -------
        (JobRows, bool)
            The rows, and whether they are all.
        """
        C = self.classes
        pairs = np.flatnonzero((self.x > 0) & ~C.alone)
        many = int((C.count[C.class_a[pairs]] + C.count[C.class_b[pairs]]).sum()) > MOST_PAIR_ROWS
        few = self.integral or not many
        return (self.rows, True) if few else (expand_first(C, self.x, jobs), False)

    @cached_property
    def served(self) -> BoolArray:
        """Whether each job gets anything, shape (jobs,)."""
        C, found = self.classes, np.zeros(len(self.classes.instance.jobs_table), bool)
        if self.integral:
            found[self.rows.job] = True
            found[self.rows.partner[self.rows.partner >= 0]] = True
            return found
        used = self.x > 0
        of_class = np.zeros(len(C) + 1, bool)  # the last one for jobs that are in no class
        of_class[C.class_a[used]] = True
        of_class[C.class_b[used]] = True
        # Columns of jobs alone have class_b -1, and have marked it.
        of_class[-1] = False
        return of_class[C.of_job]

    @cached_property
    def throughput(self) -> FloatArray:
        """steps/s of each job, shape (jobs,); 0 for jobs that are not in the program.

        Jobs of a class share equally unless they are whole, so that the totals of the classes are
        enough: pairs of classes may make millions of rows, which are not made for this.
        """
        total = np.zeros(len(self.classes.instance.jobs_table))
        if not self.integral:
            C = self.classes
            inside = np.flatnonzero(C.of_job >= 0)
            k = C.of_job[inside]
            total[inside] = (C.throughput @ self.x)[k] / C.count[k]
            return total
        rows = self.rows
        np.add.at(total, rows.job, rows.rate * rows.fraction)
        shared = rows.partner >= 0
        np.add.at(total, rows.partner[shared], (rows.partner_rate * rows.fraction)[shared])
        return total

    @cached_property
    def usage(self) -> FloatArray:
        """Use of each resource, shape (R,)."""
        return self.classes.usage @ self.x

    @property
    def utilisation(self) -> dict[str, float]:
        """Share of each resource's capacity in use; 0 of what has no capacity."""
        resources, usage = self.classes.resources, self.usage
        share = quotient(usage, resources.capacity)
        return {name: float(value) for name, value in zip(resources.names, share, strict=True)}

    def to_records(self, some: slice | IntArray = EVERYTHING) -> list[dict[str, Any]]:
        """One record per row, as in the solution format.

        A record has job (or jobs), pool, gpus, nodes, fraction, attributes.

        Parameters
        ----------
        some : slice or IntArray
            Which rows (default: all).

        Returns
        -------
        list of dict
        """
        rows, names = self.rows, self.classes.instance.jobs_table.names
        columns = ColumnRecords(self.classes)
        records = []
        for job, partner, column, fraction in zip(
            rows.job[some].tolist(),
            rows.partner[some].tolist(),
            rows.column[some].tolist(),
            rows.fraction[some].tolist(),
            strict=True,
        ):
            record = {"job": names[job]} if partner < 0 else {"jobs": [names[job], names[partner]]}
            record |= columns.configuration(column)
            record["fraction"] = fraction
            records.append(record | columns.option(column, job) | columns.details(column))
        return records

    def rows_of(self, job: int) -> IntArray:
        """Rows in which a job runs, alone or with a partner.

        Parameters
        ----------
        job : int
            Row of the job table.

        Returns
        -------
        IntArray
            Numbers of rows.
        """
        return np.flatnonzero((self.rows.job == job) | (self.rows.partner == job))

    def plot(self) -> Picture:
        """A picture of jobs x pools, coloured by the fraction of time."""
        return Picture(convenience("Allocation.plot")(self))

    def _headline(self) -> str:
        kind = "whole jobs" if self.integral else "fractions of time"
        used = count(int(np.count_nonzero(self.x)), "column")
        return f"of {self.classes.instance.name}: {kind} in {used} of {self.classes.columns:,}"

    def _facts(self) -> Mapping[str, str]:
        used = [f"{100 * share:.3g} % of {name}" for name, share in self.utilisation.items()]
        idle = int(np.count_nonzero(~self.served))
        return {"used": first_of(used), "without GPUs": count(idle, "job") if idle else ""}

    def to_columns(self, first: int | None = None) -> TableColumns:
        """The rows: job (or jobs), pool, GPUs, nodes and the fraction of the time; of options
        without a pool what they use, their value and cost.
        """
        rows, records = self.rows, self.to_records(slice(first))
        return ColumnRecords(self.classes).table(records, rows.column[:first], rows.job[:first])
