"""Classes: jobs that a formulation cannot tell apart, with the three matrices that programs are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optsched.arrays import BoolArray, FloatArray, IntArray, group_rows, ranges
from optsched.candidates.columns import KindColumns
from optsched.candidates.kinds import Absence
from optsched.candidates.resources import Resources
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
    kind_column : IntArray, shape (N,)
        Column of the candidates that each column comes from.
    class_a, class_b : IntArray, shape (N,)
        The class and its partner's (-1: alone).
    rate_a, rate_b : FloatArray, shape (N,)
        steps/s of a member of each.
    throughput : csr_matrix, shape (K, N)
        steps/s that one unit of x gives to the class.
    member : csr_matrix, shape (K, N)
        1 where a member takes part, 2 for a pair inside the class.
    usage : csr_matrix, shape (R, N)
        Resources that one unit of x holds.
    """

    candidates: Candidates
    reads: frozenset[str]
    of_job: IntArray
    first: IntArray
    count: FloatArray
    kind_column: IntArray
    class_a: IntArray
    class_b: IntArray
    rate_a: FloatArray
    rate_b: FloatArray
    throughput: sp.csr_matrix
    member: sp.csr_matrix
    usage: sp.csr_matrix

    def __len__(self) -> int:
        return len(self.first)

    @property
    def columns(self) -> int:
        """N."""
        return len(self.kind_column)

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
    def configuration(self) -> IntArray:
        """Row of the configurations table of each column, shape (N,)."""
        return self.candidates.configuration[self.kind_column]

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
        columns, kind_column = self.candidates.columns, self.kind_column
        option = columns.option[kind_column]
        lists = np.append(self.candidates.kinds.options, -1)[columns.kind[kind_column]]
        ordinal = np.where(option >= 0, option - self.instance.options.indptr[np.maximum(lists, 0)], -1)
        labels = [getattr(columns, name)[kind_column] for name in ("pool", "gpus", "nodes")]
        served = [getattr(columns, name)[kind_column] for name in ("workers", "servers")]
        return np.column_stack([*labels, ordinal, *served, columns.share[kind_column].view(np.int64)])

    @property
    def alone(self) -> np.ndarray:
        """Mask of the columns without a partner."""
        return self.class_b < 0

    @cached_property
    def limit(self) -> FloatArray:
        """Most that x can be by the time rows alone: n_k, the smaller class of a pair, half a class inside one."""
        mine = self.count[self.class_a]
        other = np.where(self.alone, mine, self.count[self.class_b])
        return np.where(self.class_a == self.class_b, mine / 2, np.minimum(mine, other))

    # --- job data, one value per class, shape (K,) -----------------------------------------------------------------

    def _read(self, name: str) -> Any:
        if name not in self.reads:
            raise KeyError(f"{name!r} is read but not declared: jobs of one class may differ in it")
        return _array(self.instance, name)[self.first]

    @property
    def gang(self) -> FloatArray:
        """Gang size s_k; of an elastic job the smallest."""
        kinds = self.candidates.kinds
        return kinds.gang[kinds.of_job[self.first]].astype(np.float64)

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
            return np.where(np.isnan(exact), left / self.rate_a, np.where(left == whole, exact, exact * (left / whole)))

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
        order = placed[np.argsort(self.of_job[placed], kind="stable")]
        start = np.concatenate(([0], np.cumsum(np.bincount(self.of_job[placed], minlength=len(self)))))
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
            raise KeyError("jobs of one class differ in what is read, which must be declared: in reads, or by labels")
        return found

    def job_name(self, number: int) -> str:
        """A class in the user's words: its job, or its first job and how many are like it."""
        name = self.instance.jobs_table.names[int(self.first[number])]
        others = int(self.count[number]) - 1
        return f"job {name}" + (f" (and {others} like it)" if others else "")


def _array(instance: Instance, name: str) -> Any:
    """A job array by its name in ``reads``."""
    return instance.queue if name == "queue" else getattr(instance.jobs_table, READABLE[name])


def build_classes(candidates: Candidates, reads: frozenset[str], labels: Sequence[IntArray] = ()) -> Classes:
    """Merge kinds x the declared job arrays x labels into classes, and columns of kinds into columns of classes."""
    groups = merge_jobs(candidates, reads, labels)
    kind, count = candidates.kinds.of_job[groups.first], groups.count
    alone = alone_columns(candidates.columns, kind, len(candidates.kinds))
    pairs = _pair_columns(candidates.columns, kind, len(candidates.kinds), count)
    return assemble(candidates, reads, groups, alone, pairs)


@dataclass(frozen=True)
class JobGroups:
    """Jobs of the program, merged: class of each job (-1: not in the program), first job and size of each class."""

    of_job: IntArray
    first: IntArray
    count: IntArray


def merge_jobs(candidates: Candidates, reads: frozenset[str], labels: Sequence[IntArray] = ()) -> JobGroups:
    """Merge the jobs of a kind that agree in the declared arrays, and in all ``labels``, each of shape (jobs,)."""
    unknown = reads - set(READABLE) - {"gang"}
    if unknown:
        raise KeyError(f"no such job array: {min(unknown)}")
    table, kinds = candidates.instance.jobs_table, candidates.kinds
    placed = np.flatnonzero(candidates.absence == Absence.PRESENT)
    if candidates.aggregate:
        read = [_array(candidates.instance, name) for name in sorted(reads - {"gang"})]
        arrays = [kinds.of_job, *read, *labels]
        if len(placed) < len(table):
            arrays = [array[placed] for array in arrays]
        groups = group_rows(arrays, len(placed))
        first, inverse, count = placed[groups.first], groups.inverse, groups.count
    else:
        first, inverse, count = placed, np.arange(len(placed)), np.ones(len(placed), np.int64)
    of_job = np.full(len(table), -1, np.int64)
    of_job[placed] = inverse
    return JobGroups(of_job, first, count)


Columns = tuple[IntArray, IntArray, IntArray]
"""(kind column, class, partner class or -1) of columns of classes."""


def assemble(
    candidates: Candidates, reads: frozenset[str], groups: JobGroups, alone: Columns, pairs: Columns
) -> Classes:
    """The classes with these columns, and their matrices."""
    kind_column, class_a, class_b = (np.concatenate(part) for part in zip(alone, pairs, strict=True))
    columns, kinds, first = candidates.columns, candidates.kinds, groups.first
    rate_a, rate_b = columns.rate[kind_column], columns.partner_rate[kind_column]
    swapped = (class_b >= 0) & (kinds.of_job[first[class_a]] != columns.kind[kind_column])
    rate_a, rate_b = np.where(swapped, rate_b, rate_a), np.where(swapped, rate_a, rate_b)

    pair = np.flatnonzero(class_b >= 0)
    number = np.arange(len(kind_column), dtype=np.int64)
    where = (np.concatenate([class_a, class_b[pair]]), np.concatenate([number, pair]))
    shape = (len(first), len(kind_column))
    return Classes(
        candidates=candidates,
        reads=reads,
        of_job=groups.of_job,
        first=first,
        count=groups.count.astype(np.float64),
        kind_column=kind_column,
        class_a=class_a,
        class_b=class_b,
        rate_a=rate_a,
        rate_b=rate_b,
        throughput=sp.csr_matrix((np.concatenate([rate_a, rate_b[pair]]), where), shape=shape),
        member=sp.csr_matrix((np.ones(len(where[0])), where), shape=shape),
        usage=sp.csr_matrix(candidates.usage.tocsc()[:, kind_column]),
    )


def alone_columns(columns: KindColumns, kind_of_class: IntArray, kinds: int) -> Columns:
    """Every column without a partner of every class: class by class, in the order of the kind's columns."""
    alone = np.flatnonzero(columns.partner < 0)
    alone = alone[np.argsort(columns.kind[alone], kind="stable")]
    columns_of = np.bincount(columns.kind[alone], minlength=kinds).astype(np.int64)
    first_of = np.concatenate(([0], np.cumsum(columns_of)))[:-1].astype(np.int64)
    length = columns_of[kind_of_class]
    column = alone[ranges(first_of[kind_of_class], length)]
    owner = np.repeat(np.arange(len(kind_of_class), dtype=np.int64), length)
    return column, owner, np.full(len(column), -1, np.int64)


def _pair_columns(columns: KindColumns, kind_of_class: IntArray, kinds: int, count: IntArray) -> Columns:
    """Every column of two kinds for every pair of their classes, the lower class first."""
    by_kind = np.argsort(kind_of_class, kind="stable").astype(np.int64)
    classes_of = np.bincount(kind_of_class, minlength=kinds).astype(np.int64)
    start_of = np.concatenate(([0], np.cumsum(classes_of)))[:-1].astype(np.int64)

    pairs = np.flatnonzero(columns.partner >= 0)
    size_a, size_b = classes_of[columns.kind[pairs]], classes_of[columns.partner[pairs]]
    products = size_a * size_b
    pair_column = np.repeat(pairs, products)
    local = ranges(np.zeros(len(pairs), np.int64), products)
    width = np.repeat(size_b, products)
    class_a = by_kind[start_of[columns.kind[pair_column]] + local // np.maximum(width, 1)]
    class_b = by_kind[start_of[columns.partner[pair_column]] + local % np.maximum(width, 1)]
    same_kind = columns.kind[pair_column] == columns.partner[pair_column]
    keep = ~same_kind | (class_a < class_b) | ((class_a == class_b) & (count[class_a] > 1))
    return pair_column[keep], np.minimum(class_a, class_b)[keep], np.maximum(class_a, class_b)[keep]
