"""How jobs run: what their configurations say beside the GPUs that they hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from optsched.arrays import BoolArray, IntArray
from optsched.candidates.classes import LABELS
from optsched.rounds.ledger import Ledger

POOL = 0
GPUS = 1
OPTION = 3
"""Places among the labels of a configuration (`Classes.configuration_labels`)."""
BESIDE = slice(OPTION, LABELS)
"""Option, workers, servers and share: what GPUs do not show. How many nodes a job spans, they do."""
WHOLE = int(np.float64(1.0).view(np.int64))


@dataclass(frozen=True)
class Setup:
    """What a configuration says beside its GPUs.

    Attributes
    ----------
    share : float
        Of each GPU.
    option : int, optional
        Place in the job's own list of options.
    workers, servers : int
        Of a job with parameter servers.
    """

    share: float = 1.0
    option: int | None = None
    workers: int = 0
    servers: int = 0

    def stated(self) -> dict[str, float | int]:
        """By name, what is not as for a job that has its GPUs for itself and nothing to choose."""
        served = (
            {"workers": self.workers, "servers": self.servers}
            if self.workers or self.servers
            else {}
        )
        part = {} if self.share == 1.0 else {"share": self.share}
        return part | ({} if self.option is None else {"option": self.option}) | served

    def __str__(self) -> str:
        return (
            ", ".join(f"{name} {value:g}" for name, value in self.stated().items()) or "whole GPUs"
        )


PLAIN = Setup()


def says_more(labels: IntArray) -> BoolArray:
    """Which of some configurations say more than GPUs."""
    option, workers, servers, share = labels[:, BESIDE].T
    return np.asarray((option >= 0) | (workers != 0) | (servers != 0) | (share != WHOLE))


def setups_of(key: IntArray) -> Mapping[int, Setup]:
    """How the jobs of some rows of a ledger (their keys) run, where that is more than GPUs; by the row of the job."""
    key = key[says_more(key[:, 2:])]
    share = np.ascontiguousarray(key[:, -1]).view(np.float64).tolist()
    found: dict[int, Setup] = {}
    for place, (job, partner, _, _, _, option, workers, servers, _) in enumerate(key.tolist()):
        setup = Setup(share[place], None if option < 0 else option, workers, servers)
        found[job] = setup
        if partner >= 0:
            found[partner] = setup
    return found


@dataclass(frozen=True)
class Configured:
    """In which configuration each job runs now.

    Attributes
    ----------
    labels : IntArray, shape (jobs, LABELS)
    known : BoolArray, shape (jobs,)
        Jobs that run in it. Of a job that the caller says to run, no more than its GPUs is known
        before its first plan.
    """

    labels: IntArray
    known: BoolArray

    @classmethod
    def of(cls, ledger: Ledger, pool: IntArray, gpus: IntArray) -> Configured:
        """From the ledger, where it agrees with the pool (-1: none) and the GPUs that each job holds."""
        count = len(pool)
        key = ledger.key[ledger.runs]
        labels = np.zeros((count + 1, LABELS), np.int64)
        known = np.zeros(count + 1, bool)
        for job in (key[:, 0], key[:, 1]):
            labels[job], known[job] = key[:, 2:], True
        labels = labels[:count]
        known = known[:count]
        return cls(labels, known & (labels[:, POOL] == pool) & (labels[:, GPUS] == gpus))

    @property
    def option(self) -> IntArray:
        """Place in its own list of options of each job, -1 where it runs in none, or none is known; shape (jobs,)."""
        return np.where(self.known, self.labels[:, OPTION], -1)

    @cached_property
    def setups(self) -> Mapping[int, Setup]:
        """How the jobs run of which it is known, where that is more than GPUs; by the row of the job."""
        jobs = np.flatnonzero(self.known)
        return setups_of(np.column_stack([jobs, np.full(len(jobs), -1), self.labels[jobs]]))

    def goes_on(self, job: int, setup: Setup) -> bool:
        """Whether a job that runs is said to run on as it does, so far as that is known."""
        return not self.known[job] or self.setups.get(job, PLAIN) == setup

    def like(self, jobs: IntArray, labels: IntArray) -> BoolArray:
        """Which of these jobs run as labels of configurations say, or as nobody knows; nodes and GPUs aside."""
        same: BoolArray = (self.labels[jobs][:, BESIDE] == labels[:, BESIDE]).all(axis=1)
        return same | ~self.known[jobs]


def changes(before: Configured, after: Ledger, jobs: IntArray) -> dict[int, str]:
    """Words for those of some jobs that are stopped to go on in another configuration."""
    now = setups_of(after.key[after.runs])
    return {
        job: f"it goes on with {now.get(job, PLAIN)} instead of {before.setups.get(job, PLAIN)}"
        for job in jobs.tolist()
        if not before.goes_on(job, now.get(job, PLAIN))
    }
