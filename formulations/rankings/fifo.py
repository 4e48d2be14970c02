"""First in, first out."""

from __future__ import annotations

from optsched.arrays import FloatArray
from optsched.ranking import RankedJobs, Ranking, RankingOptions


class Fifo(Ranking):
    """Jobs in the order in which they arrived.

    Key
        arrival_j

    A job that arrived later runs only on what those before it leave over, and is stopped when one of them can use it.

    Options
        strict  a job that has no room keeps all jobs behind it waiting; otherwise smaller ones fill what is left.
    """

    name = "fifo"

    class Options(RankingOptions):
        """Options of first in, first out."""

        strict: bool = False

    options: Options

    @property
    def strict(self) -> bool:
        """Whether the head of the queue blocks it."""
        return self.options.strict

    def keys(self, jobs: RankedJobs) -> tuple[FloatArray, ...]:
        """See the class."""
        return (jobs.arrival,)
