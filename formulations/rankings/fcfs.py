"""First come, first served."""

from __future__ import annotations

from optsched.arrays import FloatArray
from optsched.ranking import RankedJobs, Ranking, RankingOptions


class FirstComeFirstServed(Ranking):
    """Jobs in the order in which they arrived.

    Key
        arrival_j

    A job that arrived later runs only on what those before it leave over, and is stopped when one
    of them can use it. The formulation `fifo` is another policy: it starts jobs in order of arrival
    until the first that finds no room, and stops none of them. Without ``strict`` smaller jobs fill
    what a job without room leaves over.

    Options
        strict  all jobs behind one that has no room wait, and stop if they run.
    """

    name = "fcfs"
    aliases = ("first-come-first-served",)
    reads = frozenset({"arrival"})

    class Options(RankingOptions):
        """Options of first come, first served."""

        strict: bool = False

    options: Options

    @property
    def strict(self) -> bool:
        """Whether the head of the queue blocks it."""
        return self.options.strict

    def keys(self, jobs: RankedJobs) -> tuple[FloatArray, ...]:
        return (jobs.arrival,)
