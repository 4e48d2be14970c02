"""What a layout of library files is, and what its problems have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from optsched.instance import FORMAT, Instance
from optsched.libraries.numbers import Numbers

Read = TypeVar("Read")


class ReadProblem(Protocol):
    """The numbers of one problem."""

    @property
    def best_known(self) -> float | None:
        """The best objective that the file states; None if it states none."""

    def instance(self, name: str) -> Instance:
        """The instance of these numbers."""


FirstLines = Sequence[Sequence[str]]
"""The words of the first lines of a file that have any."""


class FileLayout(NamedTuple):
    """How the files of one kind of problem are written.

    Attributes
    ----------
    words : str
        What they hold, for messages.
    formulation : str
        The formulation that the problem belongs to.
    recognises : callable
        Whether first lines are those of such a file.
    read : callable
        The problems of a text, in its order; raises `InvalidInput` with the line.
    """

    words: str
    formulation: str
    recognises: Callable[[FirstLines], bool]
    read: Callable[[str], Sequence[ReadProblem]]


def are_whole(words: Sequence[str]) -> bool:
    """Whether all words are whole numbers, and there is one."""
    return bool(words) and all(word.isascii() and word.isdigit() for word in words)


def header(lines: FirstLines) -> Sequence[str]:
    """The first line of the first problem: files with several problems begin with their number."""
    several = len(lines) > 1 and len(lines[0]) == 1 and are_whole(lines[0])
    return lines[several]


def one_or_several(text: str, problem: Callable[[Numbers], Read]) -> list[Read]:
    """The problems of a text, which begins with their number if its first line is one word.

    Parameters
    ----------
    text : str
    problem : callable
        Reads the next problem.
    """
    numbers = Numbers(text)
    first = next(iter(text.lstrip().splitlines()), "")
    several = len(first.split()) == 1
    count = numbers.whole("the number of problems") if several else 1
    problems = [problem(numbers) for _ in range(count)]
    numbers.end("the last problem" if several else "the problem")
    return problems


def instance_of_resources(
    name: str,
    resources: Sequence[Mapping[str, Any]],
    jobs: Sequence[Mapping[str, Any]],
    **fields: Any,
) -> Instance:
    """An instance whose jobs use resources of the cluster and no GPUs, with further ``fields``."""
    return Instance.from_document(
        {
            "format": FORMAT,
            "name": name,
            **fields,
            "cluster": {
                # A cluster must have a pool; nobody uses this one
                "pools": [{"name": "unused", "nodes": 0, "gpus_per_node": 1}],
                "resources": list(resources),
            },
            "jobs": list(jobs),
        }
    )


def instance_of_options(
    name: str,
    capacity: Mapping[str, float],
    options: Iterable[Sequence[Mapping[str, Any]]],
    **fields: Any,
) -> Instance:
    """An instance of jobs ``j0``, ``j1``, ... that use resources.

    Parameters
    ----------
    name : str
    capacity : mapping
        Of each resource of the cluster.
    options : iterable
        Those of each job.
    **fields
        Further fields of the instance.
    """
    jobs = [{"id": f"j{j}", "options": choices} for j, choices in enumerate(options)]
    resources = [{"name": each, "capacity": amount} for each, amount in capacity.items()]
    return instance_of_resources(name, resources, jobs, **fields)


def used(names: Sequence[str], amounts: Sequence[float]) -> dict[str, float]:
    """What an option uses, without what it uses nothing of."""
    return {name: amount for name, amount in zip(names, amounts, strict=True) if amount}
