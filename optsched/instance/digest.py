"""Content hash of an instance: what two files must share to be the same problem."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable

import numpy as np

from optsched.arrays import IntArray
from optsched.instance.instance import Instance
from optsched.instance.write import header_document, job_documents


def content_hash(instance: Instance) -> str:
    """SHA-256 over the header document and the job arrays, with interned rows told by content, not by number.

    Workloads, profiles and option lists are numbered in order of first appearance, so that reading the same jobs from
    JSON, YAML, npz or arrays gives the same hash.
    """
    table, rates = instance.jobs_table, instance.rates
    digest = hashlib.sha256()
    digest.update(_text(header_document(instance)))
    digest.update(_text([table.names[row] for row in range(len(table))]))
    for name in (
        "gpus_min", "gpus_max", "steps", "steps_done", "weight", "arrival", "deadline", "soft_deadline", "preemptible",
        "restart_cost", "isolated_time", "tenant",
    ):  # fmt: skip
        digest.update(np.ascontiguousarray(getattr(table, name)).data)
    for index, content in (
        (table.workload, lambda row: instance.workloads[row].name),
        (table.levels, lambda row: table.level_lists[row]),
        (table.rates, rates.document),
    ):
        rank, contents = _by_content(index, content)
        digest.update(rank.data)
        digest.update(b"\n".join(contents))
    rare = sorted({*table.running, *table.after, *np.flatnonzero(table.options >= 0).tolist()})
    for row, document in zip(rare, job_documents(instance, rare), strict=True):
        kept = {key: document[key] for key in ("running", "after", "options") if key in document}
        digest.update(f"{row}:".encode() + _text(kept))
    return digest.hexdigest()


def _text(document: object) -> bytes:
    return json.dumps(document, sort_keys=True).encode()


def _by_content(index: IntArray, content: Callable[[int], object]) -> tuple[IntArray, list[bytes]]:
    """Number rows (-1: none) in order of first appearance, equal contents alike; the numbers and the contents."""
    values, first, inverse = np.unique(index, return_index=True, return_inverse=True)
    ranks = np.full(len(values), -1, np.int64)
    seen: dict[bytes, int] = {}
    for place in np.argsort(first).tolist():
        if values[place] >= 0:
            ranks[place] = seen.setdefault(_text(content(int(values[place]))), len(seen))
    return ranks[inverse], list(seen)
