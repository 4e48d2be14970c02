"""Which sources may be files of a benchmark library; nothing is parsed here."""

from __future__ import annotations

import re
from pathlib import Path

from optsched.instance.files import NPZ_MAGIC, SUFFIXES

GZIP = ".gz"
STDIN = "-"
"""As a source: standard input."""
OTHER_SUFFIXES = frozenset({*SUFFIXES, ".csv", ".jsonl", ".mps", ".lp", ".sol", ".toml"})
"""Files that end so are never files of a library."""
BEGINNING = 4096
"""Bytes in which a document of JSON shows that it is one."""
DOCUMENT = re.compile(rb'(?:\xef\xbb\xbf)?\s*[{\["]')
_NUMBERED = re.compile(r"(.+)#(\d{1,9})", re.DOTALL)


def file_and_problem(source: str | Path) -> tuple[Path, int | None]:
    """The file of a source, and the number of the problem in it: ``FILE#2`` is the second one.

    A file that is called ``FILE#2`` itself is read as a whole.
    """
    numbered = _NUMBERED.fullmatch(str(source))
    if numbered is None or Path(source).exists():
        return Path(source), None
    return Path(numbered[1]), int(numbered[2])


def suffix_of(path: Path) -> str:
    """The last suffix of a path but for ``.gz``, in small letters; empty if there is none."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] == GZIP:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def may_be_library_file(source: str | Path) -> bool:
    """Whether a source is a file that is neither a document nor an archive, by its name and its
    first bytes.
    """
    if str(source) == STDIN or (isinstance(source, str) and source.startswith("@")):
        return False  # standard input, or an instance that ships
    path, _ = file_and_problem(source)
    if suffix_of(path) in OTHER_SUFFIXES or not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            data = file.read(BEGINNING)
    except OSError:  # the reader of the file says why it cannot be read
        return False
    return not begins_a_document(data)


def begins_a_document(data: bytes) -> bool:
    """Whether bytes are those of JSON or npz, by the first of them."""
    return DOCUMENT.match(data[:BEGINNING]) is not None or data.startswith(NPZ_MAGIC)
