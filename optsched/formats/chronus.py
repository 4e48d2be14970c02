"""Import of Chronus' traces (Gao et al., SoCC 2021):
jobs with strict deadlines, soft ones, or none.

A trace is a CSV table with a job a line: ``job_id``, ``user``, ``num_gpu``, ``submit_time``,
``model_name``, ``duration``, ``expect_time_list``, ``expect_value_list``, ``job_type``;
``iterations``, ``interval`` and ``best_effort`` are redundant. Items of both lists are joined by
hyphens: a job that ends within the first expected time after its arrival has the first value, and
so on. ``job_type`` is ``strict`` (one time, a hard deadline), ``soft`` or ``best`` (best effort:
its time is ignored). Times are in minutes: the published scheduler (``time_aware_with_lease.py``)
counts 60 to an hour. It skips jobs of 0 GPUs and sorts the others by ``submit_time``, and so does
the import: jobs of the same time stay in the order of the file.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from optsched.arrays import IntArray
from optsched.errors import InvalidArgument, InvalidInput
from optsched.formats.inputs import (
    Pools,
    Seconds,
    Source,
    Speeds,
    called,
    contents,
    importer,
    pool_documents,
    speeds_of,
)
from optsched.formats.recorded import NodeRates, arrived, gangs_of_models, recorded_workload
from optsched.formats.tables import Kind, Table, read_table
from optsched.instance.documents import FORMAT
from optsched.instance.reading import key, listed, named, parse_json, show

REQUIRED: dict[str, Kind] = {
    "job_id": "text",
    "user": "text",
    "num_gpu": "whole",
    "submit_time": "number",
    "model_name": "text",
    "duration": "number",
    "expect_time_list": "text",
    "expect_value_list": "text",
    "job_type": "text",
}
COLUMNS: dict[str, Kind] = {
    **REQUIRED,
    "iterations": "number",
    "interval": "number",
    "best_effort": "whole",
    "batch_size": "number",
}
STRICT, SOFT, BEST = "strict", "soft", "best"
MINUTE = 60.0
# Units of time of a lease in the published experiments.
LEASE = 20

# Pairs (seconds after the arrival, value) of the expected times of a job, ascending in time.
Worth = tuple[tuple[float, float], ...]
# By model, the fraction of its rate that a gang keeps on several nodes.
Spread = Mapping[str, NodeRates]


@importer
def import_chronus(
    trace: Source,
    pools: Pools,
    *,
    locality: Source | None = None,
    speeds: Speeds | None = None,
    unit: Seconds = MINUTE,
    at: Seconds | None = None,
    name: str = "chronus",
) -> dict[str, Any]:
    """Make an instance of a trace of Chronus (Gao et al., SoCC 2021):
    strict and soft deadlines, best effort.

    The steps of a job are the seconds that it ran; its workload is its model, its tenant its user,
    its weight the value of its first expected time, which is also its deadline: hard if it is
    strict, soft if it is soft, none if it is best effort. A soft job has an option for every
    expected time, with its value and the attribute ``deadline``, as the formulation ``lease`` reads
    them. A round is a lease of 20 units.

    Parameters
    ----------
    trace : path or bytes
        Table of jobs (CSV).
    pools : mapping from str to (int, int), or pool documents
        Nodes of a pool, and GPUs of each node.
    locality : path or bytes, optional
        model_info.json: slowdown of jobs on several nodes; none by default. It is ``{model: {GPUs:
        {nodes: share}}}``, what is left of the rate. A gang that it does not list loses as the next
        larger one, and one larger than all of them nothing.
    speeds : mapping from str to float, optional
        How many times as fast as in the trace jobs run in a pool; 1 by default.
    unit : float, default 60
        Length of a unit of time in the trace.
    at : float, optional
        Only the jobs that have arrived by then, on the trace's clock. ``now`` is ``at``; by default
        all jobs, and ``now`` is the first arrival.
    name : str
        Name of the instance.

    Returns
    -------
    dict
        An ``optsched-instance/1`` document, as `Instance.from_document` takes it.

    Raises
    ------
    InvalidInput
        With file, line and column.
    UsageError
        No pools, speeds of other pools, or a unit that is none.
    """
    if not 0 < unit < math.inf:
        raise InvalidArgument("unit", repr(unit), "seconds above 0")
    documents = pool_documents(pools)
    factors = speeds_of((pool["name"] for pool in documents), speeds)
    spread = {} if locality is None else _read_locality(locality)
    jobs = read_table(trace, "trace", COLUMNS, REQUIRED)
    worth = _worths(jobs, unit)
    gangs = jobs.whole("num_gpu", 0, "a whole number of GPUs")
    jobs.refuse("duration", ~(jobs.numbers["duration"] > 0), "a time above 0")
    models = jobs.cells["model_name"]
    users = jobs.cells["user"]
    if locality is not None:
        _refuse_unknown_models(jobs, spread, called(locality, "locality"))
    arrival = jobs.numbers["submit_time"] * unit
    # The published scheduler skips jobs of 0 GPUs too
    with_gpus = np.flatnonzero(gangs > 0)
    if not len(with_gpus):
        raise InvalidInput(jobs.name, "no job with a GPU", "at least one")
    rows, now = arrived(arrival, at, with_gpus)
    workloads = {
        model: recorded_workload(counts, factors, _shares(counts, spread.get(model, {})))
        for model, counts in gangs_of_models(models, gangs, rows).items()
    }
    return {
        "format": FORMAT,
        "name": name,
        "round": LEASE * unit,
        "now": now,
        "cluster": {"pools": documents},
        "workloads": workloads,
        "tenants": [{"name": user} for user in dict.fromkeys(users[row] for row in rows.tolist())],
        "jobs": _jobs(jobs, rows, worth, unit, workloads),
    }


def _refuse_unknown_models(jobs: Table, known: Collection[str], file: str) -> None:
    """Refuse models that the locality file lacks: they would count as having no slowdown."""
    unknown = np.array([model not in known for model in jobs.cells["model_name"]])
    jobs.refuse("model_name", unknown, f"one of the models of {file}: {listed(known)}")


def _jobs(
    jobs: Table,
    rows: IntArray,
    worth: Sequence[Worth],
    unit: float,
    workloads: Mapping[str, Any],
) -> list[dict[str, Any]]:
    ids = jobs.names("job_id")
    models = jobs.cells["model_name"]
    documents = []
    for row in rows.tolist():
        gang = int(jobs.numbers["num_gpu"][row])
        arrival = float(jobs.numbers["submit_time"][row] * unit)
        kind = jobs.cells["job_type"][row]
        document = {
            "id": ids[row],
            "workload": models[row],
            "tenant": jobs.cells["user"][row],
            "gpus": gang,
            "steps": float(jobs.numbers["duration"][row] * unit),
            "weight": worth[row][0][1],
            "arrival": arrival,
        }
        deadline = _deadline(kind, arrival, worth[row], gang, workloads[models[row]])
        documents.append(document | deadline)
    return documents


def _deadline(
    kind: str,
    start: float,
    worth: Worth,
    gang: int,
    workload: Mapping[str, Any],
) -> dict[str, Any]:
    """Deadline, its kind, and the options of a soft job."""
    if kind == BEST:
        return {}
    deadline = start + worth[0][0]
    if kind == STRICT:
        return {"deadline": deadline}
    # A job has an option for every pair of a way to run and an expected time
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
    """The expected times and values of each job; equal texts are parsed once."""
    kinds, times, values = (
        jobs.cells[column] for column in ("job_type", "expect_time_list", "expect_value_list")
    )
    jobs.refuse(
        "job_type",
        np.array([kind not in (STRICT, SOFT, BEST) for kind in kinds]),
        "strict, soft or best",
    )
    if "best_effort" in jobs:
        # The column is redundant with job_type; refuse a file in which they differ
        wrong = jobs.flags("best_effort") != np.array([kind == BEST for kind in kinds])
        jobs.refuse("best_effort", wrong, "1 where job_type is best, and 0 elsewhere")
    known: dict[tuple[str, str, str], Worth] = {}
    cells = list(zip(kinds, times, values, strict=True))
    for row, texts in enumerate(cells):
        if texts in known:
            continue
        after = _numbers(jobs, row, "expect_time_list")
        worth = _numbers(jobs, row, "expect_value_list")
        _check_worth(jobs, row, texts[0], after, worth)
        known[texts] = tuple((time * unit, value) for time, value in zip(after, worth, strict=True))
    return [known[texts] for texts in cells]


def _numbers(jobs: Table, row: int, column: str) -> list[float]:
    cell = jobs.cells[column][row]
    try:
        found = [float(part) for part in cell.split("-")]
    except ValueError:
        found = [math.nan]
    if not all(0 < number < math.inf for number in found) or "_" in cell:
        raise jobs.error(
            row,
            column,
            show(cell),
            "numbers above 0 joined by hyphens, such as 90-120",
        )
    return found


def _check_worth(
    jobs: Table,
    row: int,
    kind: str,
    after: Sequence[float],
    worth: Sequence[float],
) -> None:
    if len(worth) != len(after):
        expected = f"{len(after)}, one for each expected time"
        raise jobs.error(row, "expect_value_list", f"{len(worth)} values", expected)
    if kind == STRICT and len(after) != 1:
        raise jobs.error(
            row,
            "expect_time_list",
            f"{len(after)} times",
            "one, as the job is strict",
        )
    if any(later <= before for before, later in itertools.pairwise(after)):
        cell = jobs.cells["expect_time_list"][row]
        raise jobs.error(row, "expect_time_list", show(cell), "times that ascend")


def _shares(gangs: set[int], known: NodeRates) -> NodeRates:
    """The shares of each gang: those of the smallest listed gang that is at least as large."""
    found: dict[int, Mapping[int, float]] = {}
    for gang in gangs:
        size = min((size for size in known if size >= gang > 1), default=None)
        if size is not None:
            found[gang] = {nodes: share for nodes, share in known[size].items() if nodes <= gang}
    return found


def _read_locality(file: Source) -> Spread:
    """``model_info.json``; raises `InvalidInput` with the path of the field."""
    with named(called(file, "locality")):
        document = parse_json(contents(file), "table of localities")
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
    """An object whose keys are integers."""
    found = _object(value, path)
    for text in found:
        if not (text.isascii() and text.isdecimal() and 0 < int(text) < 2**31):
            raise InvalidInput(path, f"the key {show(text)}", "a whole number, at least 1")
    return found


def _share(value: object, path: str) -> float:
    """A measured share of the rate; it may be a little above 1."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf:
        return float(value)
    raise InvalidInput(path, show(value), "a share of the rate, above 0")
