"""Two-dimensional least attained service first."""

from __future__ import annotations

from optsched.arrays import FloatArray
from optsched.ranking import RankedJobs, Ranking


class LeastAttainedGpuTime(Ranking):
    """The job that has had the least GPU time goes first.

    Key
        a_j = sum over its runs of g t      GPU seconds that job j has had: g GPUs for t seconds at a time

    Least attained service in both dimensions, space and time: J. Gu et al., "Tiresias: A GPU
    cluster manager for distributed deep learning", NSDI 2019 (2D-LAS). `Tiresias` is the same with
    few levels instead of a continuum, which saves most of the stops.
    """

    name = "2d-las"
    reads = frozenset()

    def keys(self, jobs: RankedJobs) -> tuple[FloatArray, ...]:
        return (jobs.attained,)
