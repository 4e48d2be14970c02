"""`simulate`: a trace under a policy, from the first arrival to the last end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from optsched.arrays import BoolArray, FloatArray
from optsched.arrays.values import replace
from optsched.assembly import Performance, load
from optsched.errors import InvalidArgument, InvalidInput, checks_keywords
from optsched.instance import Instance
from optsched.instance.arguments import checks_arguments
from optsched.instance.durations import Duration
from optsched.instance.reading import show, validate
from optsched.registry import policy_kind
from optsched.rounds import RoundPolicy, check_policy
from optsched.simulation.fluid import Fluid
from optsched.simulation.gavel import GavelRounds
from optsched.simulation.options import (
    Mode,
    PoolOrder,
    Replan,
    SimulationOptions,
    simulation_options,
)
from optsched.simulation.result import Simulation
from optsched.simulation.rounds import RoundsRun
from optsched.simulation.run import SimulationRun
from optsched.simulation.truth import Truth
from optsched.traces import Trace, TraceSource, load_trace

ROUNDING = 1e-6
"""Slack, in jobs, for a fraction times a number of jobs."""
MODES: Mapping[str, Callable[[Trace, RoundPolicy, SimulationOptions, Truth], SimulationRun]] = {
    "rounds": RoundsRun,
    "fluid": Fluid,
    "gavel": GavelRounds,
}
"""The class that runs a trace, by mode."""
OF_ROUNDS = ("fill", "hysteresis", "max_moves", "moves_per_hour", "patience", "progress")
"""Options of a policy that have an effect in mode ``rounds`` only."""


@checks_arguments
@checks_keywords
def simulate(
    trace: TraceSource,
    policy: RoundPolicy | Mapping[str, Any] | str = "max-min-fairness",
    *,
    performance: Performance | None = None,
    truth: Performance | None = None,
    mode: Mode = "rounds",
    replan: Replan = "rounds",
    round: Duration | None = None,
    warm_up: float = 0.0,
    cool_down: float = 0.0,
    until: Duration | None = None,
    noise: float = 0.0,
    observe: bool = False,
    failures: float | None = None,
    repair: float = 1.0,
    checkpoint: Duration | None = None,
    restart_cost: Duration | None = None,
    reset_interval: Duration = 1920.0,
    pool_order: PoolOrder = "listed",
    segments: bool = True,
    most_rounds: int = 10_000_000,
    seed: int = 0,
) -> Simulation:
    """Simulate a trace.

    Parameters
    ----------
    trace : Trace, or what `optsched.load` takes
    policy : RoundPolicy, mapping or str
        How rounds are decided; a name alone is that of a formulation or of a ranking.
    performance : mapping or path, optional
        Throughputs that the scheduler believes, instead of the performance object of the instance.
    truth : mapping or path, optional
        True throughputs; by default the performance object of the instance. Rates that it does not
        state are as the scheduler believes.
    mode, replan, round, warm_up, cool_down, until, noise, observe, failures, repair, checkpoint, restart_cost
        See `SimulationOptions`. Times are seconds, or text such as ``"5m"``.
    reset_interval, pool_order, segments, most_rounds, seed
        See `SimulationOptions`. The seed is the policy's too, unless that has one.

    Returns
    -------
    Simulation

    Raises
    ------
    InvalidInput, UsageError
        The trace, the policy or the options make no sense.
    """
    # The keywords of this function are the fields of the options.
    options = SimulationOptions.model_fields
    given = {name: value for name, value in locals().items() if name in options}
    default = SimulationOptions().model_dump()
    chosen = simulation_options(
        {name: value for name, value in given.items() if value != default[name]}
    )
    loaded = load_trace(trace)
    decided = policy_of(policy)
    # One seed for all, unless the policy has its own.
    if "seed" not in decided.model_fields_set:
        decided = decided.model_copy(update={"seed": chosen.seed})
    check_heeded(decided, chosen.mode)
    instance = loaded.instance
    if chosen.round is not None:
        instance = replace(instance, round=chosen.round)
    believed = replace(loaded, instance=load(instance, performance))
    real = replace(loaded, instance=_real(load(instance, truth), believed.instance))
    # Check this now with the messages of `solve`, not after hours of simulation.
    check_policy(decided, believed.instance)
    run = MODES[chosen.mode](believed, decided, chosen, Truth(real))
    run.run()
    return Simulation(
        trace=real,
        policy=label(decided),
        options=chosen.model_dump(exclude_defaults=True),
        measured=measured(run.arrival, chosen),
        jobs=run.recorder.jobs(run.world.done, run.world.lost),
        rounds=run.recorder.rounds(),
        segments=run.recorder.segments(),
        notices=tuple(run.notices),
    )


def _real(instance: Instance, believed: Instance) -> Instance:
    """The instance with the true rates of jobs.

    Rates that the truth does not state are as the scheduler believes. Metrics such as finish-time
    ratios compile this instance, so that they use the same rates as the simulation.
    """
    if instance.performance == believed.performance:
        return instance
    both = [dict(instance.performance), dict(believed.performance)]
    return replace(instance, performance={"model": "chain", "models": both})


def policy_of(policy: RoundPolicy | Mapping[str, Any] | str) -> RoundPolicy:
    """Make a policy from a `RoundPolicy`, a mapping, or the name of a ranking or formulation."""
    if isinstance(policy, RoundPolicy):
        return policy
    if isinstance(policy, str):
        name, colon, _ = policy.partition(":")
        kind = policy_kind(name)
        if colon:
            expected = f'a name, or a dict with its options: {{"{kind}": "{name}", ...}}'
            raise InvalidArgument("policy", show(policy), expected)
        policy = {kind: name}
    return validate(RoundPolicy, dict(policy), "policy")


def check_heeded(policy: RoundPolicy, mode: str) -> None:
    """Raise `InvalidInput` if a policy sets an option that the mode would ignore."""
    ignored = [name for name in OF_ROUNDS if name in policy.model_fields_set]
    if ignored and mode != "rounds":
        found = show(getattr(policy, ignored[0]))
        raise InvalidInput(
            f"policy.{ignored[0]}", found, f"nothing in mode {mode}: it is of rounds"
        )


def label(policy: RoundPolicy) -> str:
    """Short name of a policy."""
    options = ",".join(f"{name}={value}" for name, value in policy.options.items())
    return (policy.ranking or policy.formulation) + (f"({options})" if options else "")


def measured(arrival: FloatArray, options: SimulationOptions) -> BoolArray:
    """Jobs between warm-up and cool-down, by their place in the order of arrival."""
    count = len(arrival)
    place = np.empty(count, np.int64)
    place[np.argsort(arrival, kind="stable")] = np.arange(count)
    inside: BoolArray = (place >= np.ceil(options.warm_up * count - ROUNDING)) & (
        place < np.floor((1.0 - options.cool_down) * count + ROUNDING)
    )
    return inside
