"""Least slack first."""

from __future__ import annotations

from typing import Literal

import numpy as np

from formulations.rankings.edf import KEEPS, LATE, NONE
from optsched.arrays import FloatArray, IntArray
from optsched.ranking import RankedJobs, Ranking, RankingOptions


class SlackFirst(Ranking):
    """The job that can wait least goes first.

    Key
        (0, s_j)    s_j = d_j - now - r_j, the slack: the time for which a job can wait and still be in time. d_j is its
                    deadline, r_j the least time that it still needs, in its fastest configuration;
        (1, s_j)    a hard deadline that cannot be met any more, s_j < 0;
        (2, 0)      no deadline

    With ``late`` kept, the key of a deadline that cannot be met any more is (0, s_j) too. So jobs
    that are late anyhow go before all that can be in time.

    The order is that of Z. Chen et al., "Deep learning research and development platform:
    Characterizing and scheduling with QoS guarantees on GPU clusters", IEEE Transactions on
    Parallel and Distributed Systems 2020 (GENIE: shortest waiting allowance first). There each job
    takes the fewest GPUs with which it is in time; here the option ``gpus`` says how many.

    On one GPU it meets all deadlines whenever that is possible, as `edf` does (A. Mok, "Fundamental
    design problems of distributed systems for the hard real-time environment", MIT 1983), and of
    jobs that all need the same time the order is that of their deadlines. On several GPUs a long
    job does not wait for short ones that are due before it. Where not all jobs can be in time, it
    goes for the hardest ones first, and `edf` may keep more.

    Options
        late  hopeless: hard deadlines that cannot be met any more go behind all others; kept: they keep their places.
    """

    name = "slack-first"
    aliases = ("least-slack-first",)
    reads = frozenset({"deadline"})

    class Options(RankingOptions):
        """Options of least slack first."""

        late: Literal["hopeless", "kept"] = "hopeless"

    options: Options

    def keys(self, jobs: RankedJobs) -> tuple[FloatArray | IntArray, ...]:
        lost = (jobs.slack < 0) & ~jobs.soft & (self.options.late == "hopeless")
        group = np.select([np.isinf(jobs.deadline), lost], [NONE, LATE], KEEPS)
        return group, np.where(group == NONE, 0.0, jobs.slack)
