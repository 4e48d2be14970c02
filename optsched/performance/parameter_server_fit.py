"""Fits of Optimus's laws of workers and parameter servers to measured speeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import nnls

from optsched.arrays import FloatArray
from optsched.errors import InvalidInput
from optsched.instance.reading import show

LAWS: dict[str, Sequence[str]] = {
    "ps-sync": ("a", "b", "c", "d", "e"),
    "ps-async": ("a", "b", "c", "d"),
}
"""Coefficients of each law."""


@dataclass(frozen=True)
class ParameterServerFit:
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
        """The part of ``workloads[*].parameters.parameter_server`` that was fitted."""
        piece: dict[str, Any] = {"law": self.law, "coefficients": dict(self.coefficients)}
        return piece | ({"batch": self.batch} if self.law == "ps-sync" else {})

    def steps_per_second(self, workers: ArrayLike, servers: ArrayLike) -> FloatArray:
        """f(w, p)."""
        terms = _terms(
            self.law, np.asarray(workers, np.float64), np.asarray(servers, np.float64), self.batch
        )
        rate: FloatArray = 1.0 / (
            terms @ np.array([self.coefficients[name] for name in LAWS[self.law]])
        )
        return rate


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

    1/f is linear in the coefficients: non-negative least squares with each row times f, which is least squares of
    relative errors. Optimus measures 8 random (w, p); the published rule is 5 points (4 for ps-async), no fewer than
    coefficients.

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
        Too few different (w, p), or numbers that are none.

    References
    ----------
    Y. Peng et al., "Optimus", EuroSys 2018, section 3.2, and its repository, ``scheduler/estimator.py``.
    """
    w, p, f = (np.asarray(column, np.float64) for column in (workers, servers, steps_per_second))
    for name, column in (("workers", w), ("servers", p), ("steps_per_second", f)):
        if column.shape != f.shape or column.ndim != 1:
            raise InvalidInput(name, f"shape {column.shape}", f"{f.size} values, as many as speeds")
        wrong = np.flatnonzero(~((column > 0) & np.isfinite(column)))
        if len(wrong):
            raise InvalidInput(
                f"{name}[{wrong[0]}]", show(float(column[wrong[0]])), "a finite number above 0"
            )
    if law not in LAWS:
        raise InvalidInput("law", show(law), "ps-sync or ps-async")
    if not (batch > 0 and np.isfinite(batch)):
        raise InvalidInput("batch", show(batch), "a finite number above 0")
    different = len(np.unique(np.stack([w, p]), axis=1).T)
    needed = len(LAWS[law])
    if different < needed:
        expected = f"at least {needed} different ones, as {law} has {needed} coefficients"
        raise InvalidInput("workers", f"{different} pairs of workers and servers", expected)
    rows = _terms(law, w, p, batch) * f[:, np.newaxis]
    scale = np.linalg.norm(rows, axis=0)
    found, _ = nnls(rows / scale, np.ones(len(f)))
    coefficients = found / scale
    residual = np.log(rows @ coefficients)
    spare = max(len(f) - int((found > 0).sum()), 1)
    return ParameterServerFit(
        law, dict(zip(LAWS[law], coefficients.tolist(), strict=True)), float(batch),
        float(np.sqrt(np.sum(residual**2) / spare)),
    )  # fmt: skip


def _terms(law: str, w: FloatArray, p: FloatArray, batch: float) -> FloatArray:
    one = np.ones_like(w)
    if law == "ps-sync":
        return np.stack([batch / w, one, w / p, w, p], axis=-1)
    return np.stack([one / w, one / p, one, p / w], axis=-1)
