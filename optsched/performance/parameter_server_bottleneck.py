"""Workers and parameter servers from resources alone: whichever is busiest sets the pace."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from optsched.arrays import FloatArray
from optsched.errors import InvalidInput
from optsched.instance.reading import show


@dataclass(frozen=True)
class BottleneckLaw:
    """Seconds of a step of w workers and p servers, without any measured speed of several workers.

    A worker computes t_c seconds per step alone, sends a gradient of S bytes and fetches as many; the p servers, among
    which parameters are split evenly, do u seconds of work per gradient in all; each server and worker has W bytes/s in
    each direction:

        asynchronous  f(w, p) = min( w / (t_c + 2 S / W_worker),  p W_server / S,  p / u )
        synchronous   t(w, p) = t_c / w + max( 2 S / W_worker,  2 w S / (p W_server),  w u / p )

    In synchronous training workers share the batch, and all gradients of a step meet at the servers; in asynchronous
    training the steps of all workers count, and a queue at the busiest resource is the limit.

    This is the idea of Cynthia (H. Zheng et al., ICPP 2019: worker compute against use of the servers' CPU and
    network); the formulas are this project's own. Cynthia's exact published formula was not available: that this agrees
    with it is unverified.

    Attributes
    ----------
    compute : float
        t_c, s.
    gradient_bytes : float
        S.
    worker_bandwidth, server_bandwidth : float
        W, bytes/s in each direction.
    update : float
        u, s; 0 where servers' work is nothing.
    """

    compute: float
    gradient_bytes: float
    worker_bandwidth: float
    server_bandwidth: float
    update: float = 0.0

    def __post_init__(self) -> None:
        for name in ("compute", "gradient_bytes", "worker_bandwidth", "server_bandwidth"):
            value = getattr(self, name)
            if not (value > 0 and np.isfinite(value)):
                raise InvalidInput(name, show(value), "a finite number above 0")
        if not (self.update >= 0 and np.isfinite(self.update)):
            raise InvalidInput("update", show(self.update), "a finite number of at least 0")

    def synchronous(self, workers: ArrayLike, servers: ArrayLike) -> FloatArray:
        """Steps/s when all workers share a batch and wait for each other."""
        w, p = np.asarray(workers, np.float64), np.asarray(servers, np.float64)
        own = 2 * self.gradient_bytes / self.worker_bandwidth
        network = 2 * w * self.gradient_bytes / (p * self.server_bandwidth)
        slowest = np.maximum(np.maximum(own, network), w * self.update / p)
        rate: FloatArray = 1.0 / (self.compute / w + slowest)
        return rate

    def asynchronous(self, workers: ArrayLike, servers: ArrayLike) -> FloatArray:
        """Steps/s of all workers together when each goes at its own pace."""
        w, p = np.asarray(workers, np.float64), np.asarray(servers, np.float64)
        own = w / (self.compute + 2 * self.gradient_bytes / self.worker_bandwidth)
        network = p * self.server_bandwidth / self.gradient_bytes
        work = p / self.update if self.update > 0 else np.inf
        rate: FloatArray = np.minimum(np.minimum(own, network), work)
        return rate
