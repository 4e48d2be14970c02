"""The tables of an instance: workloads, and jobs as one array per field.

Equal rate profiles, option lists and level lists are stored once (interned).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.arrays.values import cached_property
from optsched.display import Displayed, count
from optsched.instance.documents import parse_index
from optsched.instance.running import RunningJobs

RestartCosts = Mapping[str, Mapping[int, float]]
"""Seconds that a restart costs, by the name of a pool or GPU type, and by numbers of GPUs."""


@dataclass(frozen=True, repr=False)
class Workload(Displayed):
    """A kind of work: its row of the rate table (-1: none), needs per GPU, parameters for models,
    and what a restart costs (`restart_costs`).

    A ``label`` is defined nowhere: it is only named by jobs, which state their own rates. Labels
    come last, in the order in which jobs name them, and are removed when no job names them any
    more.
    """

    name: str
    rates: int = -1
    demand: Mapping[str, float] = field(default_factory=dict)
    gpu_memory: float | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    label: bool = False
    restart_cost: RestartCosts = field(default_factory=dict)


class Workloads(Displayed, tuple[Workload, ...]):
    """The workloads of an instance, with arrays over them that each round needs.

    Instances share this object until an event changes a workload, so the arrays are computed once.
    The last entry of an array is for jobs without a workload.
    """

    def _headline(self) -> str:
        return count(len(self), "workload")

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(each.name for each in self)

    @cached_property
    def rates(self) -> IntArray:
        """Row of the rate table of each workload, -1 for none, shape (workloads + 1,)."""
        return np.array([*(each.rates for each in self), -1], np.int64)

    @cached_property
    def label(self) -> BoolArray:
        """Mask of the labels, shape (workloads + 1,)."""
        return np.array([*(each.label for each in self), False], bool)

    @cached_property
    def demand(self) -> dict[str, FloatArray]:
        """Needs per GPU by resource, each of shape (workloads + 1,)."""
        names = dict.fromkeys(name for each in self for name in each.demand)
        return {
            name: np.array([*(workload.demand.get(name, 0.0) for workload in self), 0.0])
            for name in names
        }

    @cached_property
    def gpu_memory(self) -> FloatArray:
        """GB per GPU, 0 if not stated, shape (workloads + 1,)."""
        return np.array([*(each.gpu_memory or 0.0 for each in self), 0.0])

    @cached_property
    def with_restart_cost(self) -> tuple[int, ...]:
        """Rows of the workloads that state restart costs."""
        return tuple(row for row, each in enumerate(self) if each.restart_cost)

    def with_parameter(self, name: str) -> BoolArray:
        """Mask of the workloads that have this parameter of a performance model, shape (workloads +
        1,).
        """
        if name not in self._with_parameter:
            mask = [*(name in each.parameters for each in self), False]
            self._with_parameter[name] = np.array(mask, bool)
        return self._with_parameter[name]

    @cached_property
    def _with_parameter(self) -> dict[str, BoolArray]:
        return {}


class Colocation(NamedTuple):
    """Throughputs (steps/s) of two jobs, or any two jobs of two workloads,
    on the same GPUs of a pool.
    """

    workloads: tuple[int, int] | None
    jobs: tuple[int, int] | None
    pool: int
    gpus: int
    nodes: int
    throughput: tuple[float, float]


@dataclass(frozen=True, repr=False, eq=False)
class OptionTable(Displayed):
    """Interned lists of explicit options; list o owns the rows ``indptr[o]:indptr[o + 1]``.

    Attributes
    ----------
    indptr : IntArray, shape (O + 1,)
    pool : IntArray, shape (R,)
        -1 where the option uses resources only.
    gpus, nodes : IntArray, shape (R,)
        Totals; nodes is `ANY_SPREAD` if the option states none.
    share : FloatArray, shape (R,)
        Share of each GPU, in (0, 1].
    limit : FloatArray, shape (R,)
        Share of each GPU that may be used while others leave it idle, at least ``share``.
    throughput, duration : FloatArray, shape (R,)
        steps/s and seconds; NaN where not given.
    value, cost : FloatArray, shape (R,)
    uses : tuple of mappings, length R
        Totals by resource name.
    attributes : tuple of mappings, length R
    """

    indptr: IntArray
    pool: IntArray
    gpus: IntArray
    nodes: IntArray
    share: FloatArray
    limit: FloatArray
    throughput: FloatArray
    duration: FloatArray
    value: FloatArray
    cost: FloatArray
    uses: tuple[Mapping[str, float], ...]
    attributes: tuple[Mapping[str, Any], ...]

    def __len__(self) -> int:
        return len(self.indptr) - 1

    @cached_property
    def needs(self) -> dict[str, FloatArray]:
        """``uses`` by resource, each of shape (R + 1,); the last entry is for no option."""
        names = dict.fromkeys(name for uses in self.uses for name in uses)
        return {
            name: np.array([*(uses.get(name, 0.0) for uses in self.uses), 0.0]) for name in names
        }


class JobNames(Displayed):
    """Names of jobs: a tuple, or generated names ``j0, j1, ...``, which are not stored."""

    __slots__ = ("_index", "_names", "count")

    def __init__(self, count: int, names: tuple[str, ...] | None = None) -> None:
        self.count = count
        self._names = names
        self._index: dict[str, int] | None = None

    def _headline(self) -> str:
        return f"of {count(self.count, 'job')}"

    @property
    def generated(self) -> bool:
        """Whether the names are ``j0, j1, ...``."""
        return self._names is None

    @property
    def given(self) -> int:
        """Number of stored names."""
        return 0 if self._names is None else len(self._names)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> str:
        if self._names is not None:
            return self._names[index]
        if not 0 <= index < self.count:
            raise IndexError(index)
        return f"j{index}"

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.get(name) >= 0

    def written(self) -> tuple[str, ...]:
        """All names as a tuple."""
        return (
            tuple([f"j{row}" for row in range(self.count)]) if self._names is None else self._names
        )

    def get(self, name: str) -> int:
        """Row of a job, -1 if there is none of this name."""
        if self._names is None:
            # `j07` is not a generated name: `parse_index` accepts only the usual spelling of a
            # number.
            row = parse_index(name[1:]) if name[:1] == "j" else -1
            return row if row < self.count else -1
        return self._rows_by_name(self._names).get(name, -1)

    def _rows_by_name(self, names: tuple[str, ...]) -> dict[str, int]:
        if self._index is None:
            self._index = dict(zip(names, range(self.count), strict=True))
        return self._index

    def rows(self, names: Sequence[str | None]) -> IntArray:
        """Rows of jobs, -1 where there is none of this name."""
        if self._names is None:
            return np.array([-1 if name is None else self.get(name) for name in names], np.int64)
        by_name: dict[Any, int] = self._rows_by_name(self._names)
        return np.fromiter(map(by_name.get, names, repeat(-1)), np.int64, len(names))

    def index(self, name: str) -> int:
        """Row of a job; raises KeyError."""
        row = self.get(name)
        if row < 0:
            raise KeyError(name)
        return row


@dataclass(frozen=True, eq=False, repr=False)
class JobTable(Displayed):
    """Jobs as arrays, one entry per job.

    Attributes
    ----------
    names : JobNames
    workload, rates, options, levels, tenant : IntArray
        Indices into the instance's workloads, rate profiles, option lists, level lists and tenants;
        -1 where absent.
    gpus_min, gpus_max : IntArray
        Equal for a gang.
    steps, steps_done, weight, arrival, restart_cost : FloatArray
    deadline : FloatArray
        Absolute seconds; inf where absent.
    soft_deadline, preemptible : BoolArray
    isolated_time : FloatArray
        Seconds (``history.isolated_time``).
    exempt_time : FloatArray
        Seconds after each start in which the job is not preempted.
    checkpoint_interval : FloatArray
        Seconds between two checkpoints. A preemption loses the work since the last one; 0: no work
        is lost.
    level_lists : tuple of tuples
        Interned ``gpus.levels``.
    running : mapping from job row to (pool row, GPU names, since)
    after : mapping from job row to rows of its predecessors
    awaits : mapping from job row to names of all its predecessors
        Only for jobs that are to join another instance (`optsched.instance.revise`) and have a
        predecessor there; empty in a complete instance.
    """

    names: JobNames
    workload: IntArray
    rates: IntArray
    options: IntArray
    levels: IntArray
    gpus_min: IntArray
    gpus_max: IntArray
    steps: FloatArray
    steps_done: FloatArray
    weight: FloatArray
    arrival: FloatArray
    deadline: FloatArray
    soft_deadline: BoolArray
    tenant: IntArray
    preemptible: BoolArray
    restart_cost: FloatArray
    isolated_time: FloatArray
    exempt_time: FloatArray
    checkpoint_interval: FloatArray
    level_lists: tuple[tuple[int, ...], ...] = ()
    running: Mapping[int, tuple[int, tuple[str, ...], float | None]] = field(default_factory=dict)
    after: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    awaits: Mapping[int, tuple[str, ...]] = field(default_factory=dict)

    def _headline(self) -> str:
        return f"of {count(len(self), 'job')}, {len(self.running):,} of them running"

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def places(self) -> RunningJobs:
        """``running`` with its arrays."""
        return RunningJobs.of(self.running)

    @cached_property
    def steps_left(self) -> FloatArray:
        """Steps still to do, at least 0."""
        return np.maximum(self.steps - self.steps_done, 0.0)


KINDS = {"IntArray": "i", "FloatArray": "f", "BoolArray": "b"}
ARRAY_FIELDS = {item.name: KINDS[str(item.type)] for item in fields(JobTable) if item.type in KINDS}
"""Array fields of `JobTable` and the kind of their entries (integer, float, boolean)."""
AS_THEY_ARE = (
    "steps",
    "steps_done",
    "weight",
    "preemptible",
    "restart_cost",
    "exempt_time",
    "checkpoint_interval",
)
"""Fields of job documents that become columns without conversion, and columns documents."""
DTYPES = {"i": np.int64, "f": np.float64, "b": np.bool_}
"""Type of an array of each kind."""
