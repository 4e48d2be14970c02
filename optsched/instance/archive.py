"""Instances as ``.npz``: the header as JSON text, the tables as arrays; no pickles."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from optsched.arrays import AnyArray
from optsched.arrays.npz import text_array, text_in, unzip_arrays, zip_arrays
from optsched.errors import InvalidInput
from optsched.instance.build import Header, build_header, with_labels
from optsched.instance.compaction import first_use, take_profiles
from optsched.instance.documents import (
    Count,
    Document,
    Name,
    NonEmpty,
    PositiveCount,
    Tuple,
    parse_index,
)
from optsched.instance.from_arrays import RATE_FIELDS, RareDocument, assemble
from optsched.instance.instance import Instance
from optsched.instance.job_rules import as_column
from optsched.instance.rates import RateTable
from optsched.instance.reading import parse_json, show, validate
from optsched.instance.references import refuse_repeated
from optsched.instance.tables import ARRAY_FIELDS, JobNames
from optsched.instance.write import header_document, job_documents

ARCHIVE = "optsched-instance-npz/1"
JOB_FIELDS = {field: kind for field, kind in ARRAY_FIELDS.items() if field != "options"}
LATER_FIELDS = frozenset({"exempt_time", "checkpoint_interval"})
"""Columns that older files lack. They are written only if some value is not 0."""
RARE_FIELDS = tuple(RareDocument.model_fields)
ENTRIES = frozenset(
    {
        "header",
        "names",
        *(f"jobs_{field}" for field in JOB_FIELDS),
        *(f"rates_{field}" for field in RATE_FIELDS),
    }
)


class ArchiveHeader(Document):
    """The header of an npz file: the instance without its jobs, and rare fields of jobs by row."""

    archive: Literal["optsched-instance-npz/1"]
    instance: dict[str, Any]
    places: Tuple[Name]
    levels: Tuple[NonEmpty[PositiveCount]]
    rare: dict[str, RareDocument]
    count: Count
    labels: Tuple[Name] = ()
    later: Tuple[Name] = ()
    """Which of `LATER_FIELDS` the file has. With it, a damaged entry name is noticed as missing."""


def to_npz(instance: Instance) -> bytes:
    """The instance as the bytes of an npz file; equal instances give equal bytes."""
    table, rates = instance.jobs_table, instance.rates
    numbered = {"workload": table.workload}
    # The tables have the profiles that jobs use; profiles of workloads are in the header, with
    # their workloads.
    numbered["rates"], profiles = first_use(table.rates)
    numbered["levels"], levels = first_use(table.levels)
    header = {
        "archive": ARCHIVE,
        "instance": header_document(instance),
        "places": list(rates.places),
        "levels": [list(table.level_lists[row]) for row in levels.tolist()],
        "labels": [workload.name for workload in instance.workloads if workload.label],
        "rare": {str(row): document for row, document in _rare_jobs(instance)},
        "count": len(table),
    }
    later = sorted(name for name in LATER_FIELDS if getattr(table, name).any())
    if later:
        header["later"] = later
    arrays = {
        f"jobs_{name}": numbered.get(name, getattr(table, name))
        for name in JOB_FIELDS
        if name not in LATER_FIELDS or name in later
    }
    arrays |= {
        f"rates_{name}": getattr(take_profiles(rates, profiles), name) for name in RATE_FIELDS
    }
    arrays["header"] = text_array(json.dumps(header))
    if not table.names.generated:
        arrays["names"] = text_array(json.dumps([table.names[row] for row in range(len(table))]))
    return zip_arrays(arrays)


def _rare_jobs(instance: Instance) -> list[tuple[int, dict[str, Any]]]:
    """Fields that have no array, for the jobs that state them."""
    table = instance.jobs_table
    rows = sorted({*table.running, *table.after, *np.flatnonzero(table.options >= 0).tolist()})
    documents = job_documents(instance, rows)
    return [
        (row, {key: document[key] for key in RARE_FIELDS if key in document})
        for row, document in zip(rows, documents, strict=True)
    ]


def from_npz(data: bytes) -> Instance:
    """Read what `to_npz` wrote, validating it like any other input."""
    try:
        arrays = unzip_arrays(io.BytesIO(data), ENTRIES)
    except ValueError as error:
        found = f"an npz file that can't be read ({show(str(error))})"
        raise InvalidInput("", found, "an npz file written by optsched") from None
    header = validate(ArchiveHeader, _json(arrays, "header"), "header")
    for field in LATER_FIELDS - set(header.later):
        # A missing column is 0 for all jobs: the file is older, or no job states another value.
        arrays[f"jobs_{field}"] = np.zeros(())
    job_arrays = {
        field: as_column(f"jobs_{field}", _get(arrays, f"jobs_{field}"), kind, header.count)
        for field, kind in JOB_FIELDS.items()
    }
    rate_arrays = {
        field: as_column(
            f"rates_{field}", _get(arrays, f"rates_{field}"), "f" if field == "rate" else "i", None
        )
        for field in RATE_FIELDS
    }
    names = None
    if "names" in arrays:
        names = _json(arrays, "names")
        if not isinstance(names, list):
            raise InvalidInput("names", show(names), "a list of names")
    rare = {}
    for text, document in header.rare.items():
        row = parse_index(text)
        if not 0 <= row < header.count:
            raise InvalidInput("header.rare", f"the key {show(text)}", f"rows below {header.count}")
        rare[row] = document
    outside = build_header(header.instance)
    return assemble(
        _labelled(outside, header.labels),
        names=JobNames(header.count, None if names is None else tuple(names)),
        # Option lists are in the rare documents, which also determine their numbers.
        arrays=job_arrays | {"options": np.full(header.count, -1, np.int64)},
        rates=RateTable(**rate_arrays, places=header.places, levels=outside.cluster.level_names),
        level_lists=header.levels,
        rare=rare,
    )


def _labelled(header: Header, labels: Sequence[str]) -> Header:
    """The header with workloads added that only jobs name."""
    known = (workload.name for workload in header.workloads)
    refuse_repeated(labels, "header.labels[{}]", known)
    return header._replace(workloads=with_labels(header.workloads, labels))


def _get(arrays: dict[str, AnyArray], name: str) -> AnyArray:
    if name not in arrays:
        raise InvalidInput(name, "nothing", "an array of that name")
    return arrays[name]


def _json(arrays: dict[str, AnyArray], name: str) -> Any:
    try:
        text = text_in(_get(arrays, name))
    except ValueError as error:
        raise InvalidInput(name, str(error), "the bytes of a text in JSON") from None
    return parse_json(text, name)
