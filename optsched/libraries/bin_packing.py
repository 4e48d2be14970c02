"""Bin packing in one dimension: files of OR-Library."""

from __future__ import annotations

from typing import NamedTuple

from optsched.arrays import AnyArray
from optsched.instance import Instance
from optsched.libraries.layout import (
    FileLayout,
    FirstLines,
    are_whole,
    instance_of_options,
)
from optsched.libraries.numbers import Numbers


class BinPackingProblem(NamedTuple):
    """Items into as few bins of one capacity as possible.

    Attributes
    ----------
    size : array, shape (items,)
    capacity : float
    best_known : float or None
    """

    size: AnyArray
    capacity: float
    best_known: float | None = None

    def instance(self, name: str) -> Instance:
        """Items are jobs that use a resource ``bin``; a round, of one second, is a bin."""
        options = [[{"uses": {"bin": size}}] for size in self.size.tolist()]
        return instance_of_options(name, {"bin": self.capacity}, options, round=1.0)


def recognises(lines: FirstLines) -> bool:
    """The number of problems, then the name of the first one, then ``capacity n best``."""
    if len(lines) < 3 or not (are_whole(lines[0]) and len(lines[0]) == len(lines[1]) == 1):
        return False
    return not are_whole(lines[1]) and len(lines[2]) == 3


def read(text: str) -> list[BinPackingProblem]:
    """The number of problems; of each its name, ``capacity n best``, and n sizes.

    The third number is the best known number of bins when the file was made; some are improved.
    """
    numbers = Numbers(text)
    count = numbers.whole("the number of problems")
    problems = [_problem(numbers) for _ in range(count)]
    numbers.end("the last problem")
    return problems


def _problem(numbers: Numbers) -> BinPackingProblem:
    numbers.word("the name of a problem")
    (capacity,) = numbers.several(1, "the capacity of a bin")
    n = numbers.whole("the number of items")
    (best,) = numbers.several(1, "the best known number of bins")
    return BinPackingProblem(numbers.several(n, "sizes of the items"), float(capacity), float(best))


LAYOUT = FileLayout("bin packing", "vector-bin-packing", recognises, read)
