"""Generation of columns: gangs, elastic ranges and spreads from rates; explicit options; co-located pairs."""

from __future__ import annotations

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray, group_rows, ranges
from optsched.candidates.columns import Drop, KindColumns
from optsched.candidates.kinds import Kinds
from optsched.candidates.room import drop_roomless
from optsched.errors import InvalidInput
from optsched.instance import Instance
from optsched.instance.reading import show
from optsched.instance.tables import ANY_SPREAD
from optsched.performance import Configurations, Feasibility, PerformanceModel, PoolSizes, Prediction
from optsched.performance.composed import corrects, only_table
from optsched.performance.table import TableModel

ROUNDING = 1e-9
"""Relative slack when the memory of two workloads, or of a share of a GPU, is compared."""


def rated_columns(
    instance: Instance, kinds: Kinds, model: PerformanceModel, table: TableModel, later_nodes: bool
) -> KindColumns:
    """Columns of kinds without options: GPU counts x pools x spreads, with rates from the tables, then the model."""
    pools = len(instance.cluster.pools)
    batch = kinds.batch

    kind, gpus = kinds.counts(int(table.sizes.gpus.max()), table, complete=only_table(model))
    pool = np.tile(np.arange(pools, dtype=np.int64), len(kind))
    kind, gpus = np.repeat(kind, pools), np.repeat(gpus, pools)
    nodes = table.fewest_nodes(pool, gpus)

    row, spread = table.listed_spreads(batch, kind, pool, gpus)
    other = spread != nodes[row]
    row, spread = row[other], spread[other]
    kind, pool, gpus, nodes = (
        np.concatenate([column, more])
        for column, more in ((kind, kind[row]), (pool, pool[row]), (gpus, gpus[row]), (nodes, spread))
    )
    columns = KindColumns.make(kind, pool, gpus, nodes)
    drop_unfit(columns, instance, kinds, table.sizes)
    drop_roomless(columns, instance, kinds, later_nodes)

    fits = np.flatnonzero(columns.drop == Drop.KEPT)
    configurations = Configurations(
        pool[fits], gpus[fits], nodes[fits], np.ones(len(fits)), np.zeros(len(fits), np.int64)
    )
    edges = (kind[fits], np.arange(len(fits), dtype=np.int64))
    prediction = table.predict(batch, configurations, edges=edges)
    if model.name != table.name:
        prediction = _with_model(prediction, model, kinds, configurations, edges)
    columns.rate[fits] = prediction.rate
    columns.log_sd[fits] = prediction.log_sd
    columns.source[fits] = prediction.source
    columns.drop[fits] = _DROP_OF[prediction.feasible]
    return columns


_DROP_OF = np.zeros(len(Feasibility), np.uint8)
for _reason in Feasibility:
    _DROP_OF[_reason] = Drop["KEPT" if _reason is Feasibility.OK else _reason.name]


def _with_model(
    stated: Prediction,
    model: PerformanceModel,
    kinds: Kinds,
    configurations: Configurations,
    edges: tuple[IntArray, IntArray],
) -> Prediction:
    """Ask the model where neither the job nor its workload states a rate, or everywhere if it corrects what is stated.

    A job's own table is complete: what it leaves out has no rate, whatever a model says.
    """
    nothing = stated.feasible == Feasibility.NO_RATE
    asked = np.flatnonzero(~(nothing & kinds.own[edges[0]]) if corrects(model) else nothing & ~kinds.own[edges[0]])
    answer = model.predict(kinds.batch, configurations, edges=(edges[0][asked], edges[1][asked]))
    runs = answer.feasible == Feasibility.OK
    wrong = np.flatnonzero(runs & ~((answer.rate > 0) & (answer.rate < np.inf)))
    if len(wrong):
        raise ValueError(f"the performance model {model.name} says {answer.rate[wrong[0]]} steps/s for what can run")
    said = np.flatnonzero(answer.feasible != Feasibility.NO_RATE)
    rows = asked[said]
    both = Prediction(stated.rate.copy(), stated.log_sd.copy(), stated.feasible.copy(), stated.source.copy())
    both.rate[rows] = np.where(runs, answer.rate, 0.0)[said]
    for name in ("log_sd", "feasible", "source"):
        getattr(both, name)[rows] = getattr(answer, name)[said]
    return both


def drop_unfit(columns: KindColumns, instance: Instance, kinds: Kinds, sizes: PoolSizes) -> None:
    """Mark columns with more GPUs than their pool has, or than so many of its nodes have, or with too little memory."""
    pool, gpus, nodes = columns.pool, columns.gpus, columns.nodes
    spread_wrong = (nodes > sizes.nodes[pool]) | (gpus > sizes.most_gpus(pool, nodes))
    needs, has = gpu_memory(instance, kinds, columns)
    reasons = (gpus > sizes.gpus[pool], spread_wrong, needs > has * (1 + ROUNDING))
    drops = (Drop.TOO_MANY_GPUS, Drop.TOO_MANY_NODES, Drop.OUT_OF_MEMORY)
    columns.drop[:] = np.where((pool >= 0) & (gpus > 0), np.select(reasons, drops, Drop.KEPT), Drop.KEPT)


def gpu_memory(instance: Instance, kinds: Kinds, columns: KindColumns) -> tuple[FloatArray, FloatArray]:
    """GB per GPU that each column needs (0 where its workloads don't say) and has (inf where its pool doesn't say)."""
    stated = [0.0 if workload.gpu_memory is None else workload.gpu_memory for workload in instance.workloads]
    need = np.array([*stated, 0.0])[kinds.workload]
    together = need[columns.kind] + np.where(columns.partner >= 0, need[columns.partner], 0.0)
    has = [np.inf if pool.gpu_memory is None else pool.gpu_memory for pool in instance.cluster.pools]
    return together, np.array([*has, np.inf])[columns.pool] * columns.share


def option_columns(instance: Instance, kinds: Kinds, sizes: PoolSizes) -> KindColumns:
    """One column per explicit option of each kind; its rate is stated, or follows from its duration, or is 0."""
    options = instance.options
    rows = np.flatnonzero(kinds.options >= 0)
    start, stop = options.indptr[kinds.options[rows]], options.indptr[kinds.options[rows] + 1]
    option = ranges(start, stop - start)
    kind = np.repeat(rows, stop - start)
    pool, gpus = options.pool[option], options.gpus[option]
    nodes = np.where(options.nodes[option] > 0, options.nodes[option], sizes.fewest_nodes(pool, gpus))
    stated = ~np.isnan(options.throughput[option])
    rate = np.where(stated, options.throughput[option], 0.0)
    # A duration is the time of all steps; with steps_done = 0 it is exact, and the rate that it implies is steps / d.
    steps = instance.jobs_table.steps[kinds.first[kind]]
    duration = options.duration[option]
    implied = ~stated & ~np.isnan(duration)
    with np.errstate(over="ignore"):
        rate[implied] = steps[implied] / duration[implied]
    absurd = np.flatnonzero(~np.isfinite(rate))
    if len(absurd):
        job = instance.jobs_table.names[int(kinds.first[kind[absurd[0]]])]
        raise InvalidInput(
            f"job {show(job)}, options",
            f"{steps[absurd[0]]:g} steps in {duration[absurd[0]]:g} s",
            "steps and a duration that make a finite rate",
        )
    columns = KindColumns.make(
        kind, pool, gpus, nodes, share=options.share[option], option=option, rate=rate, duration=duration,
        value=options.value[option], cost=options.cost[option],
    )  # fmt: skip
    drop_unfit(columns, instance, kinds, sizes)
    columns.drop[(columns.drop == Drop.KEPT) & stated & (rate == 0)] = Drop.ZERO_RATE
    return columns


def pair_columns(
    instance: Instance, kinds: Kinds, sizes: PoolSizes, later_nodes: bool, among: IntArray | None = None
) -> KindColumns:
    """Columns of co-located pairs: entries by workload give every pair of kinds, entries by job win over them.

    An entry that states its nodes wins over one that leaves them to be the fewest.

    Both jobs hold the same GPUs, so both must be able to run on that count. Two jobs of one workload (or kind) cannot
    be told apart, so each gets the mean of the entry's two rates. A kind of one job is not paired with itself.

    Entries by workload pair only the kinds ``among`` these, if given, which are sorted.
    """
    entries = sorted(instance.colocation, key=lambda entry: entry.nodes == ANY_SPREAD)
    by_job = [entry for entry in entries if entry.jobs is not None]
    by_workload = [entry for entry in entries if entry.workloads is not None]
    parts = []
    jobs = np.array([entry.jobs for entry in by_job], np.int64).reshape(-1, 2)
    here = kinds.of_job[jobs] if len(jobs) else jobs
    rows = np.flatnonzero((here >= 0).all(axis=1))
    parts.append((rows, here[rows, 0], here[rows, 1]))

    generated = np.flatnonzero(kinds.options < 0) if among is None else among[kinds.options[among] < 0]
    order = generated[np.argsort(kinds.workload[generated], kind="stable")]
    workload = kinds.workload[order]
    wanted = np.array([entry.workloads for entry in by_workload], np.int64).reshape(-1, 2)
    start, stop = np.searchsorted(workload, wanted, "left"), np.searchsorted(workload, wanted, "right")
    size = (stop - start).astype(np.int64)
    products = size[:, 0] * size[:, 1]
    entry_row = np.repeat(np.arange(len(wanted), dtype=np.int64), products)
    local = ranges(np.zeros(len(wanted), np.int64), products)
    first = order[start[entry_row, 0] + local // size[entry_row, 1]] if len(local) else local
    second = order[start[entry_row, 1] + local % size[entry_row, 1]] if len(local) else local
    once = (wanted[entry_row, 0] != wanted[entry_row, 1]) | (first <= second)
    parts.append((entry_row[once] + len(by_job), first[once], second[once]))

    entries = [*by_job, *by_workload]
    row, first, second = (np.concatenate([part[i] for part in parts]) for i in range(3))
    rates = np.array([entry.throughput for entry in entries], np.float64).reshape(-1, 2)[row]
    pool = np.array([entry.pool for entry in entries], np.int64)[row]
    gpus = np.array([entry.gpus for entry in entries], np.int64)[row]
    nodes = np.array([entry.nodes for entry in entries], np.int64)[row]
    nodes = np.where(nodes > 0, nodes, sizes.fewest_nodes(pool, gpus))

    alike = (kinds.workload[first] == kinds.workload[second]) & (row >= len(by_job))
    rates[alike] = rates[alike].mean(axis=1, keepdims=True)
    swap = first > second
    first, second = np.where(swap, second, first), np.where(swap, first, second)
    rates[swap] = rates[swap][:, ::-1]

    jobs_of = np.bincount(kinds.of_job[kinds.of_job >= 0], minlength=len(kinds))
    allowed = kinds.allows(first, gpus) & kinds.allows(second, gpus)
    allowed &= (first != second) | (jobs_of[first] > 1)
    allowed &= _first_of_equals((first, second, pool, gpus, nodes))  # in the order of who wins
    columns = KindColumns.make(
        first, pool, gpus, nodes, partner=second, rate=rates[:, 0], partner_rate=rates[:, 1]
    ).take(np.flatnonzero(allowed))
    drop_unfit(columns, instance, kinds, sizes)
    drop_roomless(columns, instance, kinds, later_nodes)
    columns.drop[(columns.drop == Drop.KEPT) & (columns.rate == 0) & (columns.partner_rate == 0)] = Drop.ZERO_RATE
    return columns


def _first_of_equals(columns: tuple[IntArray, ...]) -> BoolArray:
    """Mask of the rows that no earlier row equals."""
    count = len(columns[0])
    mask = np.zeros(count, bool)
    mask[group_rows(columns, count).first] = True
    return mask
