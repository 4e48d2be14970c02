"""A simplex basis as one text: compact, for machines, with the names of the jobs that it speaks of."""

from __future__ import annotations

import base64
import binascii
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from optsched.arrays import AnyArray
from optsched.arrays.npz import text_array, text_in, unzip_arrays, zip_arrays
from optsched.errors import InvalidInput
from optsched.instance.reading import show
from optsched.solving.warm_start import WarmStart

BLOCKS = ("columns", "rows")


def basis_parts(warm: WarmStart) -> tuple[dict[str, Any], dict[str, AnyArray]]:
    """A basis as a JSON object, with the names of its blocks and its prices, and arrays."""
    blocks: dict[str, Mapping[str, AnyArray]] = {"columns": warm.columns, "rows": warm.rows}
    header: dict[str, Any] = {kind: list(found) for kind, found in blocks.items()}
    arrays: dict[str, AnyArray] = {"of_job": warm.of_job, "column": warm.column}
    for kind, found in blocks.items():
        arrays |= {f"{kind}.{number}": part for number, part in enumerate(found.values())}
    return header | {"prices": dict(warm.prices)}, arrays


def basis_of(header: Mapping[str, Any], arrays: Mapping[str, AnyArray]) -> WarmStart:
    """The basis that `basis_parts` took apart."""
    columns, rows = (
        {name: arrays[f"{kind}.{number}"] for number, name in enumerate(header[kind])}
        for kind in BLOCKS
    )
    prices = header.get("prices", {})
    return WarmStart(arrays["of_job"], arrays["column"], columns, rows, prices)


def basis_text(warm: WarmStart, names: Sequence[str]) -> str:
    """A basis, of which jobs are known by these names, as text."""
    header, arrays = basis_parts(warm)
    if not warm.prices:
        del header["prices"]
    text = text_array(json.dumps({"jobs": list(names), **header}))
    return base64.b64encode(zip_arrays({"header": text, **arrays})).decode()


def read_basis(text: str, row: Mapping[str, int]) -> WarmStart:
    """The basis of a text, for jobs in these rows; jobs that it does not know are in no class.

    Raises
    ------
    InvalidInput
    """
    try:
        file = io.BytesIO(base64.b64decode(text, validate=True))
        header = json.loads(text_in(unzip_arrays(file, {"header"})["header"]))
        blocks = {f"{kind}.{number}" for kind in BLOCKS for number in range(len(header[kind]))}
        arrays = unzip_arrays(file, {"of_job", "column", *blocks})
        for name, array in arrays.items():
            _check_whole(array, 2 if name == "column" else 1)
        mine = np.full(len(row), -1, np.int64)
        for name, found in zip(header["jobs"], arrays["of_job"].tolist(), strict=True):
            if name in row:
                mine[row[name]] = found
        prices = {str(name): _price(value) for name, value in header.get("prices", {}).items()}
        return replace(basis_of(header, arrays), of_job=mine, prices=prices)
    except (ValueError, LookupError, TypeError, AttributeError, binascii.Error):
        raise InvalidInput(
            "basis", show(text), "null, or the text that a state was written with"
        ) from None


def _check_whole(array: AnyArray, dimensions: int) -> None:
    if array.dtype != np.int64 or array.ndim != dimensions:
        raise ValueError("an array of another type")


def _price(value: Any) -> float:
    if not isinstance(value, float) or not 0.0 < value < np.inf:
        raise ValueError("no price")
    return value
