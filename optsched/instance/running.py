"""What runs, by the row of the job, as a mapping and as arrays."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from functools import cached_property
from itertools import chain, compress

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray, ranges
from optsched.display import Displayed, count
from optsched.instance.cluster import Numbering

Place = tuple[int, tuple[str, ...], float | None]
"""Pool, GPUs (``node/index``) and since when (seconds, if known) a job holds them."""


class RunningJobs(Displayed, Mapping[int, Place]):
    """A mapping of the rows of jobs to their places that never changes, with its R jobs as arrays.

    With tens of thousands of jobs that run on from round to round, walking through all of them is what takes time:
    arrays are carried over with the jobs that stay. They follow from the places alone.

    Attributes
    ----------
    job : IntArray, shape (R,)
        Row of each job.
    pool, length : IntArray, shape (R,)
        Row of its pool, and how many GPUs it holds.
    dated : BoolArray, shape (R,)
        Whether it is known since when.
    """

    def __init__(
        self,
        values: list[Place],
        job: IntArray,
        pool: IntArray,
        length: IntArray,
        dated: BoolArray,
        numbered: tuple[Numbering, IntArray] | None = None,
    ) -> None:
        self._values, self._numbered = values, numbered
        self.job, self.pool, self.length, self.dated = job, pool, length, dated

    @classmethod
    def of(cls, places: Mapping[int, Place]) -> RunningJobs:
        """Such a mapping of the same places; itself, if it is one."""
        if isinstance(places, RunningJobs):
            return places
        values = list(places.values())
        return cls(
            values,
            np.fromiter(places, np.int64, len(values)),
            np.array([pool for pool, _, _ in values], np.int64),
            np.array([len(gpus) for _, gpus, _ in values], np.int64),
            np.array([since is not None for _, _, since in values], bool),
        )

    @cached_property
    def _places(self) -> dict[int, Place]:
        return dict(zip(self.job.tolist(), self._values, strict=True))

    def __getitem__(self, job: int) -> Place:
        return self._places[job]

    def __iter__(self) -> Iterator[int]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, job: object) -> bool:
        return job in self._places

    def _headline(self) -> str:
        return f"{count(len(self), 'job')} on {count(int(self.length.sum()), 'GPU')}"

    def keys(self) -> KeysView[int]:
        """Rows of the jobs."""
        return self._places.keys()

    def values(self) -> ValuesView[Place]:
        return self._places.values()

    def items(self) -> ItemsView[int, Place]:
        return self._places.items()

    @cached_property
    def since(self) -> FloatArray:
        """Since when each of the R holds its GPUs, seconds; NaN where that is not known."""
        return np.array([since for _, _, since in self._values], np.float64)

    @property
    def owner(self) -> IntArray:
        """Which of the R holds each GPU, in the order of `numbers`."""
        return np.repeat(np.arange(len(self), dtype=np.int64), self.length)

    def names(self) -> list[str]:
        """GPUs, job by job."""
        return list(chain.from_iterable(gpus for _, gpus, _ in self._values))

    def numbers(self, numbering: Numbering) -> IntArray:
        """Numbers of the GPUs in a cluster, job by job (`Numbering.numbers`)."""
        if self._numbered is None or self._numbered[0] is not numbering:
            self._numbered = numbering, numbering.numbers(self.names())
        return self._numbered[1]

    def among(self, jobs: int) -> IntArray:
        """Which of the R each of so many rows of the job table is, -1 for those that do not run."""
        place = np.full(jobs, -1, np.int64)
        place[self.job] = np.arange(len(self))
        return place

    def gpus(self, some: IntArray) -> list[tuple[str, ...]]:
        """GPUs of some of the R."""
        return [gpus for _, gpus, _ in map(self._values.__getitem__, some.tolist())]

    def numbers_of(self, some: IntArray, numbering: Numbering) -> IntArray:
        """Numbers of the GPUs of some of the R, job by job."""
        start = np.cumsum(self.length) - self.length
        return self.numbers(numbering)[ranges(start[some], self.length[some])]

    def taken(self, some: IntArray, job: IntArray) -> RunningJobs:
        """Some of the R, as the rows ``job`` of another table."""
        numbered = None
        if self._numbered is not None:
            numbered = self._numbered[0], self.numbers_of(some, self._numbered[0])
        values = list(map(self._values.__getitem__, some.tolist()))
        return RunningJobs(
            values, job, self.pool[some], self.length[some], self.dated[some], numbered
        )

    def kept(self, stay: BoolArray, job: IntArray) -> RunningJobs:
        """Those of a mask of the R, as the ascending rows ``job`` of another table; faster than `taken`."""
        numbered = None
        if self._numbered is not None:
            numbering, numbers = self._numbered
            numbered = numbering, numbers[np.repeat(stay, self.length)]
        values = list(compress(self._values, stay.tolist()))
        return RunningJobs(
            values, job, self.pool[stay], self.length[stay], self.dated[stay], numbered
        )

    def and_also(self, other: RunningJobs) -> RunningJobs:
        """These jobs and others, ascending."""
        numbered = None
        if self._numbered is not None:
            numbered = (
                self._numbered[0],
                np.concatenate([self._numbered[1], other.numbers(self._numbered[0])]),
            )
        both = RunningJobs(
            [*self._values, *other.values()],
            np.concatenate([self.job, other.job]),
            np.concatenate([self.pool, other.pool]),
            np.concatenate([self.length, other.length]),
            np.concatenate([self.dated, other.dated]),
            numbered,
        )
        order = np.argsort(both.job)
        return both.taken(order, both.job[order])
