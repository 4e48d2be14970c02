"""Canonical numbering: profiles, option lists and level lists that are in use,
numbered in order of first use.

Every instance is numbered in this way, whether it was read from documents, arrays or npz, or
revised from another one. So two instances with the same content in the same order have equal
arrays.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from optsched.arrays import (
    A_FEW_ROWS,
    AnyArray,
    BoolArray,
    FloatArray,
    IntArray,
    constant,
    hash_lists,
    increases,
    is_constant,
    is_range,
    joined,
    lengths,
    looked_up,
    pointers,
    ranges,
    take_rows,
)
from optsched.arrays.values import replace
from optsched.instance.rates import RateTable
from optsched.instance.tables import OptionTable, Workloads

ENTRY = ("place", "gpus", "nodes", "rate")
"""Arrays of a `RateTable` over entries."""
OPTION = ("pool", "gpus", "nodes", "share", "limit", "throughput", "duration", "value", "cost")
"""Arrays of an `OptionTable` over options."""


def first_use(index: IntArray) -> tuple[IntArray, IntArray]:
    """Number the rows in use in order of their first use.

    Parameters
    ----------
    index : IntArray, shape (N,)
        Rows, -1 for none.

    Returns
    -------
    index, old : IntArray, shapes (N,) and (rows in use,)
        The new numbers, and the old row of each.
    """
    if is_constant(index) and len(index):
        used = index[:1][index[:1] >= 0].astype(np.int64)
        return constant(0 if len(used) else -1, len(index), np.int64), used
    count, size = len(index), int(index.max(initial=-1)) + 1
    # The extra last entry is for index -1.
    first = np.full(size + 1, count, np.int64)
    # Writing in reverse order makes the first of several equal rows win.
    first[index[::-1]] = np.arange(count - 1, -1, -1)
    old = (first[:size] < count).nonzero()[0]
    if not increases(first[old]):
        old = old[first[old].argsort()]
    number = np.full(size + 1, -1, np.int64)
    number[old] = np.arange(len(old))
    return number[index], old


def compact_rates(
    rates: RateTable,
    workloads: Workloads,
    of_job: IntArray,
    same: IntArray | None = None,
) -> tuple[RateTable, Workloads, IntArray]:
    """Profiles in order of first use, by the workloads and then by the jobs.

    Parameters
    ----------
    rates : RateTable
    workloads : Workloads
    of_job : IntArray, shape (jobs,)
        Profile of each job, -1 for none.
    same : IntArray, shape (P,), optional
        Representative of each profile among equal ones (`equal_profiles`); without it equal
        profiles are not merged.
    """
    of_workload = workloads.rates[:-1]
    index = joined([of_workload, of_job])
    if same is not None:
        index = np.append(same, -1)[index]
    if is_range(index, len(rates)):
        return rates, workloads, index[len(workloads) :]
    index, old = first_use(index)
    changed = (index[: len(workloads)] != of_workload).nonzero()[0].tolist()
    if changed:
        listed = list(workloads)
        for row in changed:
            listed[row] = replace(listed[row], rates=int(index[row]))
        workloads = Workloads(listed)
    return take_profiles(rates, old), workloads, index[len(workloads) :]


def take_profiles(rates: RateTable, rows: IntArray) -> RateTable:
    """The profiles of these rows, in this order."""
    if is_range(rows, len(rates)):
        return rates
    length = lengths(rates.indptr)[rows]
    entry = ranges(rates.indptr[rows], length)
    columns = {name: take_rows(getattr(rates, name), entry) for name in ENTRY}
    return RateTable(indptr=pointers(length), **columns, places=rates.places, levels=rates.levels)


def join_profiles(first: RateTable, second: RateTable) -> RateTable:
    """The profiles of both tables, one after the other."""
    places, place = first.places, second.place
    if places != second.places:
        places = tuple(dict.fromkeys((*first.places, *second.places)))
        number = np.array([places.index(name) for name in second.places], np.int64)
        place = looked_up(number, place)
    if len(first) == 0:
        return replace(second, place=place, places=places)
    return RateTable(
        indptr=np.concatenate([first.indptr, second.indptr[1:] + first.indptr[-1]]),
        place=joined([first.place, place]),
        gpus=joined([first.gpus, second.gpus]),
        nodes=joined([first.nodes, second.nodes]),
        rate=joined([first.rate, second.rate]),
        places=places,
        levels=first.levels or second.levels,
    )


def equal_profiles(rates: RateTable, split: int) -> IntArray:
    """The first profile that has the same entries, in the same order, as each profile; shape (P,).

    Profiles before row ``split`` must all differ from each other, and so must the profiles from
    there on.
    """
    return _equal_lists(rates.indptr, [getattr(rates, name) for name in ENTRY], rates.rate, split)


def _equal_lists(
    indptr: IntArray, columns: Sequence[AnyArray], telling: FloatArray, split: int
) -> IntArray:
    """The first list of rows that equals each list, to the last bit;
    list i has the rows from ``indptr[i]`` on.

    Only lists whose first value in the column ``telling`` occurs on the other side of ``split`` are
    compared. When a few lists are added to very many, these are few.
    """
    same = np.arange(len(indptr) - 1)
    if split in (0, len(same)):
        return same
    # An empty list has the first value NaN; `_among` treats NaNs as equal.
    length = lengths(indptr)
    first = np.append(telling, np.nan)[np.where(length > 0, indptr[:-1], -1)]
    candidate = np.concatenate(
        [_among(first[:split], first[split:]), _among(first[split:], first[:split])]
    )
    if candidate.any():
        lists = candidate.nonzero()[0]
        length = length[lists]
        rows = ranges(indptr[lists], length)
        same[lists] = lists[_equal_by_hash(pointers(length), [column[rows] for column in columns])]
    return same


def _among(values: FloatArray, others: FloatArray) -> BoolArray:
    """Mask of the values that occur in ``others``; NaN counts as equal to NaN."""
    if len(others) == 0:
        return np.zeros(len(values), bool)
    others = np.sort(others)
    found = others[np.minimum(others.searchsorted(values), len(others) - 1)]
    same: BoolArray = (found == values) | (np.isnan(found) & np.isnan(values))
    return same


def _equal_by_hash(indptr: IntArray, columns: Sequence[AnyArray]) -> IntArray:
    count, length = len(indptr) - 1, np.diff(indptr)
    if count > A_FEW_ROWS:
        hashes = hash_lists(indptr, columns)
        _, first, group = np.unique(hashes, return_index=True, return_inverse=True)
        equal_to = first[group].astype(np.int64)
        other = (equal_to != np.arange(count)).nonzero()[0]
        if len(other) == 0:
            return equal_to
        # Hashes may collide, so lists with equal hashes are compared bit by bit.
        if (length[other] == length[equal_to[other]]).all():
            one, two = (ranges(indptr[rows], length[rows]) for rows in (other, equal_to[other]))
            if all(column[one].tobytes() == column[two].tobytes() for column in columns):
                return equal_to
    # Few lists, or a hash collision: use a dictionary.
    seen: dict[tuple[bytes, ...], int] = {}
    bounds = zip(indptr[:-1].tolist(), indptr[1:].tolist(), strict=True)
    keys = (tuple(column[start:stop].tobytes() for column in columns) for start, stop in bounds)
    return np.array([seen.setdefault(key, row) for row, key in enumerate(keys)], np.int64)


def join_options(first: OptionTable, second: OptionTable) -> OptionTable:
    """The option lists of both tables, one after the other."""
    return OptionTable(
        indptr=np.concatenate([first.indptr, second.indptr[1:] + first.indptr[-1]]),
        **{name: np.concatenate([getattr(first, name), getattr(second, name)]) for name in OPTION},
        uses=(*first.uses, *second.uses),
        attributes=(*first.attributes, *second.attributes),
    )


def equal_options(options: OptionTable, split: int) -> IntArray:
    """The first option list that equals each list, as `equal_profiles`; shape (O,)."""
    same = _equal_lists(
        options.indptr, [getattr(options, name) for name in OPTION], options.duration, split
    )
    # The fields without arrays must be equal too.
    seen: dict[tuple[int, str, str], int] = {}
    for row in (np.bincount(same, minlength=len(same))[same] > 1).nonzero()[0].tolist():
        rows = slice(options.indptr[row], options.indptr[row + 1])
        key = (int(same[row]), repr(options.uses[rows]), repr(options.attributes[rows]))
        same[row] = seen.setdefault(key, row)
    return same


def compact_options(
    options: OptionTable, of_job: IntArray, same: IntArray | None = None
) -> tuple[OptionTable, IntArray]:
    """Option lists in order of first use by the jobs;
    ``same`` is the result of `equal_options`; without it equal lists are not merged.
    """
    if same is not None:
        of_job = looked_up(np.append(same, -1), of_job)
    index, old = first_use(of_job)
    if len(old) == len(options) and (old == np.arange(len(old))).all():
        return options, index
    length = np.diff(options.indptr)[old]
    option = ranges(options.indptr[old], length)
    rows = option.tolist()
    table = OptionTable(
        indptr=pointers(length),
        **{name: getattr(options, name)[option] for name in OPTION},
        uses=tuple([options.uses[row] for row in rows]),
        attributes=tuple([options.attributes[row] for row in rows]),
    )
    return table, index


def compact_levels(
    lists: Sequence[tuple[int, ...]], of_job: IntArray
) -> tuple[tuple[tuple[int, ...], ...], IntArray]:
    """Level lists in order of first use by the jobs; equal ones are kept once."""
    if not lists:
        return (), of_job
    seen: dict[tuple[int, ...], int] = {}
    same = [seen.setdefault(levels, row) for row, levels in enumerate(lists)]
    index, old = first_use(looked_up(np.array([*same, -1], np.int64), of_job))
    return tuple(lists[row] for row in old.tolist()), index
