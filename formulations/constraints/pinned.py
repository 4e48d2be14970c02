"""Pinned and forbidden: in which pools, on how many GPUs, and how far apart jobs may run."""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from typing import Annotated

import numpy as np
import scipy.sparse as sp
from pydantic import BeforeValidator, Field, model_validator

from formulations.constraints.holdings import first_names
from formulations.constraints.names import Names, pool_rows
from formulations.constraints.selection import JobSelection, OfJobs
from optsched.arrays import BoolArray, IntArray
from optsched.candidates import Classes
from optsched.errors import InvalidArgument
from optsched.instance import Instance
from optsched.instance.documents import refused
from optsched.instance.reading import listed, show
from optsched.program import SideRows

Counts = Annotated[
    list[Annotated[int, Field(ge=1, strict=True)]],
    BeforeValidator(lambda value: [value] if isinstance(value, int) else value),
    Field(min_length=1),
]
"""Numbers of GPUs; one may stand alone."""


class JobWays(JobSelection):
    """Options that select jobs and ways to run."""

    pools: Names | None = None
    gpus: Counts | None = None
    level: str | None = None

    @model_validator(mode="after")
    def _some_way(self) -> JobWays:
        if self.pools is None and self.gpus is None and self.level is None:
            raise refused("neither", "pools, gpus, level, or several of them")
        return self


class _OfWays(OfJobs):
    """What pinned and forbidden have in common."""

    options: JobWays

    def check(self, instance: Instance) -> None:
        """Jobs and pools must exist."""
        super().check(instance)
        pool_rows(self.kind, self.options.pools, instance)
        names = [level.name for level in instance.cluster.levels]
        if self.options.level is not None and self.options.level not in names:
            expected = f"a level of the topology: {listed(names)}" if names else "no level"
            raise InvalidArgument(f"{self.kind}.level", show(self.options.level), expected)

    def rows(self, C: Classes) -> SideRows | None:
        selected = C.common(self.selected(C.instance))
        # A pair is barred by either of its jobs.
        members = sp.csr_matrix(C.member > 0, dtype=np.float64)
        barred = sp.csr_matrix(
            sp.diags_array(selected * 1.0) @ members @ sp.diags_array(self._barred(C) * 1.0)
        )
        barred.eliminate_zeros()
        k = np.flatnonzero(np.diff(barred.indptr))
        if len(k) == 0:
            return None
        return SideRows.bar(self.kind, sp.csr_matrix(barred[k]), partial(self._words_of, C, k))

    def _words_of(self, C: Classes, of_row: IntArray, row: int) -> str:
        k = int(of_row[row])
        return self._words(
            C.job_name(k), self._other_rates(C, np.flatnonzero((C.class_a == k) | (C.class_b == k)))
        )

    def _other_rates(self, C: Classes, columns: IntArray) -> str:
        """What the rates of a job are for, if none of its columns is inside a group of the level;
        else empty.
        """
        if self.options.level is None or self._inside(C)[columns].any():
            return ""
        table, names = C.configurations, C.instance.cluster.level_names
        row = C.configuration[columns]
        levels = {names[level - 1]: None for level in np.unique(table.levels[row]) if level > 0}
        plain = np.unique(table.nodes[row[table.levels[row] == 0]])
        named = [*levels, *(f"{nodes} nodes" for nodes in plain[plain > 1].tolist())]
        if not named:
            return ""
        others = f"{listed(named[:-1])} and " if len(named) > 1 else ""
        return f", but its rates are for {others}{named[-1]}"

    def _named(self, C: Classes) -> BoolArray:
        """Mask of the columns in a pool, on a number of GPUs, and inside a group of a level
        that the options name, shape (N,).
        """
        named = np.ones(C.columns, bool)
        if self.options.pools is not None:
            named &= np.isin(C.pool, pool_rows(self.kind, self.options.pools, C.instance))
        if self.options.gpus is not None:
            named &= np.isin(C.gpus, self.options.gpus)
        if self.options.level is not None:
            named &= self._inside(C)
        return named

    def _inside(self, C: Classes) -> BoolArray:
        """Mask of the columns inside a group of the level, shape (N,)."""
        table, names = C.configurations, C.instance.cluster.level_names
        level, nodes = table.levels[C.configuration], table.nodes[C.configuration]
        inside = (level > 0) & (level <= 1 + names.index(str(self.options.level)))
        found: BoolArray = (C.gpus > 0) & (inside | (nodes <= 1))
        return found

    def _ways(self) -> str:
        pools = "" if self.options.pools is None else f" in {first_names(self.options.pools)}"
        level = "" if self.options.level is None else f" inside one {self.options.level}"
        counts = self.options.gpus
        if counts is None:
            return pools + level
        on = f" on {first_names([str(count) for count in counts])} GPU"
        return pools + on + ("s" if counts != [1] else "") + level

    @abstractmethod
    def _barred(self, C: Classes) -> BoolArray:
        """Mask of the columns that the jobs may not use, shape (N,)."""

    @abstractmethod
    def _words(self, job: str, other_rates: str) -> str:
        """The requirement, as users read it; with `_other_rates`."""


class Pinned(_OfWays):
    """The jobs run in some pools, or on some numbers of GPUs, and nowhere else.

    With J the jobs and A the columns in one of ``pools``, on one of ``gpus`` and inside one group
    of ``level`` (where these are given), for every class k of J:

        sum of x_c  ==  0   over the columns c of k that are not in A                (pinned)

    A column without a pool is in none of ``pools``. Two jobs share GPUs only where both may run. A
    job left nowhere to run makes the instance infeasible. To make jobs run, use
    `formulations.constraints.minimum_service`.

    Options
        pools      names of the pools.
        gpus       total numbers of GPUs.
        level      level of the topology, such as ``rack``: all GPUs of a job are in one group of
                   it. Only rates for this level, a lower one or one node say so; others are barred.
        jobs       ids of the jobs in J.
        tenant     their tenant; without jobs, tenant and workload: all jobs.
        workload   their workload.

    References
        A. Tumanov et al., "TetriSched", EuroSys 2016 (placement preferences as sets of equivalent
        resources).
    """

    kind = "pinned"

    class Options(JobWays):
        """Jobs, and where alone they may run."""

    options: Options

    def _barred(self, C: Classes) -> BoolArray:
        return ~self._named(C)

    def _words(self, job: str, other_rates: str) -> str:
        return f"{job} may run only{self._ways()}{other_rates} (pinned)"


class Forbidden(_OfWays):
    """The jobs do not run in some pools, or on some numbers of GPUs.

    With J the jobs and F the columns in one of ``pools``, on one of ``gpus`` and inside one group
    of ``level`` (where these are given), for every class k of J:

        sum of x_c  ==  0   over the columns c of k that are in F                    (forbidden)

    Two jobs share GPUs only where both may run. A job left nowhere to run makes the instance
    infeasible.

    Options
        pools      names of the pools.
        gpus       total numbers of GPUs; with pools: these numbers in these pools.
        level      level of the topology: ways whose rate is for one group of it, or for one node.
        jobs       ids of the jobs in J.
        tenant     their tenant; without jobs, tenant and workload: all jobs.
        workload   their workload.

    References
        A. Tumanov et al., "TetriSched", EuroSys 2016 (placement preferences as sets of equivalent
        resources).
    """

    kind = "forbidden"

    class Options(JobWays):
        """Jobs, and where they may not run."""

    options: Options

    def _barred(self, C: Classes) -> BoolArray:
        return self._named(C)

    def _words(self, job: str, other_rates: str) -> str:
        return f"{job} may not run{self._ways()} (forbidden)"
