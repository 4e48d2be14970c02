"""Shortest remaining time first."""

from __future__ import annotations

from optsched.arrays import FloatArray
from optsched.ranking import RankedJobs, Ranking


class ShortestRemainingTime(Ranking):
    """The job that ends soonest if it runs now, in its fastest configuration, goes first.

    On one GPU without restart costs this minimises the mean completion time (L. Schrage, "A proof of the optimality of
    the shortest remaining processing time discipline", Operations Research 16, 1968).
    """

    name = "srtf"
    aliases = ("shortest-remaining-time",)

    def keys(self, jobs: RankedJobs) -> tuple[FloatArray, ...]:
        """See the class."""
        return (jobs.remaining,)
