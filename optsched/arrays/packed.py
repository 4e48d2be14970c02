"""Named arrays as one short line of ASCII, for records that are lines of text.

An npz file takes some 250 bytes for each array in it, a dozen arrays of a few numbers 5 kB. Here
all of them are one zlib stream: a header in JSON, then the bytes of one array after the other.
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
"""The smallest of these that holds all numbers of an array of int64 is the one that is written."""
KINDS = {"int64": np.int64, "float64": np.float64, "bool": np.bool_, "uint8": np.uint8}
"""Types of arrays, as a header names them."""


def pack(arrays: Mapping[str, AnyArray]) -> str:
    """The text that `unpack` reads: the same for the same names, types, shapes and bits."""
    header = []
    parts = []
    for name, array in arrays.items():
        stored = np.ascontiguousarray(array, _stored_as(array))
        header.append([name, array.dtype.name, stored.dtype.str, array.shape])
        parts.append(stored.tobytes())
    text = json.dumps(header, separators=(",", ":"))
    # Level 1: a tenth larger than level 6 and four times as fast, in a call that a round waits for.
    return base64.b64encode(zlib.compress(b"".join([text.encode(), b"\n", *parts]), 1)).decode()


def unpack(text: str) -> dict[str, AnyArray]:
    """The arrays that `pack` was given.

    Raises
    ------
    ValueError
        The text is not one that `pack` made, or its arrays take more than `MOST_BYTES`.
    """
    try:
        # A bound on what is unpacked: a short text may hold a gigabyte of zeros.
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
