"""What the steps that jobs have done would have taken in isolation,
for formulations that ask for it.
"""

from __future__ import annotations

import numpy as np

from optsched.arrays import FloatArray, IntArray
from optsched.rounds.ledger import isolated_seconds
from optsched.simulation.fairness import isolated_rates


class IsolatedHistory:
    """Isolated time of the jobs of a trace (``history.isolated_time``).

    Between two allocations steps count at the rate that a job would have had with 1/n of the
    cluster, n jobs being there at the first of them.

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
        """Steps done up to now."""
        made = done - self._counted
        self.seconds = self.seconds + isolated_seconds(made, self._isolated)
        self._counted = done.copy()

    def share(self, jobs: IntArray, gpus: IntArray) -> None:
        """From now on these jobs share so many GPUs of each pool."""
        parts = np.full(len(jobs), float(len(jobs)))
        self._isolated[jobs] = isolated_rates(self._rate[jobs], self._gang[jobs], gpus, parts)
