"""Records as lines of text, each with its number and a checksum over all earlier text of its
segment."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable
from typing import Any, NamedTuple

from optsched.errors import InvalidInput
from optsched.instance.reading import join, show

START = b'{"n":%d,'
END = b',"crc":"%08x"}'
TAIL = len(END % 0)
"""Number of bytes of a line after the text that its checksum covers."""
RESERVED = {"n": "the record's number", "crc": "the line's checksum"}
NUMBER = re.compile(rb'\{"n":(\d+),')
ANY_END = re.compile(rb',"crc":"[0-9a-f]{8}"\}')

_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"))
_DECODER = json.JSONDecoder()


class Entry(NamedTuple):
    """A record of a journal and its number."""

    n: int
    record: dict[str, Any]


class BadLine(Exception):
    """A line other than the expected one; `sure` if it is certainly damage, and not an incomplete
    write.
    """

    def __init__(self, found: str, sure: bool) -> None:
        super().__init__(found)
        self.found = found
        self.sure = sure


def encode_object(value: dict[str, Any], what: str) -> str:
    """The text of a JSON object, on one line and in ASCII, from which an equal object can be read.

    Raises
    ------
    InvalidInput
        If there is no such text: NaN and infinity, keys that are not strings, tuples, arrays,
        endless nesting.
    """
    if not isinstance(value, dict):
        raise InvalidInput(what, show(value), "an object")
    try:
        text = _encoded(value)
        if text is None:
            raise _refusal(value, what)
    except RecursionError:
        raise InvalidInput(
            what, "objects nested without end, or nearly so", "a JSON object"
        ) from None
    return text


def _encoded(value: object) -> str | None:
    """The text of a value; None if it has none, or one from which another value would be read."""
    try:
        text = _ENCODER.encode(value)
    except (TypeError, ValueError):
        return None
    return text if _DECODER.decode(text) == value else None


def encode_line(n: int, record: dict[str, Any], check: int) -> tuple[bytes, int]:
    """The line of record n, and its checksum; ``check`` is the checksum of the line before it, 0
    for the first line of a segment.
    """
    text = encode_object(record, f"record {n}")
    for key, meaning in RESERVED.items():
        if key in record:
            raise InvalidInput(
                f"record {n}.{key}",
                show(record[key]),
                f"no such key: it is taken for {meaning}",
            )
    covered = (START % n + text[1:-1].encode()).removesuffix(b",")
    check = zlib.crc32(covered, check)
    return covered + END % check + b"\n", check


def check_line(line: bytes, n: int, check: int) -> int:
    """The checksum of a line (without its end) that must be record n; raises BadLine otherwise."""
    found = zlib.crc32(line[:-TAIL], check)
    if line.endswith(END % found) and line.startswith(START % n):
        return found
    number = NUMBER.match(line)
    if number and int(number[1]) != n:
        raise BadLine(f"record {int(number[1])}", sure=True)
    check_rest(line, n, check)
    # After a loss of power, bytes of a line that were not written are zeros, never other bytes.
    raise BadLine("a line that its checksum does not fit", sure=b"\0" not in line)


def check_rest(text: bytes, n: int, check: int) -> None:
    """Raise BadLine for a text that has record n and more on one line: no incomplete write looks
    like this, so the end of the line was changed.
    """
    for end in ANY_END.finditer(text):
        whole = end[0] == END % zlib.crc32(text[: end.start()], check)
        if whole and text[end.end() :].strip(b"\0"):  # a loss of power may leave zeros
            raise BadLine(f"record {n} without an end of line", sure=True)


def decode_line(line: bytes) -> dict[str, Any]:
    """The record in a line that `check_line` accepted."""
    try:
        record: dict[str, Any] = _DECODER.decode(f"{line[:-TAIL].decode('ascii')}}}")
    except ValueError as error:
        raise BadLine(f"text that is not JSON ({error})", sure=True) from None
    del record["n"]
    return record


def _refusal(value: object, path: str) -> InvalidInput:
    """The error for a value without text (`_encoded`), at the first part that has none."""
    inner: Iterable[tuple[str | int, object]] = ()
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str) or _encoded(key) is None:
                return InvalidInput(path, f"{show(key)} as a key", "text as the key")
        inner = value.items()
    elif isinstance(value, list):
        inner = enumerate(value)
    elif isinstance(value, float | int):
        return InvalidInput(path, show(value), "a finite number")
    elif isinstance(value, str):
        return InvalidInput(path, show(value), "text in Unicode")
    else:
        return InvalidInput(
            path,
            f"a value of type {type(value).__name__}",
            "a JSON value (a tuple as a list)",
        )
    part, culprit = next((part, item) for part, item in inner if _encoded(item) is None)
    return _refusal(culprit, join(path, [part]))
