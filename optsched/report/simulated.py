"""Simulations arranged for a report:
by policy, each policy with one name and one colour in all pictures of a page.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from optsched.arrays import FloatArray
from optsched.errors import InvalidArgument
from optsched.report.palette import line_style

if TYPE_CHECKING:
    from optsched.simulation import Simulation
    from optsched.simulation.options import RHO

Metrics = Mapping[str, float | None]
Problem = tuple[str, Any, int]


@dataclass(frozen=True)
class Policy:
    """A policy and its runs.

    Attributes
    ----------
    name : str
        The policy, with those options of the simulation that differ between simulations.
    runs : tuple of int
        Indices of its simulations: one per seed, in the given order.
    colour, style : str
        Colour and style of its lines.
    """

    name: str
    runs: tuple[int, ...]
    colour: str
    style: str


@dataclass(frozen=True)
class Simulated:
    """Simulations by policy, with the figures of each, computed once.

    Attributes
    ----------
    simulations : tuple of Simulation
    rho : str
        Definition of the finish-time ratio (`finish_time_ratios`).
    unfair : float
        A job with a larger ratio counts as unfairly treated.
    """

    simulations: tuple[Simulation, ...]
    rho: RHO = "isolated"
    unfair: float = 1.0

    @classmethod
    def of(
        cls,
        simulations: Sequence[Simulation] | Simulated,
        rho: RHO = "isolated",
        unfair: float = 1.0,
    ) -> Simulated:
        """Group simulations; a `Simulated` is returned unchanged.

        Raises
        ------
        UsageError
            If there is none.
        """
        if isinstance(simulations, Simulated):
            return simulations
        if not len(simulations):
            raise InvalidArgument(
                "simulations",
                "none",
                "at least one simulation",
                sentence="there is nothing to show: no simulation was given",
            )
        return cls(tuple(simulations), rho, unfair)

    @cached_property
    def policies(self) -> tuple[Policy, ...]:
        """The policies in order of first appearance."""
        # Runs that differ only in their seeds belong to one policy
        options = [{**run.options, "seed": None} for run in self.simulations]
        varied = [
            name
            for name in dict.fromkeys(name for given in options for name in given)
            if any(given.get(name) != options[0].get(name) for given in options)
        ]
        runs: dict[str, list[int]] = {}
        for number, (run, given) in enumerate(zip(self.simulations, options, strict=True)):
            settings = [f"{name}={given[name]}" for name in varied if name in given]
            runs.setdefault(", ".join([run.policy, *settings]), []).append(number)
        return tuple(
            Policy(name, tuple(numbers), *line_style(place))
            for place, (name, numbers) in enumerate(runs.items())
        )

    @cached_property
    def problems(self) -> tuple[Problem, ...]:
        """The problem of each simulation: trace, seed, and a counter of repeated runs."""
        # A policy may have several runs of a trace with the same seed, for example with other
        # options. The first run is compared with the first run of the other policy, and so on
        found: list[Problem] = [("", None, 0)] * len(self.simulations)
        for policy in self.policies:
            met: Counter[tuple[str, Any]] = Counter()
            for number in policy.runs:
                what = (self.simulations[number].trace.sha256, seed_of(self.simulations[number]))
                found[number] = (*what, met[what])
                met[what] += 1
        return tuple(found)

    def pairs(self, first: Policy, second: Policy) -> list[tuple[int, int]]:
        """Simulations of the same problem under two policies."""
        of_first = {self.problems[number]: number for number in first.runs}
        both = [number for number in second.runs if self.problems[number] in of_first]
        return [(of_first[self.problems[number]], number) for number in both]

    @cached_property
    def metrics(self) -> tuple[Metrics, ...]:
        """The metrics of each simulation."""
        return tuple(run.metrics(rho=self.rho, unfair=self.unfair) for run in self.simulations)

    @cached_property
    def ratios(self) -> tuple[FloatArray, ...]:
        """Finish-time ratios of the jobs of each simulation."""
        return tuple(run.finish_time_ratios(self.rho) for run in self.simulations)

    @property
    def jobs(self) -> int:
        """Number of measured jobs of all simulations."""
        return sum(int(run.measured.sum()) for run in self.simulations)

    @property
    def seeds(self) -> int:
        """Largest number of runs of a policy."""
        return max(len(policy.runs) for policy in self.policies)


def seed_of(simulation: Simulation) -> int:
    """The seed of a simulation; options that are not stated have their default."""
    return int(simulation.options.get("seed", 0))


def first_arrival(simulation: Simulation) -> float:
    """When the first job arrives, on the clock of the trace; 0 without jobs."""
    arrival = simulation.trace.instance.jobs_table.arrival
    return float(arrival.min()) if len(arrival) else 0.0
