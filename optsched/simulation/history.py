"""The time that the steps done would have taken in isolation, for formulations that read
``history.isolated_time``.
"""

from __future__ import annotations

import numpy as np

from optsched.arrays import FloatArray, IntArray
from optsched.rounds.ledger import isolated_seconds
from optsched.simulation.fairness import isolated_rates


class IsolatedHistory:
    """Isolated time of the jobs of a trace (``history.isolated_time``).

    Steps between two allocations are counted at the rate that the job would have with 1/n of the
    cluster, where n is the number of jobs present at the first of the two allocations.

    Attributes
    ----------
    seconds : FloatArray, shape (jobs,)
    """

    def __init__(self, rate: FloatArray, gang: IntArray) -> None:
        self._rate = rate
        self._gang = gang
        self._isolated = np.zeros(len(gang))
        self._counted = np.zeros(len(gang))
        self.seconds: FloatArray = np.zeros(len(gang))

    def count(self, done: FloatArray) -> None:
        """Count the steps that were done since the last call."""
        made = done - self._counted
        self.seconds = self.seconds + isolated_seconds(made, self._isolated)
        self._counted = done.copy()

    def share(self, jobs: IntArray, gpus: IntArray) -> None:
        """From now on these jobs share ``gpus`` GPUs of each pool."""
        parts = np.full(len(jobs), float(len(jobs)))
        self._isolated[jobs] = isolated_rates(self._rate[jobs], self._gang[jobs], gpus, parts)
