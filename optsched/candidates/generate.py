"""Generation of columns: gangs, elastic ranges and spreads from rates;
explicit options; co-located pairs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from optsched.arrays import (
    BLOCK,
    BoolArray,
    FloatArray,
    IntArray,
    blocks,
    constant,
    group_rows,
    mask_of,
    owners,
    ranges,
    rows_where,
    take_rows,
)
from optsched.arrays.values import replace
from optsched.candidates.columns import Drop, KindColumns, WayColumns, is_kept
from optsched.candidates.kinds import Kinds
from optsched.candidates.room import drop_roomless
from optsched.candidates.task import CompileTask
from optsched.errors import InvalidInput
from optsched.instance import Colocation, Instance
from optsched.instance.rates import ANY_SPREAD, LEVEL
from optsched.instance.reading import show
from optsched.performance import (
    Configurations,
    Feasibility,
    PoolSizes,
    Prediction,
)
from optsched.performance.composed import corrects

ROUNDING = 1e-9
"""Relative slack when the memory of two workloads, or of a share of a GPU, is compared."""
MOST_KIND_PAIRS = 5_000_000
"""Most pairs of kinds (in a configuration) that are examined."""


Sifted = tuple[KindColumns, KindColumns]
"""Columns that are kept, and those that are dropped."""


def rated_columns(task: CompileTask, counts: tuple[IntArray, IntArray]) -> Iterator[Sifted]:
    """Columns of kinds without options: GPU counts x pools x spreads, with rates from the tables,
    then from the model.

    ``counts`` are pairs of a kind and its GPUs (`Kinds.counts`). Columns are made in blocks to save
    memory: dropped columns are never all in memory.
    """
    for cells in _everywhere(*counts, task.sizes):
        task.timer.check()
        yield rated(task, _on_all_spreads(task, *cells))


def rated_by_kind(task: CompileTask, counts: tuple[IntArray, IntArray]) -> Iterator[Sifted]:
    """The same columns in order of kind, pool, GPUs and nodes, those of a kind together;
    ``counts`` are in order.
    """
    for cells in _kind_by_kind(*counts, task.sizes):
        task.timer.check()
        columns = _on_all_spreads(task, *cells)
        if task.table.has_spreads or task.levels_of_model:
            columns = columns.take(
                np.lexsort((columns.level, columns.nodes, columns.gpus, columns.pool, columns.kind))
            )
        yield rated(task, columns)


Cells = tuple[IntArray, IntArray, WayColumns]
"""Kinds, the way in which each is to run, and the table of ways."""


def _on_all_spreads(
    task: CompileTask, kind: IntArray, way: IntArray, ways: WayColumns
) -> KindColumns:
    """Columns of kinds on the fewest nodes; then on other numbers of nodes and within groups of
    nodes, if the table lists these spreads or the model rates them.
    """
    levels = task.levels_of_model
    if not (task.table.has_spreads or levels):
        return KindColumns.of(kind, way, ways)
    row, spread = task.table.listed_spreads(task.kinds.batch, kind, ways.pool[way], ways.gpus[way])
    spread = _on_nodes_there_are(row, spread, task.sizes.nodes[ways.pool[way[row]]])
    # The spread on the fewest nodes has columns already.
    (other,) = (spread != ways.nodes[way[row]]).nonzero()
    row, spread = row[other], spread[other]
    # A rate within a group holds for any nodes of the group.
    level = np.maximum(spread - LEVEL, 0)
    nodes = np.where(
        level > 0, np.minimum(ways.gpus[way[row]], task.sizes.nodes[ways.pool[way[row]]]), spread
    )
    if levels:
        # A model that rates groups also distinguishes numbers of nodes.
        several = np.flatnonzero(ways.nodes[way] > 1)
        row = np.concatenate([row, np.tile(several, levels)])
        level = np.concatenate([level, np.repeat(np.arange(1, levels + 1), len(several))])
        nodes = np.concatenate([nodes, np.tile(ways.nodes[way[several]], levels)])
    alike = group_rows((way[row], nodes, level), len(row))
    first = way[row[alike.first]]
    more = WayColumns(
        ways.pool[first],
        ways.gpus[first],
        nodes[alike.first],
        ways.share[first],
        level[alike.first],
    )
    return KindColumns.of(
        np.concatenate([kind, kind[row]]),
        np.concatenate([way, len(ways) + alike.inverse]),
        WayColumns.join([ways, more]),
    )


def _on_nodes_there_are(row: IntArray, spread: IntArray, nodes: IntArray) -> IntArray:
    """The spreads of each row, ascending, of which the first one over more nodes than there are
    is over all of them, unless there is a rate for as many.
    """
    enough = (spread >= nodes) & (spread < LEVEL)
    before = np.append(False, enough[:-1] & (row[1:] == row[:-1]))
    return np.where(enough & ~before, nodes, spread)


def _everywhere(kind: IntArray, gpus: IntArray, sizes: PoolSizes) -> Iterator[Cells]:
    """Kinds on ``gpus`` GPUs of every pool, on the fewest nodes; the pools of one entry are
    consecutive.
    """
    pools, ways, place, counts = ways_on_fewest_nodes(gpus, sizes)
    for part in blocks(len(kind)):
        way = np.add.outer(place[part], pools * counts).ravel()
        yield kind[part].repeat(len(pools)), way, ways


def _kind_by_kind(kind: IntArray, gpus: IntArray, sizes: PoolSizes) -> Iterator[Cells]:
    """The same for sorted kinds; entries are sorted by kind, then pool."""
    pools, ways, place, counts = ways_on_fewest_nodes(gpus, sizes)
    begin = np.append(np.flatnonzero(np.diff(kind, prepend=-1)), len(kind))
    row = 0
    while row + 1 < len(begin):
        last = max(
            row + 1,
            int(begin.searchsorted(begin[row] + BLOCK // max(1, len(pools)), "right")) - 1,
        )
        first, size = begin[row:last], np.diff(begin[row : last + 1])
        times = size.repeat(len(pools))
        pair = ranges(first.repeat(len(pools)), times)
        way = place[pair] + np.repeat(np.tile(pools * counts, len(first)), times)
        yield kind[pair], way, ways
        row = last


def ways_on_fewest_nodes(
    gpus: IntArray, sizes: PoolSizes
) -> tuple[IntArray, WayColumns, IntArray, int]:
    """The pools; the ways to have these counts in every pool, in order; the position of each count;
    the number of different counts.
    """
    pools = np.arange(len(sizes.gpus), dtype=np.int64)
    alike = group_rows([gpus], len(gpus))
    first = gpus[alike.first]
    counts = np.sort(first)
    place = counts.searchsorted(first)[alike.inverse]
    pool, count = pools.repeat(len(counts)), np.concatenate([counts] * len(pools))
    return (
        pools,
        WayColumns(
            pool,
            count,
            sizes.fewest_nodes(pool, count),
            np.ones(len(pool)),
            constant(0, len(pool), np.int64),
        ),
        place,
        len(counts),
    )


def rated(task: CompileTask, columns: KindColumns) -> Sifted:
    """The columns that can run, with their rates, and the dropped ones, with their reasons."""
    table, batch, ways = task.table, task.kinds.batch, columns.ways
    drop = drop_roomless(task, columns, drop_unfit(task, columns))
    # The model is asked only about columns that can run.
    fits = rows_where(is_kept(drop))
    kind, way = take_rows(columns.kind, fits), take_rows(columns.way, fits)
    used = mask_of(way, len(ways))
    if used.all():
        asked, number = ways, way
    else:  # the model is asked only about ways in which some column can run
        asked, number = ways.take(used), (used.cumsum() - 1)[way]
    none = np.zeros(len(asked), np.int64)
    configurations = Configurations(
        asked.pool, asked.gpus, asked.nodes, asked.share, none, level=asked.level
    )
    prediction = table.predict(batch, configurations, edges=(kind, number))
    if task.model.name != table.name:
        prediction = _with_model(prediction, task, configurations, (kind, number))
    runs = rows_where(prediction.feasible == OK)
    kept = KindColumns.of(
        take_rows(kind, runs),
        take_rows(way, runs),
        ways,
        rate=take_rows(prediction.rate, runs),
        log_sd=take_rows(prediction.log_sd, runs),
        source=take_rows(prediction.source, runs),
    )
    if fits is None and runs is None:
        return kept, KindColumns.none()
    drop[slice(None) if fits is None else fits] = _DROP_OF[prediction.feasible]
    (gone,) = drop.nonzero()
    return kept, KindColumns.of(columns.kind[gone], columns.way[gone], ways, drop=drop[gone])


OK = int(Feasibility.OK)
_DROP_OF = np.zeros(len(Feasibility), np.uint8)
for _reason in Feasibility:
    _DROP_OF[_reason] = Drop["KEPT" if _reason is Feasibility.OK else _reason.name]


def _with_model(
    stated: Prediction,
    task: CompileTask,
    configurations: Configurations,
    edges: tuple[IntArray, IntArray],
) -> Prediction:
    """Ask the model for rates that neither the job nor its workload states, or for all rates if it
    corrects stated ones.

    A table of the job itself is complete: configurations that it leaves out have no rate, whatever
    the model says.
    """
    model, (kind, way) = task.model, edges
    # A correcting model is also asked about stated rates.
    unstated, states_rates = stated.feasible == Feasibility.NO_RATE, task.kinds.own[kind]
    asked = np.flatnonzero(
        ~(unstated & states_rates) if corrects(model) else unstated & ~states_rates
    )
    answer = model.predict(task.kinds.batch, configurations, edges=(kind[asked], way[asked]))
    runs = answer.feasible == Feasibility.OK
    wrong = np.flatnonzero(runs & ~((answer.rate > 0) & (answer.rate < np.inf)))
    if len(wrong):
        raise ValueError(
            f"the performance model {model.name} says {answer.rate[wrong[0]]} steps/s for "
            "what can run"
        )
    said = np.flatnonzero(answer.feasible != Feasibility.NO_RATE)
    rows = asked[said]
    both = Prediction(
        stated.rate.copy(), stated.log_sd.copy(), stated.feasible.copy(), stated.source.copy()
    )
    both.rate[rows] = np.where(runs, answer.rate, 0.0)[said]
    for name in ("log_sd", "feasible", "source"):
        getattr(both, name)[rows] = getattr(answer, name)[said]
    return both


def drop_unfit(task: CompileTask, columns: KindColumns) -> NDArray[np.uint8]:
    """`Drop` of columns: more GPUs than the pool or its largest nodes have, or too little GPU
    memory; else 0.
    """
    ways = columns.ways
    few = len(ways) > len(columns)  # this part of the columns uses only some of the ways
    drop = unfit(ways.take(columns.way), task) if few else unfit(ways, task)[columns.way]
    if task.instance.workloads.gpu_memory.any():
        needs, has = gpu_memory(task.instance, task.kinds, columns)
        on_gpus = ((ways.pool >= 0) & (ways.gpus > 0))[columns.way]
        drop[is_kept(drop) & on_gpus & (needs > has * (1 + ROUNDING))] = Drop.OUT_OF_MEMORY
    return drop


def unfit(ways: WayColumns, task: CompileTask) -> NDArray[np.uint8]:
    """`Drop` of ways with more GPUs than the pool has, or than its largest nodes (or those of one
    group) have; else 0.
    """
    sizes = task.sizes
    on_gpus = (ways.pool >= 0) & (ways.gpus > 0)
    spread_wrong = (ways.nodes > sizes.nodes[ways.pool]) | (
        ways.gpus > sizes.most_gpus(ways.pool, ways.nodes)
    )
    if ways.level.any():
        spread_wrong |= ways.gpus > most_in_a_group(ways, task)
    drop = np.zeros(len(ways), np.uint8)
    drop[on_gpus & spread_wrong] = Drop.TOO_MANY_NODES
    drop[on_gpus & (ways.gpus > sizes.gpus[ways.pool])] = Drop.TOO_MANY_GPUS
    return drop


def most_in_a_group(ways: WayColumns, task: CompileTask) -> IntArray:
    """Most GPUs that a group of the level of each way has on as many nodes of its pool, shape
    (W,).
    """
    cluster = task.instance.cluster
    usable = cluster.usable(np.inf if task.later_nodes else task.instance.now)
    size = np.where(usable, np.diff(cluster.numbering.start), 0)
    most = np.full(len(ways), np.iinfo(np.int64).max)
    asked = np.flatnonzero((ways.level > 0) & (ways.pool >= 0))
    alike = group_rows((ways.pool[asked], ways.level[asked], ways.nodes[asked]), len(asked))
    largest = np.empty(len(alike), np.int64)
    for row, way in enumerate(asked[alike.first].tolist()):
        in_pool = np.flatnonzero(cluster.numbering.pool == ways.pool[way])
        group = cluster.group_of_node[ways.level[way], in_pool]
        order = in_pool[np.lexsort((-size[in_pool], group))]
        # In each group take the largest nodes, as many as the way spans.
        group = cluster.group_of_node[ways.level[way], order]
        first = np.maximum.accumulate(
            np.where(np.diff(group, prepend=-1) != 0, np.arange(len(order)), 0)
        )
        counted = np.arange(len(order)) - first < ways.nodes[way]
        largest[row] = np.bincount(group[counted], size[order[counted]]).max(initial=0)
    most[asked] = largest[alike.inverse]
    return most


def gpu_memory(
    instance: Instance, kinds: Kinds, columns: KindColumns
) -> tuple[FloatArray, FloatArray]:
    """GB per GPU that each column needs (0 if its workloads state none) and has (inf if its pool
    states none).
    """
    need, ways = instance.workloads.gpu_memory[kinds.workload], columns.ways
    together, pairs = need[columns.kind], columns.pairs
    together[pairs] += need[columns.partner[pairs]]
    pools = instance.cluster.pools
    has = [np.inf if pool.gpu_memory is None else pool.gpu_memory for pool in pools]
    return together, (np.array([*has, np.inf])[ways.pool] * ways.share)[columns.way]


def option_columns(task: CompileTask) -> KindColumns:
    """One column per explicit option of each kind;
    its rate is stated, or is computed from its duration, or is 0.
    """
    instance, kinds, options = task.instance, task.kinds, task.instance.options
    if not len(options):
        return KindColumns.none()
    rows = np.flatnonzero(kinds.options >= 0)
    start, stop = options.indptr[kinds.options[rows]], options.indptr[kinds.options[rows] + 1]
    option = ranges(start, stop - start)
    kind = rows.repeat(stop - start)
    pool, gpus = options.pool[option], options.gpus[option]
    nodes = np.where(
        options.nodes[option] > 0, options.nodes[option], task.sizes.fewest_nodes(pool, gpus)
    )
    stated = ~np.isnan(options.throughput[option])
    rate = np.where(stated, options.throughput[option], 0.0)
    # A duration d is the time of all steps, so the rate is steps / d. The duration itself is exact
    # for jobs with steps_done = 0. All jobs of a kind whose rates follow from durations have the
    # same steps (`find_kinds`).
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
    )
    drop = drop_unfit(task, columns)
    drop[is_kept(drop) & stated & (rate == 0)] = Drop.ZERO_RATE
    return replace(columns, drop=drop)


def pair_columns(task: CompileTask, among: IntArray | None = None) -> KindColumns:
    """Columns of co-located pairs: an entry of two workloads makes a column for every pair of their
    kinds; an entry of two jobs overrides it.

    An entry that states its number of nodes overrides one that does not (which means the fewest).

    Both jobs hold the same GPUs, so both must be able to run on that count. In a pair of two jobs
    of one workload (or kind) the entry does not say which job has which rate, so each gets the mean
    of the two. A kind of one job is not paired with itself.

    If ``among`` is given (sorted kinds), entries of workloads pair only these kinds.
    """
    instance, kinds = task.instance, task.kinds
    if not instance.colocation:
        return KindColumns.none()
    # The first of equal columns is kept (`_first_of_equals`), so overriding entries come first.
    entries = sorted(instance.colocation, key=lambda entry: entry.nodes == ANY_SPREAD)
    by_job = [entry for entry in entries if entry.jobs is not None]
    by_workload = [entry for entry in entries if entry.workloads is not None]
    entries = [*by_job, *by_workload]
    parts = (_pairs_of_jobs(by_job, kinds), _pairs_of_workloads(by_workload, kinds, among))
    offsets = (0, len(by_job))
    row = np.concatenate([part[0] + offset for part, offset in zip(parts, offsets, strict=True)])
    first, second = (np.concatenate([part[i] for part in parts]) for i in (1, 2))

    rates = np.array([entry.throughput for entry in entries], np.float64).reshape(-1, 2)[row]
    pool = np.array([entry.pool for entry in entries], np.int64)[row]
    gpus = np.array([entry.gpus for entry in entries], np.int64)[row]
    nodes = np.array([entry.nodes for entry in entries], np.int64)[row]
    nodes = np.where(nodes > 0, nodes, task.sizes.fewest_nodes(pool, gpus))

    same_workload = kinds.workload[first] == kinds.workload[second]
    # An entry of two jobs says which of them has which rate, even if they have the same workload.
    alike = same_workload & (row >= len(by_job))
    rates[alike] = rates[alike].mean(axis=1, keepdims=True)
    swap = first > second
    first, second = np.where(swap, second, first), np.where(swap, first, second)
    rates[swap] = rates[swap][:, ::-1]

    jobs_of = np.bincount(kinds.of_job[kinds.of_job >= 0], minlength=len(kinds))
    # Entries of workloads do not depend on the gang sizes that the jobs allow, so check these here.
    both_run = kinds.allows(first, gpus) & kinds.allows(second, gpus)
    two_jobs = (first != second) | (jobs_of[first] > 1)
    unmatched = _first_of_equals((first, second, pool, gpus, nodes))
    columns = KindColumns.make(
        first, pool, gpus, nodes, partner=second, rate=rates[:, 0], partner_rate=rates[:, 1]
    ).take(np.flatnonzero(both_run & two_jobs & unmatched))
    drop = drop_roomless(task, columns, drop_unfit(task, columns))
    idle = (columns.rate == 0) & (columns.partner_rate == 0)
    drop[is_kept(drop) & idle] = Drop.ZERO_RATE
    return replace(columns, drop=drop)


KindPairs = tuple[IntArray, IntArray, IntArray]
"""(co-location entry, kind, kind) of some pairs."""


def _pairs_of_jobs(entries: Sequence[Colocation], kinds: Kinds) -> KindPairs:
    """Pairs of kinds from entries that name two jobs, if both jobs are present."""
    jobs = np.array([entry.jobs for entry in entries], np.int64).reshape(-1, 2)
    kind = kinds.of_job[jobs] if len(jobs) else jobs
    rows = np.flatnonzero((kind >= 0).all(axis=1))
    return rows, kind[rows, 0], kind[rows, 1]


def _pairs_of_workloads(
    entries: Sequence[Colocation], kinds: Kinds, among: IntArray | None
) -> KindPairs:
    """Pairs of kinds from entries that name two workloads; only kinds ``among``, if given."""
    if among is None:
        generated = np.flatnonzero(kinds.options < 0)
    else:
        generated = among[kinds.options[among] < 0]
    order = generated[kinds.workload[generated].argsort(kind="stable")]
    workload = kinds.workload[order]
    wanted = np.array([entry.workloads for entry in entries], np.int64).reshape(-1, 2)
    start = workload.searchsorted(wanted, "left")
    size = workload.searchsorted(wanted, "right") - start
    products = size[:, 0] * size[:, 1]
    # If both workloads are the same, every pair of kinds comes in both orders.
    same = wanted[:, 0] == wanted[:, 1]
    made = int(np.where(same, products // 2, products).sum())
    if made > MOST_KIND_PAIRS:
        raise InvalidInput(
            "colocation",
            f"entries of workloads for {made:,} pairs of different jobs",
            f"at most {MOST_KIND_PAIRS:,}; --generate-columns (generate_columns=True) makes only "
            "those that are needed, where the formulation can",
        )
    entry = owners(products)
    number = ranges(0, products)
    if not len(number):
        return number, number, number
    first = order[start[entry, 0] + number // size[entry, 1]]
    second = order[start[entry, 1] + number % size[entry, 1]]
    once = ~same[entry] | (first <= second)
    return entry[once], first[once], second[once]


def _first_of_equals(columns: tuple[IntArray, ...]) -> BoolArray:
    """Mask of the rows that no earlier row equals."""
    count = len(columns[0])
    return mask_of(group_rows(columns, count).first, count)
