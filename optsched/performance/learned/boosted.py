"""The ``boosted`` model:
gradient-boosted trees on the time of a step, or on the residuals of another model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from pydantic import Field, model_validator

from optsched.arrays import BoolArray, FloatArray
from optsched.arrays.values import replace
from optsched.errors import InvalidInput
from optsched.instance.documents import Document, Name, NonNegative, PlainObject, Share, refused
from optsched.instance.reading import show
from optsched.performance.learned.combined import fit_part, read_part
from optsched.performance.learned.trees import TreeEnsemble, TreeOptions, TreesDocument, fit_trees
from optsched.performance.learned.validation import each_left_out, folds_of, root_mean_square
from optsched.performance.parametric.fitting import (
    LEVELS,
    MOST_LOG_SD,
    LogSd,
    flat,
    level_of,
    nested,
    rows_by_pair,
)
from optsched.performance.profiles import Profiles
from optsched.performance.protocol import Source
from optsched.performance.times import StoredModel, Times
from optsched.performance.ways import Ways

FEATURES = 5
FEWEST = 8
"""Fewest rows of a (workload, GPU type) for which trees are grown."""
LEAST_LOG_SD = 0.02
"""Lower bound on the log_sd of trees: a step that was measured twice may be in two folds, so that
errors out of fold are too small.
"""
FOLDS = 4
"""Number of folds: their errors out of fold give `log_sd`, and the residuals of the base on unseen
rows.
"""


class BoostedOptions(TreeOptions):
    """Options of the fit; ``of`` is the base, a performance object."""

    iterations: int = 300
    learning_rate: Share = 0.05
    leaves: int = 15
    rows_per_leaf: int = 3
    penalty: NonNegative = 1.0
    of: PlainObject | None = None
    unseen: bool = False


class GroupDocument(Document):
    """The trees of one workload on one GPU type.

    ``levels`` (one GPU, one node, several nodes) are those that had measured steps.
    """

    log_sd: LogSd
    levels: tuple[bool, bool, bool] = Field((True, True, True), strict=False)
    trees: TreesDocument

    @model_validator(mode="after")
    def _as_many_features(self) -> Self:
        if self.trees.features != FEATURES:
            expected = f"{FEATURES}, as many as the model has"
            raise refused(show(self.trees.features), expected, ".trees.features")
        return self


class BoostedDocument(Document):
    """A fitted `Boosted` model."""

    of: PlainObject | None = None
    groups: dict[Name, dict[Name, GroupDocument]]


class Boosted(StoredModel):
    """Gradient-boosted trees on the time of a step, or on the errors of another model.

    For each workload on each GPU type, with k GPUs on n nodes, m samples per GPU and pass, A
    passes,

        log t = F(log m, log k, log n, k / n, log A)                    alone
        log t = log t_base + F(log m, log k, log n, k / n, log A)       with ``of``

    where F is a separate ensemble of boosted trees (squared error).

    Beyond the measured k a tree predicts the same as at the largest k. So the target should be a
    quantity that is nearly constant in k: the time of a step with m samples on each GPU is, while
    throughput grows with k.

    Alone, the trees are grown on steps of one pass, and a step of A passes takes as long as A - 1
    of them on one GPU, without exchange of gradients, and one on k,  t = (A - 1) min(t(m, 1, 1),
    t(m, k, n)) + t(m, k, n). A measured step of several passes is turned into one of a single pass
    with its seconds ``sync`` of exchange; without them, and with more than one GPU, it is left out.

    With a base, the trees learn the residuals of the fitted base. A flexible base has smaller
    residuals on the rows that it was fitted to than on others. With ``unseen`` the trees therefore
    learn residuals out of fold: the base is fitted to 3/4 of the rows and predicts the last
    quarter, four times. If such a fit is refused or has no answer, the base of all rows is used.
    For laws with few parameters ``unseen`` is worse (Sia's steps, 10 % seen, on ``pollux``: 8.5
    against 7.3 %), because they are fitted to fewer rows.

    If a pair was never measured on several GPUs of a node, or on several nodes, trees alone have no
    answer there (NaN). With a base, they apply the correction from other levels (a pair measured on
    one GPU only has a correction of its compute), and ``log_sd`` is at least that of the base. With
    fewer than `FEWEST` rows of a workload on a GPU type there are no trees: the base is used as it
    is; without a base there is no answer (NaN).

    ``log_sd`` is the root mean square of the errors of log t out of fold (4 folds), one value for
    each workload and GPU type, and at least `LEAST_LOG_SD`.

    Options: ``of``, a performance object with the name and options of the base; ``iterations``,
    ``learning_rate``, ``leaves``, ``rows_per_leaf``, ``penalty`` (L2, of the leaves), ``seed``,
    ``unseen``.

    References
    ----------
    J. H. Friedman, "Greedy function approximation: a gradient boosting machine", Annals of
    Statistics 29 (2001); grown with scikit-learn's HistGradientBoostingRegressor.
    """

    name: ClassVar[str] = "boosted"
    Stored = BoostedDocument
    Options = BoostedOptions

    def __init__(self, stored: BoostedDocument) -> None:
        super().__init__(stored)
        self.groups = flat(stored.groups)
        self._trees_of = {pair: TreeEnsemble(group.trees) for pair, group in self.groups.items()}
        self.base = None if stored.of is None else read_part(stored.of)

    # --- fitting ----------------------------------------------------------------------------------

    @classmethod
    def fit_checked(cls, profiles: Profiles, options: BoostedOptions) -> Self:
        base = None
        if options.of is None:
            profiles, target = _single_passes(profiles)
        else:
            base = fit_part(options.of, profiles)
            seconds = base.times(profiles.ways).seconds
            if options.unseen:
                seconds = _predict_unseen(options.of, profiles, seconds, options.seed)
            target = np.log(profiles.seconds / seconds)
        rows = features(profiles.ways)
        level = level_of(profiles.ways.gpus, profiles.ways.nodes)
        groups = {}
        for pair, members in rows_by_pair(profiles.ways).items():
            known = members[np.isfinite(target[members])]
            # Rows that the base cannot predict have no residual.
            if len(known) >= FEWEST:
                trees, log_sd = _grow(rows[known], target[known], options)
                seen = np.bincount(level[known], minlength=LEVELS) > 0
                groups[pair] = GroupDocument(
                    log_sd=log_sd, levels=tuple(seen.tolist()), trees=trees.stored
                )
        if base is None and not groups:
            raise InvalidInput(
                "profiles",
                f"{len(profiles)} steps",
                f"at least {FEWEST} steps of some workload on one GPU type",
            )
        of = None if base is None else base.document()
        return cls(BoostedDocument(of=of, groups=nested(groups)))

    # --- predictions ------------------------------------------------------------------------------

    def times(self, ways: Ways) -> Times:
        """`TimeModel`; equal ways are predicted once."""
        groups = ways.groups
        distinct = ways.take(groups.first)
        times = self._times_alone(distinct) if self.base is None else self._times_on_base(distinct)
        return times.take(groups.inverse)

    def _times_alone(self, ways: Ways) -> Times:
        """t = (A - 1) min(t(m, 1, 1), t(m, k, n)) + t(m, k, n), from trees of single passes."""
        value, log_sd, _, seen = self._trees(ways)
        seconds = np.exp(np.where(seen, value, np.nan))
        several = np.flatnonzero(ways.passes > 1)
        ones = np.ones(len(several), np.int64)
        # All passes except the last have no exchange, as on one GPU.
        on_one_gpu = replace(ways.take(several), gpus=ones, nodes=ones, passes=ones)
        value, _, _, seen = self._trees(on_one_gpu)
        pass_on_one = np.exp(np.where(seen, value, np.inf))
        further_passes = ways.passes[several] - 1
        seconds[several] += further_passes * np.minimum(pass_on_one, seconds[several])
        return Times.of(seconds, Source.LEARNED, log_sd)

    def _times_on_base(self, ways: Ways) -> Times:
        """log t = log t_base + F; the base alone if there are no trees."""
        assert self.base is not None
        base = self.base.times(ways)
        correction, log_sd, grown, seen = self._trees(ways)
        grown &= np.isfinite(base.seconds)
        log_sd = np.where(seen, log_sd, np.fmax(log_sd, base.log_sd))
        return Times(
            np.where(grown, base.seconds * np.exp(correction), base.seconds),
            np.where(grown, log_sd, base.log_sd),
            np.where(grown, np.uint8(Source.LEARNED), base.source).astype(np.uint8),
        )

    def _trees(self, ways: Ways) -> tuple[FloatArray, FloatArray, BoolArray, BoolArray]:
        """F (NaN without trees), log_sd, whether there are trees, and whether they were grown on
        this level.
        """
        rows = features(ways)
        level = level_of(ways.gpus, ways.nodes)
        if self.base is None:
            rows[:, -1] = 0.0  # trees of single passes
        value = np.full(len(ways), np.nan)
        log_sd = np.zeros(len(ways))
        grown, seen = np.zeros((2, len(ways)), bool)
        for pair, members in rows_by_pair(ways).items():
            group = self.groups.get(pair)
            if group is not None:
                value[members] = self._trees_of[pair].predict(rows[members])
                log_sd[members] = group.log_sd
                grown[members] = True
                seen[members] = np.array(group.levels)[level[members]]
        return value, log_sd, grown, seen

    def document(self) -> dict[str, Any]:
        document = super().document()
        if self.base is None:
            del document["of"]
        return document


def features(ways: Ways) -> FloatArray:
    """log m, log k, log n, k / n and log A of ways, (E, 5)."""
    k = ways.gpus.astype(np.float64)
    n = ways.nodes.astype(np.float64)
    columns = (
        np.log(ways.samples),
        np.log(k),
        np.log(n),
        k / n,
        np.log(ways.passes),
    )
    return np.column_stack(columns)


def _single_passes(profiles: Profiles) -> tuple[Profiles, FloatArray]:
    """The profiles for which the seconds of one pass are known, and their logs; see `Boosted`."""
    passes = profiles.ways.passes
    # One GPU has no exchange, so an unknown sync is 0 there.
    exchange = np.where(profiles.ways.gpus == 1, np.nan_to_num(profiles.sync), profiles.sync)
    single = (profiles.seconds - exchange) / passes + exchange
    seconds = np.where(passes == 1, profiles.seconds, single)
    known = np.flatnonzero(seconds > 0)
    return profiles.take(known), np.log(seconds[known])


def _predict_unseen(
    of: Mapping[str, Any],
    profiles: Profiles,
    seconds: FloatArray,
    seed: int,
) -> FloatArray:
    """Seconds predicted by a base that is fitted to the other folds; ``seconds`` (from all rows) if
    that fails.
    """
    seconds = seconds.copy()
    for kept, left_out in each_left_out(folds_of(len(profiles), FOLDS, seed)):
        try:
            base = fit_part(of, profiles.take(kept))
        except InvalidInput:  # too few rows for the base
            continue
        unseen = base.times(profiles.ways.take(left_out)).seconds
        seconds[left_out] = np.where(np.isfinite(unseen), unseen, seconds[left_out])
    return seconds


def _grow(rows: FloatArray, target: FloatArray, options: TreeOptions) -> tuple[TreeEnsemble, float]:
    """Trees of one workload on one GPU type,
    and the root mean square of their errors out of fold.
    """
    errors = np.empty(len(rows))
    for kept, left_out in each_left_out(folds_of(len(rows), FOLDS, options.seed)):
        predicted = fit_trees(rows[kept], target[kept], options).predict(rows[left_out])
        errors[left_out] = predicted - target[left_out]
    log_sd = min(max(root_mean_square(errors), LEAST_LOG_SD), MOST_LOG_SD)
    return fit_trees(rows, target, options), log_sd
