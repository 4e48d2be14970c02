"""Named arrays as one short line of ASCII, for records that are lines of text.

An npz file takes about 250 bytes per array, so a dozen short arrays take 5 kB. Here all arrays are
in one zlib stream: a JSON header, then the bytes of the arrays.
"""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Mapping

import numpy as np

from optsched.arrays import AnyArray
from optsched.arrays.npz import MOST_BYTES

WHOLE = tuple(np.dtype(f"<{kind}") for kind in ("i1", "i2", "i4", "i8"))
"""An int64 array is written in the smallest of these types that holds all its numbers."""
KINDS = {"int64": np.int64, "float64": np.float64, "bool": np.bool_, "uint8": np.uint8}
"""Types of arrays, as a header names them."""


def pack(arrays: Mapping[str, AnyArray]) -> str:
    """The text that `unpack` reads. Equal names, types, shapes and bits give equal texts."""
    header = []
    parts = []
    for name, array in arrays.items():
        stored = np.ascontiguousarray(array, _stored_as(array))
        header.append([name, array.dtype.name, stored.dtype.str, array.shape])
        parts.append(stored.tobytes())
    text = json.dumps(header, separators=(",", ":"))
    # Level 1 makes the text a tenth larger than level 6 and is four times as fast; a round waits
    # for this call.
    return base64.b64encode(zlib.compress(b"".join([text.encode(), b"\n", *parts]), 1)).decode()


def unpack(text: str) -> dict[str, AnyArray]:
    """The arrays that `pack` was given.

    Raises
    ------
    ValueError
        The text is not one that `pack` made, or its arrays take more than `MOST_BYTES`.
    """
    try:
        # Limit the unpacked size: a short text may contain a gigabyte of zeros.
        stream = zlib.decompressobj()
        data = stream.decompress(base64.b64decode(text, validate=True), MOST_BYTES)
        if not stream.eof or stream.unused_data:
            raise ValueError("the text ends too early or too late")
        end = data.index(b"\n")
        arrays: dict[str, AnyArray] = {}
        at = end + 1
        for name, kind, stored, shape in json.loads(data[:end]):
            part = np.frombuffer(data, np.dtype(stored), math.prod(shape), at)
            at += part.nbytes
            arrays[name] = part.astype(KINDS[kind]).reshape(shape)
        if at != len(data):
            raise ValueError(f"{len(data) - at} bytes are left over")
    except (ValueError, LookupError, TypeError, zlib.error) as error:
        raise ValueError(f"no packed arrays: {error}") from None
    return arrays


def _stored_as(array: AnyArray) -> np.dtype:
    """The type in which an array is written."""
    if array.dtype.name not in KINDS:
        raise TypeError(f"an array of {array.dtype}, expected one of {', '.join(KINDS)}")
    if array.dtype != np.int64:
        return array.dtype.newbyteorder("<")
    if not array.size:
        return WHOLE[0]
    low, high = int(array.min()), int(array.max())
    return next(kind for kind in WHOLE if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max)
