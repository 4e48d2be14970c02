"""The ``boosted`` model: gradient-boosted trees on the time of a step, alone or on what another model leaves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from pydantic import Field

from optsched.arrays import BoolArray, FloatArray, IntArray, group_rows
from optsched.errors import InvalidInput
from optsched.instance.documents import Document, Name, NonNegative, PlainObject, Share
from optsched.instance.reading import join, show, validate
from optsched.performance.learned.bases import PATH, base_class, base_from_document
from optsched.performance.learned.fitting import TreeOptions, fit_trees, folds_of
from optsched.performance.learned.trees import TreeEnsemble, TreesDocument
from optsched.performance.parametric.uncertainty import MOST_LOG_SD, LogSd
from optsched.performance.paths import below
from optsched.performance.profiles import Profiles
from optsched.performance.protocol import Source
from optsched.performance.times import TimeModel, Times
from optsched.performance.ways import Ways

FEATURES = 5
LEVELS = 3
FEWEST = 8
"""Rows of a (workload, GPU type) that trees are grown on; with fewer there is nothing to learn from."""
LEAST_LOG_SD = 0.02
"""No trees are trusted more: steps that were measured twice stand in two folds, and tell each other."""
FOLDS = 4
"""Parts of the rows that are left out in turn: their errors tell `log_sd`, and what a base leaves of the unseen."""


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

    ``levels`` tells on which of one GPU, one node and several nodes there were steps to grow them on.
    """

    log_sd: LogSd
    levels: Annotated[tuple[bool, bool, bool], Field(strict=False)] = (True, True, True)
    trees: TreesDocument


class BoostedDocument(Document):
    """A fitted `Boosted` model."""

    of: PlainObject | None = None
    groups: dict[Name, dict[Name, GroupDocument]]


@dataclass(frozen=True)
class Group:
    """Trees of a workload on a GPU type, the standard deviation of their errors, and the levels they were grown on."""

    trees: TreeEnsemble
    log_sd: float
    levels: BoolArray


class Boosted(TimeModel):
    """Gradient-boosted trees on the time of a step, alone or on what another model leaves.

    For each workload on each GPU type, with k GPUs on n nodes, m samples per GPU and pass, A passes,

        log t = F(log m, log k, log n, k / n, log A)                    alone
        log t = log t_base + F(log m, log k, log n, k / n, log A)       with ``of``

    where F is an ensemble of boosted trees (squared error) of its own.

    Beyond the measured k a tree says what it said at the largest k. What stays the same there must therefore be what
    stays the same in nature: the time of a step with m samples on each GPU does, nearly; its throughput grows with k.

    Alone, the trees are grown on steps of one pass, and a step of A passes takes as long as A - 1 of them on one GPU,
    which exchanges nothing, and one on k,  t = (A - 1) min(t(m, 1, 1), t(m, k, n)) + t(m, k, n). A measured step of
    several passes is turned into one of a single pass with its seconds ``sync`` of exchange; without them, and with
    more than one GPU, it is left out.

    With a base, the trees learn what the fitted base leaves of the measurements. A base that bends to every one of them
    leaves less there than elsewhere; with ``unseen`` the trees learn what it leaves of measurements that it has not
    seen: it is fitted to 3/4 of the rows and asked about the last quarter, four times, and where such a fit is refused
    or has no answer, the base of all rows is asked. For laws of few parameters that is worse (Sia's steps, 10 % seen,
    on ``pollux``: 8.5 against 7.3 %), as they are fitted to fewer rows.

    What was never measured on several GPUs of a node, or on several nodes, the trees know nothing of there. Alone, they
    have no answer then (NaN); with a base, they correct it by what they learnt on other levels (that of a pair measured
    on one GPU only is about its compute), and ``log_sd`` is that of the base where it is larger.

    Without trees, that is with fewer than `FEWEST` rows of a workload on a GPU type, the base speaks for itself; alone,
    there is no answer (NaN).

    ``log_sd`` is the root mean square of the errors of log t out of fold (4 folds of the trees; the base is
    the one that they learn from), one for each workload and GPU type and at least `LEAST_LOG_SD`.

    Options: ``of``, a performance object with the name and options of the base; ``iterations``, ``learning_rate``,
    ``leaves``, ``rows_per_leaf``, ``penalty`` (L2, of the leaves), ``seed``, ``unseen``.

    References
    ----------
    J. H. Friedman, "Greedy function approximation: a gradient boosting machine", Annals of Statistics 29 (2001); grown
    with scikit-learn's HistGradientBoostingRegressor.
    """

    name: ClassVar[str] = "boosted"

    def __init__(self, groups: Mapping[tuple[str, str], Group], base: TimeModel | None) -> None:
        self.groups = dict(groups)
        self.base = base

    # --- fitting ------------------------------------------------------------------------------------------------------

    @classmethod
    def fit(cls, profiles: Profiles, options: Mapping[str, Any]) -> Self:
        """`optsched.performance.times.TimeModel`."""
        told = validate(BoostedOptions, dict(options), "performance")
        profiles = profiles.sorted()
        base = None
        if told.of is None:
            profiles, target = _single_passes(profiles)
        else:
            owner, own = base_class(told.of)
            with below(PATH):
                base = owner.fit(profiles, own)
            said = (
                _base_unseen(base, own, profiles, told.seed)
                if told.unseen
                else base.times(profiles.ways).seconds
            )
            target = np.log(profiles.seconds / said)
        rows = features(profiles.ways)
        groups = {}
        for names, members in _groups(profiles.ways):
            known = members[np.isfinite(target[members])]
            if len(known) >= FEWEST:
                levels = np.bincount(_level(profiles.ways)[known], minlength=LEVELS) > 0
                groups[names] = Group(*_grow(rows[known], target[known], told), levels)
        if base is None and not groups:
            raise InvalidInput(
                "profiles",
                f"{len(profiles)} steps",
                f"at least {FEWEST} steps of some workload on one GPU type",
            )
        return cls(groups, base)

    # --- what it says -------------------------------------------------------------------------------------------------

    def times(self, ways: Ways) -> Times:
        """`optsched.performance.times.TimeModel`; equal ways are asked once."""
        columns = [
            getattr(ways, name)
            for name in ("workload", "gpu", "gpus", "nodes", "samples", "passes")
        ]
        distinct = group_rows(columns, len(ways))
        said = self._times(ways.take(distinct.first))
        rows = distinct.inverse
        return Times(said.seconds[rows], said.log_sd[rows], said.source[rows])

    def _times(self, ways: Ways) -> Times:
        if self.base is None:
            log_time, log_sd, _, seen = self._trees(ways)
            log_time[~seen] = np.nan
            several = np.flatnonzero(ways.passes > 1)
            some = ways.take(several)
            one = np.ones(len(some), np.int64)
            alone, _, _, known = self._trees(
                Ways(
                    some.workload,
                    some.gpu,
                    one,
                    one,
                    some.samples,
                    one,
                    some.workloads,
                    some.gpu_types,
                )
            )
            alone[~known] = np.inf
            seconds = np.exp(log_time)
            seconds[several] += (some.passes - 1) * np.minimum(np.exp(alone), seconds[several])
            return Times.of(seconds, Source.LEARNED, log_sd)
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
        """(F, log_sd, whether there are trees, whether they saw such a level) of each way; without trees F is NaN."""
        rows, level = features(ways), _level(ways)
        if self.base is None:
            rows[:, -1] = 0.0  # trees of single passes
        value, log_sd = np.full(len(ways), np.nan), np.zeros(len(ways))
        grown, seen = np.zeros((2, len(ways)), bool)
        for names, members in _groups(ways):
            if names in self.groups:
                group = self.groups[names]
                value[members], log_sd[members] = group.trees.predict(rows[members]), group.log_sd
                grown[members], seen[members] = True, group.levels[level[members]]
        return value, log_sd, grown, seen

    # --- documents ----------------------------------------------------------------------------------------------------

    def document(self) -> dict[str, Any]:
        """`optsched.performance.times.TimeModel`."""
        groups: dict[str, dict[str, Any]] = {}
        for (workload, gpu), group in self.groups.items():
            told = {
                "log_sd": group.log_sd,
                "levels": group.levels.tolist(),
                "trees": group.trees.document(),
            }
            groups.setdefault(workload, {})[gpu] = told
        of = {} if self.base is None else {"of": self.base.document()}
        return {"model": self.name, **of, "groups": groups}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """`optsched.performance.times.TimeModel`."""
        told = validate(BoostedDocument, dict(document), "performance")
        groups = {}
        for workload, by_gpu in told.groups.items():
            for gpu, group in by_gpu.items():
                path = join("performance.groups", [workload, gpu, "trees"])
                trees = TreeEnsemble.from_document(group.trees, path)
                if trees.features != FEATURES:
                    raise InvalidInput(
                        f"{path}.features",
                        show(trees.features),
                        f"{FEATURES}, as many as the model has",
                    )
                groups[workload, gpu] = Group(trees, group.log_sd, np.array(group.levels))
        if told.of is None:
            return cls(groups, None)
        return cls(groups, base_from_document(told.of))


def features(ways: Ways) -> FloatArray:
    """log m, log k, log n, k / n and log A of ways, (E, 5)."""
    k, n = ways.gpus.astype(np.float64), ways.nodes.astype(np.float64)
    return np.column_stack((np.log(ways.samples), np.log(k), np.log(n), k / n, np.log(ways.passes)))


def _level(ways: Ways) -> IntArray:
    """0 on one GPU, 1 on several of a node, 2 on several nodes."""
    level: IntArray = np.add(ways.gpus > 1, ways.nodes > 1, dtype=np.int64)
    return level


def _groups(ways: Ways) -> Iterator[tuple[tuple[str, str], IntArray]]:
    """Names (workload, GPU type) that the ways have, and the rows of each."""
    named = np.flatnonzero((ways.workload >= 0) & (ways.gpu >= 0))
    label = ways.workload[named] * len(ways.gpu_types) + ways.gpu[named]
    order = np.argsort(label, kind="stable")
    labels, first = np.unique(label[order], return_index=True)
    for number, members in zip(labels.tolist(), np.split(named[order], first[1:]), strict=False):
        workload, gpu = divmod(number, len(ways.gpu_types))
        yield (ways.workloads[workload], ways.gpu_types[gpu]), members


def _single_passes(profiles: Profiles) -> tuple[Profiles, FloatArray]:
    """Log seconds of steps of one pass, and the profiles that tell them; see the class."""
    passes = profiles.ways.passes
    exchange = np.where(profiles.ways.gpus == 1, np.nan_to_num(profiles.sync), profiles.sync)
    seconds = np.where(
        passes == 1, profiles.seconds, (profiles.seconds - exchange) / passes + exchange
    )
    told = np.flatnonzero(seconds > 0)
    return profiles.take(told), np.log(seconds[told])


def _base_unseen(
    base: TimeModel, options: Mapping[str, Any], profiles: Profiles, seed: int
) -> FloatArray:
    """Seconds by the base, fitted to the other folds where that can be."""
    said = base.times(profiles.ways).seconds
    fold = folds_of(len(profiles), FOLDS, seed)
    for number in range(FOLDS):
        out = np.flatnonzero(fold == number)
        try:
            fitted = type(base).fit(profiles.take(np.flatnonzero(fold != number)), options)
        except InvalidInput:  # too few rows are left: the base of all rows has spoken already
            continue
        seconds = fitted.times(profiles.ways.take(out)).seconds
        said[out] = np.where(np.isfinite(seconds), seconds, said[out])
    return said


def _grow(rows: FloatArray, target: FloatArray, options: TreeOptions) -> tuple[TreeEnsemble, float]:
    """Trees of one workload on one GPU type, and the root mean square of their errors out of fold."""
    fold = folds_of(len(rows), FOLDS, options.seed)
    wrong = np.empty(len(rows))
    for number in range(FOLDS):
        out = fold == number
        wrong[out] = fit_trees(rows[~out], target[~out], options).predict(rows[out]) - target[out]
    return fit_trees(rows, target, options), min(
        max(float(np.sqrt(np.mean(wrong**2))), LEAST_LOG_SD), MOST_LOG_SD
    )
