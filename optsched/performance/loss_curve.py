"""Loss curves of training, and their epoch of convergence (Optimus)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import least_squares

from optsched.arrays import FloatArray
from optsched.display import Displayed
from optsched.errors import InvalidInput
from optsched.instance.arguments import check_positive
from optsched.instance.reading import show

LATER = 4.0
"""sigma is divided by this from each third of the curve to the next."""
LEAST_EPOCHS = 3
MOST_EPOCHS = 100


@dataclass(frozen=True, repr=False)
class LossCurve(Displayed):
    """l(e) = 1 / (a e + b) + c, with a, c at least 0 and b above 0; e in epochs."""

    a: float
    b: float
    c: float

    def loss(self, epochs: ArrayLike) -> FloatArray:
        """Loss after ``epochs`` epochs."""
        return 1.0 / (self.a * np.asarray(epochs, np.float64) + self.b) + self.c

    def convergence_epoch(
        self,
        threshold: float = 0.01,
        window: int = 1,
        most: int = MOST_EPOCHS,
    ) -> int:
        """First whole epoch e with  l(e - window) - l(e) < threshold x l(0); ``most`` if there is none before it.

        Raises
        ------
        InvalidInput
            If the threshold or the window is not above 0.
        """
        if not threshold > 0:
            raise InvalidInput("threshold", show(threshold), "a share of the first loss, above 0")
        if window < 1:
            raise InvalidInput("window", show(window), "a whole number of epochs, at least 1")
        epochs = np.arange(window, most + 1)
        still = self.loss(epochs - window) - self.loss(epochs) < threshold * self.loss(0)
        return int(epochs[still.argmax()]) if still.any() else most


def fit_loss_curve(epochs: ArrayLike, losses: ArrayLike) -> LossCurve:
    """Fit a loss curve by weighted least squares;
    later thirds of the points weigh 4 and 16 times as much.

    Parameters
    ----------
    epochs : array, shape (n,)
    losses : array, shape (n,)

    Returns
    -------
    LossCurve
        loss = 1 / (a epoch + b) + c.

    Raises
    ------
    InvalidInput
        Fewer than 3 different epochs, or invalid numbers.

    References
    ----------
    Y. Peng et al., "Optimus", EuroSys 2018, section 3.1, and its repository,
    ``scheduler/estimator.py``.
    """
    e, loss = _checked_points(epochs, losses)
    # As in Optimus, later thirds have more weight, because the end of the curve determines
    # convergence.
    weight = LATER ** np.floor(3 * np.arange(len(e)) / len(e))
    # Scale by the largest epoch and the largest loss, so that the same starts fit all curves.
    length = max(float(e.max()), 1e-12)
    size = float(loss.max())
    x = e / length
    y = loss / size

    def residuals(z: FloatArray) -> FloatArray:
        values: FloatArray = (1.0 / (z[0] * x + z[1]) + z[2] - y) * weight
        return values

    ends = []
    # The problem is not convex, so take the best result of several starts.
    for bend in (1.0, 10.0, 100.0):
        for floor in (0.0, 0.9 * float(y.min())):
            start = np.array([bend, 1.0 / max(float(y[0]) - floor, 1e-3), floor])
            bounds = ([0.0, 1e-9, 0.0], np.inf)
            scale = np.maximum(start, 0.1)
            ends.append(least_squares(residuals, start, bounds=bounds, x_scale=scale, max_nfev=500))
    a, b, c = min(ends, key=lambda end: end.cost).x.tolist()
    return LossCurve(a / (size * length), b / size, c * size)


def _checked_points(epochs: ArrayLike, losses: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """The points in the order of the epochs; raises `InvalidInput`."""
    e = np.asarray(epochs, np.float64)
    loss = np.asarray(losses, np.float64)
    if e.shape != loss.shape or e.ndim != 1:
        raise InvalidInput("losses", f"shape {loss.shape}", f"{e.size} values, one for each epoch")
    wrong = np.flatnonzero(~((e >= 0) & np.isfinite(e)))
    if len(wrong):
        value = show(float(e[wrong[0]]))
        raise InvalidInput(f"epochs[{wrong[0]}]", value, "a finite number of at least 0")
    check_positive(losses=loss)
    if len(np.unique(e)) < LEAST_EPOCHS:
        raise InvalidInput(
            "epochs", f"{len(np.unique(e))} different ones", f"at least {LEAST_EPOCHS}"
        )
    order = np.argsort(e, kind="stable")
    return e[order], loss[order]
