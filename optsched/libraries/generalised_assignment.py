"""Generalised assignment (GAP): files of OR-Library and of the literature on types a to e."""

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
)
from optsched.libraries.numbers import Numbers


class AssignmentProblem(NamedTuple):
    """Each job to one agent of limited capacity.

    Attributes
    ----------
    cost, use : array, shape (agents, jobs)
    capacity : array, shape (agents,)
    """

    cost: AnyArray
    use: AnyArray
    capacity: AnyArray
    best_known: None = None

    def instance(self, name: str, objective: str = "cost") -> Instance:
        """Agents are resources of the cluster, and a job has an option for each.

        Parameters
        ----------
        name : str
        objective : str
            What the costs are for the options: ``cost``, or ``value`` to maximise them.
        """
        agents = [f"agent{i}" for i in range(len(self.capacity))]
        options = [
            [
                {"uses": {agent: use}, objective: cost}
                for agent, use, cost in zip(agents, uses, costs, strict=True)
            ]
            for uses, costs in zip(self.use.T.tolist(), self.cost.T.tolist(), strict=True)
        ]
        capacity = dict(zip(agents, self.capacity.tolist(), strict=True))
        return instance_of_options(name, capacity, options)


def recognises(lines: FirstLines) -> bool:
    """Whether the first line is ``m n``, or the second one after the number of problems."""
    words = header(lines)
    return len(words) == 2 and are_whole(words)


def read(text: str) -> list[AssignmentProblem]:
    """Of each problem ``m n``, then m n costs and m n uses, agent by agent, and m capacities."""
    return one_or_several(text, _problem)


def _problem(numbers: Numbers) -> AssignmentProblem:
    m = numbers.whole("the number of agents")
    n = numbers.whole("the number of jobs")
    cost = numbers.several(m * n, f"costs of {n} jobs for each of {m} agents", -inf)
    use = numbers.several(m * n, f"uses of {n} jobs for each of {m} agents")
    capacity = numbers.several(m, "capacities of the agents")
    return AssignmentProblem(cost.reshape(m, n), use.reshape(m, n), capacity)


LAYOUT = FileLayout("generalised assignment", "gap", recognises, read)
