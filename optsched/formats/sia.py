"""Import of workloads of Sia (Jayaram Subramanya et al., SOSP 2023)
and Pollux (Qiao et al., OSDI 2021).

A workload is a CSV table with a job a line, in order of arrival:
``name,time,application,num_replicas,batch_size``. Times are in seconds. The behaviour of an
application is in a folder of profiles (`optsched.formats.sia_profiles`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from optsched.arrays import FloatArray, IntArray, owners, ranges
from optsched.errors import InvalidArgument
from optsched.formats.inputs import (
    Folder,
    Pools,
    Source,
    importer,
    pool_documents,
)
from optsched.formats.sia_profiles import (
    EpochNoise,
    StepTimes,
    Training,
    application_folder,
    read_step_times,
    read_training,
)
from optsched.formats.tables import Kind, Table, read_table
from optsched.instance import FORMAT, Instance
from optsched.instance.reading import listed
from optsched.performance.batches import NAME, BatchLimits, best_batches
from optsched.traces import Regimes, Trace

COLUMNS: dict[str, Kind] = {
    "name": "text",
    "time": "number",
    "application": "text",
    "num_replicas": "whole",
    "batch_size": "whole",
}
# Most GPUs of an adaptive job, as in the simulators.
MOST_GPUS = 64

# Nodes and GPUs of a node, by pool.
Sizes = Mapping[str, tuple[int, int]]
# Steps of the first batch per second in each epoch, by pool and GPUs; 0 if the job cannot run
# there.
Rates = dict[str, dict[int, FloatArray]]


@dataclass(frozen=True)
class Pace:
    """Data of an application in addition to its profiles.

    Attributes
    ----------
    slowdown : float
        Time of a real step divided by that in the profiles; above 0.
    restart : float
        Seconds that a start or a migration costs.
    """

    slowdown: float = 1.0
    restart: float = 0.0


# By application.
Paces = Mapping[str, Pace]


@dataclass(frozen=True)
class Application:
    """An application with its profiles on the machines of each pool."""

    training: Training
    times: Mapping[str, StepTimes]
    pace: Pace


@importer
def import_sia(
    workload: Source,
    profiles: Folder,
    pools: Pools,
    *,
    adaptive: bool = False,
    most: int = MOST_GPUS,
    applications: Paces | None = None,
    name: str = "sia",
) -> Trace:
    """Make a trace of a workload of Sia (SOSP 2023) or Pollux (OSDI 2021), and of their profiles.

    A step is one of an application's first batch; every epoch of its training is a regime with
    its own rates.

    A job has as many steps as the training has when its last epoch ends. In each epoch it makes

        gain(M) / T      steps/s,    gain(M) = (var + sqr) / (var M0 / M + sqr)

    with a batch of M samples in steps of T seconds, M0 samples in the first batch, and statistics
    of the gradient (sqr, var) that are linear between the batch sizes of the profiles. Times of
    steps are those of the profiles on as few nodes as can be, between the measured ones as the
    published simulators have them; a count of GPUs beyond what was measured has no rate.

    Parameters
    ----------
    workload : path or bytes
        Table of jobs (CSV).
    profiles : path
        Folder with the profiles of each application, in which pools are called like kinds of
        machines.
    pools : mapping from str to (int, int), or pool documents
        Nodes of a pool, and GPUs of each node. A pool has the name of a kind of machine (``aws``,
        ``dgx-ext``).
    adaptive : bool, default False
        Jobs take any number of GPUs, with the best batch for it; otherwise what they ask for. The
        number is from 1 to ``most``, and the batch is the best one in each epoch
        (`optsched.performance.batches.best_batches`).
    most : int, default 64
        Most GPUs of an adaptive job.
    applications : mapping from str to Pace, optional
        How much slower than in the profiles its steps are (1), and what a start costs, s (0). By
        application.
    name : str
        Name of the instance.

    Raises
    ------
    InvalidInput
        With file, line and column; also for arrivals that go back in time.
    UsageError
        No pools, ``most`` below 1, or the pace of an application that no job has.

    References
    ----------
    ``sia-simulator/applications.py`` and ``job.py`` of Sia's artifact; ``simulator/`` of Pollux's.
    """
    if not pools or most < 1:
        raise InvalidArgument(
            "", f"{len(pools)} pools and at most {most} GPUs", "at least one of both"
        )
    documents = pool_documents(pools)
    sizes = {pool["name"]: (pool["nodes"], pool["gpus_per_node"]) for pool in documents}
    table = _read_workload(workload)
    known = _applications(table, Path(profiles), sizes, applications or {})
    _check_batches(table, known)
    applications_of_jobs = table.cells["application"]
    gpus_asked = table.numbers["num_replicas"].astype(int).tolist()
    batch_asked = table.numbers["batch_size"].astype(int).tolist()
    requests = list(zip(gpus_asked, batch_asked, strict=True))
    # Jobs of one kind have the same rates: all jobs of an application, or those with the same
    # requests
    kinds = [
        application if adaptive else f"{application}/{gpus}x{batch}"
        for application, (gpus, batch) in zip(applications_of_jobs, requests, strict=True)
    ]
    rates: dict[str, Rates] = {}
    workloads: dict[str, Any] = {}
    for kind, application, asked in zip(kinds, applications_of_jobs, requests, strict=True):
        if kind not in rates:
            of_kind = known[application]
            rates[kind] = _rates(of_kind, sizes, most, None if adaptive else asked)
            workloads |= _workloads(kind, application, rates[kind], of_kind)
    applications_by_job = [known[application] for application in applications_of_jobs]
    gpus = [
        {"min": 1, "max": _widest(rates[kind])} if adaptive else asked
        for kind, asked in zip(kinds, gpus_asked, strict=True)
    ]
    jobs = _jobs(table, applications_by_job, kinds, gpus)
    instance = Instance.from_document(
        {
            "format": FORMAT,
            "name": name,
            "now": min(0.0, jobs[0]["arrival"]),
            "cluster": {"pools": documents},
            "workloads": workloads,
            "jobs": jobs,
        }
    )
    trainings = [application.training for application in applications_by_job]
    return Trace(instance, _regimes(instance, trainings))


def _jobs(
    table: Table,
    applications: Sequence[Application],
    kinds: Sequence[str],
    gpus: Sequence[Any],
) -> list[dict[str, Any]]:
    """Documents of the jobs, each of its application and kind; they begin in their first epoch."""
    return [
        {
            "id": name,
            "workload": _epoch(kind, 0),
            "gpus": asked,
            "steps": float(application.training.progress[-1]),
            "arrival": arrival,
            "restart_cost": application.pace.restart,
        }
        for name, arrival, application, kind, asked in zip(
            table.cells["name"],
            table.numbers["time"].tolist(),
            applications,
            kinds,
            gpus,
            strict=True,
        )
    ]


def _read_workload(workload: Source) -> Table:
    """The table of jobs, checked cell by cell."""
    table = read_table(workload, "workload", COLUMNS, COLUMNS)
    table.names("name")
    arrival = table.numbers["time"]
    table.refuse("time", np.diff(arrival, prepend=arrival[:1]) < 0, "arrivals in ascending order")
    table.whole("num_replicas", 1, "a whole number of GPUs, at least 1")
    table.whole("batch_size", 1, "a whole number of samples, at least 1")
    return table


def _rates(
    application: Application,
    pools: Sizes,
    most: int,
    asked: tuple[int, int] | None,
) -> Rates:
    """Rates in every pool: with the requested GPUs and batch, or (None) with the best batch for
    every number of GPUs.
    """
    return {
        pool: _adaptive(application, pool, nodes, size, most)
        if asked is None
        else _tuned(application, pool, nodes, size, *asked)
        for pool, (nodes, size) in pools.items()
    }


def _widest(rates: Rates) -> int:
    """The most GPUs on which jobs of a kind can run in any pool."""
    return max((count for by_count in rates.values() for count in by_count), default=1)


def _applications(
    table: Table,
    folder: Path,
    pools: Sizes,
    paces: Mapping[str, Pace],
) -> dict[str, Application]:
    found: dict[str, Application] = {}
    for row, name in enumerate(table.cells["application"]):
        if name not in found:
            own_folder = application_folder(folder, name, table.place(row, "application"))
            times = {pool: read_step_times(own_folder, pool) for pool in pools}
            found[name] = Application(read_training(own_folder), times, paces.get(name, Pace()))
    for name in paces:
        if name not in found:
            one_of = f"one of {listed(found)}"
            raise InvalidArgument(
                "applications",
                repr(name),
                one_of,
                sentence=f"no job of the application {name!r}, expected {one_of}",
            )
    return found


def _check_batches(table: Table, applications: Mapping[str, Application]) -> None:
    """Refuse batches outside of the range with gradient statistics in the profiles."""
    batch = table.numbers["batch_size"].astype(np.int64)
    first, last = (
        np.array([applications[name].training.batch[end] for name in table.cells["application"]])
        for end in (0, -1)
    )
    for row in np.flatnonzero((batch < first) | (batch > last))[:1].tolist():
        application = table.cells["application"][row]
        expected = (
            f"a batch from {first[row]:g} to {last[row]:g}, as in the profiles of {application}"
        )
        raise table.error(row, "batch_size", str(batch[row]), expected)


def _adaptive(
    application: Application,
    pool: str,
    nodes: int,
    size: int,
    most: int,
) -> dict[int, FloatArray]:
    """Rates with the best batch for each number of GPUs in each epoch."""
    training = application.training
    times = application.times[pool]
    # At most the GPUs of the pool, each with at least the fewest samples of the profiles
    limit = min(nodes * size, most, int(training.batch[-1] // times.least))
    most_samples = {count: times.most(count, size) for count in range(1, limit + 1)}
    counts = [count for count, samples in most_samples.items() if samples >= times.least]
    if not counts:
        return {}
    epochs = len(training.progress)
    ways = len(counts)

    def seconds(samples: FloatArray, passes: IntArray, row: IntArray) -> FloatArray:
        # Step times are the same in all epochs; only the gradient noise changes from one to the
        # next
        samples_of_way = samples.reshape(-1, epochs, ways)[:, 0]
        passes_of_way = passes.reshape(-1, epochs, ways)[:, 0]
        T = np.empty(samples_of_way.shape)
        for way, count in enumerate(counts):
            T[:, way] = _seconds(times, count, size, samples_of_way[:, way], passes_of_way[:, way])
        return np.repeat(T[:, np.newaxis], epochs, axis=1).ravel()

    ones = np.ones(epochs * ways)
    limits = BatchLimits(
        training.batch[-1] * ones,
        np.ceil(times.least) * ones,
        np.tile([np.floor(most_samples[count]) for count in counts], epochs),
        ones > 0,
    )
    noise = EpochNoise.in_epochs(training, np.repeat(np.arange(epochs), ways))
    best = best_batches(np.tile(np.array(counts), epochs), seconds, noise, limits)
    rates = np.nan_to_num(best.goodput).reshape(epochs, ways) / (
        training.batch[0] * application.pace.slowdown
    )
    return {count: rates[:, way] for way, count in enumerate(counts) if (rates[:, way] > 0).all()}


def _tuned(
    application: Application,
    pool: str,
    nodes: int,
    size: int,
    gpus: int,
    batch: int,
) -> dict[int, FloatArray]:
    """Rates with the GPUs and the batch that a job requests, in the fewest passes that fit in the
    profiles.

    A single GPU takes a batch above M0 in at least two passes.
    """
    training = application.training
    times = application.times[pool]
    most = times.most(gpus, size)
    if gpus > nodes * size or not most >= 1:
        return {}
    # 1e-8 keeps a quotient that is an integer up to rounding errors from being rounded up
    local = np.ceil(batch / gpus - 1e-8)
    passes = max(
        int(np.ceil(local / most - 1e-8)), 2 if gpus == 1 and batch > training.batch[0] else 1
    )
    samples = min(np.ceil(local / passes - 1e-8), training.batch[-1] // (gpus * passes))
    T = float(_seconds(times, gpus, size, np.array([samples]), np.array([passes]))[0])
    if not T > 0:
        return {}
    epochs = np.arange(len(training.progress))
    # The gain of a larger batch is less than proportional, especially with little noise
    gain = training.gain(epochs, np.full(len(epochs), gpus * samples * passes))
    return {gpus: gain / (T * application.pace.slowdown)}


def _seconds(
    times: StepTimes,
    gpus: int,
    size: int,
    samples: FloatArray,
    passes: IntArray,
) -> FloatArray:
    """Seconds of a step; with several passes, only the last one exchanges gradients."""
    step, sync = times.at(gpus, size, samples)
    return step + (passes - 1) * (step - sync)


def _epoch(kind: str, epoch: int) -> str:
    return f"{kind}/epoch {epoch + 1}"


def _workloads(kind: str, name: str, rates: Rates, application: Application) -> dict[str, Any]:
    """One workload per epoch."""
    made = {}
    for epoch in range(len(application.training.progress)):
        throughput = {
            pool: {str(count): float(of_epoch[epoch]) for count, of_epoch in by_count.items()}
            for pool, by_count in rates.items()
            if by_count
        }
        parameters = {NAME: name, "epoch": epoch + 1}
        made[_epoch(kind, epoch)] = {"throughput": throughput, "parameters": parameters}
    return made


def _regimes(instance: Instance, trainings: Sequence[Training]) -> Regimes:
    """Regimes: at the end of an epoch, a job changes to the workload of the next epoch."""
    # `_workloads` lists the epochs of a kind consecutively, so the next epoch is the next workload
    first = instance.jobs_table.workload
    more = np.array([len(training.progress) - 1 for training in trainings], np.int64)
    after = np.concatenate([training.progress[:-1] for training in trainings])
    return Regimes(owners(more), after, ranges(first + 1, more))
