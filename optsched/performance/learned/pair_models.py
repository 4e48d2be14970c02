"""The models of pairs by name, and ``auto``, which chooses one by the number of measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
from pydantic import model_validator

from optsched.arrays import BoolArray, FloatArray, IntArray, quotient
from optsched.arrays.values import cached_property
from optsched.errors import InvalidInput
from optsched.instance.documents import (
    Count,
    Document,
    Finite,
    Name,
    NonNegative,
    PlainObject,
    Positive,
    PositiveCount,
    Share,
    Tuple,
    refused,
)
from optsched.instance.reading import join, key, listed, show, validate
from optsched.performance.files import PERFORMANCE, below
from optsched.performance.learned.gaussian_pairs import FEWEST, GaussianPairs
from optsched.performance.learned.pairs import (
    MEASURED,
    Estimate,
    Fractions,
    LearnedPairs,
    PairDocument,
    PairModel,
    PairProfiles,
    Pairs,
    WorkloadFeatures,
    both_orders,
    require_pairs,
)
from optsched.performance.learned.trees import TreeEnsemble, TreeOptions, TreesDocument, fit_trees
from optsched.performance.learned.validation import (
    ConformalDocument,
    ConformalOptions,
    Radius,
    each_left_out,
    folds_of,
    hold_out,
    root_mean_square,
)

FOLDS = 5
"""Number of folds of the measured pairs for errors out of fold."""


# --- row-column -----------------------------------------------------------------------------------

PENALTIES = (0.03, 0.1, 0.3, 1.0, 3.0)


class RowColumnOptions(Document):
    """Options of the fit; without a penalty the best of `PENALTIES` is taken."""

    penalty: Positive | None = None


class EffectsDocument(Document):
    """Effects on one GPU type, by workload."""

    mean: Finite
    suffers: dict[Name, Finite]
    inflicts: dict[Name, Finite]


class RowColumnDocument(PairDocument):
    """A fitted `RowColumn` model."""

    penalty: Positive
    log_sd: NonNegative
    effects: dict[Name, EffectsDocument]


@dataclass(frozen=True, eq=False)
class RowColumn(LearnedPairs):
    """On GPU type g, the log of the fraction of its rate that job a keeps beside job b is

        log f_g(a | b) = c_g + r_ga + s_gb

    with a mean c_g, the effect r_ga of the job that is slowed and the effect s_gb of its partner.
    The effects minimise the squared error over the measured cells plus penalty (|r|^2 + |s|^2), so
    a job without a measured pair on a GPU type has effect 0 there. c_g is the mean of the cells of
    g, or of all cells if g has none.

    Unless it is given, the penalty is the one of `PENALTIES` with the smallest leave-one-out error
    (in closed form: e / (1 - h), with the residual e and the leverage h), which also gives
    ``log_sd``.

    Options: ``penalty``.
    """

    name: ClassVar[str] = "row-column"
    Stored = RowColumnDocument
    Options = RowColumnOptions

    penalty: float
    log_sd: float
    effects: Mapping[str, Mapping[str, Any]]

    @classmethod
    def fit(cls, profiles: PairProfiles, options: Mapping[str, Any]) -> Self:
        chosen = cls.read_options(options)
        require_pairs(profiles, 2, cls.name)
        cells, target = both_orders(profiles)
        known = profiles.features
        count = len(profiles.features.workloads)
        penalties = PENALTIES if chosen.penalty is None else (chosen.penalty,)
        # A GPU type without cells has the mean of all cells.
        mean = dict.fromkeys(known.gpu_types, float(target.mean()))
        parts = {}
        for row, gpu in enumerate(known.gpu_types):
            rows = np.flatnonzero(cells.gpu == row)
            if len(rows):
                mean[gpu] = float(target[rows].mean())
                design = _indicators(cells.first[rows], cells.second[rows], count)
                parts[gpu] = (design, target[rows] - mean[gpu])
        squares = {
            penalty: sum(_left_out_squares(design, y, penalty) for design, y in parts.values())
            for penalty in penalties
        }
        penalty = min(penalties, key=squares.__getitem__)
        effects = {}
        for gpu in known.gpu_types:
            solved = _ridge(*parts[gpu], penalty) if gpu in parts else np.zeros(2 * count)
            suffers, inflicts = solved.reshape(2, -1).tolist()
            effects[gpu] = {
                "mean": mean[gpu],
                "suffers": dict(zip(known.workloads, suffers, strict=True)),
                "inflicts": dict(zip(known.workloads, inflicts, strict=True)),
            }
        return cls(profiles, penalty, float(np.sqrt(squares[penalty] / len(target))), effects)

    @cached_property
    def mean(self) -> FloatArray:
        """c, the mean log fraction on each GPU type, shape (G,)."""
        return np.array([self.effects[gpu]["mean"] for gpu in self.features.gpu_types])

    @cached_property
    def suffers(self) -> FloatArray:
        """r, shape (G, W)."""
        return self._by_workload("suffers")

    @cached_property
    def inflicts(self) -> FloatArray:
        """s, shape (G, W)."""
        return self._by_workload("inflicts")

    def _by_workload(self, field: str) -> FloatArray:
        rows = [self.effects[gpu][field] for gpu in self.features.gpu_types]
        return np.array([[row[name] for name in self.workloads] for row in rows])

    def estimate(self, pairs: Pairs) -> Estimate:
        one, other = (
            self.mean[each.gpu]
            + self.suffers[each.gpu, each.first]
            + self.inflicts[each.gpu, each.second]
            for each in (pairs, pairs.swapped())
        )
        return Estimate(one, other, np.full(len(pairs), self.log_sd))

    @classmethod
    def learned_of(cls, stored: Any, features: WorkloadFeatures) -> dict[str, Any]:
        where = f"{PERFORMANCE}.effects"
        _require_names(stored.effects, features.gpu_types, where)
        for gpu, effects in stored.effects.items():
            for field in ("suffers", "inflicts"):
                given = getattr(effects, field)
                _require_names(given, features.workloads, f"{join(where, [gpu])}.{field}")
        return super().learned_of(stored, features)


def _indicators(first: IntArray, second: IntArray, workloads: int) -> FloatArray:
    design = np.zeros((len(first), 2 * workloads))
    rows = np.arange(len(first))
    design[rows, first] = 1.0
    design[rows, workloads + second] = 1.0
    return design


def _ridge(design: FloatArray, y: FloatArray, penalty: float) -> FloatArray:
    square = design.T @ design + penalty * np.eye(design.shape[1])
    return np.asarray(np.linalg.solve(square, design.T @ y), np.float64)


def _left_out_squares(design: FloatArray, y: FloatArray, penalty: float) -> float:
    """Sum of the squared leave-one-out errors of a ridge regression."""
    square = design.T @ design + penalty * np.eye(design.shape[1])
    half = np.linalg.solve(square, design.T)
    # Leave-one-out errors of a ridge regression need no new fits: e / (1 - h).
    leverage = np.einsum("ij,ji->i", design, half)
    residual = y - design @ (half @ y)
    left_out = residual / (1 - leverage)
    return float((left_out**2).sum())


def _require_names(given: Mapping[str, Any], expected: Sequence[str], path: str) -> None:
    for name in sorted(set(given) ^ set(expected)):
        where = join(path, [name])
        if name in given:
            found = "a name that nothing else in the model has"
            raise InvalidInput(where, found, listed(expected))
        raise InvalidInput(where, "nothing", "this key")


# --- completion -----------------------------------------------------------------------------------

LEAST = 1e-3
"""Lower bound on estimated fractions."""


class CompletionOptions(Document):
    """Options of the fit."""

    rank: PositiveCount = 4
    penalty: Positive = 0.3
    biased: bool = True
    iterations: PositiveCount = 50
    seed: Count = 0
    nearest: bool = False
    reference: Share = 0.9


class CompletionDocument(PairDocument):
    """A fitted `Completion`; the completed matrix row by row, as names are sorted."""

    log_sd: NonNegative
    completed: Tuple[Tuple[Finite]]


@dataclass(frozen=True, eq=False)
class Completion(LearnedPairs):
    """The fractions X_ij that job i keeps form a matrix with a column j for each GPU type
    and partner. With its measured cells M, alternating least squares minimise

        sum over M (X_ij - m - b_i - c_j - u_i . v_j)^2 + penalty (|U|^2 + |V|^2 + |b|^2 + |c|^2)

    over u_i, v_j in R^rank and, if ``biased``, b and c (else they are 0); m is the mean over M.
    Estimates are clipped to [`LEAST`, 1].

    With ``nearest`` this is the estimator of Gavel: if less than the share ``reference`` of a job's
    row is measured, its missing cells are copied from the nearest row among jobs with more
    measurements. It differs from Gavel's code in five points:

    1. The profile of a new job is looked up in the column of its partner. Gavel's code uses the
      number of the partner among the reference jobs as if it were its number among all jobs, and so
      reads rates of other pairs.
    2. A pair that could not run together counts as unknown, not as a rate of 0.
    3. The mean is subtracted first (with ``biased`` also biases), so that the penalty pulls unknown
      cells to the mean instead of to 0.
    4. Rows are compared by the root mean square of their difference. By the cosine, a job that
      keeps 0.9 beside all others would equal one that keeps 0.3.
    5. Measured cells of the new job are kept, not replaced by those of the other job.

    ``log_sd`` is the root mean square of the log errors when a fifth of the measured pairs is left
    out, five times.

    Options: ``rank``, ``penalty``, ``biased``, ``iterations``, ``seed``, ``nearest``,
    ``reference``.

    References
    ----------
    D. Narayanan et al., "Heterogeneity-aware cluster scheduling policies for deep learning
    workloads", OSDI 2020, section 3.3, and its repository, ``scheduler/throughput_estimator.py``;
    C. Delimitrou, C. Kozyrakis, "Quasar", ASPLOS 2014 (biases).
    """

    name: ClassVar[str] = "completion"
    Stored = CompletionDocument
    Options = CompletionOptions

    log_sd: float
    completed: FloatArray

    @classmethod
    def fit(cls, profiles: PairProfiles, options: Mapping[str, Any]) -> Self:
        chosen = cls.read_options(options)
        ran = require_pairs(profiles, 5, cls.name)
        errors = []
        for kept, left_out in each_left_out(folds_of(len(ran), FOLDS, chosen.seed)):
            # Use errors out of fold, because errors on the fitted cells are too small.
            part = cls(profiles, 0.0, _completed(ran.take(kept), chosen))
            new = ran.take(left_out)
            estimate = part.estimate(new.pairs)
            errors += [estimate.first - np.log(new.first), estimate.second - np.log(new.second)]
        return cls(profiles, root_mean_square(np.concatenate(errors)), _completed(ran, chosen))

    def estimate(self, pairs: Pairs) -> Estimate:
        count = len(self.workloads)
        first, second = (
            np.log(self.completed[each.first, each.gpu * count + each.second])
            for each in (pairs, pairs.swapped())
        )
        return Estimate(first, second, np.full(len(pairs), self.log_sd))

    @classmethod
    def learned_of(cls, stored: Any, features: WorkloadFeatures) -> dict[str, Any]:
        where = f"{PERFORMANCE}.completed"
        workloads = len(features.workloads)
        columns = len(features.gpu_types) * workloads
        if [len(row) for row in stored.completed] != [columns] * workloads:
            expected = f"{workloads} rows of {columns} values"
            raise InvalidInput(where, "another shape", expected)
        learned = super().learned_of(stored, features)
        completed = learned["completed"] = learned["completed"].reshape(workloads, columns)
        if not ((completed >= LEAST) & (completed <= 1)).all():
            raise InvalidInput(where, "a value outside", f"values from {LEAST:g} to 1")
        return learned


def _completed(profiles: PairProfiles, options: CompletionOptions) -> FloatArray:
    """All cells, (W, G W), from measured pairs that ran."""
    workloads = len(profiles.features.workloads)
    cells, logs = both_orders(profiles)
    cell = (cells.first, cells.gpu * workloads + cells.second)
    shape = (workloads, len(profiles.features.gpu_types) * workloads)
    total = np.zeros(shape)
    times = np.zeros(shape)
    np.add.at(total, cell, np.exp(logs))
    np.add.at(times, cell, 1.0)
    known = times > 0
    values = quotient(total, times)
    filled = np.clip(complete(values, known, options), LEAST, 1.0)
    if not options.nearest:
        return filled
    return _from_nearest(np.where(known, values, filled), filled, known, options)


def complete(values: FloatArray, known: BoolArray, options: CompletionOptions) -> FloatArray:
    """A matrix completed from its known cells by (biased)
    alternating least squares; see `Completion`.
    """
    rows, columns = values.shape
    # Start with small random factors, because factors of 0 would stay 0.
    random = np.random.default_rng(options.seed)
    mean = values[known].mean()
    residual = np.where(known, values - mean, 0.0)
    # A bias is a factor whose other side is 1: [u, b, 1] . [v, 1, c].
    u = random.normal(size=(rows, options.rank)) / 10
    v = random.normal(size=(columns, options.rank)) / 10
    b = np.zeros(rows)
    c = np.zeros(columns)
    for _ in range(options.iterations):
        # Alternate: with one side fixed, the other one is a ridge regression per row.
        u, b = _solve_side(residual - c * known, known, v, options)
        v, c = _solve_side((residual - b[:, np.newaxis] * known).T, known.T, u, options)
    return np.asarray(mean + u @ v.T + b[:, np.newaxis] + c, np.float64)


def _solve_side(
    residual: FloatArray,
    known: BoolArray,
    other: FloatArray,
    options: CompletionOptions,
) -> tuple[FloatArray, FloatArray]:
    """The factors, and biases, of the rows of ``residual`` (zero where unknown),
    given those of its columns.
    """
    design = np.column_stack((other, np.ones(len(other)))) if options.biased else other
    square = np.einsum("ij,jk,jl->ikl", known.astype(np.float64), design, design, optimize=True)
    square += options.penalty * np.eye(design.shape[1])
    right = residual @ design
    solved = np.linalg.solve(square, right[:, :, np.newaxis])[:, :, 0]
    if not options.biased:
        return solved, np.zeros(len(residual))
    return solved[:, :-1], solved[:, -1]


def _from_nearest(
    rows: FloatArray,
    filled: FloatArray,
    known: BoolArray,
    options: CompletionOptions,
) -> FloatArray:
    """Complete rows with few measurements from the nearest of the other rows; see `Completion`."""
    # As in Gavel, jobs with nearly as many measurements as the best one are references.
    share = known.mean(axis=1)
    references = np.flatnonzero(share >= options.reference * share.max())
    completed = filled.copy()
    for job in np.setdiff1d(np.arange(len(rows)), references):
        distance = ((rows[references] - rows[job]) ** 2).mean(axis=1)
        completed[job] = rows[references[distance.argmin()]]
    return completed


# --- boosted-pairs --------------------------------------------------------------------------------


class BoostedPairsOptions(TreeOptions):
    """Options of the fit."""

    iterations: int = 400
    learning_rate: Share = 0.1
    leaves: int = 31
    rows_per_leaf: int = 5


class BoostedPairsDocument(PairDocument):
    """A fitted `BoostedPairs` model."""

    log_sd: NonNegative
    trees: TreesDocument


@dataclass(frozen=True, eq=False)
class BoostedPairs(LearnedPairs):
    """log f_g(a | b) = F(features of g, a, b),
    an ensemble of boosted trees (squared error) with the features

    - the number of the GPU type g;
    - of a, then of b: the number of its family, the log of its batch, the logs of its rates alone
      on all GPU types;
    - the logs of the rates of a and of b alone on g.

    Names are numbered in sorted order. Unknown features are missing values, which trees can handle;
    features unknown for all pairs are left out. Both directions of each measured pair are used.
    ``log_sd`` is the root mean square of the log errors when a fifth of the pairs, in both
    directions, is left out, five times.

    Options: ``iterations``, ``learning_rate``, ``leaves``, ``rows_per_leaf``, ``penalty`` (L2,
    leaves), ``seed``.

    References
    ----------
    J. H. Friedman, "Greedy function approximation: a gradient boosting machine", Annals of
    Statistics 29 (2001); grown with scikit-learn's HistGradientBoostingRegressor.
    """

    name: ClassVar[str] = "boosted-pairs"
    Stored = BoostedPairsDocument
    Options = BoostedPairsOptions

    log_sd: float
    trees: TreeEnsemble

    @classmethod
    def fit(cls, profiles: PairProfiles, options: Mapping[str, Any]) -> Self:
        chosen = cls.read_options(options)
        if profiles.features.bare:
            found = "nothing but names of workloads"
            expected = "a family, a batch or rates alone of some"
            raise InvalidInput("profiles", found, expected)
        ran = require_pairs(profiles, 20, cls.name)

        def grow(part: PairProfiles) -> TreeEnsemble:
            cells, target = both_orders(part)
            return fit_trees(pair_features(part.features, cells), target, chosen)

        errors = []
        for kept, left_out in each_left_out(folds_of(len(ran), FOLDS, chosen.seed)):
            cells, target = both_orders(ran.take(left_out))
            predicted = grow(ran.take(kept)).predict(pair_features(profiles.features, cells))
            errors.append(predicted - target)
        return cls(profiles, root_mean_square(np.concatenate(errors)), grow(ran))

    def estimate(self, pairs: Pairs) -> Estimate:
        first = self.trees.predict(pair_features(self.features, pairs))
        second = self.trees.predict(pair_features(self.features, pairs.swapped()))
        return Estimate(first, second, np.full(len(pairs), self.log_sd))

    @classmethod
    def learned_of(cls, stored: Any, features: WorkloadFeatures) -> dict[str, Any]:
        columns = 7 + 2 * len(features.gpu_types)
        if stored.trees.features != columns:
            where = f"{PERFORMANCE}.trees.features"
            raise InvalidInput(where, show(stored.trees.features), f"{columns}, those of the model")
        return {"log_sd": stored.log_sd, "trees": TreeEnsemble(stored.trees)}


def pair_features(known: WorkloadFeatures, pairs: Pairs) -> FloatArray:
    """The features of pairs, (E, 7 + 2 G); see `BoostedPairs`."""
    # Number the names in sorted order, so that the same workloads have the same features.
    names = np.array(known.family)
    family = np.where(names == "", np.nan, np.unique(names, return_inverse=True)[1])
    alone = np.log(known.isolated)
    batch = np.log(known.batch)
    columns = [pairs.gpu.astype(np.float64)]
    for job in (pairs.first, pairs.second):
        columns += [family[job], batch[job], *alone[job].T, alone[job, pairs.gpu]]
    return np.column_stack(columns)


# --- utilisation ----------------------------------------------------------------------------------

FEWEST_FRACTIONS = 5
PRIOR_SD = 0.15
"""log_sd of Horus' rule: its mean error on the 1,388 pairs of Lucid's table is 8.7 %."""


class UtilisationOptions(Document):
    """Options of the fit."""

    rule: Literal["isotonic", "horus"] = "isotonic"


class UtilisationDocument(PairDocument):
    """A fitted `Utilisation`; without sums the rule is Horus'."""

    log_sd: NonNegative
    sums: Tuple[NonNegative]
    logs: Tuple[Finite]

    @model_validator(mode="after")
    def _falls(self) -> Self:
        if len(self.sums) != len(self.logs):
            expected = f"{len(self.sums)}, as many as sums"
            raise refused(f"{len(self.logs)} values", expected, ".logs")
        if (np.diff(self.sums) <= 0).any() or (np.diff(self.logs) > 0).any():
            raise refused(
                "sums or logs out of order", "increasing sums and logs that never increase"
            )
        return self


@dataclass(frozen=True, eq=False)
class Utilisation(LearnedPairs):
    """With x = u_a + u_b, the sum of the utilisations of the GPU
    by two jobs alone, both keep the fraction

        isotonic    exp h(x),  h the non-increasing function closest to the measured logs (squares)
        horus       min(1, 1 / x)

    where h is piecewise linear between the centres of its levels, and constant outside of them.
    ``log_sd`` is the root mean square of the errors of the fit, for Horus' rule `PRIOR_SD` where
    fewer than `FEWEST` fractions were measured. Pairs with a job of unknown utilisation have no
    estimate.

    Options: ``rule``.

    References
    ----------
    G. Yeung et al., "Horus: interference-aware and prediction-based scheduling in deep learning
    systems", TPDS 2022; R. E. Barlow et al., "Statistical Inference under Order Restrictions",
    Wiley 1972 (pool adjacent violators).
    """

    name: ClassVar[str] = "utilisation"
    Stored = UtilisationDocument
    Options = UtilisationOptions

    log_sd: float
    sums: FloatArray
    logs: FloatArray

    @classmethod
    def fit(cls, profiles: PairProfiles, options: Mapping[str, Any]) -> Self:
        chosen = cls.read_options(options)
        cells, target = both_orders(profiles)
        x = _busy_together(profiles.features, cells)
        known = np.flatnonzero(np.isfinite(x))
        x = x[known]
        target = target[known]
        enough = len(x) >= FEWEST_FRACTIONS
        sums = np.zeros(0)
        logs = np.zeros(0)
        if chosen.rule == "isotonic":
            if not enough:
                found = f"{len(x)} fractions of jobs with known utilisation"
                raise InvalidInput("profiles", found, f"at least {FEWEST_FRACTIONS} of them")
            sums, logs = decreasing(x, target)
        errors = _log_fraction(x, sums, logs) - target
        return cls(profiles, root_mean_square(errors) if enough else PRIOR_SD, sums, logs)

    def estimate(self, pairs: Pairs) -> Estimate:
        both = _log_fraction(_busy_together(self.features, pairs), self.sums, self.logs)
        return Estimate(both, both, np.full(len(pairs), self.log_sd))


def _busy_together(features: WorkloadFeatures, pairs: Pairs) -> FloatArray:
    """x of each pair; NaN where a utilisation is not known."""
    first = features.utilisation[pairs.first, pairs.gpu]
    second = features.utilisation[pairs.second, pairs.gpu]
    return first + second


def _log_fraction(x: FloatArray, sums: FloatArray, logs: FloatArray) -> FloatArray:
    if len(sums) == 0:
        return -np.log(np.maximum(x, 1.0))
    return np.where(np.isnan(x), np.nan, np.interp(x, sums, logs))


def decreasing(x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The non-increasing function with the least squared distance to the points: weighted centres
    and values of its levels.

    Levels of equal value are merged, so that the interpolation between centres is constant there.
    """
    from scipy.optimize import isotonic_regression

    places, row, count = np.unique(x, return_inverse=True, return_counts=True)
    weight = count.astype(np.float64)
    means = np.bincount(row, y) / weight
    level = isotonic_regression(means, weights=weight, increasing=False).x
    start = np.append(0, np.flatnonzero(np.diff(level)) + 1)
    middles = np.add.reduceat(weight * places, start) / np.add.reduceat(weight, start)
    return middles, level[start]


# --- models made of another model of pairs --------------------------------------------------------

MOST_GAUSSIAN = 2000
"""Most pairs for a Gaussian process, whose cost is cubic: some seconds for this number."""


def choose(profiles: PairProfiles) -> tuple[str, str]:
    """The name of a pair model for these measurements, and why, as text.

    On Gavel's table (benchmarks/studies/pairs.py) ``gaussian-pairs`` has the smallest error at
    every count that was tried. Above its limit, ``boosted-pairs`` is chosen if features are known.
    Without features, and with too few pairs for a process, ``row-column`` is chosen.
    """
    pairs = len(profiles.ran)
    if pairs < FEWEST:
        because = f"{pairs} pairs were measured: too few for more than effects of rows and columns"
        return "row-column", because
    if pairs <= MOST_GAUSSIAN:
        return "gaussian-pairs", f"{pairs} pairs were measured, at most {MOST_GAUSSIAN}"
    if profiles.features.bare:
        because = f"{pairs} pairs were measured, and nothing is known of the workloads alone"
        return "row-column", because
    return "boosted-pairs", f"{pairs} pairs were measured, more than {MOST_GAUSSIAN}"


class AutoDocument(Document):
    """A fitted `AutoPairs`: the document of the model that was chosen, and why it was."""

    chosen: PlainObject
    because: str


@dataclass(frozen=True, eq=False)
class AutoPairs(PairModel):
    """The pair model that `choose` selects for the measurements, and the reason.

    Options: options of models by their names: ``{"gaussian-pairs": {"iterations":
    50}}``.
    """

    name: ClassVar[str] = "auto"

    chosen: PairModel
    because: str

    @property
    def workloads(self) -> tuple[str, ...]:
        return self.chosen.workloads

    @classmethod
    def fit(cls, profiles: PairProfiles, options: Mapping[str, Any]) -> Self:
        # On the command line, names have underscores.
        given = {name.replace("_", "-"): model_options for name, model_options in options.items()}
        known = sorted(set(PAIR_MODELS) - {cls.name})
        for name, model_options in given.items():
            if name not in known or not isinstance(model_options, Mapping):
                expected = f"options of one of {', '.join(known)} by its name"
                raise InvalidInput(f"performance.{key(name)}", show(model_options), expected)
        name, because = choose(profiles)
        return cls(pair_class(name).fit(profiles, given.get(name, {})), because)

    def fractions(self, pairs: Pairs) -> Fractions:
        return self.chosen.fractions(pairs)

    def document(self) -> dict[str, Any]:
        return {"model": self.name, "chosen": self.chosen.document(), "because": self.because}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        stored = validate(AutoDocument, dict(document), PERFORMANCE)
        return cls(make_pair_model(stored.chosen, f"{PERFORMANCE}.chosen"), stored.because)


@dataclass(frozen=True, eq=False)
class ConformalPairs(PairModel):
    """The fractions of another model,
    with ``log_sd`` and intervals from a quarter of the measured pairs (`Radius`).

    The other model is fitted to the rest of the pairs (a random split in which both orders and
    repeated measurements of a pair stay together) and predicts both jobs of the quarter. Fractions
    are at most 1, and so is the upper end of an interval. Measured pairs keep their ``log_sd`` of
    0, and their interval is a point.

    Options: ``of``, an object with the name (``model``) and options of the other model; ``level``
    (0.9), ``held_out`` (0.25, the share of the pairs), ``seed``.
    """

    name: ClassVar[str] = "conformal-pairs"
    Options = ConformalOptions

    base: PairModel
    radius: Radius

    @property
    def workloads(self) -> tuple[str, ...]:
        return self.base.workloads

    @classmethod
    def fit(cls, profiles: PairProfiles, options: Mapping[str, Any]) -> Self:
        chosen = cls.read_options(options)
        with below("performance.of"):
            owner, model_options = _named(chosen.of)
        ran = profiles.ran
        first = ran.pairs.first
        second = ran.pairs.second
        # Hold out both orders of a pair together; otherwise the answer would be known.
        sorted_pairs = Pairs(
            ran.pairs.gpu,
            np.minimum(first, second),
            np.maximum(first, second),
            ran.pairs.gpu_types,
            ran.pairs.workloads,
        )
        seen, out = hold_out(sorted_pairs.keys(), chosen.held_out, chosen.seed)
        with below("performance.of"):
            base = owner.fit(ran.take(seen), model_options)
        held_out = ran.take(out)
        predicted = base.fractions(held_out.pairs)
        ratio = held_out.first / predicted.first
        other_ratio = held_out.second / predicted.second
        # A job paired with itself has one error, not two.
        apart = held_out.pairs.first != held_out.pairs.second
        errors = np.log(np.concatenate((ratio, other_ratio[apart])))
        return cls(base, Radius.of(errors[np.isfinite(errors)], chosen.level))

    def fractions(self, pairs: Pairs) -> Fractions:
        base = self.base.fractions(pairs)
        log_sd = self._where_estimated(base, self.radius.log_sd)
        return Fractions(base.first, base.second, log_sd, base.source)

    def intervals(self, pairs: Pairs) -> tuple[FloatArray, FloatArray]:
        """Lower and upper ends of the intervals of both jobs at the level, (E, 2) each; NaN if
        unknown.
        """
        base = self.base.fractions(pairs)
        middle = np.column_stack((base.first, base.second))
        factor = np.exp(self._where_estimated(base, self.radius.radius))[:, np.newaxis]
        return middle / factor, np.minimum(middle * factor, 1.0)

    def _where_estimated(self, base: Fractions, value: float) -> FloatArray:
        return np.where(base.source == MEASURED, 0.0, value)

    def document(self) -> dict[str, Any]:
        return {"model": self.name, "of": self.base.document(), **vars(self.radius)}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        stored = validate(ConformalDocument, dict(document), PERFORMANCE)
        return cls(
            make_pair_model(stored.of, f"{PERFORMANCE}.of"),
            Radius(stored.level, stored.radius, stored.rows),
        )


# --- by name --------------------------------------------------------------------------------------

PAIR_MODELS: dict[str, type[PairModel]] = {
    model.name: model
    for model in (
        AutoPairs,
        BoostedPairs,
        Completion,
        ConformalPairs,
        GaussianPairs,
        RowColumn,
        Utilisation,
    )
}


def pair_class(name: object) -> type[PairModel]:
    """The class of a pair model by name; raises `InvalidInput`."""
    if not isinstance(name, str) or name not in PAIR_MODELS:
        raise InvalidInput(f"{PERFORMANCE}.model", show(name), f"one of {', '.join(PAIR_MODELS)}")
    return PAIR_MODELS[name]


def _named(document: Mapping[str, Any]) -> tuple[type[PairModel], dict[str, Any]]:
    """The class of the model that a document names, and its other entries."""
    options = dict(document)
    return pair_class(options.pop("model", None)), options


def make_pair_model(document: object, path: str = "performance.pairs") -> PairModel:
    """The pair model of a document with its ``model`` name;
    raises `InvalidInput` with paths below ``path``.
    """
    if not isinstance(document, Mapping):
        raise InvalidInput(path, show(document), "the document of a model of pairs")
    with below(path):
        owner, options = _named(document)
        return owner.from_document(options)
