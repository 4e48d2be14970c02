"""Named arrays in npz files, without pickles:
equal arrays give equal bytes, and every byte is checked when read.

A megabyte of compressed zeros unpacks to a gigabyte. So only the requested arrays are unpacked, no
array is unpacked if the zip directory states too large a size, and never more than the stated size.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Container, Iterable, Mapping
from typing import IO

import numpy as np

from optsched.arrays import AnyArray
from optsched.errors import InvalidArgument

TIME_STAMP = (1980, 1, 1, 0, 0, 0)
MOST_BYTES = 2**30
"""Most bytes of all arrays of a file together; an instance of a million jobs takes a third of this.
"""
MOST_TEXT = 2**28
"""Most bytes of one text in a file; after parsing it takes several times as much memory."""
COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""The compressions that numpy writes. Others have no limit on the unpacked size: a few bytes of
bzip2 can become 45 MB at once.
"""


def zip_arrays(arrays: Mapping[str, AnyArray]) -> bytes:
    """np.savez_compressed with a fixed time stamp and system,
    so that the bytes depend on the arrays only.

    Raises ValueError for an array of Python objects, which only a pickle could hold, and
    `UsageError` for arrays that are too large to be read again.
    """
    total = sum(array.nbytes for array in arrays.values())
    if total > MOST_BYTES:
        raise InvalidArgument(
            "an npz file", f"arrays of {total:,} bytes", f"at most {MOST_BYTES:,} in all"
        )
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, array in arrays.items():
            entry = io.BytesIO()
            np.lib.format.write_array(entry, np.asarray(array, order="C"), allow_pickle=False)
            info = zipfile.ZipInfo(f"{name}.npy", TIME_STAMP)
            info.create_system = 3
            archive.writestr(info, entry.getvalue(), zipfile.ZIP_DEFLATED, compresslevel=1)
    return buffer.getvalue()


def unzip_arrays(file: IO[bytes], only: Container[str]) -> dict[str, AnyArray]:
    """np.load of the arrays with these names. Each is read to its end, so that its checksum is
    tested.

    Raises ValueError, with the reason, for a file that is not npz, is damaged, or would take more
    than `MOST_BYTES`.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            entries = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            wanted = {name: info for name, info in entries.items() if name in only}
            _check_sizes(wanted.values())
            return {name: _read_array(archive, info) for name, info in wanted.items()}
    except Exception as error:  # corrupted bytes make zipfile, zlib and numpy raise a dozen types
        raise ValueError(str(error) or type(error).__name__) from None


def text_array(text: str) -> AnyArray:
    """A text as an array, to be stored with others; `UsageError` if it is too long to be read
    again.
    """
    data = text.encode()
    if len(data) > MOST_TEXT:
        raise InvalidArgument(
            "an npz file", f"a text of {len(data):,} bytes", f"at most {MOST_TEXT:,}"
        )
    return np.frombuffer(data, np.uint8)


def text_in(array: AnyArray) -> bytes:
    """The text of an array that `text_array` made;
    ValueError, with the reason, for any other array, and for a text that is too long.
    """
    if array.dtype != np.uint8:
        raise ValueError(f"an array of {array.dtype}")
    if array.nbytes > MOST_TEXT:
        raise ValueError(f"a text of {array.nbytes:,} bytes, more than {MOST_TEXT:,}")
    return array.tobytes()


def _check_sizes(entries: Iterable[zipfile.ZipInfo]) -> None:
    total = 0
    for info in entries:
        if info.compress_type not in COMPRESSIONS:
            raise ValueError(f"{info.filename} is compressed in another way than numpy does it")
        total += info.file_size
    if total > MOST_BYTES:
        raise ValueError(f"arrays of {total:,} bytes, more than {MOST_BYTES:,}")


def _read_array(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> AnyArray:
    """The array of an entry, unpacked in pieces. Memory grows with the data read, so a false shape
    in the header does no harm.
    """
    with archive.open(info) as entry:
        array = np.lib.format.read_array(entry, allow_pickle=False)
        if entry.read(1):  # at the end the checksum is compared
            raise ValueError(f"{info.filename} has more bytes than an array of shape {array.shape}")
    return array
