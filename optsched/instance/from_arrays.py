"""Instances directly from arrays, without a document per job."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from optsched.arrays import AnyArray, BoolArray, IntArray, constant, group_rows, looked_up
from optsched.errors import InvalidInput
from optsched.instance.build import Header, build_header
from optsched.instance.cluster import Cluster
from optsched.instance.compaction import (
    ENTRY,
    compact_levels,
    compact_rates,
    equal_profiles,
    join_profiles,
)
from optsched.instance.documents import (
    LARGEST,
    SMALLEST,
    Document,
    Name,
    NonEmpty,
    OptionDocument,
    RunningDocument,
    Tuple,
)
from optsched.instance.instance import Instance
from optsched.instance.interning import OptionInterner
from optsched.instance.job_rules import array_name, as_array, as_column, check_arrays, check_names
from optsched.instance.rates import ANY_SPREAD, LEVEL, OWN_GANG, RateTable
from optsched.instance.reading import listed, show
from optsched.instance.references import check_running, resolve_predecessors
from optsched.instance.running import Place
from optsched.instance.tables import ARRAY_FIELDS, JobNames, JobTable, Workloads

RATE_FIELDS = ("indptr", *ENTRY)


class RareDocument(Document):
    """What few jobs have and no array holds; a part of `JobDocument`."""

    running: RunningDocument | None = None
    after: Tuple[Name] = ()
    options: NonEmpty[OptionDocument] | None = None


def instance_from_arrays(
    header_document: Mapping[str, Any],
    columns: Mapping[str, ArrayLike | None],
    throughput: ArrayLike | None,
    ids: Sequence[str] | None,
) -> Instance:
    """Build what `Instance.from_arrays` describes.

    Parameters
    ----------
    header_document : mapping
        An instance document without jobs. Sequences, mappings and None are also allowed where
        `Instance.from_arrays` takes them.
    columns : mapping
        Arrays or single numbers by names of `ARRAY_FIELDS`; None: the default.
    throughput, ids
        As in `Instance.from_arrays`.
    """
    header = build_header(_plain_header(header_document))
    default = {"workload": -1, "tenant": -1, "arrival": min(0.0, header.document.now)}
    # Rates come from the matrix, below; options and levels take a document.
    given: dict[str, Any] = {"rates": -1, "options": -1, "levels": -1}
    for field, value in columns.items():
        if value is not None or field not in default:
            given[field] = value
        else:
            given[field] = default[field]
    if given["gpus_max"] is None:
        del given[
            "gpus_max"
        ]  # all jobs are gangs: gpus_max is set to gpus_min below, when that is an array over jobs
    matrix = None if throughput is None else as_array("throughput", throughput)
    values = {field: as_array(array_name(field), value) for field, value in given.items()}
    names = None if ids is None else _ids(ids)
    count = _job_count(values, matrix, names)
    arrays = {
        field: as_column(array_name(field), value, ARRAY_FIELDS[field], count)
        for field, value in values.items()
    }
    arrays.setdefault("gpus_max", arrays["gpus_min"])  # gangs
    rates = None
    if matrix is not None:
        rates, arrays["rates"] = _profiles(matrix, count, header.cluster)
    return assemble(
        header,
        JobNames(count, names),
        arrays,
        rates,
        where=lambda row, field: f"{array_name(field)}[{row}]",
    )


def _plain_header(given: Mapping[str, Any]) -> dict[str, Any]:
    """The header as plain data: dicts and lists, pools as documents, defaults instead of None."""
    header = dict(given)
    pools = header["cluster"]["pools"]
    if isinstance(pools, Mapping):
        pools = [
            {"name": pool, "nodes": count, "gpus_per_node": 1} for pool, count in pools.items()
        ]
    resources = header["cluster"]["resources"]
    header["cluster"] = {"pools": _documents(pools), "resources": _documents(resources)}
    for name, default in (("workloads", {}), ("performance", {"model": "table"})):
        header[name] = default if header[name] is None else _document(header[name])
    for name in ("tenants", "colocation", "constraints"):
        header[name] = _documents(header[name])
    return header


def _document(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value


def _documents(values: Any) -> Any:
    return [_document(value) for value in values] if isinstance(values, list | tuple) else values


def _ids(ids: Any) -> tuple[Any, ...]:
    if isinstance(ids, str) or not isinstance(ids, Iterable):
        raise InvalidInput("ids", show(ids), "a sequence of texts")
    return tuple(str(name) if isinstance(name, str) else name for name in ids)


def _job_count(
    given: Mapping[str, AnyArray], matrix: AnyArray | None, names: Sequence[Any] | None
) -> int:
    if matrix is not None:
        if matrix.ndim != 2:
            raise InvalidInput(
                "throughput", f"an array of shape {matrix.shape}", "shape (jobs, pools)"
            )
        return len(matrix)
    if names is not None:
        return len(names)
    # Single numbers do not determine the number of jobs.
    lengths = [len(array) for array in given.values() if array.ndim == 1]
    if not lengths:
        raise InvalidInput("throughput", "nothing", "at least one array over jobs")
    return lengths[0]


def _profiles(matrix: AnyArray, count: int, cluster: Cluster) -> tuple[RateTable, IntArray]:
    """Distinct rows of the throughput matrix as profiles of plain numbers,
    and the profile of each job.
    """
    pools = cluster.pools
    if matrix.dtype.kind not in "iuf":
        raise InvalidInput("throughput", f"an array of {matrix.dtype}", "numbers")
    if matrix.shape[1] != len(pools):
        raise InvalidInput(
            "throughput", f"{matrix.shape[1]} columns", f"one per pool, {len(pools)}"
        )
    matrix = np.asarray(matrix, np.float64)
    in_range = (matrix >= SMALLEST) & (matrix <= LARGEST)
    in_range |= matrix == 0
    if not in_range.all():
        row, pool = np.argwhere(~in_range)[0]
        expected = "a finite rate in steps/s, at least 0"
        if np.isfinite(matrix[row, pool]) and matrix[row, pool] > 0:
            expected = f"0, or a rate in steps/s from {SMALLEST:g} to {LARGEST:g}"
        raise InvalidInput(f"throughput[{row}, {pool}]", f"{matrix[row, pool]:g}", expected)
    groups = group_rows([matrix[:, pool] for pool in range(matrix.shape[1])], count)
    distinct = matrix if len(groups) == count else matrix[groups.first]
    # A zero is left out, unless the rate of the pool's GPU type (given as another pool's rate)
    # would be used instead.
    hides = np.array([pool.gpu != pool.name and pool.gpu in cluster.pool_index for pool in pools])
    listed = (distinct > 0) | hides
    rate = distinct[listed]
    nothing = constant(0, len(rate), np.int64)
    rates = RateTable(
        indptr=np.concatenate([np.zeros(1, np.int64), np.cumsum(np.count_nonzero(listed, axis=1))]),
        place=np.broadcast_to(
            np.arange(len(pools), dtype=np.min_scalar_type(len(pools))), listed.shape
        )[listed],
        gpus=nothing,
        nodes=nothing,
        rate=rate,
        places=tuple(pool.name for pool in pools),
    )
    return rates, groups.inverse


def assemble(
    header: Header,
    names: JobNames,
    arrays: Mapping[str, AnyArray],
    rates: RateTable | None,
    level_lists: tuple[tuple[int, ...], ...] = (),
    rare: Mapping[int, RareDocument] | None = None,
    where: Callable[[int, str], str] = lambda row, field: f"jobs[{row}].{array_name(field)}",
) -> Instance:
    """Header + job arrays -> instance, with every rule of the format checked on the arrays.

    Parameters
    ----------
    arrays : mapping
        One array of shape (jobs,) per name of `ARRAY_FIELDS`; ``rates`` indexes the profiles of
        ``rates``, ``levels`` the ``level_lists``; ``options`` are in ``rare``.
    rare : mapping, optional
        By job row.
    where : function
        How a message names a job's field, given the row and the field.
    """
    count = len(names)
    check_names(names)
    of_workloads = header.rates.table()
    if rates is not None:
        _check_rate_table(rates, header)
    limits = {
        "workload": len(header.workloads),
        "tenant": len(header.tenants),
        "levels": len(level_lists),
        "rates": 0 if rates is None else len(rates),
    }
    check_arrays(arrays, limits, names, where)
    _check_levels(arrays, level_lists)
    # Profiles of workloads come first and keep their numbers, so workloads need no renumbering.
    table, _, job_rates = _numbered(of_workloads, rates, header.workloads, arrays["rates"])
    level_lists, levels = compact_levels(level_lists, arrays["levels"])
    interner = OptionInterner(header.cluster)
    options, running, after = _rare_fields(rare or {}, count, header.cluster, interner)
    without_rates = (job_rates < 0) & (options < 0)
    _check_rates_exist(without_rates, header.workloads, arrays["workload"], where)
    soft = arrays["soft_deadline"]
    if soft.any():
        # A job without a deadline is not marked as soft.
        soft = soft & np.isfinite(arrays["deadline"])
    own_columns = {
        "rates": job_rates,
        "options": options,
        "levels": levels,
        "soft_deadline": soft,
    }
    predecessors, awaits = resolve_predecessors(after, names)
    jobs = JobTable(
        names=names,
        level_lists=level_lists,
        running=running,
        after=predecessors,
        awaits=awaits,
        **{field: own_columns.get(field, arrays[field]) for field in ARRAY_FIELDS},
    )
    return header.finish(jobs, table, interner.table())


def _rare_fields(
    rare: Mapping[int, RareDocument], jobs: int, cluster: Cluster, interner: OptionInterner
) -> tuple[IntArray, dict[int, Place], dict[int, Sequence[str]]]:
    """The option list of each job (-1: none), and running places and predecessors by row."""
    options = constant(-1, jobs, np.int64)
    if rare:  # a constant is read-only, so copy it
        options = np.array(options)
    running: dict[int, Place] = {}
    after: dict[int, Sequence[str]] = {}
    for row, document in sorted(rare.items()):
        if document.options is not None:
            options[row] = interner.add(document.options, f"jobs[{row}].options")
        if document.running is not None:
            running[row] = check_running(document.running, cluster, f"jobs[{row}].running")
        if document.after:
            after[row] = document.after
    return options, running, after


def _check_rates_exist(
    without_rates: BoolArray,
    workloads: Workloads,
    of_job: IntArray,
    where: Callable[[int, str], str],
) -> None:
    """A job without its own rates must have a workload that is not only a label."""
    unknown = np.flatnonzero((of_job < 0) & without_rates)
    if len(unknown):
        found = "no workload, throughput or options"
        raise InvalidInput(f"jobs[{int(unknown[0])}]", found, "one of them")
    # The last entry is for jobs without a workload.
    is_label = workloads.label
    labelled = np.flatnonzero(looked_up(is_label, of_job) & without_rates)
    if len(labelled):
        row = int(labelled[0])
        expected = "one of the workloads, or a throughput of the job's own"
        raise InvalidInput(where(row, "workload"), show(workloads[of_job[row]].name), expected)


def _numbered(
    of_workloads: RateTable, rates: RateTable | None, workloads: Workloads, of_job: IntArray
) -> tuple[RateTable, Workloads, IntArray]:
    """The profiles of workloads, then those profiles of jobs that no workload has, in order of
    first use.
    """
    if rates is None:
        return compact_rates(of_workloads, workloads, of_job)
    both = join_profiles(of_workloads, rates)
    if len(of_workloads) == 0:
        return compact_rates(both, workloads, of_job)
    of_job = of_job + np.where(of_job >= 0, len(of_workloads), 0)
    return compact_rates(both, workloads, of_job, equal_profiles(both, len(of_workloads)))


def _check_levels(arrays: Mapping[str, AnyArray], level_lists: Sequence[tuple[int, ...]]) -> None:
    for number, levels in enumerate(level_lists):
        if list(levels) != sorted(set(levels)):
            raise InvalidInput(f"levels[{number}]", show(levels), "counts in increasing order")
    index, low, high = arrays["levels"], arrays["gpus_min"], arrays["gpus_max"]
    least = np.array([levels[0] for levels in level_lists] + [0])
    most = np.array([levels[-1] for levels in level_lists] + [0])
    rows = np.flatnonzero((index >= 0) & ((low > least[index]) | (high < most[index])))
    if len(rows):
        row = int(rows[0])
        expected = f"different counts from {low[row]} to {high[row]}"
        raise InvalidInput(f"jobs[{row}].gpus.levels", show(level_lists[index[row]]), expected)


def _spreads_can_be(table: RateTable) -> bool:
    """Whether all entries span at most as many nodes as GPUs, or name an existing level."""
    level = table.nodes - LEVEL
    stated = level > 0
    return bool(
        (stated | (table.nodes <= table.gpus)).all()
        and (level <= len(table.levels)).all()
        and (table.gpus[stated] != OWN_GANG).all()
    )


def _check_rate_table(table: RateTable, header: Header) -> None:
    if not set(table.places) <= set(header.rates.places):
        unknown = min(set(table.places) - set(header.rates.places))
        raise InvalidInput("throughput", show(unknown), f"one of {listed(header.rates.places)}")
    entries = len(table.place)
    shapes = all(len(getattr(table, field)) == entries for field in RATE_FIELDS[1:])
    ordered = len(table.indptr) > 0 and table.indptr[0] == 0 and table.indptr[-1] == entries
    if not (shapes and ordered and (np.diff(table.indptr) >= 0).all()):
        raise InvalidInput("rates", "arrays whose lengths disagree", "a table of profiles")
    if not (
        (table.rate >= 0).all()
        and np.isfinite(table.rate).all()
        and (table.place >= 0).all()
        and (table.place < len(table.places)).all()
        and (table.gpus >= 0).all()
        and (table.gpus < 2**31).all()
        and (table.nodes >= 0).all()
        and _spreads_can_be(table)
    ):
        raise InvalidInput(
            "rates", "an entry out of range", "finite rates, at least 0, of counts that can be"
        )
    if table.one_by_one:
        return  # no duplicates
    # A plain number must be the only entry of its place, and a rate without nodes the only one of
    # its place and count.
    place = group_rows([table.profile, table.place], entries)
    count = group_rows([table.profile, table.place, table.gpus], entries)
    spread = group_rows([table.profile, table.place, table.gpus, table.nodes], entries)
    alone = (place.count[place.inverse] == 1) | (table.gpus != OWN_GANG)
    alone &= (count.count[count.inverse] == 1) | (table.nodes != ANY_SPREAD)
    if len(spread) < entries or not alone.all():
        raise InvalidInput(
            "rates", "two entries for the same place, GPUs and nodes", "entries that differ"
        )
