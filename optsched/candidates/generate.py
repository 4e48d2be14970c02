"""Generation of columns: gangs, elastic ranges and spreads from rates; explicit options; co-located pairs."""

from __future__ import annotations

import numpy as np

from optsched.arrays import AnyArray, BoolArray, FloatArray, IntArray, group_rows, ranges
from optsched.candidates.columns import Drop, KindColumns
from optsched.candidates.kinds import Kinds
from optsched.instance import Instance
from optsched.performance import Configurations, Feasibility, PerformanceModel, Prediction
from optsched.performance.table import TableModel


def rated_columns(instance: Instance, kinds: Kinds, model: PerformanceModel) -> KindColumns:
    """Columns of kinds without options: GPU counts x pools x spreads, with rates from the tables, then the model."""
    pools = instance.cluster.pools
    capacity = instance.cluster.gpus(instance.now)
    table = TableModel(instance.rates, instance)
    batch = kinds.batch

    kind, gpus = kinds.counts(int(capacity.max(initial=0)))
    pool = np.tile(np.arange(len(pools), dtype=np.int64), len(kind))
    kind, gpus = np.repeat(kind, len(pools)), np.repeat(gpus, len(pools))
    nodes = table.fewest_nodes(pool, gpus)

    row, spread = table.listed_spreads(batch, kind, pool, gpus)
    other = spread != nodes[row]
    row, spread = row[other], spread[other]
    kind, pool, gpus, nodes = (
        np.concatenate([column, more])
        for column, more in ((kind, kind[row]), (pool, pool[row]), (gpus, gpus[row]), (nodes, spread))
    )
    columns = KindColumns.make(kind, pool, gpus, nodes, drop=_misfits(instance, pool, gpus, nodes))
    fits = np.flatnonzero(columns.drop == Drop.KEPT)
    columns.drop[fits] = np.where(_needs_too_much_memory(instance, kinds, columns.take(fits)), Drop.OUT_OF_MEMORY, 0)

    fits = np.flatnonzero(columns.drop == Drop.KEPT)
    configurations = Configurations(
        pool[fits], gpus[fits], nodes[fits], np.ones(len(fits)), np.zeros(len(fits), np.int64)
    )
    edges = (kind[fits], np.arange(len(fits), dtype=np.int64))
    prediction = table.predict(batch, configurations, edges=edges)
    if model.name != table.name:
        prediction = _fill(prediction, model, kinds, configurations, edges)
    columns.rate[fits] = prediction.rate
    columns.log_sd[fits] = prediction.log_sd
    columns.source[fits] = prediction.source
    columns.drop[fits] = _DROP_OF[prediction.feasible]
    return columns


_DROP_OF = np.zeros(len(Feasibility), np.uint8)
for _reason in Feasibility:
    _DROP_OF[_reason] = Drop["KEPT" if _reason is Feasibility.OK else _reason.name]


def _fill(
    stated: Prediction,
    model: PerformanceModel,
    kinds: Kinds,
    configurations: Configurations,
    edges: tuple[IntArray, IntArray],
) -> Prediction:
    """Ask the model where neither the job nor its workload states a rate; a job's own table is complete."""
    unknown = np.flatnonzero((stated.feasible == Feasibility.NO_RATE) & ~kinds.own[edges[0]])
    answer = model.predict(kinds.batch, configurations, edges=(edges[0][unknown], edges[1][unknown]))
    filled = Prediction(stated.rate.copy(), stated.log_sd.copy(), stated.feasible.copy(), stated.source.copy())
    for name in ("rate", "log_sd", "feasible", "source"):
        getattr(filled, name)[unknown] = getattr(answer, name)
    return filled


def _misfits(instance: Instance, pool: IntArray, gpus: IntArray, nodes: IntArray) -> AnyArray:
    """`Drop` of configurations by size: more GPUs than the pool has, or than so many of its nodes have."""
    drop = np.zeros(len(pool), np.uint8)
    for row, machines in enumerate(instance.cluster.pools):
        here = np.flatnonzero(pool == row)
        reach = machines.reach(instance.now)
        drop[here[gpus[here] > reach[-1]]] = Drop.TOO_MANY_GPUS
        here = here[gpus[here] <= reach[-1]]
        wrong = (nodes[here] > gpus[here]) | (nodes[here] >= len(reach))
        wrong |= gpus[here] > reach[np.minimum(nodes[here], len(reach) - 1)]
        drop[here[wrong & (gpus[here] > 0)]] = Drop.TOO_MANY_NODES
    return drop


def _gpu_memory(instance: Instance, kinds: Kinds) -> FloatArray:
    """GB per GPU that each kind needs; 0 where its workload does not say."""
    need = [0.0 if workload.gpu_memory is None else workload.gpu_memory for workload in instance.workloads]
    return np.array([*need, 0.0])[kinds.workload]


def _needs_too_much_memory(instance: Instance, kinds: Kinds, columns: KindColumns) -> BoolArray:
    need = _gpu_memory(instance, kinds)
    has = [np.inf if pool.gpu_memory is None else pool.gpu_memory for pool in instance.cluster.pools]
    together = need[columns.kind] + np.where(columns.partner >= 0, need[columns.partner], 0.0)
    return np.asarray(together > np.array([*has, np.inf])[columns.pool] * columns.share)


def option_columns(instance: Instance, kinds: Kinds) -> KindColumns:
    """One column per explicit option of each kind; its rate is stated, or follows from its duration, or is 0."""
    options = instance.options
    rows = np.flatnonzero(kinds.options >= 0)
    start, stop = options.indptr[kinds.options[rows]], options.indptr[kinds.options[rows] + 1]
    option = ranges(start, stop - start)
    kind = np.repeat(rows, stop - start)
    pool, gpus = options.pool[option], options.gpus[option]
    table = TableModel(instance.rates, instance)
    nodes = np.where(options.nodes[option] > 0, options.nodes[option], table.fewest_nodes(pool, gpus))
    nodes[pool < 0] = 0
    stated = ~np.isnan(options.throughput[option])
    rate = np.where(stated, options.throughput[option], 0.0)
    drop = _misfits(instance, pool, gpus, nodes)
    drop[(drop == Drop.KEPT) & stated & (rate == 0)] = Drop.ZERO_RATE
    # A duration is the time of all steps; with steps_done = 0 it is exact, and the rate that it implies is steps / d.
    steps = instance.jobs_table.steps[kinds.first[kind]]
    duration = options.duration[option]
    implied = ~stated & ~np.isnan(duration)
    rate[implied] = steps[implied] / duration[implied]
    return KindColumns.make(
        kind,
        pool,
        gpus,
        nodes,
        share=options.share[option],
        option=option,
        rate=rate,
        duration=duration,
        value=options.value[option],
        cost=options.cost[option],
        drop=drop,
    )


def pair_columns(instance: Instance, kinds: Kinds) -> KindColumns:
    """Columns of co-located pairs: entries by workload give every pair of kinds, entries by job win over them.

    Both jobs hold the same GPUs, so both must be able to run on that count. Two jobs of one workload (or kind) cannot
    be told apart, so each gets the mean of the entry's two rates.
    """
    by_job = [entry for entry in instance.colocation if entry.jobs is not None]
    by_workload = [entry for entry in instance.colocation if entry.workloads is not None]
    parts = []
    jobs = np.array([entry.jobs for entry in by_job], np.int64).reshape(-1, 2)
    here = kinds.of_job[jobs] if len(jobs) else jobs
    rows = np.flatnonzero((here >= 0).all(axis=1))
    parts.append((rows, here[rows, 0], here[rows, 1]))

    generated = np.flatnonzero(kinds.options < 0)
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
    nodes = np.where(nodes > 0, nodes, TableModel(instance.rates, instance).fewest_nodes(pool, gpus))

    alike = (first == second) | (kinds.workload[first] == kinds.workload[second]) & (row >= len(by_job))
    rates[alike] = rates[alike].mean(axis=1, keepdims=True)
    swap = first > second
    first, second = np.where(swap, second, first), np.where(swap, first, second)
    rates[swap] = rates[swap][:, ::-1]

    allowed = kinds.allows(first, gpus) & kinds.allows(second, gpus)
    allowed &= _first_of_equals((first, second, pool, gpus, nodes))  # entries by job come first, so they win
    columns = KindColumns.make(
        first, pool, gpus, nodes, partner=second, rate=rates[:, 0], partner_rate=rates[:, 1],
        drop=_misfits(instance, pool, gpus, nodes),
    ).take(np.flatnonzero(allowed))  # fmt: skip
    kept = columns.drop == Drop.KEPT
    columns.drop[kept & _needs_too_much_memory(instance, kinds, columns)] = Drop.OUT_OF_MEMORY
    kept = columns.drop == Drop.KEPT
    columns.drop[kept & (columns.rate == 0) & (columns.partner_rate == 0)] = Drop.ZERO_RATE
    return columns


def _first_of_equals(columns: tuple[IntArray, ...]) -> BoolArray:
    """Mask of the rows that no earlier row equals."""
    count = len(columns[0])
    mask = np.zeros(count, bool)
    mask[group_rows(columns, count).first] = True
    return mask
