"""The greatest weight first."""

from __future__ import annotations

from optsched.arrays import FloatArray
from optsched.ranking import RankedJobs, Ranking


class Priority(Ranking):
    """Jobs by weight, the greatest first; among equal weights in the order in which they arrived.

    Key
        -w_j

    The priority queue of batch schedulers with preemption: what a job has had, and what it has
    left, counts for nothing. Jobs of small weight wait as long as there is work of greater weight;
    ``patience`` of the policy is the way out.
    """

    name = "priority"
    reads = frozenset({"weight"})

    def keys(self, jobs: RankedJobs) -> tuple[FloatArray, ...]:
        return (-jobs.weight,)
