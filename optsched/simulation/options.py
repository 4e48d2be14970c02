"""Options of a simulation, apart from its trace and its policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from optsched.errors import InvalidInput
from optsched.instance.documents import (
    Count,
    Delay,
    Document,
    NonNegative,
    Positive,
    PositiveCount,
    Seconds,
)
from optsched.instance.reading import show, validate

Part = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]
Hours = Positive
Deviation = NonNegative
Mode = Literal["rounds", "fluid", "gavel"]
Replan = Literal["rounds", "events"]
PoolOrder = Literal["listed", "random"]
RHO = Literal["isolated", "contention", "static"]
"""Published definitions of the finish-time ratio."""
MODES_OF: Mapping[str, tuple[Mode, ...]] = {
    "replan": ("rounds",),
    "round": ("rounds", "gavel"),
    "observe": ("rounds",),
    "failures": ("rounds", "fluid"),
    "repair": ("rounds", "fluid"),
    "checkpoint": ("rounds",),
    "restart_cost": ("rounds", "gavel"),
    "reset_interval": ("gavel",),
    "pool_order": ("gavel",),
}
"""Modes in which an option has an effect, if not in all of them."""


class SimulationOptions(Document):
    """Options of `optsched.simulate`; times in seconds, or as text such as ``5m``.

    `optsched simulate` has the first sentence of each in its help, and reads it by the name of its
    type.

    Attributes
    ----------
    mode : str
        ``rounds``, ``fluid`` (every job gets exactly its allocation), or ``gavel`` (by the rules of
        Gavel's simulator). In ``rounds``, whole jobs run on whole GPUs, as a `Scheduler` plans
        them. In ``fluid``, shares are those of the allocation between any two events. ``gavel`` is
        for comparison.
    replan : str
        ``rounds``, or ``events``: plan also when a job arrives or ends, a node changes, or the
        schedule that is followed starts a job. What becomes free is then used at once.
    round : float, optional
        Length of a round, instead of the trace's.
    warm_up : float
        Fraction of the jobs at the beginning that no metric counts. The order is that of arrival.
    cool_down : float
        Fraction of the jobs at the end that no metric counts.
    until : float, optional
        Stop at this time after the first arrival, even if jobs still run.
    noise : float
        Standard deviation of the log of each job's true rate. It is around the rate of the
        performance model.
    observe : bool
        Tell the scheduler the true rates. These are of the jobs that run, after each round.
    failures : float, optional
        Mean time between two failures of a node, in hours. It is exponential; failures of the trace
        come on top.
    repair : float
        Time that a failed node is down, in hours.
    checkpoint : float, optional
        Time between two checkpoints of a job; by default a round. What a job did since the last is
        lost with a node. A job that is stopped by a plan loses its restart cost, and with a
        ``checkpoint_interval`` what it did since the last.
    restart_cost : float, optional
        Time without progress after each start but the first; by default the jobs' own.
    reset_interval : float
        Mode ``gavel``: time between two allocations. It is at least this.
    pool_order : str
        Mode ``gavel``: ``listed`` or ``random``. Pools are visited in the order of the instance, or
        a new random one each round, as there for policies that do not know throughputs.
    segments : bool
        Whether who held what and when is kept (for Gantt charts).
    most_rounds : int
        Rounds after which a simulation that does not end is refused.
    seed : int
        Of noise, failures and random orders; the policy has one of its own.
    """

    mode: Mode = "rounds"
    replan: Replan = "rounds"
    round: Seconds | None = None
    warm_up: Part = 0.0
    cool_down: Part = 0.0
    until: Seconds | None = None
    noise: Deviation = 0.0
    observe: bool = False
    failures: Hours | None = None
    repair: Hours = 1.0
    checkpoint: Seconds | None = None
    restart_cost: Delay | None = None
    reset_interval: Delay = 1920.0
    pool_order: PoolOrder = "listed"
    segments: bool = True
    most_rounds: PositiveCount = 10_000_000
    seed: Count = 0


def simulation_options(given: Mapping[str, Any]) -> SimulationOptions:
    """Options of a simulation, each of which has an effect;
    raises `InvalidInput` where one would be ignored.
    """
    options = validate(SimulationOptions, dict(given), "options")
    for name, modes in MODES_OF.items():
        if options.mode not in modes and given.get(name) is not None:
            of = " and ".join(modes)
            raise InvalidInput(
                f"options.{name}",
                show(given[name]),
                f"nothing in mode {options.mode}: it is of {of}",
            )
    if options.failures is None and given.get("repair") is not None:
        raise InvalidInput(
            "options.repair", show(given["repair"]), "failures beside it: how often there is one"
        )
    return options
