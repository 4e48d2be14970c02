"""`Allocation`: fractions of time by class column, and by job when somebody looks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from optsched.arrays import FloatArray, blocks, shown
from optsched.candidates import Classes, JobRows, expand

NEGLIGIBLE = 1e-10
"""Fractions below this are taken as zero: they are a solver's noise, and shorter than any round."""


@dataclass(frozen=True)
class Allocation:
    """The allocation matrix of a solution.

    Attributes
    ----------
    classes : Classes
    x : FloatArray, shape (N,)
        Job-fractions of each class column.
    integral : bool
        Whole jobs.
    """

    classes: Classes
    x: FloatArray
    integral: bool = False

    @classmethod
    def cleaned(cls, classes: Classes, x: FloatArray, integral: bool) -> Allocation:
        """Clip to [0, limit] and drop negligible fractions; round if integral."""
        if integral:
            return cls(classes, np.rint(np.clip(x, 0.0, classes.limit)), True)
        heard, limit = np.empty(len(x)), classes.limit
        members = limit if classes.all_alone else classes.count[classes.class_a]
        for part in blocks(len(x)):
            some = np.maximum(np.minimum(x[part], limit[part]), 0.0)
            np.multiply(some, some >= NEGLIGIBLE * shown(members[part]), out=heard[part])
        return cls(classes, heard)

    @cached_property
    def rows(self) -> JobRows:
        """The allocation job by job (made when first asked for)."""
        return expand(self.classes, self.x, self.integral)

    @cached_property
    def throughput(self) -> FloatArray:
        """steps/s of each job, shape (jobs,); 0 for jobs that are not in the program."""
        rows, total = self.rows, np.zeros(len(self.classes.instance.jobs_table))
        np.add.at(total, rows.job, rows.rate * rows.fraction)
        shared = rows.partner >= 0
        np.add.at(total, rows.partner[shared], (rows.partner_rate * rows.fraction)[shared])
        return total

    @cached_property
    def usage(self) -> FloatArray:
        """Use of each resource, shape (R,)."""
        return np.asarray(self.classes.usage @ self.x)

    def to_records(self) -> list[dict[str, Any]]:
        """One record per row, as in the solution format: job (or jobs), pool, gpus, nodes, fraction, attributes."""
        C, rows = self.classes, self.rows
        names, pools = C.instance.jobs_table.names, C.instance.cluster.pools
        table, configuration = C.configurations, C.configuration
        options = C.candidates.columns.option[C.kind_column]
        records = []
        for job, partner, column, fraction in zip(
            rows.job.tolist(),
            rows.partner.tolist(),
            rows.column.tolist(),
            rows.fraction.tolist(),
            strict=True,
        ):
            c = int(configuration[column])
            pool = int(table.pool[c])
            record: dict[str, Any] = (
                {"job": names[job]} if partner < 0 else {"jobs": [names[job], names[partner]]}
            )
            record |= {
                "pool": None if pool < 0 else pools[pool].name,
                "gpus": int(table.gpus[c]),
                "nodes": int(table.nodes[c]),
                "fraction": fraction,
            }
            option = int(options[column])
            if option >= 0:  # number of the option in the job's own list
                record["option"] = option - int(
                    C.instance.options.indptr[C.instance.jobs_table.options[job]]
                )
            if table.share[c] != 1.0:
                record["share"] = float(table.share[c])
            if table.attributes[c]:
                record["attributes"] = dict(table.attribute_sets[table.attributes[c]])
            records.append(record)
        return records

    def to_frame(self) -> Any:
        """The rows as a pandas DataFrame (pandas must be installed; it is no dependency)."""
        import pandas

        return pandas.DataFrame.from_records(self.to_records())
