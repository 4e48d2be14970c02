"""Import of Chronus' traces (Gao et al., SoCC 2021): jobs with strict deadlines, soft ones, or none.

A trace is a CSV table with a job a line: ``job_id``, ``user``, ``num_gpu``, ``submit_time``, ``model_name``,
``duration``, ``expect_time_list``, ``expect_value_list``, ``job_type``; ``iterations``, ``interval`` and
``best_effort`` tell nothing more. Both lists are joined by hyphens: a job that ends within the first expected time
after it came is worth the first value, and so on. ``job_type`` is ``strict`` (one time, which must be kept), ``soft``
or ``best`` (best effort: its time means nothing). Times are in minutes: the published scheduler
(``time_aware_with_lease.py``) counts 60 to an hour. It skips jobs of 0 GPUs and sorts the others by ``submit_time``,
and so does the import: jobs of the same time stay in the order of the file.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from optsched.arrays import IntArray
from optsched.errors import InvalidInput, UsageError
from optsched.formats.recorded import (
    NodeRates,
    arrived,
    pool_documents,
    recorded_workload,
    speeds_of,
)
from optsched.formats.tables import Kind, Table, read_table
from optsched.instance.documents import FORMAT
from optsched.instance.reading import key, listed, named, parse_json, read_bytes, show

COLUMNS: dict[str, Kind] = {
    "job_id": "text", "user": "text", "num_gpu": "whole", "submit_time": "number", "iterations": "number",
    "model_name": "text", "duration": "number", "interval": "number", "expect_time_list": "text",
    "expect_value_list": "text", "best_effort": "whole", "job_type": "text", "batch_size": "number",
}  # fmt: skip
REQUIRED = (
    "job_id", "user", "num_gpu", "submit_time", "model_name", "duration", "expect_time_list", "expect_value_list",
    "job_type",
)  # fmt: skip
STRICT, SOFT, BEST = "strict", "soft", "best"
MINUTE = 60.0
LEASE = 20
"""Units of time of a lease in the published experiments."""

Worth = tuple[tuple[float, float], ...]
"""(seconds after the arrival, value) of the expected times of a job, ascending in time."""
Spread = Mapping[str, NodeRates]
"""By model, what is left of the rate of a gang that spans several nodes."""


def import_chronus(
    trace: str | Path,
    pools: Mapping[str, tuple[int, int]],
    *,
    locality: str | Path | None = None,
    speeds: Mapping[str, float] | None = None,
    unit: float = MINUTE,
    at: float | None = None,
    name: str = "chronus",
) -> dict[str, Any]:
    """Make an ``optsched-instance/1`` document of a trace.

    The steps of a job are the seconds that it ran (`optsched.formats.recorded`); its workload is its model, its tenant
    its user, its weight the value of its first expected time, which is also its deadline: hard if it is strict, soft
    if it is soft, none if it is best effort. A soft job has an option for every expected time, with its value and the
    attribute ``deadline``, as the formulation ``lease`` reads them. A round is a lease of 20 units.

    Parameters
    ----------
    trace : path
    pools : mapping from str to (int, int)
        Nodes, and GPUs of a node.
    locality : path, optional
        ``model_info.json``: ``{model: {GPUs: {nodes: share}}}``, what is left of the rate of a gang that spans several
        nodes. A gang that it does not list loses as the next larger one, and one larger than all of them nothing.
    speeds : mapping from str to float, optional
        How much faster than recorded jobs run in a pool.
    unit : float, default 60
        Seconds of a unit of time.
    at : float, optional
        Take the jobs that have arrived by then, s; ``now`` is ``at``. By default all jobs, and ``now`` is the first
        arrival.
    name : str
        Of the instance.

    Returns
    -------
    dict
        Plain data, as `Instance.from_document` takes it.

    Raises
    ------
    InvalidInput
        With file, line and column.
    UsageError
        No pools, speeds of other pools, or a unit that is none.
    """
    if not 0 < unit < math.inf:
        raise UsageError(f"unit is {unit!r}, expected seconds above 0")
    documents, factors = pool_documents(pools), speeds_of(pools, speeds)
    spread = None if locality is None else _read_locality(Path(locality))
    jobs = read_table(read_bytes(Path(trace)), str(trace), COLUMNS, REQUIRED)
    ids, worth = jobs.names("job_id"), _worths(jobs, unit)
    gangs = jobs.whole("num_gpu", 0, "a whole number of GPUs")
    jobs.refuse("duration", ~(jobs.numbers["duration"] > 0), "a time above 0")
    arrival = jobs.numbers["submit_time"] * unit
    rows = np.flatnonzero(gangs > 0)
    if not len(rows):
        raise InvalidInput(jobs.name, "no job with a GPU", "at least one")
    taken, now = arrived(arrival, at, rows)
    models, kinds, users = jobs.cells["model_name"], jobs.cells["job_type"], jobs.cells["user"]
    if spread is not None:
        unknown = np.array([model not in spread for model in models])
        jobs.refuse("model_name", unknown, f"one of the models of {locality}: {listed(spread)}")
    workloads = _workloads(models, taken, gangs, factors, spread or {})
    return {
        "format": FORMAT,
        "name": name,
        "round": LEASE * unit,
        "now": now,
        "cluster": {"pools": documents},
        "workloads": workloads,
        "tenants": [{"name": user} for user in dict.fromkeys(users[row] for row in taken.tolist())],
        "jobs": [
            {
                "id": ids[row],
                "workload": models[row],
                "tenant": users[row],
                "gpus": gang,
                "steps": seconds,
                "weight": worth[row][0][1],
                "arrival": start,
                **_deadline(kinds[row], start, worth[row], gang, workloads[models[row]]),
            }
            for row, gang, seconds, start in zip(
                taken.tolist(),
                gangs[taken].tolist(),
                (jobs.numbers["duration"][taken] * unit).tolist(),
                arrival[taken].tolist(),
                strict=True,
            )
        ],
    }


def _deadline(
    kind: str, start: float, worth: Worth, gang: int, workload: Mapping[str, Any]
) -> dict[str, Any]:
    """Deadline, its kind, and of a soft job the options."""
    if kind == BEST:
        return {}
    deadline = start + worth[0][0]
    if kind == STRICT:
        return {"deadline": deadline}
    ways = [
        ({"pool": pool, "gpus": gang} | ({"nodes": int(nodes)} if nodes else {}), rate)
        for pool, by_count in workload["throughput"].items()
        for nodes, rate in _by_nodes(by_count[str(gang)])
    ]
    options = [
        way | {"throughput": rate, "value": value, "attributes": {"deadline": start + after}}
        for after, value in worth
        for way, rate in ways
    ]
    return {"deadline": deadline, "deadline_kind": "soft", "options": options}


def _by_nodes(rate: Any) -> list[tuple[str, float]]:
    return list(rate.items()) if isinstance(rate, dict) else [("", rate)]


def _worths(jobs: Table, unit: float) -> list[Worth]:
    """The expected times and values of each job; what recurs is read once."""
    kinds, times, values = (
        jobs.cells[column] for column in ("job_type", "expect_time_list", "expect_value_list")
    )
    jobs.refuse(
        "job_type",
        np.array([kind not in (STRICT, SOFT, BEST) for kind in kinds]),
        "strict, soft or best",
    )
    if "best_effort" in jobs:
        odd = jobs.flags("best_effort") != np.array([kind == BEST for kind in kinds])
        jobs.refuse("best_effort", odd, "1 where job_type is best, and 0 elsewhere")
    known: dict[tuple[str, str, str], Worth] = {}
    for row, told in enumerate(zip(kinds, times, values, strict=True)):
        if told not in known:
            after, worth = (
                _numbers(jobs, row, "expect_time_list"),
                _numbers(jobs, row, "expect_value_list"),
            )
            _check_worth(jobs, row, told[0], after, worth)
            known[told] = tuple(
                (time * unit, value) for time, value in zip(after, worth, strict=True)
            )
    return [known[told] for told in zip(kinds, times, values, strict=True)]


def _numbers(jobs: Table, row: int, column: str) -> list[float]:
    cell = jobs.cells[column][row]
    try:
        found = [float(part) for part in cell.split("-")]
    except ValueError:
        found = [math.nan]
    if not all(0 < number < math.inf for number in found) or "_" in cell:
        raise InvalidInput(
            jobs.place(row, column), show(cell), "numbers above 0 joined by hyphens, such as 90-120"
        )
    return found


def _check_worth(
    jobs: Table, row: int, kind: str, after: Sequence[float], worth: Sequence[float]
) -> None:
    if len(worth) != len(after):
        expected = f"{len(after)}, one for each expected time"
        raise InvalidInput(jobs.place(row, "expect_value_list"), f"{len(worth)} values", expected)
    if kind == STRICT and len(after) != 1:
        raise InvalidInput(
            jobs.place(row, "expect_time_list"), f"{len(after)} times", "one, as the job is strict"
        )
    if any(later <= before for before, later in itertools.pairwise(after)):
        cell = jobs.cells["expect_time_list"][row]
        raise InvalidInput(jobs.place(row, "expect_time_list"), show(cell), "times that ascend")


def _workloads(
    models: Sequence[str],
    rows: IntArray,
    gangs: IntArray,
    speeds: Mapping[str, float],
    spread: Spread,
) -> dict[str, Any]:
    used: dict[str, set[int]] = {}
    for row, gang in zip(rows.tolist(), gangs[rows].tolist(), strict=True):
        used.setdefault(models[row], set()).add(gang)
    return {
        model: recorded_workload(counts, speeds, _of_gangs(counts, spread.get(model, {})))
        for model, counts in used.items()
    }


def _of_gangs(gangs: set[int], known: NodeRates) -> NodeRates:
    """The shares of each gang: those of the smallest that is listed and no smaller."""
    found: dict[int, Mapping[int, float]] = {}
    for gang in gangs:
        size = min((size for size in known if size >= gang > 1), default=None)
        if size is not None:
            found[gang] = {nodes: share for nodes, share in known[size].items() if nodes <= gang}
    return found


def _read_locality(path: Path) -> Spread:
    """``model_info.json``; raises `InvalidInput` with the path of the field."""
    with named(path):
        document = parse_json(read_bytes(path), "table of localities")
        return {
            model: {
                int(gang): {
                    int(nodes): _share(share, f"{key(model)}.{gang}.{nodes}")
                    for nodes, share in sorted(_counts(by_nodes, f"{key(model)}.{gang}").items())
                }
                for gang, by_nodes in _counts(by_gang, key(model)).items()
            }
            for model, by_gang in _object(document, "").items()
        }


def _object(value: object, path: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidInput(path, show(value), "an object")
    return value


def _counts(value: object, path: str) -> dict[str, Any]:
    """An object by whole numbers."""
    found = _object(value, path)
    for text in found:
        if not (text.isascii() and text.isdecimal() and 0 < int(text) < 2**31):
            raise InvalidInput(path, f"the key {show(text)}", "a whole number, at least 1")
    return found


def _share(value: object, path: str) -> float:
    """Some of the measured ones are a little above 1."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf:
        return float(value)
    raise InvalidInput(path, show(value), "a share of the rate, above 0")
