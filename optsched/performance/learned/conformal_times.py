"""The ``conformal`` model: any model of a step's time, with intervals that hold at a level."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from pydantic import Field

from optsched.arrays import FloatArray
from optsched.instance.documents import Count, Document, PlainObject
from optsched.instance.reading import validate
from optsched.performance.learned.bases import PATH, base_class, base_from_document
from optsched.performance.learned.conformal import ConformalOptions, Level, Radius, hold_out
from optsched.performance.paths import below
from optsched.performance.profiles import Profiles
from optsched.performance.times import TimeModel, Times
from optsched.performance.ways import Ways

MOST_RADIUS = 30.0
"""Half the width of an interval of logs: with more than a factor of 10^13 either way nothing is said."""


class ConformalDocument(Document):
    """A fitted `Conformal` model."""

    of: PlainObject
    level: Level
    radius: Annotated[float, Field(ge=0, le=MOST_RADIUS)]
    rows: Count


class Conformal(TimeModel):
    """The times of another model, with ``log_sd`` and intervals from a quarter of the measurements (`Radius`).

    The other model is fitted to the rest of them, at random, and asked about the quarter; what it does not know is left
    out. Every way has the same interval of the log:  t' exp(-radius) <= t <= t' exp(radius).

    The level holds for ways like the measured ones. It does not hold for others: of Sia's steps, intervals of 90 % from
    a tenth of the rows at random held 88 % of the rest, those from at most 4 GPUs 58 % of what more GPUs took.

    Options: ``of``, a performance object with the name and options of the other model; ``level`` (0.9), ``held_out``
    (0.25, the share), ``seed``.
    """

    name: ClassVar[str] = "conformal"

    def __init__(self, base: TimeModel, radius: Radius) -> None:
        self.base, self.radius = base, radius

    @classmethod
    def fit(cls, profiles: Profiles, options: Mapping[str, Any]) -> Self:
        """`optsched.performance.times.TimeModel`."""
        told = validate(ConformalOptions, dict(options), "performance")
        owner, own = base_class(told.of)
        profiles = profiles.sorted()
        seen, out = hold_out(np.arange(len(profiles)), told.held_out, told.seed)
        with below(PATH):
            base = owner.fit(profiles.take(seen), own)
        held = profiles.take(out)
        errors = np.log(held.seconds / base.times(held.ways).seconds)
        return cls(base, Radius.of(errors[np.isfinite(errors)], told.level))

    def times(self, ways: Ways) -> Times:
        """`optsched.performance.times.TimeModel`."""
        said = self.base.times(ways)
        return Times(said.seconds, np.full(len(ways), self.radius.log_sd), said.source)

    def intervals(self, ways: Ways) -> tuple[FloatArray, FloatArray]:
        """Seconds that a step takes at least and at most, at the level; NaN where the model cannot say."""
        seconds = self.base.times(ways).seconds
        return seconds * np.exp(-self.radius.radius), seconds * np.exp(self.radius.radius)

    def document(self) -> dict[str, Any]:
        """`optsched.performance.times.TimeModel`."""
        told = {"level": self.radius.level, "radius": self.radius.radius, "rows": self.radius.rows}
        return {"model": self.name, "of": self.base.document(), **told}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """`optsched.performance.times.TimeModel`."""
        told = validate(ConformalDocument, dict(document), "performance")
        return cls(base_from_document(told.of), Radius(told.level, told.radius, told.rows))
