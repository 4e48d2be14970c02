"""What a simulation is like, beside its trace and its policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from optsched.errors import InvalidInput
from optsched.instance.documents import Count, Document, NonNegative, Positive, PositiveCount
from optsched.instance.durations import Spelled
from optsched.instance.reading import show, validate

Part = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]
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
"""Modes in which an option makes a difference, where that is not all of them."""


class SimulationOptions(Document):
    """Options of `optsched.simulate`; times in seconds, or as text such as ``5m``.

    Attributes
    ----------
    mode : str
        ``rounds``: whole jobs on whole GPUs, as a `Scheduler` plans them. ``fluid``: between two events every job gets
        exactly what the allocation says. ``gavel``: rounds by the rules of Gavel's simulator, for comparison.
    replan : str
        ``rounds``: a plan every round. ``events``: besides, whenever a job arrives or ends or a node changes, so that
        what becomes free is used at once.
    round : float, optional
        Length of a round, in the place of the instance's.
    warm_up, cool_down : float
        Parts of the jobs, by arrival, at the beginning and the end of the trace that do not count in the metrics.
    until : float, optional
        Seconds after the first arrival at which the simulation ends, whatever still runs.
    noise : float
        Standard deviation of the log of each job's true rate around that of its performance model.
    observe : bool
        Whether the scheduler is told the true rates of the jobs that run, after each round.
    failures : float, optional
        Mean hours between two failures of a node (exponential), beside those of the trace.
    repair : float
        Hours that a node that failed is down.
    checkpoint : float, optional
        Seconds that a job runs between two checkpoints; what it did since the last is lost with a node. By default a
        round. A job that is stopped by a plan loses nothing but its restart cost.
    restart_cost : float, optional
        Seconds without progress after each start but the first, in the place of the jobs' own.
    reset_interval : float
        Mode ``gavel``: seconds between two allocations at least.
    pool_order : str
        Mode ``gavel``: pools are visited in the order of the instance (``listed``) or a new random one each round
        (``random``), as there for policies that do not know throughputs.
    segments : bool
        Whether who held what and when is kept (for Gantt charts).
    most_rounds : int
        Rounds after which a simulation that does not end is refused.
    seed : int
        Of noise, failures and random orders; the policy has one of its own.
    """

    mode: Mode = "rounds"
    replan: Replan = "rounds"
    round: Annotated[Positive, Spelled] | None = None
    warm_up: Part = 0.0
    cool_down: Part = 0.0
    until: Annotated[Positive, Spelled] | None = None
    noise: NonNegative = 0.0
    observe: bool = False
    failures: Positive | None = None
    repair: Positive = 1.0
    checkpoint: Annotated[Positive, Spelled] | None = None
    restart_cost: Annotated[NonNegative, Spelled] | None = None
    reset_interval: Annotated[NonNegative, Spelled] = 1920.0
    pool_order: PoolOrder = "listed"
    segments: bool = True
    most_rounds: PositiveCount = 10_000_000
    seed: Count = 0


def simulation_options(given: Mapping[str, Any]) -> SimulationOptions:
    """Options of a simulation, each of which has an effect; raises `InvalidInput` where one would be ignored."""
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
