"""Least attained service first."""

from __future__ import annotations

from optsched.arrays import FloatArray
from optsched.ranking import RankedJobs, Ranking


class LeastAttainedService(Ranking):
    """The job that has run for the shortest time goes first.

    Key
        t_j         seconds that job j has held GPUs

    The remaining work need not be known. Among the rules that do not use it, this one minimises the
    mean completion time on one GPU if the hazard rate of run times decreases: the longer a job has
    run, the longer it will still run (R. Righter, J. G. Shanthikumar, "Scheduling multiclass
    single server queueing systems to stochastically maximize the number of successful departures",
    Probability in the Engineering and Informational Sciences 3, 1989). Jobs that have run equally
    long take turns, round by round.
    """

    name = "las"
    aliases = ("least-attained-service",)
    reads = frozenset()

    def keys(self, jobs: RankedJobs) -> tuple[FloatArray, ...]:
        return (jobs.executed,)
