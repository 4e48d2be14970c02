"""A simplex basis as one text: compact, for machines, with the names of the jobs that it speaks of."""

from __future__ import annotations

import base64
import binascii
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from optsched.arrays import AnyArray
from optsched.arrays.npz import text_array, text_in, unzip_arrays, zip_arrays
from optsched.errors import InvalidInput
from optsched.instance.reading import show
from optsched.solving.warm_start import WarmStart

BLOCKS = ("columns", "rows")


def basis_text(warm: WarmStart, names: Sequence[str]) -> str:
    """A basis, of which jobs are known by these names, as text."""
    blocks: dict[str, Mapping[str, AnyArray]] = {"columns": warm.columns, "rows": warm.rows}
    header: dict[str, Any] = {"jobs": list(names)} | {
        kind: list(found) for kind, found in blocks.items()
    }
    if warm.prices:
        header["prices"] = dict(warm.prices)
    arrays: dict[str, AnyArray] = {
        "header": text_array(json.dumps(header)), "of_job": warm.of_job, "column": warm.column,
    }  # fmt: skip
    for kind, found in blocks.items():
        arrays |= {f"{kind}.{number}": part for number, part in enumerate(found.values())}
    return base64.b64encode(zip_arrays(arrays)).decode()


def read_basis(text: str, row: Mapping[str, int]) -> WarmStart:
    """The basis of a text, for jobs in these rows; jobs that it does not know are in no class.

    Raises
    ------
    InvalidInput
    """
    try:
        file = io.BytesIO(base64.b64decode(text, validate=True))
        header = json.loads(text_in(unzip_arrays(file, {"header"})["header"]))
        blocks_told = {f"{kind}.{number}" for kind in BLOCKS for number in range(len(header[kind]))}
        arrays = unzip_arrays(file, {"of_job", "column", *blocks_told})
        known, of_job = header["jobs"], _whole(arrays["of_job"], 1)
        blocks = {
            kind: {
                name: _whole(arrays[f"{kind}.{number}"], 1)
                for number, name in enumerate(header[kind])
            }
            for kind in BLOCKS
        }
        mine = np.full(len(row), -1, np.int64)
        for name, found in zip(known, of_job.tolist(), strict=True):
            if name in row:
                mine[row[name]] = found
        prices = {str(name): _price(value) for name, value in header.get("prices", {}).items()}
        return WarmStart(
            mine, _whole(arrays["column"], 2), blocks["columns"], blocks["rows"], prices
        )
    except (ValueError, LookupError, TypeError, AttributeError, binascii.Error):
        raise InvalidInput(
            "basis", show(text), "null, or the text that a state was written with"
        ) from None


def _whole(array: AnyArray, dimensions: int) -> AnyArray:
    if array.dtype != np.int64 or array.ndim != dimensions:
        raise ValueError("an array of another type")
    return array


def _price(value: Any) -> float:
    if not isinstance(value, float) or not 0.0 < value < np.inf:
        raise ValueError("no price")
    return value
