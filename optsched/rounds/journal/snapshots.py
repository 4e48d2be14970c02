"""Snapshots: a JSON document and named arrays in one npz file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from optsched.arrays import AnyArray
from optsched.arrays.npz import text_array, text_in, unzip_arrays, zip_arrays
from optsched.errors import InvalidInput, JournalDamaged
from optsched.instance.reading import show
from optsched.rounds.journal.layout import reading, snapshot_path
from optsched.rounds.journal.records import encode_object

HEADER = "header"
PREFIX = "arrays/"
NAME = re.compile(r"[A-Za-z0-9_.\-]{1,100}")


@dataclass(frozen=True)
class Snapshot:
    """The state before record n.

    Attributes
    ----------
    n : int
        The number of the first record that the state does not know of.
    document : dict
        Its JSON part.
    arrays : dict of str to array
        Its arrays, with the types and shapes that were written.
    """

    n: int
    document: dict[str, Any]
    arrays: dict[str, AnyArray]


@dataclass(frozen=True)
class SnapshotFile:
    """A snapshot that has not been read yet.

    Attributes
    ----------
    folder : Path
        Of the journal.
    n : int
        The number of the first record after it.
    """

    folder: Path
    n: int

    def document(self) -> dict[str, Any]:
        """Its JSON part; the arrays are not read."""
        document, _, _ = self._read(with_arrays=False)
        return document

    def read(self) -> Snapshot:
        """All of it.

        Raises
        ------
        JournalDamaged
            If the file is not what was written. If it has been deleted since it was listed:
            `JournalError`.
        """
        document, names, arrays = self._read(with_arrays=True)
        if [PREFIX + name for name in names] != list(arrays):
            raise self._damaged(
                f"the arrays {show(list(arrays))}", f"{show(names)}, as its header says"
            )
        return Snapshot(self.n, document, dict(zip(names, arrays.values(), strict=True)))

    def _read(self, with_arrays: bool) -> tuple[dict[str, Any], list[str], dict[str, AnyArray]]:
        """Document, names of all arrays, and, if asked for, the arrays by the names of their entries."""
        path = snapshot_path(self.folder, self.n)
        with reading(self.folder), path.open("rb") as file:
            try:
                header = json.loads(text_in(unzip_arrays(file, {HEADER})[HEADER]))
                n, names, document = (header[key] for key in ("n", "arrays", "document"))
                wanted = {PREFIX + name for name in names} if with_arrays else set()
                arrays = unzip_arrays(file, wanted)
            except (ValueError, LookupError, TypeError) as error:
                found = f"an npz file that can't be read ({show(str(error))})"
                raise self._damaged(found, "a snapshot") from None
        if n != self.n:
            raise self._damaged(f"the state before record {n}", f"that before record {self.n}")
        return document, names, arrays

    def _damaged(self, found: str, expected: str) -> JournalDamaged:
        return JournalDamaged(
            str(self.folder), snapshot_path(self.folder, self.n).name, None, found, expected
        )


def encode_snapshot(n: int, document: dict[str, Any], arrays: Mapping[str, AnyArray]) -> bytes:
    """The bytes of a snapshot's file: the same for the same keys, names and values in the same order.

    Raises
    ------
    InvalidInput
        If the document is no JSON, an array has Python objects, or its name does not do.
    """
    text = encode_object(document, "document")
    entries: dict[str, AnyArray] = {}
    for name, array in arrays.items():
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise InvalidInput(
                "arrays", f"the name {show(name)}", "1 to 100 letters, digits, '_', '.' and '-'"
            )
        if not isinstance(array, np.ndarray) or array.dtype.hasobject:
            found = f"an array of {array.dtype}" if isinstance(array, np.ndarray) else show(array)
            raise InvalidInput(f"arrays.{name}", found, "a numpy array without Python objects")
        entries[PREFIX + name] = array
    header = f'{{"n":{n},"arrays":{json.dumps(list(arrays))},"document":{text}}}'
    return zip_arrays({HEADER: text_array(header), **entries})
