"""Files of multi-mode project scheduling (PSPLIB), section by section."""

from __future__ import annotations

import itertools
from collections.abc import Sequence


def section_of(lines: Sequence[str], title: str) -> list[list[int]]:
    """Rows of numbers below a title of a file of PSPLIB."""
    first = next(i for i, line in enumerate(lines) if line.startswith(title)) + 1
    below = itertools.takewhile(lambda line: not line.startswith("***"), lines[first:])
    return [
        [int(word) for word in line.split()]
        for line in below
        if line.split() and all(word.lstrip("-").isdigit() for word in line.split())
    ]
