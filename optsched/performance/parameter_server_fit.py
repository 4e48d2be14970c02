"""Speeds of workers and parameter servers: laws of Optimus fitted to measurements, and a law from
resources only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from optsched.arrays import FloatArray
from optsched.display import Displayed
from optsched.errors import InvalidInput
from optsched.instance.arguments import check_positive
from optsched.instance.reading import show
from optsched.performance.parameter_server import LAWS
from optsched.performance.parametric.fitting import fit_nonnegative


@dataclass(frozen=True, repr=False)
class ParameterServerFit(Displayed):
    """A fitted law.

    Attributes
    ----------
    law : str
        ``ps-sync`` or ``ps-async``.
    coefficients : dict of str to float
        At least 0, as ``parameters.parameter_server.coefficients`` has them.
    batch : float
        B of ``ps-sync``.
    log_sd : float
        Root mean square of the log residuals, by degrees of freedom.
    """

    law: str
    coefficients: dict[str, float]
    batch: float
    log_sd: float

    def document(self) -> dict[str, Any]:
        """The fitted part of ``workloads[*].parameters.parameter_server``."""
        piece = {"law": self.law, "coefficients": dict(self.coefficients)}
        return piece | ({"batch": self.batch} if self.law == "ps-sync" else {})

    def steps_per_second(self, workers: ArrayLike, servers: ArrayLike) -> FloatArray:
        """Speed of these numbers of workers and servers, elementwise."""
        terms = _terms(
            self.law,
            np.asarray(workers, np.float64),
            np.asarray(servers, np.float64),
            self.batch,
        )
        coefficients = np.array([self.coefficients[name] for name in LAWS[self.law]])
        return np.asarray(1.0 / (terms @ coefficients), np.float64)


def fit_parameter_server(
    workers: ArrayLike,
    servers: ArrayLike,
    steps_per_second: ArrayLike,
    *,
    law: Literal["ps-sync", "ps-async"] = "ps-sync",
    batch: float = 1.0,
) -> ParameterServerFit:
    """Coefficients of a law from measured speeds f of w workers and p servers.

        ps-sync   1/f = a B / w + b + c w / p + d w + e p
        ps-async  1/f = (a + b w / p + c w + d p) / w

    1/f is linear in the coefficients: non-negative least squares with each row times f, which is
    least squares of relative errors. Optimus measures 8 random (w, p); the published rule is 5
    points (4 for ps-async), no fewer than coefficients.

    Parameters
    ----------
    workers, servers : array, shape (n,)
        Numbers of workers and of parameter servers.
    steps_per_second : array, shape (n,)
        Measured speed f.
    law : str
        ``ps-sync`` or ``ps-async``.
    batch : float
        B of ``ps-sync``, samples.

    Returns
    -------
    ParameterServerFit

    Raises
    ------
    InvalidInput
        Too few different (w, p), or invalid numbers.

    References
    ----------
    Y. Peng et al., "Optimus", EuroSys 2018, section 3.2, and its repository,
    ``scheduler/estimator.py``.
    """
    w, p, f = (np.asarray(column, np.float64) for column in (workers, servers, steps_per_second))
    for name, column in (("workers", w), ("servers", p), ("steps_per_second", f)):
        if column.shape != f.shape or column.ndim != 1:
            raise InvalidInput(name, f"shape {column.shape}", f"{f.size} values, as many as speeds")
    check_positive(workers=w, servers=p, steps_per_second=f, batch=batch)
    if law not in LAWS:
        raise InvalidInput("law", show(law), "ps-sync or ps-async")
    different = len(np.unique(np.stack([w, p]), axis=1).T)
    needed = len(LAWS[law])
    if different < needed:
        expected = f"at least {needed} different ones, as {law} has {needed} coefficients"
        raise InvalidInput("workers", f"{different} pairs of workers and servers", expected)
    # 1/f is linear in the coefficients; each row times f makes the errors relative.
    rows = _terms(law, w, p, batch) * f[:, np.newaxis]
    # Normalise the columns, because terms in w and in 1 / w differ by orders of magnitude.
    scale = np.linalg.norm(rows, axis=0)
    found = fit_nonnegative(rows / scale, np.ones(len(f)))
    coefficients = found / scale
    residual = np.log(rows @ coefficients)
    # Coefficients at the bound 0 do not count as fitted.
    spare = max(len(f) - int((found > 0).sum()), 1)
    return ParameterServerFit(
        law,
        dict(zip(LAWS[law], coefficients.tolist(), strict=True)),
        float(batch),
        float(np.sqrt(np.sum(residual**2) / spare)),
    )


def _terms(law: str, w: FloatArray, p: FloatArray, batch: float) -> FloatArray:
    """The terms of a law, in the order of its coefficients, along the last axis."""
    terms = [w**of_w * p**of_p for of_w, of_p in LAWS[law].values()]
    if law == "ps-sync":
        terms[0] = batch * terms[0]
    return np.stack(terms, axis=-1)


# --- from resources alone -------------------------------------------------------------------------


@dataclass(frozen=True)
class BottleneckLaw:
    """Seconds of a step of w workers and p servers, without any measured speed of several workers.

    A worker computes t_c seconds per step alone, sends a gradient of S bytes and fetches as many;
    the p servers, among which parameters are split evenly, do u seconds of work per gradient in
    all; each server and worker has W bytes/s in each direction:

        asynchronous  f(w, p) = min( w / (t_c + 2 S / W_worker),  p W_server / S,  p / u )
        synchronous   t(w, p) = t_c / w + max( 2 S / W_worker,  2 w S / (p W_server),  w u / p )

    In synchronous training workers share the batch, and all gradients of a step meet at the
    servers; in asynchronous training the steps of all workers count, and a queue at the busiest
    resource is the limit.

    This is the idea of Cynthia (H. Zheng et al., ICPP 2019: worker compute against use of the
    servers' CPU and network); the formulas are this project's own. Cynthia's exact published
    formula was not available: that this agrees with it is unverified.

    Attributes
    ----------
    compute : float
        t_c, s.
    gradient_bytes : float
        S.
    worker_bandwidth, server_bandwidth : float
        W, bytes/s in each direction.
    update : float
        u, s; 0 if the work of servers is negligible.
    """

    compute: float
    gradient_bytes: float
    worker_bandwidth: float
    server_bandwidth: float
    update: float = 0.0

    def __post_init__(self) -> None:
        check_positive(
            compute=self.compute,
            gradient_bytes=self.gradient_bytes,
            worker_bandwidth=self.worker_bandwidth,
            server_bandwidth=self.server_bandwidth,
        )
        if not (self.update >= 0 and np.isfinite(self.update)):
            raise InvalidInput("update", show(self.update), "a finite number of at least 0")

    def synchronous(self, workers: ArrayLike, servers: ArrayLike) -> FloatArray:
        """Rate of the job when all workers share a batch and wait for each other.

        Parameters
        ----------
        workers, servers : float or array
            Workers w and parameter servers p, of shapes that fit together; at least 1.

        Returns
        -------
        FloatArray
            steps/s, of the common shape.
        """
        w = np.asarray(workers, np.float64)
        p = np.asarray(servers, np.float64)
        worker = 2 * self.gradient_bytes / self.worker_bandwidth
        network = 2 * w * self.gradient_bytes / (p * self.server_bandwidth)
        slowest = np.maximum(np.maximum(worker, network), w * self.update / p)
        return 1.0 / (self.compute / w + slowest)

    def asynchronous(self, workers: ArrayLike, servers: ArrayLike) -> FloatArray:
        """Rate of all workers together when each goes at its own pace.

        Parameters
        ----------
        workers, servers : float or array
            Workers w and parameter servers p, of shapes that fit together; at least 1.

        Returns
        -------
        FloatArray
            steps/s, of the common shape.
        """
        w = np.asarray(workers, np.float64)
        p = np.asarray(servers, np.float64)
        workers_alone = w / (self.compute + 2 * self.gradient_bytes / self.worker_bandwidth)
        network = p * self.server_bandwidth / self.gradient_bytes
        work = p / self.update if self.update > 0 else np.inf
        return np.minimum(np.minimum(workers_alone, network), work)
