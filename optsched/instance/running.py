"""The running jobs, as a mapping by row and as arrays."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import chain, compress, islice

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray, owners, ranges
from optsched.arrays.values import cached_property
from optsched.display import Displayed, count
from optsched.instance.cluster import NONE, Numbering

Place = tuple[int, tuple[str, ...], float | None]
"""Pool, GPUs (``node/index``) and since when (seconds, if known) a job holds them."""

Names = list[tuple[str, ...]]
"""GPUs of several jobs, ``node/index``."""
Numbers = tuple[Numbering, IntArray]
"""GPUs of several jobs, job by job, by their numbers in a cluster."""


class RunningJobs(Displayed, Mapping[int, Place]):
    """A mapping of the rows of jobs to their places that never changes, with its R jobs as arrays.

    With tens of thousands of jobs that keep running from round to round, a loop over them would be
    too slow, so arrays are carried over. GPUs are stored by name (from documents) or by number
    (from rounds); the other form is computed when it is needed.

    Attributes
    ----------
    job : IntArray, shape (R,)
        Row of each job.
    pool, length : IntArray, shape (R,)
        Row of its pool, and how many GPUs it holds.
    since : FloatArray, shape (R,)
        Since when it holds them, seconds; NaN where that is not known.
    """

    def __init__(
        self,
        job: IntArray,
        pool: IntArray,
        length: IntArray,
        since: FloatArray,
        *,
        names: Names | None = None,
        numbers: Numbers | None = None,
    ) -> None:
        self.job, self.pool, self.length, self.since = job, pool, length, since
        # At least one of names and numbers is known.
        self._names, self._numbers = names, numbers

    @classmethod
    def of(cls, places: Mapping[int, Place]) -> RunningJobs:
        """Convert a mapping of places; a `RunningJobs` is returned itself."""
        if isinstance(places, RunningJobs):
            return places
        values = list(places.values())
        return cls(
            np.fromiter(places, np.int64, len(values)),
            np.array([pool for pool, _, _ in values], np.int64),
            np.array([len(gpus) for _, gpus, _ in values], np.int64),
            np.array([since for _, _, since in values], np.float64),
            names=[gpus for _, gpus, _ in values],
        )

    # --- as a mapping ---------------------------------------------------------------------

    @cached_property
    def _index(self) -> dict[int, int]:
        """Position among the R of each job."""
        return {job: row for row, job in enumerate(self.job.tolist())}

    def __getitem__(self, job: int) -> Place:
        row = self._index[job]
        since = float(self.since[row])
        gpus = self._names_of_one(row) if self._names is None else self._names[row]
        return int(self.pool[row]), gpus, None if math.isnan(since) else since

    def __iter__(self) -> Iterator[int]:
        return iter(self.job.tolist())

    def __len__(self) -> int:
        return len(self.job)

    def __contains__(self, job: object) -> bool:
        return job in self._index

    def _headline(self) -> str:
        return f"{count(len(self), 'job')} on {count(int(self.length.sum()), 'GPU')}"

    # --- as arrays ------------------------------------------------------------------------

    @property
    def dated(self) -> BoolArray:
        """Whether ``since`` is known, shape (R,)."""
        return ~np.isnan(self.since)

    @cached_property
    def owner(self) -> IntArray:
        """Position among the R of the job that holds each GPU, in the order of `numbers`."""
        return owners(self.length)

    @cached_property
    def _first(self) -> IntArray:
        """Position of the first GPU of each job in `numbers`."""
        return self.length.cumsum() - self.length

    def among(self, jobs: int) -> IntArray:
        """Position among the R of each row of a job table with ``jobs`` rows, -1 for jobs that do
        not run.
        """
        place = np.full(jobs, -1, np.int64)
        place[self.job] = np.arange(len(self))
        return place

    def flat_names(self) -> list[str]:
        """Names of all GPUs, job by job."""
        return list(chain.from_iterable(self._named()))

    def _named(self) -> Names:
        if self._names is None:
            self._names = self._names_of(np.arange(len(self)))
        return self._names

    def _names_of(self, some: IntArray) -> Names:
        """Names of the GPUs of these jobs, computed from their numbers."""
        assert self._numbers is not None
        numbering, gpu = self._numbers
        length = self.length[some]
        names = iter(numbering.gpu_names(gpu[ranges(self._first[some], length)]))
        return [tuple(islice(names, gpus)) for gpus in length.tolist()]

    def _names_of_one(self, row: int) -> tuple[str, ...]:
        assert self._numbers is not None
        numbering, gpu = self._numbers
        first = int(self._first[row])
        return tuple(numbering.gpu_names(gpu[first : first + int(self.length[row])]))

    def gpus(self, some: IntArray) -> Names:
        """Names of the GPUs of these jobs (positions among the R)."""
        if self._names is None:
            return self._names_of(some)
        return [self._names[row] for row in some.tolist()]

    def numbers(self, numbering: Numbering) -> IntArray:
        """Numbers of the GPUs in a cluster, job by job (`Numbering.numbers`)."""
        if self._numbers is None or self._numbers[0] is not numbering:
            self._numbers = numbering, numbering.numbers(self.flat_names())
        return self._numbers[1]

    def numbers_of(self, some: IntArray, numbering: Numbering) -> IntArray:
        """Numbers of the GPUs of these jobs, job by job."""
        return self.numbers(numbering)[ranges(self._first[some], self.length[some])]

    # --- other such mappings --------------------------------------------------------------

    def take(self, some: IntArray, job: IntArray, since: FloatArray | None = None) -> RunningJobs:
        """Some of these jobs, with the rows ``job`` of another table; ``since`` replaces the times,
        if given.
        """
        names = None if self._names is None else self.gpus(some)
        numbers = None
        if self._numbers is not None:
            numbers = self._numbers[0], self.numbers_of(some, self._numbers[0])
        since = self.since[some] if since is None else since
        return RunningJobs(
            job, self.pool[some], self.length[some], since, names=names, numbers=numbers
        )

    def kept(self, stay: BoolArray, job: IntArray) -> RunningJobs:
        """As `take`, but by a mask and with ascending rows ``job``, which is faster."""
        names = None if self._names is None else list(compress(self._names, stay.tolist()))
        numbers = None
        if self._numbers is not None:
            numbers = self._numbers[0], self._numbers[1][stay.repeat(self.length)]
        return RunningJobs(
            job, self.pool[stay], self.length[stay], self.since[stay], names=names, numbers=numbers
        )

    def and_also(self, other: RunningJobs) -> RunningJobs:
        """The union of these jobs and others, sorted by row."""
        if not len(self) or not len(other):
            return (self if len(self) else other).in_order()
        names = None if self._names is None else [*self._names, *other._named()]
        numbers = None
        if self._numbers is not None:
            numbering, gpu = self._numbers
            more = other.numbers(numbering)
            if NONE in more:  # nodes that were added after this numbering
                names = [*self._named(), *other._named()]
            else:
                numbers = numbering, np.concatenate([gpu, more])
        return RunningJobs(
            np.concatenate([self.job, other.job]),
            np.concatenate([self.pool, other.pool]),
            np.concatenate([self.length, other.length]),
            np.concatenate([self.since, other.since]),
            names=names,
            numbers=numbers,
        ).in_order()

    def in_order(self) -> RunningJobs:
        """The same, sorted by row."""
        if (self.job[1:] > self.job[:-1]).all():
            return self
        order = self.job.argsort()
        return self.take(order, self.job[order])
