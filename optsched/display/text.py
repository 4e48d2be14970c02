"""Numbers and names as text."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice


def amount(value: float) -> str:
    """Four significant digits, of large numbers all before the point: ``0.9714``, ``31,345``."""
    return f"{value:,.0f}" if 10_000 <= abs(value) < 1e12 else f"{value:.4g}"


def count(number: int, one: str, many: str = "") -> str:
    """``1 job``, ``1,200 jobs``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def first_of(names: Sequence[str], most: int = 5) -> str:
    """``a, b, c and 12 more``."""
    listed = ", ".join(islice(names, most))
    return f"{listed} and {len(names) - most:,} more" if len(names) > most else listed


def enumerated(words: Sequence[str], conjunction: str) -> str:
    """``a``, ``a or b``, ``a, b or c``."""
    *first, last = words
    return f"{', '.join(first)} {conjunction} {last}" if first else last


def one_line(text: str) -> str:
    """The text without line breaks and other control characters."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def printable(text: str) -> str:
    """The text with control characters written as escapes: a job's name may hold anything."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )
