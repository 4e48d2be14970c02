"""The ``noisy`` model: another one with errors of a known size, for experiments."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from optsched.arrays import FloatArray, IntArray, hash_lists, hash_rows
from optsched.arrays.values import replace
from optsched.instance import Instance, RateTable
from optsched.instance.documents import Count, Document
from optsched.performance.composed.base import WrappedModel
from optsched.performance.configurations import Configurations
from optsched.performance.protocol import (
    Feasibility,
    JobBatch,
    PerformanceModel,
    Prediction,
)

HELIOS_WITHIN = np.log([1.0, 1.1, 1.5, 2.0, 11.0, 101.0])
HELIOS_SHARE = np.array([0.0, 0.1, 0.5, 0.7, 0.9, 1.0])
"""Shares of duration estimates that err by at most these factors:
Helios artifact, ``philly_estimate.py``.
"""


class NoisyDocument(Document):
    """Options of the noisy model beside ``of``."""

    sd: float = Field(0.1, ge=0, le=10)
    seed: Count = 0
    errors: Literal["normal", "helios"] = "normal"
    known: bool = True


class NoisyModel(WrappedModel):
    """Rates of another model, each with a reproducible error.

    For workload w on k GPUs and n nodes of a pool of GPU type g

        rate = rate_of x exp(e_wgkn),   e independent, from a hash of (seed, names of w and g, k, n)

    so that it depends neither on the order of jobs nor on other queries. For jobs without a
    workload, the hash is that of their rate profile.

    Options
        of      the performance object that is right.
        sd      standard deviation of e, normal (0.1).
        errors  ``normal``, or ``helios``: signs are even, and sizes are spread as the errors of the
                duration estimates that the Helios artifact draws (10 % within 1.1 times, half
                within 1.5, 70 % within 2, 90 % within 11).
        seed    of the errors.
        known   whether ``log_sd`` describes the error (true).
    """

    name = "noisy"
    corrects = True
    Options = NoisyDocument

    def __init__(self, instance: Instance, of: PerformanceModel, options: NoisyDocument) -> None:
        super().__init__(instance, of)
        self._options = options
        self._workloads = np.array([_digest(w.name) for w in instance.workloads] + [0], np.uint64)
        self._gpus = np.array(
            [_digest(pool.gpu) for pool in instance.cluster.pools] + [0], np.uint64
        )
        self._profiles = np.append(_profile_digests(instance.rates), np.uint64(0))

    def rates(
        self,
        jobs: JobBatch,
        configurations: Configurations,
        job: IntArray,
        configuration: IntArray,
    ) -> Prediction:
        right = super().rates(jobs, configurations, job, configuration)
        # Hash names and contents, not row numbers: an error must not depend on the numbering.
        who = np.where(
            jobs.workload >= 0, self._workloads[jobs.workload], self._profiles[jobs.profile]
        )
        uniform = _uniform(
            (who[job] ^ np.uint64(self._options.seed)).view(np.int64),
            self._gpus[configurations.pool[configuration]].view(np.int64),
            configurations.gpus[configuration],
            configurations.nodes[configuration],
        )
        runs = right.feasible == Feasibility.OK
        error = self._error(uniform)
        sd = (
            self._options.sd
            if self._options.errors == "normal"
            else float(np.std(self._error((np.arange(1001) + 0.5) / 1001)))
        )
        log_sd = np.hypot(right.log_sd, sd) if self._options.known else right.log_sd
        return replace(
            right,
            rate=np.where(runs, right.rate * np.exp(error), 0.0),
            log_sd=np.where(runs, log_sd, 0.0),
        )

    def _error(self, uniform: FloatArray) -> FloatArray:
        if self._options.errors == "normal":
            from scipy.special import ndtri  # slow to import

            return self._options.sd * ndtri(uniform)
        # One uniform number gives the sign (which half it is in) and the size (its distance from
        # 1/2).
        size = np.interp(np.abs(2 * uniform - 1), HELIOS_SHARE, HELIOS_WITHIN)
        return np.sign(uniform - 0.5) * size


def _digest(name: str) -> int:
    """64 bits of a name (FNV-1a): the same in every process."""
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


def _profile_digests(rates: RateTable) -> NDArray[np.uint64]:
    """64 bits of the content of each profile, independent of its number and of the order of places
    in the table.
    """
    places = np.array([_digest(name) for name in rates.places] + [0], np.uint64).view(np.int64)
    return hash_lists(rates.indptr, [places[rates.place], rates.gpus, rates.nodes, rates.rate])


def _uniform(*keys: IntArray) -> FloatArray:
    """Numbers in (0, 1) from keys, by a hash of each row."""
    return ((hash_rows(keys) >> np.uint64(11)).astype(np.float64) + 0.5) / 2.0**53
