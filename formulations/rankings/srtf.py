"""Shortest remaining time first, or shortest remaining service."""

from __future__ import annotations

from optsched.arrays import FloatArray
from optsched.ranking import RankedJobs, Ranking, RankingOptions


class ShortestRemainingTime(Ranking):
    """The job that ends soonest if it runs now, in its fastest configuration, goes first.

    Key
        r_j         seconds that are left of job j;
        g_j r_j     GPU seconds, with ``service`` (shortest remaining service first, SRSF: J. Gu et al., "Tiresias: A
                    GPU cluster manager for distributed deep learning", NSDI 2019);
        ... / w_j   with ``weighted`` (W. Smith, "Various optimizers for single-stage production", Naval Research
                    Logistics Quarterly 3, 1956, computed again in every round)

    On one GPU without restart costs the plain rule minimises the mean completion time, whenever
    jobs arrive (L. Schrage, "A proof of the optimality of the shortest remaining processing time
    discipline", Operations Research 16, 1968). The weighted one minimises the weighted mean where
    all jobs are there from the start. A job whose remaining time is not known goes last.

    Options
        service   by GPU seconds instead of seconds.
        weighted  per unit of weight.
    """

    name = "srtf"
    aliases = ("shortest-remaining-time",)

    class Options(RankingOptions):
        """Options of shortest remaining time first."""

        service: bool = False
        weighted: bool = False

    options: Options

    @property
    def reads(self) -> frozenset[str]:
        """See the option ``weighted``."""
        return frozenset({"weight"} if self.options.weighted else ())

    def keys(self, jobs: RankedJobs) -> tuple[FloatArray, ...]:
        r = jobs.gpus * jobs.remaining if self.options.service else jobs.remaining
        return (r / jobs.weight if self.options.weighted else r,)
