"""Multi-dimensional knapsacks (MKP): files of OR-Library."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from optsched.arrays import AnyArray
from optsched.instance import Instance
from optsched.libraries.layout import (
    FileLayout,
    FirstLines,
    are_whole,
    header,
    instance_of_options,
    one_or_several,
    used,
)
from optsched.libraries.numbers import Numbers


class Knapsack(NamedTuple):
    """Items, of which each is taken in one of its choices or not at all.

    Attributes
    ----------
    value : array, shape (items, choices)
    use : array, shape (items, choices, resources)
    capacity : array, shape (resources,)
    best_known : float or None
    """

    value: AnyArray
    use: AnyArray
    capacity: AnyArray
    best_known: float | None = None

    def instance(self, name: str) -> Instance:
        """Items are jobs, and what is limited are resources of the cluster."""
        names = [f"r{k}" for k in range(len(self.capacity))]
        options = [
            [
                {"uses": used(names, amounts), "value": value}
                for amounts, value in zip(uses, values, strict=True)
            ]
            for uses, values in zip(self.use.tolist(), self.value.tolist(), strict=True)
        ]
        return instance_of_options(
            name, dict(zip(names, self.capacity.tolist(), strict=True)), options
        )


def recognises(lines: FirstLines) -> bool:
    """``n m optimum`` stand in the first line, or in the second one after the number of
    problems.
    """
    words = header(lines)
    return len(words) == 3 and are_whole(words[:2])


def read(text: str) -> list[Knapsack]:
    """Of each problem ``n m optimum``, then n values, m n uses, resource by resource, and m
    capacities.

    The optimum is 0 where it is not known; in files of Chu and Beasley it is the best value that
    they found.
    """
    return one_or_several(text, _problem)


def _problem(numbers: Numbers) -> Knapsack:
    n = numbers.whole("the number of items")
    m = numbers.whole("the number of resources")
    (best,) = numbers.several(1, "the best known value", -inf)
    value = numbers.several(n, "values of the items", -inf)
    use = numbers.several(m * n, f"uses of {n} items for each of {m} resources")
    capacity = numbers.several(m, "capacities of the resources")
    return Knapsack(
        value.reshape(n, 1), use.reshape(m, n).T.reshape(n, 1, m), capacity, float(best) or None
    )


LAYOUT = FileLayout("multi-dimensional knapsacks", "multiple-choice", recognises, read)
