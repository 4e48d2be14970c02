"""Models of step times made of other models: the ``blend`` of several, and one with ``conformal``
intervals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from pydantic import Field

from optsched import performance
from optsched.arrays import FloatArray
from optsched.errors import InvalidInput
from optsched.instance.documents import Document, PlainObject, Tuple
from optsched.instance.reading import show, validate
from optsched.lazy import imported
from optsched.performance.files import PERFORMANCE, below
from optsched.performance.learned.validation import (
    ConformalDocument,
    ConformalOptions,
    Radius,
    hold_out,
)
from optsched.performance.profiles import Profiles
from optsched.performance.protocol import Source
from optsched.performance.times import TimeModel, Times
from optsched.performance.ways import Ways

# --- models inside of a model ---------------------------------------------------------------------


OF = "performance.of"


def fit_part(document: Mapping[str, Any], profiles: Profiles, path: str = OF) -> TimeModel:
    """The model that a performance object names, fitted to profiles with the object's options."""
    with below(path):
        owner, options = _time_model(document)
        return owner.fit(profiles, options)


def read_part(document: Mapping[str, Any], path: str = OF) -> TimeModel:
    """The fitted model of a performance object."""
    with below(path):
        owner, options = _time_model(document)
        return owner.from_document(options)


def _time_model(document: Mapping[str, Any]) -> tuple[type[TimeModel], dict[str, Any]]:
    """The class that a performance object names,
    which must be a `TimeModel`, and its other entries.
    """
    options = dict(document)
    name = options.pop("model", None)
    target = performance.CATALOGUE.get(name) if isinstance(name, str) else None
    owner = None if target is None else imported(target)
    if not (isinstance(owner, type) and issubclass(owner, TimeModel)):
        expected = "the name of a model that is fitted to times of steps"
        raise InvalidInput(f"{PERFORMANCE}.model", show(name), expected)
    return owner, options


# --- blend ----------------------------------------------------------------------------------------


USUAL = (
    {"model": "boosted"},
    {"model": "boosted", "of": {"model": "shared-link", "anchored": True}},
    {"model": "shared-link", "anchored": True, "own": False},
)
"""The default models: trees on the times of a workload on a GPU type, trees on the residuals of the
shared-link law, and that law without terms of single pairs.
"""
PATH = "performance.models[{}]"
LEAST_LOG_SD = 0.02
"""Lower bound on log_sd when weights are computed."""
APART = 0.1
"""A model that is 10 % from the median has half the weight (the same scale as in the robust fits).
"""


class BlendDocument(Document):
    """Performance objects of the models, fitted or, as an option of the fit, to be fitted."""

    models: Tuple[PlainObject] = Field(USUAL, min_length=1)


class Blend(TimeModel):
    """Weighted mean of several models: less weight for uncertain ones and outliers.

    Of the models i = 1, ..., M that have an answer for a way to run, with x_i = log t_i and their
    median x~,

        w_i = 1 / log_sd_i^2 / (1 + ((x_i - x~) / 0.1)^2),  scaled to sum 1,
        log t = sum_i w_i x_i,        log_sd^2 = sum_i w_i (log_sd_i^2 + (x_i - log t)^2).

    The mean of models with different errors has a smaller error. If models disagree, the variance
    of the blend shows it, because it is that of a mixture and includes the spread. Beyond the
    measured range, trees on a law follow the law, trees alone are constant, and the truth is
    usually in between. A model far from the others is usually wrong even if its log_sd is small,
    for example if it overfitted a few outliers. Therefore the factor reduces its weight: it is the
    weight of a Cauchy distribution around the median, and has no effect with two models.

    ``source`` is the least certain one among the models with an answer.

    Options: ``models``, performance objects of models of a step's time (boosted, boosted on
    shared-link, and shared-link without terms of single pairs; they were chosen on Sia's profiles).

    References
    ----------
    J. M. Bates and C. W. J. Granger, "The combination of forecasts", Operational Research Quarterly
    20 (1969); weights by distance from the middle: P. J. Huber and E. M. Ronchetti, "Robust
    statistics", 2nd ed. (2009).
    """

    name: ClassVar[str] = "blend"
    Options = BlendDocument

    def __init__(self, models: Sequence[TimeModel]) -> None:
        self.models = tuple(models)

    @classmethod
    def fit_checked(cls, profiles: Profiles, options: BlendDocument) -> Self:
        """Fit every model to all measurements."""
        parts = enumerate(options.models)
        return cls([fit_part(part, profiles, PATH.format(row)) for row, part in parts])

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        parts = enumerate(cls.read_options(document).models)
        return cls([read_part(part, PATH.format(row)) for row, part in parts])

    def document(self) -> dict[str, Any]:
        return {"model": self.name, "models": [model.document() for model in self.models]}

    def times(self, ways: Ways) -> Times:
        predicted = [model.times(ways) for model in self.models]
        log_time = np.log(np.array([times.seconds for times in predicted]))
        log_sd = np.array([times.log_sd for times in predicted])
        source = np.array([times.source for times in predicted])
        known = np.isfinite(log_time)
        some_known = known.any(axis=0)

        # Unknown entries have weight 0. They are masked as well, because NaN times 0 is NaN.
        precision = 1.0 / np.maximum(log_sd, LEAST_LOG_SD) ** 2
        unknown = np.where(some_known, np.nan, 0.0)
        middle = np.nanmedian(np.where(known, log_time, unknown), axis=0)
        distance = np.where(known, log_time - middle, 0.0) / APART
        weight = np.where(known, precision / (1.0 + distance**2), 0.0)
        weight /= np.where(some_known, weight.sum(axis=0), 1.0)
        mean = np.where(known, weight * log_time, 0.0).sum(axis=0)
        spread = np.where(known, weight * (log_sd**2 + (log_time - mean) ** 2), 0.0)
        return Times(
            seconds=np.where(some_known, np.exp(mean), np.nan),
            log_sd=np.sqrt(spread.sum(axis=0)),
            source=np.where(known, source, Source.MEASURED).max(axis=0).astype(np.uint8),
        )


# --- conformal ------------------------------------------------------------------------------------


class Conformal(TimeModel):
    """Another model, with intervals measured on a quarter of the rows (`Radius`).

    The other model is fitted to the rest of the rows (a random split) and predicts the quarter;
    rows that it cannot predict are ignored. Every way has the same interval of the log:  t'
    exp(-radius) <= t <= t' exp(radius).

    The level holds for ways like the measured ones, not for others. On Sia's steps, intervals of 90
    % from a random tenth of the rows covered 88 % of the rest; intervals from rows on at most 4
    GPUs covered 58 % of the rows on more GPUs.

    Options: ``of``, a performance object with the name and options of the other model; ``level``
    (0.9), ``held_out`` (0.25, the share), ``seed``.
    """

    name: ClassVar[str] = "conformal"
    Options = ConformalOptions

    def __init__(self, base: TimeModel, radius: Radius) -> None:
        self.base = base
        self.radius = radius

    @classmethod
    def fit_checked(cls, profiles: Profiles, options: ConformalOptions) -> Self:
        seen, out = hold_out(np.arange(len(profiles)), options.held_out, options.seed)
        base = fit_part(options.of, profiles.take(seen))
        held_out = profiles.take(out)
        # Rows that the model cannot predict have no interval and do not count.
        errors = np.log(held_out.seconds / base.times(held_out.ways).seconds)
        return cls(base, Radius.of(errors[np.isfinite(errors)], options.level))

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
        return cls(read_part(stored.of), Radius(stored.level, stored.radius, stored.rows))
