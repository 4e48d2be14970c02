"""The ``cross-validated`` model:
for each workload on each GPU type, the law with the best predictions of left-out rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import permutations
from typing import Any, ClassVar, Literal, Self

import numpy as np
from pydantic import model_validator

from optsched.arrays import EMPTY, FloatArray, IntArray
from optsched.errors import InvalidInput
from optsched.executors import LOCAL, all_results_of
from optsched.instance.documents import (
    Count,
    Document,
    Name,
    NonNegative,
    PlainObject,
    Tuple,
    refused,
)
from optsched.instance.reading import show, validate
from optsched.performance.files import below
from optsched.performance.interpolation import Interpolation
from optsched.performance.learned.validation import each_left_out, folds_of
from optsched.performance.parametric.fitting import (
    STATED_LOG_SD,
    KnownPairs,
    LogSd,
    flat,
    log_sd_of_squares,
    nested,
    rows_by_pair,
)
from optsched.performance.parametric.pollux import Pollux
from optsched.performance.parametric.scaling import SAME_BATCH, UniversalScalability
from optsched.performance.profiles import Profiles
from optsched.performance.protocol import Source
from optsched.performance.times import TimeModel, Times
from optsched.performance.ways import Ways

Law = Literal["pollux", "usl", "interpolation"]
LAWS: dict[Law, type[TimeModel]] = {
    "pollux": Pollux,
    "usl": UniversalScalability,
    "interpolation": Interpolation,
}
"""The laws to choose from. ``pollux`` has an answer for every way of a fitted pair."""
NAMES = tuple(LAWS)
INTERPOLATION = NAMES.index("interpolation")
ONE_BY_ONE, PARTS = 10, 5
"""Up to 10 ways of a pair are left out one by one; more ways are left out in 5 parts, because fits
take time.
"""
FEWEST = 3
"""Fewest ways for a comparison of laws. With two, each would be predicted from a single
measurement.
"""
EXTRAPOLATED_LOG_SD = 0.3
"""Lower bound on log_sd outside of the measured range: linear scaling was off by 27 to 35 %
on Sia's profiles, and ``usl`` by 26 % on ElasticFlow's curves beyond the measured GPU counts."""


class ChosenDocument(Document):
    """What was chosen for one workload on one GPU type.

    ``laws`` are all laws, best first; ``ways`` is the number of different ways that were measured;
    ``error`` is the mean absolute relative error of times that were left out, None where there were
    too few ways to leave some out.
    """

    laws: Tuple[Law]
    ways: Count
    error: NonNegative | None = None
    log_sd: LogSd = STATED_LOG_SD

    @model_validator(mode="after")
    def _all_laws(self) -> Self:
        if sorted(self.laws) != sorted(NAMES):
            expected = f"{', '.join(NAMES)} in some order"
            raise refused(show(list(self.laws)), expected, ".laws")
        return self


class LawsDocument(Document):
    """The laws, each fitted to all measurements; ``usl`` is None where no batch follows it."""

    pollux: PlainObject
    usl: PlainObject | None = None
    interpolation: PlainObject


class CrossValidatedDocument(Document):
    """A fitted `CrossValidated` model: the laws, and what was chosen for each pair."""

    laws: LawsDocument
    chosen: dict[Name, dict[Name, ChosenDocument]]

    @model_validator(mode="after")
    def _some(self) -> Self:
        if not flat(self.chosen):
            raise refused("no workloads", "at least one", ".chosen")
        return self


class CrossValidated(TimeModel):
    """For each workload and GPU type, the law with the smallest error on left-out rows.

    The laws are `pollux`, `usl` and `interpolation`. A measured way has its measured time (source
    `MEASURED`). For other ways a law is chosen by cross-validation: the measured ways of the pair
    (workload, GPU type) are left out in turn (one by one up to 10 ways, else in 5 parts), the laws
    are fitted to the rest, and predict the left-out ways. A law may have no answer for a way.
    Therefore orders of the laws are compared: the first law in the order with an answer predicts
    the way. The order with the smallest mean absolute relative error is taken.

    With one or two ways no comparison is possible. Then the simplest law that they determine is
    taken: ``usl`` where all have one batch, which is linear scaling from one way and Amdahl's law
    from two GPU counts, and ``pollux`` where batches differ.

    A way outside of the range of the pair's measurements, in GPUs, nodes, samples or passes, has
    the source `EXTRAPOLATED`. ``log_sd`` comes from the errors on the ways left out, and is at
    least 0.3 there.

    References
    ----------
    M. Stone, "Cross-validatory choice and assessment of statistical predictions", Journal of the
    Royal Statistical Society B 36 (1974).
    """

    name: ClassVar[str] = "cross-validated"

    def __init__(
        self, laws: Mapping[Law, TimeModel], chosen: Mapping[tuple[str, str], ChosenDocument]
    ) -> None:
        self.laws = dict(laws)
        self.chosen = dict(chosen)
        self._pairs = KnownPairs(tuple(chosen))
        orders = [[NAMES.index(law) for law in pair.laws] for pair in chosen.values()]
        self._order = np.array(orders, np.int64).T
        self._log_sd = np.array([pair.log_sd for pair in chosen.values()])

    # --- fitting ----------------------------------------------------------------------------------

    @classmethod
    def fit_on(
        cls, profiles: Profiles, options: Mapping[str, Any], processes: int, executor: str
    ) -> Self:
        """Each part that is left out is a separate fit, and so is the one of all measurements."""
        return cls.fit_checked(*cls._check_fit(profiles, options), processes, executor)

    @classmethod
    def fit_checked(
        cls, profiles: Profiles, options: Document, processes: int = 1, executor: str = LOCAL
    ) -> Self:
        """Choose the order of the laws of each pair, and fit the laws to all measurements."""
        ways = profiles.ways
        pairs = rows_by_pair(ways)
        errors = np.full((len(LAWS), len(profiles)), np.nan)
        # Fit all pairs together: one fit of a law per part, not per part and pair.
        parts = [part for part in each_left_out(_folds(ways, pairs)) if len(part[0])]
        everything = (np.arange(len(profiles)), EMPTY)
        *fitted, (laws, _) = all_results_of(
            _fitted, (profiles,), [*parts, everything], processes=processes, executor=executor
        )
        for (_, left_out), (_, seconds) in zip(parts, fitted, strict=True):
            errors[:, left_out] = np.log(seconds) - np.log(profiles.seconds[left_out])
        chosen = {pair: _choose(ways.take(rows), errors[:, rows]) for pair, rows in pairs.items()}
        return cls(laws, chosen)

    # --- predictions ------------------------------------------------------------------------------

    def times(self, ways: Ways) -> Times:
        """The measured time, else that of the first law in the pair's order with an answer."""
        predicted = _times(self.laws, ways)
        seconds = np.array([times.seconds for times in predicted])
        sources = np.array([times.source for times in predicted])
        pair = self._pairs.find(ways)
        known = pair < len(self._pairs)
        rows = np.arange(len(ways))
        pair = np.where(known, pair, 0)
        law = _first_known(seconds, self._order[:, pair])
        measured = sources[INTERPOLATION] == Source.MEASURED
        # Measured times come first; interpolation returns them bit for bit.
        law[measured & np.isfinite(seconds[INTERPOLATION])] = INTERPOLATION
        source = sources[law, rows]
        of_measured = predicted[INTERPOLATION].log_sd
        log_sd = np.where(source == Source.MEASURED, of_measured, self._log_sd[pair])
        interpolation = self.laws["interpolation"]
        assert isinstance(interpolation, Interpolation)
        outside = interpolation.points.outside(ways)
        return Times(
            seconds=np.where(known, seconds[law, rows], np.nan),
            log_sd=np.where(outside, np.maximum(log_sd, EXTRAPOLATED_LOG_SD), log_sd),
            source=np.where(outside, np.uint8(Source.EXTRAPOLATED), source),
        )

    # --- documents --------------------------------------------------------------------------------

    def document(self) -> dict[str, Any]:
        laws = {}
        for name, law in self.laws.items():
            laws[name] = law.document()
            del laws[name]["model"]
        chosen = {pair: choice.model_dump(mode="json") for pair, choice in self.chosen.items()}
        return {"model": self.name, "laws": laws, "chosen": nested(chosen)}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        stored = validate(CrossValidatedDocument, dict(document), "performance")
        laws = {}
        for name, law in LAWS.items():
            options = getattr(stored.laws, name)
            if options is not None:
                with below(f"performance.laws.{name}"):
                    laws[name] = law.from_document(options)
        return cls(laws, flat(stored.chosen))


def _fitted(
    shared: tuple[Profiles], part: tuple[IntArray, IntArray]
) -> tuple[dict[Law, TimeModel], FloatArray]:
    """The laws fitted to some rows, and the seconds that they predict for others, (laws, rows)."""
    (profiles,), (kept, left_out) = shared, part
    laws = _fit_laws(profiles.take(kept))
    predicted = _times(laws, profiles.ways.take(left_out))
    return laws, np.array([times.seconds for times in predicted])


def _fit_laws(profiles: Profiles) -> dict[Law, TimeModel]:
    """The laws, each fitted to all of the measurements;
    without ``usl`` where no batch follows it.
    """
    laws = {}
    for name, law in LAWS.items():
        try:
            laws[name] = law.fit(profiles, {})
        except InvalidInput:
            if name != "usl":
                raise
    return laws


def _times(laws: Mapping[Law, TimeModel], ways: Ways) -> list[Times]:
    """The predictions of the laws, in the order of `LAWS`; NaN where there is none."""
    nothing = Times.of(np.full(len(ways), np.nan), Source.PARAMETRIC)
    return [laws[name].times(ways) if name in laws else nothing for name in LAWS]


def _folds(ways: Ways, pairs: Mapping[tuple[str, str], IntArray]) -> IntArray:
    """The part in which each row is left out;
    a way that was measured several times is left out as a whole.
    """
    fold = np.empty(len(ways), np.int64)
    for rows in pairs.values():
        same = ways.take(rows).groups
        count = len(same)
        parts = count if count <= ONE_BY_ONE else PARTS
        fold[rows] = folds_of(count, parts, 0)[same.inverse]
    return fold


def _first_known(values: FloatArray, order: IntArray) -> IntArray:
    """For each column, the first row in this order with a known value; the first row of the order
    if none is known.
    """
    known = np.isfinite(np.take_along_axis(values, order, axis=0))
    first = known.argmax(axis=0)
    return np.asarray(order[first, np.arange(len(first))], np.int64)


def _choose(ways: Ways, errors: FloatArray) -> ChosenDocument:
    """The order of the laws of one pair,
    from the log errors of each law on left-out ways, shape (laws, rows).
    """
    distinct = len(ways.groups)
    errors = errors[:, np.isfinite(errors).any(axis=0)]
    rows = np.arange(errors.shape[1])
    if distinct < FEWEST or len(rows) == 0:
        batch = ways.samples_per_step
        same_batch = np.ptp(batch) <= SAME_BATCH * batch[0]
        simplest: tuple[Law, Law] = ("usl", "pollux") if same_batch else ("pollux", "usl")
        return ChosenDocument(laws=(*simplest, "interpolation"), ways=distinct)
    unknown = (~np.isfinite(errors)).sum(axis=1)
    candidates = []
    for order in permutations(range(len(LAWS))):
        order_of_rows = np.repeat([order], len(rows), axis=0).T
        predicted = errors[_first_known(errors, order_of_rows), rows]
        error = float(np.mean(np.abs(np.expm1(predicted))))
        # Of orders with equal errors take the one whose first laws predicted the most ways, so that
        # a law without predictions comes last.
        candidates.append((error, unknown[list(order)].tolist(), order, predicted))
    error, _, order, predicted = min(candidates, key=lambda candidate: candidate[:3])
    return ChosenDocument(
        laws=tuple(NAMES[law] for law in order),
        ways=distinct,
        error=error,
        log_sd=log_sd_of_squares(float(np.sum(predicted**2)), len(rows), 0),
    )
