"""The ``conformal-pairs`` model: any model of pairs, with intervals that hold at a level."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np

from optsched.arrays import FloatArray
from optsched.errors import InvalidInput
from optsched.instance.reading import validate
from optsched.performance.learned.conformal import ConformalOptions, Radius, hold_out
from optsched.performance.learned.conformal_times import ConformalDocument
from optsched.performance.learned.pair_models import make_pair_model, pair_class
from optsched.performance.learned.pairs import MEASURED, Fractions, PairModel, PairProfiles, Pairs


class ConformalPairs(PairModel):
    """The fractions of another model, with ``log_sd`` and intervals from a quarter of the measured pairs (`Radius`).

    The other model is fitted to the rest of them, at random (a pair's two orders, and measurements of it that are
    repeated, stay together), and asked about both jobs of the quarter. Fractions are at most 1, and so is the upper end
    of an interval. What was measured keeps its ``log_sd`` of 0, and its interval is a point.

    Options: ``of``, an object with the name (``model``) and options of the other model; ``level`` (0.9), ``held_out``
    (0.25, the share of the pairs), ``seed``.
    """

    name: ClassVar[str] = "conformal-pairs"

    def __init__(self, base: PairModel, radius: Radius) -> None:
        self.base, self.radius = base, radius

    @property
    def workloads(self) -> tuple[str, ...]:
        """`PairModel`."""
        return self.base.workloads

    @classmethod
    def fit(cls, profiles: PairProfiles, options: Mapping[str, Any]) -> Self:
        """`PairModel`."""
        told = validate(ConformalOptions, dict(options), "performance")
        own = dict(told.of)
        owner = pair_class(own.pop("model", None), "performance.of.model")
        ran, count = profiles.ran, len(profiles.features.workloads)
        low, high = (
            np.minimum(ran.pairs.first, ran.pairs.second),
            np.maximum(ran.pairs.first, ran.pairs.second),
        )
        seen, out = hold_out((ran.pairs.gpu * count + low) * count + high, told.held_out, told.seed)
        try:
            base = owner.fit(ran.take(seen), own)
        except InvalidInput as error:
            path = error.path.replace("performance", "performance.of", 1)
            raise InvalidInput(path, error.found, error.expected) from None
        held = ran.take(out)
        said = base.fractions(held.pairs)
        apart = held.pairs.first != held.pairs.second
        errors = np.log(
            np.concatenate((held.first / said.first, (held.second / said.second)[apart]))
        )
        return cls(base, Radius.of(errors[np.isfinite(errors)], told.level))

    def fractions(self, pairs: Pairs) -> Fractions:
        """`PairModel`."""
        said = self.base.fractions(pairs)
        return Fractions(
            said.first, said.second, self._spread(said, self.radius.log_sd), said.source
        )

    def intervals(self, pairs: Pairs) -> tuple[FloatArray, FloatArray]:
        """Least and most of the fractions of both jobs at the level, (E, 2) each; NaN where the model cannot say."""
        said = self.base.fractions(pairs)
        middle = np.column_stack((said.first, said.second))
        spread = np.exp(self._spread(said, self.radius.radius))[:, np.newaxis]
        return middle / spread, np.minimum(middle * spread, 1.0)

    def _spread(self, said: Fractions, value: float) -> FloatArray:
        return np.where(said.source == MEASURED, 0.0, value)

    def document(self) -> dict[str, Any]:
        """`PairModel`."""
        told = {"level": self.radius.level, "radius": self.radius.radius, "rows": self.radius.rows}
        return {"model": self.name, "of": self.base.document(), **told}

    @classmethod
    def from_document(cls, document: Mapping[str, Any], path: str = "performance.pairs") -> Self:
        """`PairModel`."""
        told = validate(ConformalDocument, dict(document), path)
        return cls(
            make_pair_model(told.of, f"{path}.of"), Radius(told.level, told.radius, told.rows)
        )
