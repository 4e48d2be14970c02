"""Arguments of the benchmarks: sizes, counts, seconds and files of pictures, refused in one sentence."""

from __future__ import annotations

import argparse
from pathlib import Path

PICTURES = (".svg", ".png", ".pdf")


def size(text: str) -> str:
    """``10000x4``: so many jobs on so many pools."""
    parts = text.split("x")
    if len(parts) != 2 or not all(
        part.isascii() and part.isdigit() and int(part) > 0 for part in parts
    ):
        raise argparse.ArgumentTypeError(f"found {text!r}, expected JOBSxPOOLS, such as 10000x4")
    return text


def count(text: str) -> int:
    """A whole number of at least 1."""
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a whole number of at least 1")
    return int(text)


def seconds(text: str) -> float:
    """A number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"found {text!r}, expected seconds above 0")
    return value


def picture(text: str) -> Path:
    """A file that can be written when all runs are done."""
    path = Path(text)
    if path.suffix.lower() not in PICTURES:
        raise argparse.ArgumentTypeError(
            f"found {text!r}, expected a file with one of {', '.join(PICTURES)}"
        )
    if not path.absolute().parent.is_dir():
        raise argparse.ArgumentTypeError(
            f"found {text!r}, expected a file in a folder that is there"
        )
    return path
