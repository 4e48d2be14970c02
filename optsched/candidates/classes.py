"""Classes: jobs that a formulation cannot tell apart, with the three matrices that programs are made of."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optsched.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    constant,
    in_order,
    shown,
    taken,
)
from optsched.arrays.matrices import same_places
from optsched.candidates.resources import Resources
from optsched.candidates.usage import Usage
from optsched.instance import Instance
from optsched.performance import Configurations

if TYPE_CHECKING:
    from optsched.candidates.compile import Candidates

Scalar = TypeVar("Scalar", bound=np.generic)

LABELS = 7
"""Numbers that tell a configuration (`Classes.configuration_labels`)."""
READABLE = {
    "weight": "weight", "steps": "steps", "steps_left": "steps_left", "arrival": "arrival", "deadline": "deadline",
    "soft_deadline": "soft_deadline", "tenant": "tenant", "preemptible": "preemptible", "restart_cost": "restart_cost",
    "isolated_time": "isolated_time", "queue": "queue",
}  # fmt: skip
"""Job arrays that a formulation may declare in ``reads``; the gang belongs to the kind and is always known."""


@dataclass(frozen=True)
class Classes:
    """What a program is built from: K classes of n_k equal jobs, N columns, R resources.

    A column is a class (or a pair of classes that share GPUs) in one configuration; its variable counts job-fractions:
    ``x = 1`` is one job (or pair) in that configuration all the time, so a class of n jobs can have up to n.

    Attributes
    ----------
    candidates : Candidates
    reads : frozenset of str
        Job arrays that jobs of a class share; reading any other is an error.
    of_job : IntArray, shape (jobs,)
        Class of each job, -1 for jobs that are not in the program.
    first : IntArray, shape (K,)
        First job of each class.
    count : FloatArray, shape (K,)
        n_k.
    origin : IntArray or None, shape (N,)
        Column of the candidates that each column comes from (`kind_column`); None: they are those, in order.
    class_a, class_b : IntArray, shape (N,)
        The class and its partner's (-1: alone).
    rate_a, rate_b : FloatArray, shape (N,)
        steps/s of a member of each.
    throughput : csr_matrix, shape (K, N)
        steps/s that one unit of x gives to the class.
    holds : Usage
        Resources that one unit of x holds.
    """

    candidates: Candidates
    reads: frozenset[str]
    of_job: IntArray
    first: IntArray
    count: FloatArray
    origin: IntArray | None
    class_a: IntArray
    class_b: IntArray
    rate_a: FloatArray
    rate_b: FloatArray
    throughput: sp.csr_matrix
    holds: Usage

    def __len__(self) -> int:
        return len(self.first)

    @property
    def columns(self) -> int:
        """N."""
        return len(self.class_a)

    def at(self, instance: Instance) -> Classes:
        """The same classes of the instance at a later time, where nothing in ``reads`` has changed."""
        later = copy(self)  # with the cached properties: none of them depends on the time
        object.__setattr__(later, "candidates", self.candidates.at(instance))
        return later

    @cached_property
    def member(self) -> sp.csr_matrix:
        """1 where a member takes part, 2 for a pair inside the class; shape (K, N)."""
        pair = np.flatnonzero(~self.alone)
        if not len(pair) and in_order([self.class_a]):
            return same_places(self.throughput, np.ones(self.columns))
        number = np.arange(self.columns, dtype=np.int64)
        where = (np.concatenate([self.class_a, self.class_b[pair]]), np.concatenate([number, pair]))
        return sp.csr_matrix((np.ones(len(where[0])), where), shape=self.throughput.shape)

    @property
    def usage(self) -> sp.csr_matrix:
        """Resources that one unit of x holds, shape (R, N)."""
        return self.holds.matrix

    def time(self, x: FloatArray) -> FloatArray:
        """Time that the members of each class spend in an allocation, ``member @ x``; shape (K,)."""
        if not self.all_alone:
            return np.asarray(self.member @ x)
        return np.bincount(self.class_a, x, len(self)).astype(np.float64, copy=False)

    @property
    def instance(self) -> Instance:
        """The instance."""
        return self.candidates.instance

    @property
    def resources(self) -> Resources:
        """The rows of ``usage``."""
        return self.candidates.resources

    @property
    def capacity(self) -> FloatArray:
        """Capacity of each resource, shape (R,)."""
        return self.candidates.resources.capacity

    @property
    def configurations(self) -> Configurations:
        """The configurations table."""
        return self.candidates.configurations

    @cached_property
    def kind_column(self) -> IntArray:
        """Column of the candidates that each column comes from, shape (N,)."""
        return np.arange(self.columns, dtype=np.int64) if self.origin is None else self.origin

    @cached_property
    def configuration(self) -> IntArray:
        """Row of the configurations table of each column, shape (N,)."""
        return taken(self.candidates.configuration, self.origin)

    @cached_property
    def pool(self) -> IntArray:
        """Pool of each column, -1 for none."""
        return self.configurations.pool[self.configuration]

    @cached_property
    def gpus(self) -> IntArray:
        """GPUs of each column."""
        return self.configurations.gpus[self.configuration]

    @cached_property
    def configuration_labels(self) -> IntArray:
        """What the configuration of each column is, in numbers that outlive a compile; shape (N, `LABELS`).

        Pool, GPUs, nodes, place in the job's own list of options (-1: none), workers, servers, and the bits of the
        share.
        """
        return self.labels_of(np.arange(self.columns, dtype=np.int64))

    def labels_of(self, some: IntArray) -> IntArray:
        """`configuration_labels` of some of the columns."""
        columns, kind_column = (
            self.candidates.columns,
            some if self.origin is None else self.origin[some],
        )
        option = columns.option[kind_column]
        lists = np.append(self.candidates.kinds.options, -1)[columns.kind[kind_column]]
        ordinal = np.where(
            option >= 0, option - self.instance.options.indptr[np.maximum(lists, 0)], -1
        )
        labels = [getattr(columns, name)[kind_column] for name in ("pool", "gpus", "nodes")]
        served = [getattr(columns, name)[kind_column] for name in ("workers", "servers")]
        return np.column_stack(
            [*labels, ordinal, *served, columns.share[kind_column].view(np.int64)]
        )

    @property
    def alone(self) -> np.ndarray:
        """Mask of the columns without a partner."""
        return self.class_b < 0

    @cached_property
    def all_alone(self) -> bool:
        """Whether no column has a partner."""
        return bool((shown(self.class_b) < 0).all())

    @cached_property
    def limit(self) -> FloatArray:
        """Most that x can be by the time rows alone: n_k, the smaller class of a pair, half a class inside one."""
        if self.all_alone and len(self) and (self.count == self.count[0]).all():
            return constant(self.count[0], self.columns, np.float64)
        mine = self.count[self.class_a]
        if self.all_alone:
            return mine
        other = np.where(self.alone, mine, self.count[self.class_b])
        return np.where(self.class_a == self.class_b, mine / 2, np.minimum(mine, other))

    # --- job data, one value per class, shape (K,) -----------------------------------------------------------------

    def _read(self, name: str) -> Any:
        if name not in self.reads:
            raise KeyError(f"{name!r} is read but not declared: jobs of one class may differ in it")
        return job_array(self.instance, name)[self.first]

    @cached_property
    def kind(self) -> IntArray:
        """Kind of each class's jobs."""
        return self.candidates.kinds.of_job[self.first]

    @property
    def gang(self) -> FloatArray:
        """Gang size s_k; of an elastic job the smallest."""
        return self.candidates.kinds.gang[self.kind].astype(np.float64)

    @property
    def weight(self) -> FloatArray:
        """Priority weight p_k."""
        values: FloatArray = self._read("weight")
        return values

    @property
    def steps_left(self) -> FloatArray:
        """Steps still to do."""
        values: FloatArray = self._read("steps_left")
        return values

    @property
    def deadline(self) -> FloatArray:
        """Absolute seconds, inf for none."""
        values: FloatArray = self._read("deadline")
        return values

    @property
    def soft_deadline(self) -> BoolArray:
        """Whether the deadline is soft."""
        values: BoolArray = self._read("soft_deadline")
        return values

    @property
    def arrival(self) -> FloatArray:
        """Absolute seconds."""
        values: FloatArray = self._read("arrival")
        return values

    @property
    def isolated_time(self) -> FloatArray:
        """Seconds that the steps done would have taken in isolation (``history.isolated_time``)."""
        values: FloatArray = self._read("isolated_time")
        return values

    @property
    def queue(self) -> IntArray:
        """Place in the queue of a tenant that serves its jobs in the order of their arrival, 0 for other jobs."""
        values: IntArray = self._read("queue")
        return values

    @property
    def tenant(self) -> IntArray:
        """Row of the instance's tenants, -1 for none."""
        values: IntArray = self._read("tenant")
        return values

    @property
    def duration(self) -> FloatArray:
        """Seconds that the steps left take in each column alone, shape (N,); exact where the instance states them."""
        exact = self.candidates.columns.duration[self.kind_column]
        left = self.steps_left[self.class_a]
        whole = self.instance.jobs_table.steps[self.first[self.class_a]]
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(
                np.isnan(exact),
                left / self.rate_a,
                np.where(left == whole, exact, exact * (left / whole)),
            )

    # --- what is reached with the probability that the formulation asks for -----------------------------------------

    @cached_property
    def sure_factor(self) -> FloatArray:
        """Part of its median rate that each column reaches with probability q, shape (N,): exp(-z_q log_sd)."""
        quantile = self.candidates.quantile
        if quantile is None:
            z = 0.0
        else:
            from scipy.special import ndtri  # takes long to load, and few ask for a probability

            z = float(ndtri(quantile))
        return np.exp(-z * self.candidates.columns.log_sd[self.kind_column])

    @property
    def sure_throughput(self) -> sp.csr_matrix:
        """``throughput`` with the rates that columns reach with probability q (`Candidates.quantile`)."""
        if self.candidates.quantile is None:
            return self.throughput
        return sp.csr_matrix(self.throughput @ sp.diags(self.sure_factor))

    @property
    def sure_duration(self) -> FloatArray:
        """``duration`` at these rates; durations that the instance states are exact."""
        exact = ~np.isnan(self.candidates.columns.duration[self.kind_column])
        return np.where(exact, self.duration, self.duration / self.sure_factor)

    # --- jobs of classes -------------------------------------------------------------------------------------------

    @cached_property
    def _jobs_by_class(self) -> tuple[IntArray, IntArray]:
        placed = np.flatnonzero(self.of_job >= 0)
        order = placed
        if not in_order([self.of_job[placed]]):
            order = placed[np.argsort(self.of_job[placed], kind="stable")]
        start = np.concatenate(
            ([0], np.cumsum(np.bincount(self.of_job[placed], minlength=len(self))))
        )
        return order.astype(np.int64), start.astype(np.int64)

    def jobs_of(self, number: int) -> IntArray:
        """Jobs of a class, in order."""
        order, start = self._jobs_by_class
        return order[start[number] : start[number + 1]]

    def jobs_among(self, mask: BoolArray) -> list[int]:
        """Jobs of the classes of a mask, in order."""
        jobs: list[int] = np.flatnonzero(np.append(np.ravel(mask), False)[self.of_job]).tolist()
        return jobs

    def common(self, values: NDArray[Scalar]) -> NDArray[Scalar]:
        """One value per class, shape (K,), of a value per job, shape (jobs,), that jobs of a class must agree in."""
        placed = np.flatnonzero(self.of_job >= 0)
        found: NDArray[Scalar] = values[self.first]
        if (values[placed] != found[self.of_job[placed]]).any():
            raise KeyError(
                "jobs of one class differ in what is read, which must be declared: in reads, or by labels"
            )
        return found

    def job_name(self, number: int) -> str:
        """A class in the user's words: its job, or its first job and how many are like it."""
        name = self.instance.jobs_table.names[int(self.first[number])]
        others = int(self.count[number]) - 1
        return f"job {name}" + (f" (and {others} like it)" if others else "")


def job_array(instance: Instance, name: str) -> Any:
    """A job array by its name in ``reads``."""
    return instance.queue if name == "queue" else getattr(instance.jobs_table, READABLE[name])
