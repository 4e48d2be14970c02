"""The common part of the modes of a simulation: the true state of the jobs, and the record."""

from __future__ import annotations

import numpy as np

from optsched.arrays import BoolArray, FloatArray
from optsched.display import number
from optsched.errors import UsageError
from optsched.simulation.failures import NodeChanges
from optsched.simulation.options import SimulationOptions
from optsched.simulation.recording import Recorder
from optsched.simulation.truth import Truth
from optsched.simulation.world import World
from optsched.traces import Trace


class SimulationRun:
    """A trace that is being simulated, in one of the modes.

    Parameters
    ----------
    trace : Trace
    options : SimulationOptions
    truth : Truth

    Attributes
    ----------
    world : World
        The true progress of the jobs.
    arrival : FloatArray, shape (jobs,)
        Seconds; no job arrives before its predecessors.
    origin, end : float
        Begin of the simulation, and its latest end; seconds.
    changes : NodeChanges
        Failures, repairs and other changes of nodes.
    gone : BoolArray, shape (jobs,)
        Jobs that are complete.
    recorder : Recorder
    notices : list of str
        Messages to the user.
    """

    def __init__(self, trace: Trace, options: SimulationOptions, truth: Truth) -> None:
        self.options = options
        self.truth = truth
        self.instance = trace.instance
        self.world = World(truth, options.noise, options.seed)
        self.arrival = effective_arrivals(trace)
        first = float(self.arrival.min()) if len(self.arrival) else trace.instance.now
        self.origin = max(trace.instance.now, first)
        self.end = np.inf if options.until is None else self.origin + options.until
        self.changes = NodeChanges(trace, self.origin, options)
        self.gone: BoolArray = np.zeros(len(self.arrival), bool)
        self.recorder = Recorder(self.instance, options.segments)
        self.notices: list[str] = []

    def run(self) -> None:
        """Simulate until all jobs are complete or none makes progress any more."""
        raise NotImplementedError

    def _goes_on(self, now: float) -> bool:
        """Whether there are jobs and time left."""
        return not self.gone.all() and now < self.end

    def _count(self, number: int, what: str) -> None:
        """Raise if there are more rounds or events than ``most_rounds``."""
        if number > self.options.most_rounds:
            most = self.options.most_rounds
            raise UsageError(f"the simulation took more than {most} {what}; see most_rounds")

    def _check_length(self) -> None:
        """Refuse jobs that take more than ``most_rounds`` rounds even on their fastest GPUs."""
        fastest = self.truth.fastest
        seconds = self.truth.seconds(fastest) / self.world.factor
        # A job that can run nowhere does not count.
        seconds[fastest[: self.truth.jobs] == 0] = 0.0
        rounds = np.minimum(seconds, self.end - self.origin) / self.instance.round
        most = self.options.most_rounds
        if rounds.max(initial=0.0) > most:
            job = int(rounds.argmax())
            raise UsageError(
                f"job {self.instance.jobs_table.names[job]} takes {number(rounds[job])} rounds of "
                f"{self.instance.round:g} s even at its highest rate, and most_rounds is {most:,}: "
                "simulate up to a time (until), in longer rounds (round), or, with a formulation, "
                "in mode fluid"
            )

    def _note_end(self, now: float) -> None:
        """Add a notice if the time limit came before all jobs were complete."""
        if not self.gone.all() and now >= self.end:
            after = self.end - self.origin
            self.notices.append(f"ended {after:g} s after the beginning, as asked for")


def effective_arrivals(trace: Trace) -> FloatArray:
    """Arrivals, none before those of the predecessors."""
    table = trace.instance.jobs_table
    arrival = table.arrival.copy()
    changed = bool(table.after)
    # Repeat for chains of predecessors, until no arrival changes any more. There are no cycles.
    while changed:
        changed = False
        for job, before in table.after.items():
            latest = max(float(arrival[row]) for row in before)
            if latest > arrival[job]:
                arrival[job], changed = latest, True
    return arrival
