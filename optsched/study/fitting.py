"""Models of a step's time by name:
fitted to profiles, written to files, asked about ways to run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optsched.arrays import FloatArray
from optsched.assembly import make_model
from optsched.errors import InvalidArgument, UsageError, unknown_name
from optsched.executors import LOCAL, all_results_of
from optsched.instance import FORMAT as INSTANCE_FORMAT
from optsched.instance import Instance
from optsched.instance.arguments import checks_arguments, names_and_options
from optsched.instance.reading import show
from optsched.performance import Configurations, Feasibility, JobBatch, Profiles
from optsched.performance.batches import MOST_PER_GPU, PER_GPU
from optsched.performance.composed import MODELS, OF, whole_steps_of
from optsched.performance.evaluation import SPLITS, Evaluation, Fit, Predict, evaluate
from optsched.performance.files import (
    WHOLE_STEPS,
    PerformanceObject,
    check_performance,
    split_whole_steps,
)
from optsched.performance.learned import PAIR_MODELS, PairProfiles, pair_class
from optsched.performance.times import TimeModel, Times, some_sorted
from optsched.performance.ways import Ways
from optsched.registry import load_model, names

CHAIN, INTERFERENCE = "chain", "interference"

# A model by name, or with options: (name, options) or {"model": name, **options}.
Wanted = str | tuple[str, Mapping[str, Any]] | Mapping[str, Any]


def time_models() -> list[str]:
    """Names of the models that are fitted to profiles."""
    return [name for name in names("performance model") if _fitted_class(name) is not None]


def _fitted_class(name: str) -> type[TimeModel] | None:
    """The class of a model that is fitted to profiles; None for any other model."""
    owner = load_model(name)
    return owner if isinstance(owner, type) and issubclass(owner, TimeModel) else None


def time_model(name: str) -> type[TimeModel]:
    """The class of a model that is fitted to profiles; raises `UsageError` for any other name."""
    owner = _fitted_class(name)
    if owner is None:
        raise unknown_name("model", name, time_models(), f"{name} is not fitted to profiles")
    return owner


# What is fitted unless something else is asked for.
USUAL = "cross-validated"


@checks_arguments
def fit_model(
    profiles: Profiles,
    models: Wanted | Sequence[Wanted] = USUAL,
    *,
    processes: int = 1,
    executor: str = LOCAL,
    **options: Any,
) -> PerformanceObject:
    """Fit models to measurements.

    Parameters
    ----------
    profiles : Profiles
    models : str, (str, mapping), mapping, or a sequence of these
        A name (by default ``cross-validated``), alone or with options, as ``(name, options)`` or
        ``{"model": name, ...}``. Several are a `chain`, where each speaks of what those before it
        do not know.
    processes, executor
        As of `optsched.compare`: fits at a time, and where. These are the models of a chain, or the
        fits by which ``cross-validated`` chooses. The result is the same.
    **options
        Of the model, where it is one name.

    Returns
    -------
    PerformanceObject
        A dict for ``optsched.load(..., performance=...)``, `predict_times` and
        `optsched.write_model`. The order of the measurements does not matter.

    Raises
    ------
    UsageError
        A name that there is not, or that of a model that is not fitted, or options for several
        models.
    InvalidInput
        The measurements cannot determine the model, or an option of it is wrong.
    """
    wanted = names_and_options(models, "models", "model")
    if not wanted:
        raise UsageError("no model is named")
    if options and (len(wanted) > 1 or wanted[0][1]):
        raise UsageError("options beside several models: give each its own, as (name, options)")
    # Names are checked before anything is fitted
    owners = [(time_model(name), {**given, **options}) for name, given in wanted]
    profiles = some_sorted(profiles)
    # The mark belongs to what was measured, whatever law is fitted to it
    measured = set(profiles.ways.workloads)
    whole = [name for name in profiles.whole_steps if name in measured]
    mark = {WHOLE_STEPS: whole} if whole else {}
    if len(owners) > 1:
        models_fitted = all_results_of(
            _fitted, (profiles,), owners, processes=processes, executor=executor
        )
    else:
        [(owner, own)] = owners
        models_fitted = [owner.fit_on(profiles, own, processes, executor)]
    fitted = [check_performance(model.document() | mark, "") for model in models_fitted]
    return PerformanceObject(fitted[0] if len(fitted) == 1 else {"model": CHAIN, MODELS: fitted})


def _fitted(shared: tuple[Profiles], item: tuple[type[TimeModel], Mapping[str, Any]]) -> TimeModel:
    """One model of a chain."""
    (profiles,), (owner, options) = shared, item
    return owner.fit(profiles, options)


@checks_arguments
def fit_pairs(
    profiles: PairProfiles,
    model: Wanted = "auto",
    *,
    base: Mapping[str, Any] | None = None,
    **options: Any,
) -> PerformanceObject:
    """Fit a model of pairs to measured ones,
    and put it on a model of the rates that jobs have alone.

    Parameters
    ----------
    profiles : PairProfiles
        Of `optsched.read_pairs`.
    model : str, or (str, mapping)
        Name of a model of pairs, perhaps with options; ``auto`` takes the one that did best on so
        many measurements.
    base : mapping, optional
        A performance object that says what jobs run at alone, such as one of `fit_model`; by
        default ``table``, which knows what the instance states.
    **options
        Of the model of pairs, where ``model`` is a name.

    Returns
    -------
    PerformanceObject
        A dict of the model ``interference``: for ``optsched.load(..., performance=...)`` and
        `optsched.write_model`.

    Raises
    ------
    UsageError
        A name that there is not, or options given in two ways.
    InvalidInput
        The measurements cannot determine the model, or an option of it is wrong.
    """
    (name, own), *others = names_and_options(model, "model", "model") or [("", {})]
    if others:
        raise InvalidArgument("model", show(model), "one model of pairs")
    if name not in PAIR_MODELS:
        raise unknown_name("model of pairs", name, PAIR_MODELS)
    if own and options:
        raise UsageError("options of the model of pairs are given in two ways")
    fitted = pair_class(name).fit(profiles, {**own, **options}).document()
    alone = {"model": "table"} if base is None else dict(base)
    return PerformanceObject(
        check_performance({"model": INTERFERENCE, OF: alone, "pairs": fitted}, "")
    )


@checks_arguments
def evaluate_models(
    profiles: Profiles,
    models: Wanted | Sequence[Wanted],
    splits: Sequence[tuple[str, Mapping[str, Any]]] | None = None,
    *,
    chain: bool = False,
    seeds: int = 1,
    nominal: float = 0.9,
    processes: int = 1,
    executor: str = LOCAL,
) -> Evaluation:
    """Fit models to parts of profiles, and judge them by the rest.

    Parameters
    ----------
    profiles : Profiles
    models : str, (str, mapping), mapping, or a sequence of these
        As of `fit_model`. Each is judged by itself.
    splits : sequence of (name, options), optional
        `optsched.performance.evaluation.SPLITS`; by default all of them.
    chain : bool
        Judge the chain of all models too.
    seeds, nominal, processes, executor
        See `optsched.performance.evaluation.evaluate`.

    Returns
    -------
    Evaluation

    Raises
    ------
    UsageError
        A model or a split that there is not.
    """
    wanted = names_and_options(models, "models", "model")
    for name, _ in wanted:
        time_model(name)
    if not wanted:
        raise UsageError("no model is named")
    contenders = fits(wanted, chain)
    chosen = [(name, {}) for name in SPLITS] if splits is None else splits
    return evaluate(
        profiles,
        contenders,
        chosen,
        seeds=seeds,
        nominal=nominal,
        processes=processes,
        executor=executor,
    )


def fits(models: Sequence[Wanted], chain: bool = False) -> dict[str, Fit]:
    """How models are fitted,
    by the names under which `optsched.performance.evaluation.evaluate` reports them.

    With ``chain`` also the chain of all, of which no model is fitted twice to the same `Profiles`
    in a row.
    """
    fitted = _Fitted()
    every = {_label(item): _FitAll(fitted, (item,)) for item in models}
    return {**every, **({CHAIN: _FitAll(fitted, tuple(models))} if chain else {})}


class _Fitted:
    """Models that were fitted last, to one part of the profiles.

    The chain of all follows its models on the same part: they are fitted once.
    """

    def __init__(self) -> None:
        self._to: Profiles | None = None
        self._documents: dict[str, dict[str, Any]] = {}

    def document(self, item: Wanted, profiles: Profiles) -> dict[str, Any]:
        """A model fitted to profiles."""
        if self._to is not profiles:
            self._to, self._documents = profiles, {}
        name = _label(item)
        if name not in self._documents:
            self._documents[name] = fit_model(profiles, item)
        return self._documents[name]


@dataclass(frozen=True, eq=False)
class _FitAll:
    """Fits one model, or a chain of several; other processes take it."""

    fitted: _Fitted
    items: tuple[Wanted, ...]

    def __call__(self, profiles: Profiles) -> Predict:
        parts = [self.fitted.document(item, profiles) for item in self.items]
        document = parts[0] if len(parts) == 1 else {"model": CHAIN, MODELS: parts}
        return lambda ways: predict_times(document, ways)


def _label(item: Wanted) -> str:
    ((name, options),) = names_and_options(item, "models", "model")
    return name + "".join(f":{key}={show(value)}" for key, value in options.items())


@checks_arguments
def predict_times(document: Mapping[str, Any], ways: Ways) -> Times:
    """Predict the times of a step in some ways to run by the model of a performance object.

    A model of a step's time is evaluated itself. Any other, such as a chain, only predicts for jobs
    of an instance: an instance is made that has the workloads and, as its pools, the GPU types of
    the ways. A workload has one batch in an instance, so one instance is made for each of its
    batches.

    Parameters
    ----------
    document : mapping
        A performance object.
    ways : Ways
        Workload, GPU type, GPUs, nodes and samples of n ways to run, as `read_profiles` gives them.

    Returns
    -------
    Times
        Seconds of a step and their standard deviation on a log scale, shape (n,).

    Raises
    ------
    InvalidInput
        The document is not one of a model.
    """
    document = check_performance(document, "")
    name = document["model"]
    owner = _fitted_class(name) if name in names("performance model") else None
    if owner is not None:
        whole_steps, own = split_whole_steps(
            {key: value for key, value in document.items() if key != "model"}
        )
        return owner.from_document(own).times(ways.in_whole_steps(whole_steps))
    ways = ways.in_whole_steps(whole_steps_of(document))
    kinds, kind = np.unique(
        np.stack([ways.workload, ways.samples, ways.passes], axis=1), axis=0, return_inverse=True
    )
    kind = kind.ravel()
    first = np.searchsorted(
        kinds[:, 0], np.arange(len(ways.workloads) + 1)
    )  # of each workload among the sorted kinds
    # The batches of a workload come one after the other, in an instance for each turn.
    turn = np.arange(len(kinds)) - first[kinds[:, 0].astype(np.int64)]
    seconds = np.full(len(ways), np.nan)
    log_sd = np.zeros(len(ways))
    source = np.zeros(len(ways), np.uint8)
    for number in range(int(turn.max(initial=-1)) + 1):
        asked = np.flatnonzero(turn[kind] == number)
        # A workload with fewer batches keeps its last one; no way of it is in this turn.
        chosen = np.minimum(first[:-1] + number, first[1:] - 1)[first[:-1] < first[1:]]
        times = _ask(document, ways.take(asked), kinds[chosen])
        seconds[asked], log_sd[asked], source[asked] = times.seconds, times.log_sd, times.source
    return Times(seconds, log_sd, source)


def _ask(document: Mapping[str, Any], ways: Ways, kinds: FloatArray) -> Times:
    """Times of ways by a model, on an instance with one kind (workload, samples, passes) of each
    workload.
    """
    row_of = np.zeros(len(ways.workloads), np.int64)
    row_of[kinds[:, 0].astype(np.int64)] = np.arange(len(kinds))
    rows = np.arange(len(ways), dtype=np.int64)
    minus = np.full(len(ways), -1, np.int64)
    # Each way is a separate job, on its own configuration.
    jobs = JobBatch(row_of[ways.workload], minus, np.zeros(len(ways), bool), ways.gpus)
    configurations = Configurations(
        ways.gpu, ways.gpus, ways.nodes, np.ones(len(ways)), np.zeros(len(ways), np.int64)
    )
    prediction = make_model(_instance(ways, kinds, document), document).predict(
        jobs, configurations, edges=(rows, rows)
    )
    ok = prediction.feasible == Feasibility.OK
    seconds = np.full(len(ways), np.nan)
    # A step of the instance is what one GPU does in a step, but for whole steps
    whole = np.isin(ways.workloads, list(whole_steps_of(document)))[ways.workload]
    seconds[ok] = np.where(whole, 1, ways.gpus)[ok] / prediction.rate[ok]
    return Times(seconds, prediction.log_sd, prediction.source)


def _instance(ways: Ways, kinds: FloatArray, document: Mapping[str, Any]) -> Instance:
    """An instance without jobs in which every way can be asked about,
    by the names of its workloads and its GPU types.
    """
    most_gpus, most_nodes = (int(column.max(initial=1)) for column in (ways.gpus, ways.nodes))
    whole = whole_steps_of(document)
    workloads: dict[str, Any] = {}
    for workload, samples, passes in kinds.tolist():
        name = ways.workloads[int(workload)]
        batch = {PER_GPU: samples * passes, MOST_PER_GPU: samples}
        workloads[name] = {"parameters": {} if name in whole else batch}
    pools = [
        {"name": gpu, "gpu": gpu, "nodes": most_nodes, "gpus_per_node": most_gpus}
        for gpu in ways.gpu_types
    ]
    return Instance.from_document(
        {
            "format": INSTANCE_FORMAT,
            "cluster": {"pools": pools},
            "performance": dict(document),
            "workloads": workloads,
            "jobs": [],
        }
    )
