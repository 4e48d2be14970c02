"""How well models predict times that they were not fitted to.

A model is fitted to one part of the profiles and predicts the times t' of the others, measured as
t. With e = log t' - log t of the rows that it can predict:

    mape      mean of |t'/t - 1|                median of the same: median_ape
    bias      mean of e: above 0 if predicted times are too long
    coverage  share of rows with |e| <= z log_sd, z of the standard normal interval of the nominal share
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri

from optsched.arrays import EMPTY, BoolArray, FloatArray, IntArray
from optsched.arrays.columns import Columns
from optsched.display import Displayed, DisplayedTable, TableColumns, columns_of, count, percent
from optsched.errors import InvalidArgument, InvalidInput, unknown_name
from optsched.executors import LOCAL, all_results_of
from optsched.instance.reading import show
from optsched.performance.profiles import Profiles
from optsched.performance.protocol import Source
from optsched.performance.times import Times
from optsched.performance.ways import Ways

# --- splits: each tests another kind of extrapolation
# -------------------------------------------------


@dataclass(frozen=True)
class Split:
    """Rows of profiles to fit to, and rows to test on; they are disjoint and not empty."""

    train: IntArray
    test: IntArray


def random_rows(
    profiles: Profiles, random: np.random.Generator, fraction: float = 0.5
) -> Iterator[Split]:
    """Dense samples: a random fraction of the rows of each workload on each GPU type. Rows of the
    same way to run stay together.
    """
    if not 0 < fraction < 1:
        raise InvalidArgument("random: fraction", f"{fraction:g}", "a number between 0 and 1")
    ways = profiles.ways
    columns = np.stack(
        [ways.workload, ways.gpu, ways.gpus, ways.nodes, ways.samples, ways.passes], axis=1
    )
    # Repeated measurements of a way stay together, otherwise the model would have seen the answer.
    kinds, way = np.unique(columns, axis=0, return_inverse=True)
    group = (kinds[:, 0] * len(ways.gpu_types) + kinds[:, 1]).astype(np.int64)
    # Draw a random order inside each (workload, GPU type); the first rows are fitted to.
    order = np.lexsort((random.random(len(kinds)), group))
    first = np.searchsorted(group[order], group[order])
    size = np.bincount(group)[group[order]]
    train = np.zeros(len(kinds), bool)
    train[order] = np.arange(len(kinds)) - first < np.maximum(1, np.round(fraction * size))
    yield from _of_mask(train[way.ravel()])


def workload_out(profiles: Profiles, random: np.random.Generator) -> Iterator[Split]:
    """Unseen workloads: each workload in turn is left out as a whole."""
    if len(profiles.ways.workloads) > 1:
        for row in range(len(profiles.ways.workloads)):
            yield from _of_mask(profiles.ways.workload != row)


def gpu_out(profiles: Profiles, random: np.random.Generator) -> Iterator[Split]:
    """GPU types that were measured on 1 GPU only: for each type in turn, the rows on several GPUs
    are left out.
    """
    ways = profiles.ways
    if len(ways.gpu_types) > 1:
        for row in range(len(ways.gpu_types)):
            yield from _of_mask((ways.gpu != row) | (ways.gpus == 1))


def more_gpus(profiles: Profiles, random: np.random.Generator, most: int = 4) -> Iterator[Split]:
    """More GPUs than were profiled:
    rows on at most ``most`` of them are fitted to, the others are left out.
    """
    yield from _of_mask(profiles.ways.gpus <= most)


def few_shot(profiles: Profiles, random: np.random.Generator) -> Iterator[Split]:
    """A short profile of each workload on each GPU type: its rows on 1 GPU, those of one placement
    on several GPUs of one node, and those of one over several nodes, at random.
    """  # fmt: skip
    ways = profiles.ways
    train = ways.gpus == 1
    several = np.flatnonzero(~train)
    columns = np.stack([ways.workload, ways.gpu, ways.nodes > 1, ways.gpus, ways.nodes], axis=1)[
        several
    ]
    placements, of_row = np.unique(columns, axis=0, return_inverse=True)
    order = np.lexsort((random.random(len(placements)), *placements[:, :3].T[::-1]))
    level = placements[order, :3]
    # The first of each (workload, GPU type, one node or several) in a random order.
    chosen = order[np.flatnonzero(np.any(np.diff(level, axis=0, prepend=-1) != 0, axis=1))]
    train[several[np.isin(of_row.ravel(), chosen)]] = True
    yield from _of_mask(train)


def _of_mask(train: BoolArray) -> Iterator[Split]:
    if train.any() and not train.all():
        yield Split(np.flatnonzero(train), np.flatnonzero(~train))


SPLITS: Mapping[str, Callable[..., Iterator[Split]]] = {
    "random": random_rows,
    "few-shot": few_shot,
    "more-gpus": more_gpus,
    "workload-out": workload_out,
    "gpu-out": gpu_out,
}
"""Splits by name; each yields nothing if the profiles have no rows to leave out."""

LEFT_OUT = {
    "random": "a random part of the configurations of each workload",
    "few-shot": "all configurations but 1 GPU, one placement on a node and one over several",
    "more-gpus": "all configurations with more GPUs than were profiled",
    "workload-out": "one workload after another",
    "gpu-out": "the configurations on several GPUs of one GPU type after another",
}
"""What each split leaves out of the fit, as text."""


def split_words(label: str) -> str:
    """What a split such as ``random:fraction=0.3`` does, as text."""
    return f"leaves out {LEFT_OUT[label.partition(':')[0]]}"


RANDOM = ("random", "few-shot")
"""Splits that depend on the seed."""


def splits_of(profiles: Profiles, name: str, seed: int, options: Mapping[str, Any]) -> list[Split]:
    """The splits of a name with its options; raises `UsageError` for a wrong one."""
    if name not in SPLITS:
        raise unknown_name("split", name, SPLITS)
    known = {"random": {"fraction"}, "more-gpus": {"most"}}.get(name, set())
    for option, value in options.items():
        if option not in known:
            wanted = " ".join(known) or "none"
            raise InvalidArgument(
                f"option of {name}",
                option,
                wanted,
                sentence=f"unknown option of the split {name}: {option}, expected {wanted}",
            )
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InvalidArgument(f"{name}: {option}", repr(value), "a number")
    return list(SPLITS[name](profiles, np.random.default_rng(seed), **options))


# --- errors ---------------------------------------------------------------------------------------

Predict = Callable[[Ways], Times]
Fit = Callable[[Profiles], Predict]
"""Fits a model to profiles and returns its predictions;
raises `InvalidInput` where they cannot determine it.
"""


@dataclass(frozen=True, repr=False)
class ErrorRow(Displayed):
    """Errors of one model on one split, of all workloads together or of one.

    Attributes
    ----------
    model, split : str
    workload : str or None
        None: all together.
    fits : int
        Number of fits: one for each seed and each part left out.
    tested : int
        Rows that were left out, over all fits.
    known : int
        Rows of these that the model could predict; the error measures use only these.
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

    def _headline(self) -> str:
        error = "no error known" if self.mape is None else f"mean error {percent(self.mape)}"
        return f"{self.model} on {self.split}, {self.workload or 'all workloads'}: {error}"


@dataclass(frozen=True, repr=False)
class Points(Columns):
    """Rows that were left out, with the predictions of one model; arrays of length P.

    Attributes
    ----------
    model, split : str
    row : IntArray
        Row of the profiles.
    seed : IntArray
    seconds : FloatArray
        Measured.
    predicted, log_sd : FloatArray
        NaN if the model had no prediction.
    """

    model: str
    split: str
    row: IntArray
    seed: IntArray
    seconds: FloatArray
    predicted: FloatArray
    log_sd: FloatArray

    @property
    def known(self) -> IntArray:
        """Positions of the rows that the model could predict."""
        return np.flatnonzero(np.isfinite(self.predicted))


@dataclass(frozen=True, repr=False)
class Evaluation(DisplayedTable):
    """The result of `evaluate`: errors for each model, split and workload, and the predictions
    behind them.

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

    def _headline(self) -> str:
        models = len({row.model for row in self.rows})
        splits = len({row.split for row in self.rows})
        measured = count(len(self.profiles), "measurement")
        return f"of {count(models, 'model')} by {count(splits, 'split')} of {measured}"

    def _facts(self) -> Mapping[str, str]:
        """Mean error of each model over all workloads, by split."""
        facts: dict[str, list[str]] = {}
        for row in self.rows:
            if row.workload is None:
                error = "none" if row.mape is None else percent(row.mape)
                partly = "" if row.known == row.tested else f" of {row.known:,} of {row.tested:,}"
                facts.setdefault(row.split, []).append(
                    f"{row.model} {error}{partly if row.known else ''}"
                )
        return {f"mean error, {split}": ", ".join(errors) for split, errors in facts.items()}

    def to_columns(self, first: int | None = None) -> TableColumns:
        """The errors of each model on each split, of all workloads together and of each."""
        return columns_of([asdict(row) for row in self.rows[:first]])


def evaluate(
    profiles: Profiles,
    models: Mapping[str, Fit],
    splits: Sequence[tuple[str, Mapping[str, Any]]],
    *,
    seeds: int = 1,
    nominal: float = 0.9,
    processes: int = 1,
    executor: str = LOCAL,
) -> Evaluation:
    """Fit models to parts of profiles and test them on the rest.

    Parameters
    ----------
    profiles : Profiles
    models : mapping from str to Fit
        Models by the name to report.
    splits : sequence of (name, options)
        `SPLITS`.
    seeds : int
        Random splits are drawn for seeds 0 to ``seeds`` - 1; the others are made once.
    nominal : float
        Nominal share of the intervals.
    processes : int
        Parts of splits at a time, each in its own process; with 1 all in this one.
    executor : str
        Where these are, see `optsched.benchmarking.run_tasks`.

    Returns
    -------
    Evaluation
        If the profiles do not allow a split, or a model cannot be fitted, its row has no fits and
        states the reason.

    Raises
    ------
    UsageError
        An unknown split, or a number out of range.
    """
    if not 0 < nominal < 1:
        raise InvalidArgument("nominal", f"{nominal:g}", "a share between 0 and 1")
    if not 1 <= seeds <= 1000:
        raise InvalidArgument("seeds", str(seeds), "a number from 1 to 1000")
    for row, split in enumerate(splits):
        pair = tuple(split) if isinstance(split, list | tuple) else ()
        if not (len(pair) == 2 and isinstance(pair[0], str) and isinstance(pair[1], Mapping)):
            raise InvalidArgument(f"splits[{row}]", show(split), "(name, options)")
    parts_of = [
        [
            (seed, part)
            for seed in range(seeds if name in RANDOM else 1)
            for part in splits_of(profiles, name, seed, options)
        ]
        for name, options in splits
    ]
    # One list for all kinds of splits, so that all processes have work until the end.
    every = [part for parts in parts_of for part in parts]
    predicted = iter(
        all_results_of(
            _predicted, (profiles, dict(models)), every, processes=processes, executor=executor
        )
    )
    rows = []
    points = []
    for (name, options), parts in zip(splits, parts_of, strict=True):
        title = name + "".join(f":{option}={value:g}" for option, value in options.items())
        tested = [(*part, next(predicted)) for part in parts]
        for point, rows_of_point in _judge(profiles, list(models), title, tested, nominal):
            points.append(point)
            rows += rows_of_point
    return Evaluation(profiles, nominal, tuple(rows), tuple(points))


def _predicted(shared: tuple[Any, ...], item: tuple[int, Split]) -> Mapping[str, Times | str]:
    """Predictions of each model for a part that is left out, or the reason why it cannot be fitted
    to the rest.
    """
    (profiles, models), (_, split) = shared, item
    # All models get the same object, so that a chain can reuse fits of its parts.
    train, ways = profiles.take(split.train), profiles.ways.take(split.test)
    predicted: dict[str, Times | str] = {}
    for name, fit in models.items():
        try:
            predicted[name] = fit(train)(ways)
        except InvalidInput as error:
            predicted[name] = str(error)
    return predicted


def _judge(
    profiles: Profiles,
    models: Sequence[str],
    title: str,
    parts: Sequence[tuple[int, Split, Mapping[str, Times | str]]],
    nominal: float,
) -> list[tuple[Points, list[ErrorRow]]]:
    """Errors and points of each model, from the parts (seed, split, predictions) of one kind of
    split.
    """
    # A model that was never fitted has no points.
    none = (0, EMPTY, Times.of(np.zeros(0), Source.MEASURED))
    nothing = "" if parts else "nothing in these profiles can be left out"
    judged = []
    for name in models:
        answers = [(seed, split.test, part[name]) for seed, split, part in parts]
        refused = next((words for *_, words in answers if isinstance(words, str)), nothing)
        fits = [(seed, test, times) for seed, test, times in answers if isinstance(times, Times)]
        points = Points.join([_points(name, title, profiles, *fit) for fit in (none, *fits)])
        judged.append((points, _rows(points, profiles, len(fits), nominal, refused)))
    return judged


def _points(
    model: str,
    split: str,
    profiles: Profiles,
    seed: int,
    test: IntArray,
    predicted: Times,
) -> Points:
    """Predictions of one fit for the rows that were left out."""
    return Points(
        model,
        split,
        row=test,
        seed=np.full(len(test), seed),
        seconds=profiles.seconds[test],
        predicted=predicted.seconds,
        log_sd=predicted.log_sd,
    )


def _rows(
    points: Points,
    profiles: Profiles,
    fits: int,
    nominal: float,
    refused: str,
) -> list[ErrorRow]:
    """Errors over all workloads, then of each workload with rows that were left out."""
    workload = profiles.ways.workload[points.row]
    rows = [_row(points, None, np.arange(len(points.row)), fits, nominal, refused)]
    for number in np.unique(workload).tolist():
        chosen = np.flatnonzero(workload == number)
        rows.append(_row(points, profiles.ways.workloads[number], chosen, fits, nominal, ""))
    return rows


def _row(
    points: Points,
    workload: str | None,
    chosen: IntArray,
    fits: int,
    nominal: float,
    refused: str,
) -> ErrorRow:
    # Errors use only known predictions; missing ones are counted separately.
    known = np.intersect1d(chosen, points.known)
    head = (points.model, points.split, workload, fits, len(chosen), len(known))
    if len(known) == 0:
        return ErrorRow(*head, None, None, None, None, None, refused)
    error = np.log(points.predicted[known]) - np.log(points.seconds[known])
    # |t'/t - 1| from the log error, without loss of digits if both are close.
    share = np.abs(np.expm1(error))
    # Two-sided interval: half of the uncovered share is on each side.
    z = ndtri((1 + nominal) / 2)
    covered = np.abs(error) <= z * points.log_sd[known] + 1e-12
    seeds = np.unique(points.seed[known])
    of_seed = [float(share[points.seed[known] == seed].mean()) for seed in seeds]
    return ErrorRow(
        *head,
        mape=float(share.mean()),
        median_ape=float(np.median(share)),
        bias=float(error.mean()),
        coverage=float(covered.mean()),
        mape_sd=float(np.std(of_seed, ddof=1)) if len(seeds) > 1 else None,
        refused=refused,
    )
