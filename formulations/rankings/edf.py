"""Earliest deadline first."""

from __future__ import annotations

from typing import Literal

import numpy as np

from optsched.arrays import FloatArray, IntArray
from optsched.ranking import RankedJobs, Ranking, RankingOptions

KEEPS, LATE, NONE = 0, 1, 2
"""A deadline that still counts, a hard one that is lost, none: one group after the other."""


class EarliestDeadlineFirst(Ranking):
    """The job whose deadline comes first goes first.

    Key
        (0, d_j)    a deadline that has not passed, hard or soft, or a soft one that has;
        (1, d_j)    a hard deadline that has passed: there is nothing left to save, so its job comes after all those
                    that can still be in time;
        (2, 0)      no deadline

    With ``late`` kept, the key of a hard deadline that has passed is (0, d_j) too: the plain rule,
    in which work that has failed goes before all that can still be in time. Published comparisons
    have it so (D. Gu et al., "ElasticFlow: An elastic serverless training platform for distributed
    deep learning", ASPLOS 2023: its simulator). With ``late`` hopeless, it is (1, d_j) as soon as
    now + r_j > d_j, where r_j is the least time that the job still needs: GPUs go to jobs that can
    still be in time.

    On one GPU without restart costs all deadlines are met whenever that is possible (W. Horn, "Some
    simple scheduling algorithms", Naval Research Logistics Quarterly 21, 1974; M. Dertouzos, IFIP
    Congress 1974), and the greatest lateness is least: so work that is late but still counts keeps
    its place. Rounds add that a job holds its GPUs to the end of a round.

    On more GPUs it is not optimal (S. Dhall, C. Liu, "On a real-time scheduling problem",
    Operations Research 26, 1978): m jobs of length 2e due at 1 and one job of length 1 due at
    1 + e, all on m GPUs: the m short ones start, so the long one ends at 1 + 2e. `slack-first`
    starts the long one. The side constraint ``deadlines`` and the formulation ``lease`` plan ahead.

    Options
        late  hard deadlines that go behind: those past (``last``), those out of reach
              (``hopeless``), none (``kept``).
    """

    name = "edf"
    aliases = ("earliest-deadline-first",)
    reads = frozenset({"deadline"})

    class Options(RankingOptions):
        """Options of earliest deadline first."""

        late: Literal["last", "kept", "hopeless"] = "last"

    options: Options

    def keys(self, jobs: RankedJobs) -> tuple[FloatArray | IntArray, ...]:
        d = jobs.deadline
        # No deadline is below -inf: with `kept` none is lost.
        lost = {"last": d <= jobs.now, "kept": d < -np.inf, "hopeless": jobs.slack < 0}
        group = np.select([np.isinf(d), lost[self.options.late] & ~jobs.soft], [NONE, LATE], KEEPS)
        return group, d
