"""What an ``online`` model has learnt, as data: cells by names, which mean the same in every instance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from optsched.errors import InvalidInput
from optsched.instance.documents import Count, Document, Finite, Name, Positive, Tuple
from optsched.instance.reading import show
from optsched.performance.composed.offsets import MOST, Cells

PATH = "performance.learnt"

Ways = Annotated[int, Field(ge=0, lt=MOST)]
Cell = tuple[str, str, int, int, float, float, int]
"""Workload, GPU type, GPUs, nodes; weight, mean residual, calls since it was first measured."""


class LearntDocument(Document):
    """Cells of `Offsets`, one entry each in every list: what has been measured of them.

    Attributes
    ----------
    workload, gpu : tuple of str
    gpus, nodes : tuple of int
    weight : tuple of float
        Measurements, each counted as often as it is not forgotten.
    mean : tuple of float
        Of log(measured rate / rate of the other model).
    calls : tuple of int
        Calls that measured the workload since the cell was measured first.
    """

    workload: Tuple[Name] = ()
    gpu: Tuple[Name] = ()
    gpus: Tuple[Ways] = ()
    nodes: Tuple[Ways] = ()
    weight: Tuple[Positive] = ()
    mean: Tuple[Finite] = ()
    calls: Tuple[Count] = ()


def read_learnt(
    document: LearntDocument, workloads: Mapping[str, int], types: Mapping[str, int]
) -> tuple[Cells, list[Cell]]:
    """Cells by rows of workloads and GPU types, and those of workloads or types that there are none of now.

    Raises
    ------
    InvalidInput
        Lists of different lengths, or a cell that stands twice.
    """
    columns = [getattr(document, name) for name in LearntDocument.model_fields]
    for name, column in zip(LearntDocument.model_fields, columns, strict=True):
        if len(column) != len(document.workload):
            raise InvalidInput(
                f"{PATH}.{name}",
                f"{len(column)} entries",
                f"one per workload, {len(document.workload)}",
            )
    keys = list(zip(*columns[:4], strict=True))
    if len(set(keys)) < len(keys):
        first = {key: row for row, key in reversed(list(enumerate(keys)))}
        row = next(row for row, key in enumerate(keys) if first[key] != row)
        raise InvalidInput(
            f"{PATH}.workload[{row}]", f"{show(list(keys[row]))} a second time", "cells that differ"
        )
    workload = np.array([workloads.get(name, -1) for name in document.workload], np.int64)
    gpu = np.array([types.get(name, -1) for name in document.gpu], np.int64)
    known = (workload >= 0) & (gpu >= 0)
    here, away = np.flatnonzero(known), np.flatnonzero(~known).tolist()
    cells = Cells(
        workload=workload[here],
        gpu=gpu[here],
        gpus=np.array(document.gpus, np.int64)[here],
        nodes=np.array(document.nodes, np.int64)[here],
        weight=np.array(document.weight, np.float64)[here],
        mean=np.array(document.mean, np.float64)[here],
        calls=np.array(document.calls, np.float64)[here],
    )
    return cells, [tuple(column[row] for column in columns) for row in away]


def learnt_document(
    cells: Cells, workloads: Sequence[str], types: Sequence[str], away: Sequence[Cell]
) -> dict[str, list[Any]]:
    """The document of the cells, in the order of their names: models that learnt the same have the same one."""
    here = zip(
        [workloads[row] for row in cells.workload.tolist()],
        [types[row] for row in cells.gpu.tolist()],
        cells.gpus.tolist(),
        cells.nodes.tolist(),
        cells.weight.tolist(),
        cells.mean.tolist(),
        cells.calls.astype(np.int64).tolist(),
        strict=True,
    )
    every = sorted([*here, *away])
    return {
        name: [cell[place] for cell in every]
        for place, name in enumerate(LearntDocument.model_fields)
    }
