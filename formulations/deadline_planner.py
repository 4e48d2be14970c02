"""Plans by rule: jobs one after the other, each at the level with the least GPU time that still
meets its deadline, on what those before it leave.

D. Gu et al., "ElasticFlow: An Elastic Serverless Training Platform for Distributed Deep Learning",
ASPLOS 2023, section 4 (shares by deadline); here with exact times in place of slots. A plan that is
found is a witness: these jobs can meet their deadlines. That none is found proves nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from formulations.horizon import ROUNDING
from optsched.arrays import BoolArray, FloatArray, IntArray

DONE = 1.0 - 1e-12
"""Part of its work at which a job is done, whatever the rounding of sums."""


class Levels(NamedTuple):
    """Ways to run jobs, numbered from 0.

    Attributes
    ----------
    duration : FloatArray, shape (L,)
        Seconds that the whole work of a job takes.
    gpu_time : FloatArray, shape (L,)
        GPU seconds of the whole work.
    value : FloatArray, shape (L,)
        Of a job that is done at this level.
    due : FloatArray, shape (L,)
        Seconds from now until which the level may be used.
    uses : FloatArray, shape (R, L)
        What a job holds of each renewable resource while it runs.
    consumes : FloatArray, shape (B, L)
        What the whole work uses up of each consumable resource.
    """

    duration: FloatArray
    gpu_time: FloatArray
    value: FloatArray
    due: FloatArray
    uses: FloatArray
    consumes: FloatArray


class Stretch(NamedTuple):
    """A job runs at a level from one moment to another."""

    job: int
    level: int
    start: float
    end: float


class Profile:
    """What is left of each resource, step by step; stretches split steps where they end.

    Parameters
    ----------
    edges : FloatArray, shape (S + 1,)
        Ascending, with every release and every due of a level among them.
    free : FloatArray, shape (R, S)
    left : FloatArray, shape (B,)
        Of each consumable resource.
    levels : Levels
    """

    def __init__(
        self, edges: FloatArray, free: FloatArray, left: FloatArray, levels: Levels
    ) -> None:
        self._edges, self._free, self._left = edges.copy(), free.copy(), left.copy()
        self._levels = levels
        self._holds = [np.flatnonzero(column) for column in levels.uses.T]

    def plan(
        self,
        job: int,
        mine: IntArray,
        release: float,
        work: float = 1.0,
        own: Sequence[Stretch] = (),
    ) -> list[Stretch]:
        """Run a job from its release on: at the level of the highest value, of equal ones that with
        the least GPU time, at which it fits; else at the fastest one that has room at each moment;
        [] if it does not fit.

        Parameters
        ----------
        job : int
        mine : IntArray
            Its levels.
        release : float
        work : float
            Part of its work that is to be done.
        own : sequence of Stretch
            When it runs already.
        """
        levels = self._levels
        keys = (levels.duration[mine], levels.gpu_time[mine], -levels.value[mine])
        order = mine[np.lexsort(keys)]
        for level in order.tolist():
            steps = self._steps([level], release, float(levels.due[level]), own)
            if stretches := self._run(job, steps, work):
                return stretches
        if len(mine) == 1 or len(self._left):
            return []
        fastest_first = mine[np.argsort(levels.duration[mine])].tolist()
        steps = self._steps(fastest_first, release, float(levels.due[mine].max()), own)
        return self._run(job, steps, work)

    def fill(
        self, job: int, level: int, begin: float, end: float, work: float, own: Sequence[Stretch]
    ) -> list[Stretch]:
        """Run a job at a level between two moments, as much of some work as there is room for."""
        steps = self._steps([level], begin, min(end, float(self._levels.due[level])), own)
        return self._run(job, steps, work, whole=False)

    def _steps(
        self, fastest_first: Sequence[int], begin: float, end: float, own: Sequence[Stretch]
    ) -> tuple[int, IntArray]:
        """The first step, and for each step between two moments the first level that has room in it
        (-1: none, or the job runs already).
        """
        first, last = np.searchsorted(self._edges, (begin, end)).tolist()
        if last <= first or any(self._lacks(level) for level in fastest_first):
            return first, np.zeros(0, np.int64)
        taken = np.zeros(last - first, bool)
        for stretch in own:
            if stretch.end > begin and stretch.start < end:
                here = np.searchsorted(self._edges, (stretch.start, stretch.end)) - first
                taken[max(int(here[0]), 0) : max(int(here[1]), 0)] = True
        chosen = np.full(last - first, -1)
        for level in fastest_first:
            chosen[(chosen < 0) & ~taken & self._has_room(level, first, last)] = level
        return first, chosen

    def _run(
        self, job: int, steps: tuple[int, IntArray], work: float, whole: bool = True
    ) -> list[Stretch]:
        """Take the earliest steps in which the work can be done; unless ``whole``, all if none
        suffice.
        """
        first, chosen = steps
        speed = np.where(chosen >= 0, 1.0 / self._levels.duration[chosen], 0.0)
        done = np.cumsum(speed * np.diff(self._edges[first : first + len(chosen) + 1]))
        if not len(done) or (whole and done[-1] < work * DONE):
            return []
        end = min(int(np.searchsorted(done, work * DONE)), len(done) - 1)
        over = float(done[end] - work) / max(float(speed[end]), 1e-300)
        step = first + end
        if over > ROUNDING * float(self._edges[step + 1] - self._edges[step]):
            self._split(step, float(self._edges[step + 1]) - over)
        return self._take(job, first, chosen[: end + 1])

    def _lacks(self, level: int) -> bool:
        return bool((self._levels.consumes[:, level] > self._left * (1 + ROUNDING)).any())

    def _has_room(self, level: int, first: int, last: int) -> BoolArray:
        rows = self._holds[level]
        room = self._free[rows, first:last] >= self._levels.uses[rows, level, np.newaxis] - ROUNDING
        room &= self._edges[first + 1 : last + 1] <= self._levels.due[level]
        return np.asarray(room.all(axis=0))

    def _split(self, step: int, moment: float) -> None:
        self._edges = np.insert(self._edges, step + 1, moment)
        self._free = np.insert(self._free, step, self._free[:, step], axis=1)

    def _take(self, job: int, first: int, chosen: IntArray) -> list[Stretch]:
        """Count what a job holds at the level chosen in each step (-1: none)."""
        begins = np.flatnonzero(np.diff(chosen, prepend=-2))
        ends = np.append(begins[1:], len(chosen))
        stretches = []
        for begin, end in zip((first + begins).tolist(), (first + ends).tolist(), strict=True):
            level = int(chosen[begin - first])
            if level < 0:
                continue
            rows = self._holds[level]
            self._free[rows, begin:end] -= self._levels.uses[rows, level, np.newaxis]
            start, stop = float(self._edges[begin]), float(self._edges[end])
            stretches.append(Stretch(job, level, start, stop))
        if stretches:
            self._left -= self._levels.consumes[:, stretches[0].level]
        return stretches
