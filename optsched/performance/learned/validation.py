"""Errors of a model on measurements that it was not fitted to: folds and conformal intervals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import NormalDist
from typing import Annotated

import numpy as np
from pydantic import Field

from optsched.arrays import FloatArray, IntArray
from optsched.errors import InvalidInput
from optsched.instance.documents import Count, Document, PlainObject
from optsched.instance.reading import show

LEVEL, HELD_OUT = 0.9, 0.25
MOST_RADIUS = 30.0
"""Largest useful radius of an interval of logs; it is a factor of 10^13 either way."""
Level = Annotated[float, Field(ge=0.001, le=0.999, allow_inf_nan=False)]


def folds_of(count: int, folds: int, seed: int) -> IntArray:
    """A random fold for each row; the folds have sizes as equal as possible."""
    # Sizes differ by at most one; the assignment depends only on the seed.
    random = np.random.default_rng(seed)
    return random.permutation(np.arange(count) % folds)


def each_left_out(fold: IntArray) -> Iterator[tuple[IntArray, IntArray]]:
    """For each fold, the rows of all other folds and the rows of this one."""
    for number in np.unique(fold):
        yield np.flatnonzero(fold != number), np.flatnonzero(fold == number)


def root_mean_square(errors: FloatArray) -> float:
    return float(np.sqrt(np.mean(errors**2)))


class ConformalOptions(Document):
    """Options of a fit: the model ``of``, the level of the intervals,
    the share of rows held out.
    """

    of: PlainObject
    level: Level = LEVEL
    held_out: Level = HELD_OUT
    seed: Count = 0


class ConformalDocument(Document):
    """A fitted model ``of`` and the `Radius` of its intervals."""

    of: PlainObject
    level: Level
    radius: Annotated[float, Field(ge=0, le=MOST_RADIUS)]
    rows: Count


@dataclass(frozen=True)
class Radius:
    """Half the width of intervals of the log, log y in log y' +- radius, at a level.

    With the log errors e_i of n rows that the model has not seen, exchangeable with future rows,
    the radius is the ceil((n + 1) level)-th smallest |e_i|. An interval then covers with a
    probability of at least the level, and at most level + 1 / (n + 1) if no two errors are equal.
    No distribution of the errors is assumed.

    Attributes
    ----------
    level, radius : float
    rows : int
        n.

    References
    ----------
    J. Lei et al., "Distribution-free predictive inference for regression", JASA 113 (2018), theorem
    2.2.
    """

    level: float
    radius: float
    rows: int

    @classmethod
    def of(cls, errors: FloatArray, level: float = LEVEL) -> Radius:
        """The radius from log errors; raises `InvalidInput` if there are too few for the level."""
        n = len(errors)
        # An integer (n + 1) level must not be rounded up because of rounding errors.
        rank = int(np.ceil((n + 1) * level * (1 - 1e-12)))
        if rank > n:
            fewest = int(np.ceil(level / (1 - level) * (1 - 1e-12)))
            raise InvalidInput(
                "profiles", f"{n} rows held out", f"at least {fewest} for a level of {show(level)}"
            )
        return cls(level, float(np.sort(np.abs(errors))[rank - 1]), n)

    @property
    def log_sd(self) -> float:
        """Standard deviation of the normal distribution whose interval at this level has this
        radius.
        """
        return self.radius / NormalDist().inv_cdf((1 + self.level) / 2)


def hold_out(group: IntArray, share: float, seed: int) -> tuple[IntArray, IntArray]:
    """Rows to fit to and rows to hold out; a share of the groups is held out.

    Rows of a group stay together.
    """
    groups = np.unique(group)
    count = int(np.ceil(share * len(groups)))
    chosen = np.random.default_rng(seed).permutation(groups)[:count]
    # Rows of a group are similar, so one of them in the fit would reveal the others.
    out = np.isin(group, chosen)
    return np.flatnonzero(~out), np.flatnonzero(out)
