"""Named arrays in npz files, without pickles: equal arrays give equal bytes, and every byte is checked when read."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Container, Mapping
from typing import IO

import numpy as np

from optsched.arrays import AnyArray

TIME_STAMP = (1980, 1, 1, 0, 0, 0)


def zip_arrays(arrays: Mapping[str, AnyArray]) -> bytes:
    """np.savez_compressed with a fixed time stamp and system, so that the bytes depend on the arrays only.

    Raises ValueError for an array of Python objects, which only a pickle could hold.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, array in arrays.items():
            entry = io.BytesIO()
            np.lib.format.write_array(entry, np.asarray(array, order="C"), allow_pickle=False)
            info = zipfile.ZipInfo(f"{name}.npy", TIME_STAMP)
            info.create_system = 3
            archive.writestr(info, entry.getvalue(), zipfile.ZIP_DEFLATED, compresslevel=1)
    return buffer.getvalue()


def unzip_arrays(file: IO[bytes], only: Container[str] | None = None) -> dict[str, AnyArray]:
    """np.load, but reading every entry to its end, where its checksum is; ``only`` names the entries to read.

    Raises ValueError, with the reason in words, for anything that is not an npz file or is damaged.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            names = {name.removesuffix(".npy"): name for name in archive.namelist()}
            return {
                name: np.lib.format.read_array(io.BytesIO(archive.read(entry)), allow_pickle=False)
                for name, entry in names.items()
                if only is None or name in only
            }
    except Exception as error:  # corrupted bytes make zipfile, zlib and numpy raise a dozen types
        raise ValueError(str(error) or type(error).__name__) from None
