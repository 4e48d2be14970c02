"""The ``oracle`` model: true throughputs from a separate table, for experiments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from optsched.arrays import IntArray
from optsched.arrays.values import replace
from optsched.errors import InvalidInput
from optsched.instance import Instance
from optsched.instance.documents import Document, Name, Rates
from optsched.instance.interning import RateInterner
from optsched.instance.reading import key, listed, validate
from optsched.performance.configurations import Configurations
from optsched.performance.protocol import JobBatch, Prediction, RateModel
from optsched.performance.table import TableModel


class OracleDocument(Document):
    """Options of the oracle."""

    throughput: dict[Name, Rates]


class OracleModel(RateModel):
    """Rates from a table, instead of those that the instance states.

    In a simulation the scheduler uses its beliefs (the instance and its model), and jobs run at the
    rates of this table. Workloads that the table leaves out have no rate.

    Options
        throughput  by workload: rates as in ``workloads[*].throughput``.
    """

    name = "oracle"
    corrects = True
    per_workload = True

    def __init__(self, instance: Instance, document: OracleDocument) -> None:
        rates = RateInterner(instance.cluster)
        rows = {workload.name: row for row, workload in enumerate(instance.workloads)}
        self._profile = np.full(len(instance.workloads) + 1, -1, np.int64)
        for name, entries in document.throughput.items():
            path = f"performance.throughput.{key(name)}"
            if name not in rows:
                raise InvalidInput(path, "no workload of the instance", f"one of {listed(rows)}")
            self._profile[rows[name]] = rates.add(entries, path)
        self._table = TableModel(rates.table(), instance)

    @classmethod
    def from_instance(cls, instance: Instance, options: Mapping[str, Any]) -> Self:
        """Make the oracle from a table of throughputs."""
        return cls(instance, validate(OracleDocument, options, "performance"))

    def rates(
        self,
        jobs: JobBatch,
        configurations: Configurations,
        job: IntArray,
        configuration: IntArray,
    ) -> Prediction:
        # Look up the table as if its rates were stated by the workloads.
        known = replace(
            jobs,
            profile=self._profile[jobs.workload],
            own=np.zeros(len(jobs), bool),
            gang=np.ones(len(jobs), np.int64),
        )
        return self._table.rates(known, configurations, job, configuration)
