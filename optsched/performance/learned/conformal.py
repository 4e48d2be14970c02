"""Split conformal intervals: how far a model is off on measurements that it has not seen."""

from __future__ import annotations

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
Level = Annotated[float, Field(ge=0.001, le=0.999, allow_inf_nan=False)]


class ConformalOptions(Document):
    """Options of a fit: the model ``of``, the level of the intervals, the share of rows held out."""

    of: PlainObject
    level: Level = LEVEL
    held_out: Level = HELD_OUT
    seed: Count = 0


@dataclass(frozen=True)
class Radius:
    """Half the width of intervals of the log, log y in log y' +- radius, at a level.

    With n errors e_i of logs that the model has not seen, of rows exchangeable with those to come, the radius is the
    ceil((n + 1) level)-th smallest |e_i|; then an interval holds what it is for with a probability of at least the
    level, and at most level + 1 / (n + 1) where no two errors are equal. No law of the errors is assumed.

    Attributes
    ----------
    level, radius : float
    rows : int
        n.

    References
    ----------
    J. Lei et al., "Distribution-free predictive inference for regression", JASA 113 (2018), theorem 2.2.
    """

    level: float
    radius: float
    rows: int

    @classmethod
    def of(cls, errors: FloatArray, level: float = LEVEL) -> Radius:
        """The radius of errors of logs; raises `InvalidInput` where there are too few for the level."""
        n = len(errors)
        # (n + 1) level that is whole but for rounding must not be rounded up
        rank = int(np.ceil((n + 1) * level * (1 - 1e-12)))
        if rank > n:
            fewest = int(np.ceil(level / (1 - level) * (1 - 1e-12)))
            raise InvalidInput(
                "profiles", f"{n} rows held out", f"at least {fewest} for a level of {show(level)}"
            )
        return cls(level, float(np.sort(np.abs(errors))[rank - 1]), n)

    @property
    def log_sd(self) -> float:
        """Standard deviation of the normal law whose interval of this level has this radius."""
        return self.radius / NormalDist().inv_cdf((1 + self.level) / 2)


def hold_out(group: IntArray, share: float, seed: int) -> tuple[IntArray, IntArray]:
    """Rows to fit to and rows to hold out, a share of the groups in the latter (rows of a group stay together)."""
    groups = np.unique(group)
    count = int(np.ceil(share * len(groups)))
    chosen = np.random.default_rng(seed).permutation(groups)[:count]
    out = np.isin(group, chosen)
    return np.flatnonzero(~out), np.flatnonzero(out)
