"""The ``conformal`` model: any model of a step's time, with intervals that hold at a level."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np

from optsched.arrays import FloatArray
from optsched.instance.reading import validate
from optsched.performance.learned.parts import fit_part, read_part
from optsched.performance.learned.validation import (
    ConformalDocument,
    ConformalOptions,
    Radius,
    hold_out,
)
from optsched.performance.profiles import Profiles
from optsched.performance.times import TimeModel, Times
from optsched.performance.ways import Ways


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
        chosen = validate(ConformalOptions, dict(options), "performance")
        profiles = profiles.sorted()
        seen, out = hold_out(np.arange(len(profiles)), chosen.held_out, chosen.seed)
        base = fit_part(chosen.of, profiles.take(seen))
        held_out = profiles.take(out)
        # What the model has no word for has no interval either: such rows do not count.
        errors = np.log(held_out.seconds / base.times(held_out.ways).seconds)
        return cls(base, Radius.of(errors[np.isfinite(errors)], chosen.level))

    def times(self, ways: Ways) -> Times:
        base = self.base.times(ways)
        return Times(base.seconds, np.full(len(ways), self.radius.log_sd), base.source)

    def intervals(self, ways: Ways) -> tuple[FloatArray, FloatArray]:
        """Seconds that a step takes at least and at most, at the level; NaN where unknown."""
        seconds = self.base.times(ways).seconds
        return seconds * np.exp(-self.radius.radius), seconds * np.exp(self.radius.radius)

    def document(self) -> dict[str, Any]:
        return {"model": self.name, "of": self.base.document(), **vars(self.radius)}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        stored = validate(ConformalDocument, dict(document), "performance")
        return cls(read_part(stored.of), Radius.stored(stored))
