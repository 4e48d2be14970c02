"""How well models tell times that they were not fitted to.

A model is fitted to one part of the profiles and tells the times t' of the others, measured as t. With
e = log t' - log t of the rows that it has a word for:

    mape      mean of |t'/t - 1|                median of the same: median_ape
    bias      mean of e: above 0 where it tells too long times
    coverage  share of rows with |e| <= z log_sd, z of the standard normal interval of the nominal share
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from optsched.arrays import FloatArray, IntArray
from optsched.errors import InvalidArgument, InvalidInput
from optsched.performance.profiles import Profiles
from optsched.performance.splits import RANDOM, splits_of
from optsched.performance.times import TimeModel, Times
from optsched.performance.ways import Ways

Predict = Callable[[Ways], Times]
Fit = Callable[[Profiles], Predict]
"""Fits a model to profiles, and returns what then tells times; raises `InvalidInput` where they cannot determine it."""


@dataclass(frozen=True)
class ErrorRow:
    """Errors of one model on one split, of all workloads together or of one.

    Attributes
    ----------
    model, split : str
    workload : str or None
        None: all together.
    fits : int
        Models that were fitted: one for each seed and each part left out.
    tested : int
        Rows that were left out, over all fits.
    known : int
        Those of them that the model had a word for; the measures are of these alone.
    mape, median_ape, bias, coverage : float or None
        See the module; None without a row that is known.
    mape_sd : float or None
        Standard deviation of the mape from seed to seed; None for fewer than two.
    refused : str
        Why the model could not be fitted, if it could not, at least once.
    """

    model: str
    split: str
    workload: str | None
    fits: int
    tested: int
    known: int
    mape: float | None
    median_ape: float | None
    bias: float | None
    coverage: float | None
    mape_sd: float | None
    refused: str = ""


@dataclass(frozen=True)
class Points:
    """Rows that were left out, with what one model said of them; arrays of length P.

    Attributes
    ----------
    model, split : str
    row : IntArray
        Row of the profiles.
    seed : IntArray
    seconds : FloatArray
        Measured.
    predicted, log_sd : FloatArray
        NaN where the model could not say.
    source : NDArray[uint8]
        `optsched.performance.Source`.
    """

    model: str
    split: str
    row: IntArray
    seed: IntArray
    seconds: FloatArray
    predicted: FloatArray
    log_sd: FloatArray
    source: NDArray[np.uint8]

    @property
    def known(self) -> IntArray:
        """Places of the rows that the model had a word for."""
        return np.flatnonzero(np.isfinite(self.predicted))


@dataclass(frozen=True)
class Evaluation:
    """What `evaluate` found: a row of errors for each model, split and workload, and the points behind them.

    Attributes
    ----------
    profiles : Profiles
    nominal : float
        Share of rows that the intervals should hold.
    rows : tuple of ErrorRow
    points : tuple of Points
        One for each model and split.
    """

    profiles: Profiles
    nominal: float
    rows: tuple[ErrorRow, ...]
    points: tuple[Points, ...]


def fit_of(model: type[TimeModel], options: Mapping[str, Any]) -> Fit:
    """How a model is fitted with these options."""
    return lambda profiles: model.fit(profiles, options).times


def evaluate(
    profiles: Profiles,
    models: Mapping[str, Fit],
    splits: Sequence[tuple[str, Mapping[str, Any]]],
    *,
    seeds: int = 1,
    nominal: float = 0.9,
    on_fit: Callable[[str, str], None] | None = None,
) -> Evaluation:
    """Fit models to parts of profiles, and judge them by the rest.

    Parameters
    ----------
    profiles : Profiles
    models : mapping from str to Fit
        By the name under which each is told.
    splits : sequence of (name, options)
        `optsched.performance.splits.SPLITS`.
    seeds : int
        Random splits are drawn anew for seeds 0 to ``seeds`` - 1; the others are made once.
    nominal : float
        Of the intervals.
    on_fit : callable, optional
        Called with the model and the split before each fit.

    Returns
    -------
    Evaluation
        A split that these profiles do not allow has a row without fits that says so; so has a model that cannot be
        fitted.

    Raises
    ------
    UsageError
        A split that there is not, or a number out of range.
    """
    if not 0 < nominal < 1:
        raise InvalidArgument("nominal", f"{nominal:g}", "a share between 0 and 1")
    if not 1 <= seeds <= 1000:
        raise InvalidArgument("seeds", str(seeds), "a number from 1 to 1000")
    cut = []
    for name, options in splits:
        drawn = range(seeds if name in RANDOM else 1)
        parts = [
            (seed, split) for seed in drawn for split in splits_of(profiles, name, seed, options)
        ]
        cut.append(
            (name + "".join(f":{option}={value:g}" for option, value in options.items()), parts)
        )
    rows: list[ErrorRow] = []
    points: list[Points] = []
    for told, parts in cut:
        found: dict[str, list[tuple[int, IntArray, Times]]] = {name: [] for name in models}
        refused = dict.fromkeys(
            models, "" if parts else "nothing in these profiles can be left out"
        )
        for seed, split in parts:
            train, ways = profiles.take(split.train), profiles.ways.take(split.test)
            for (
                name,
                fit,
            ) in (
                models.items()
            ):  # of the same object: a chain takes over what its parts have fitted
                if on_fit is not None:
                    on_fit(name, told)
                try:
                    found[name].append((seed, split.test, fit(train)(ways)))
                except InvalidInput as error:
                    refused[name] = refused[name] or str(error)
        for name in models:
            points.append(_points(name, told, profiles, found[name]))
            rows += _rows(points[-1], profiles, len(found[name]), nominal, refused[name])
    return Evaluation(profiles, nominal, tuple(rows), tuple(points))


def _points(
    model: str, split: str, profiles: Profiles, found: Sequence[tuple[int, IntArray, Times]]
) -> Points:
    none = np.zeros(0)
    row = np.concatenate([none.astype(np.int64), *(test for _, test, _ in found)])
    seed = np.concatenate(
        [none.astype(np.int64), *(np.full(len(test), seed) for seed, test, _ in found)]
    )
    return Points(
        model, split, row, seed, profiles.seconds[row],
        np.concatenate([none, *(times.seconds for _, _, times in found)]),
        np.concatenate([none, *(times.log_sd for _, _, times in found)]),
        np.concatenate([none.astype(np.uint8), *(times.source for _, _, times in found)]),
    )  # fmt: skip


def _rows(
    points: Points, profiles: Profiles, fits: int, nominal: float, refused: str
) -> list[ErrorRow]:
    """All workloads together, then each that was left out."""
    workload = profiles.ways.workload[points.row]
    rows = [_row(points, None, np.arange(len(points.row)), fits, nominal, refused)]
    for number in np.unique(workload).tolist():
        chosen = np.flatnonzero(workload == number)
        rows.append(_row(points, profiles.ways.workloads[number], chosen, fits, nominal, ""))
    return rows


def _row(
    points: Points, workload: str | None, chosen: IntArray, fits: int, nominal: float, refused: str
) -> ErrorRow:
    known = np.intersect1d(chosen, points.known)
    head = (points.model, points.split, workload, fits, len(chosen), len(known))
    if len(known) == 0:
        return ErrorRow(*head, None, None, None, None, None, refused)
    error = np.log(points.predicted[known]) - np.log(points.seconds[known])
    share = np.abs(np.expm1(error))
    covered = np.abs(error) <= ndtri((1 + nominal) / 2) * points.log_sd[known] + 1e-12
    seeds = np.unique(points.seed[known])
    of_seed = [float(share[points.seed[known] == seed].mean()) for seed in seeds]
    spread = float(np.std(of_seed, ddof=1)) if len(seeds) > 1 else None
    return ErrorRow(
        *head,
        float(share.mean()),
        float(np.median(share)),
        float(error.mean()),
        float(covered.mean()),
        spread,
        refused,
    )
