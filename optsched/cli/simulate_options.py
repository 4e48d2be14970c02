"""What ``optsched simulate`` simulates: the options that say it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from optsched.cli import values
from optsched.cli.options import PROBLEM
from optsched.errors import InvalidArgument, UsageError

WORLD = "World"
FILES = (".json", ".yaml", ".yml")
DEFAULT = "max-min-fairness"


@dataclass(frozen=True)
class Simulated:
    """The policies, and how time passes."""

    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy", "-p", metavar="NAME[:KEY=VALUE,...]", rich_help_panel=PROBLEM, show_default=False,
            help="A formulation or a ranking, with options of its own or of the rounds (hysteresis=0.5); or a policy "
            "file. Can be repeated.  [default: max-min-fairness]",
        ),
    ] = None  # fmt: skip
    seeds: Annotated[
        str,
        typer.Option(
            metavar="N", rich_help_panel=PROBLEM, show_default=True,
            help="How many, or which (3..7): of noise, failures and random choices.",
        ),
    ] = "1"  # fmt: skip
    mode: Annotated[
        str,
        typer.Option(
            metavar="MODE", rich_help_panel=PROBLEM, show_default=True,
            help="rounds, fluid (the allocation to the letter), or gavel (by the rules of Gavel's simulator).",
        ),
    ] = "rounds"  # fmt: skip
    round: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Length of a round, not the trace's.", rich_help_panel=PROBLEM
        ),
    ] = None
    replan: Annotated[
        str | None,
        typer.Option(
            metavar="WHEN", rich_help_panel=PROBLEM,
            help="rounds (default), or events: also when a job comes or ends or a node changes.",
        ),
    ] = None  # fmt: skip
    warm_up: Annotated[
        str | None,
        typer.Option(
            metavar="PART",
            help="Part of the jobs, from the first, that do not count.",
            rich_help_panel=PROBLEM,
        ),
    ] = None
    cool_down: Annotated[
        str | None,
        typer.Option(metavar="PART", help="The same, the last.", rich_help_panel=PROBLEM),
    ] = None
    until: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="End, from the first arrival, whatever still runs.",
            rich_help_panel=PROBLEM,
        ),
    ] = None
    reset_interval: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Mode gavel: between two allocations.", rich_help_panel=PROBLEM
        ),
    ] = None
    pool_order: Annotated[
        str | None,
        typer.Option(metavar="HOW", help="Mode gavel: listed or random.", rich_help_panel=PROBLEM),
    ] = None


@dataclass(frozen=True)
class Conditions:
    """What the world does to the jobs."""

    noise: Annotated[
        str | None,
        typer.Option(
            metavar="SD", help="Of the log of each job's true rate.", rich_help_panel=WORLD
        ),
    ] = None
    observe: Annotated[
        bool,
        typer.Option("--observe", help="The scheduler is told true rates.", rich_help_panel=WORLD),
    ] = False
    failures: Annotated[
        str | None,
        typer.Option(
            metavar="HOURS", help="Mean between two failures of a node.", rich_help_panel=WORLD
        ),
    ] = None
    repair: Annotated[
        str | None,
        typer.Option(
            metavar="HOURS", help="That it is down then.  [default: 1]", rich_help_panel=WORLD
        ),
    ] = None
    checkpoint: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Between two checkpoints of a job.  [default: a round]",
            rich_help_panel=WORLD,
        ),
    ] = None
    restart_cost: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Without progress after each further start.", rich_help_panel=WORLD
        ),
    ] = None
    truth: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Performance model by which jobs really run.",
            rich_help_panel=WORLD,
        ),
    ] = None


def options_of(simulated: Simulated, conditions: Conditions) -> dict[str, Any]:
    """`SimulationOptions` that are typed, apart from the seed."""
    given = {
        "mode": simulated.mode,
        "round": values.duration(simulated.round, "--round"),
        "replan": simulated.replan,
        "warm_up": values.real(simulated.warm_up, "--warm-up"),
        "cool_down": values.real(simulated.cool_down, "--cool-down"),
        "until": values.duration(simulated.until, "--until"),
        "reset_interval": values.duration(simulated.reset_interval, "--reset-interval"),
        "pool_order": simulated.pool_order,
        "noise": values.real(conditions.noise, "--noise"),
        "observe": conditions.observe or None,
        "failures": values.real(conditions.failures, "--failures"),
        "repair": values.real(conditions.repair, "--repair"),
        "checkpoint": values.duration(conditions.checkpoint, "--checkpoint"),
        "restart_cost": values.duration(conditions.restart_cost, "--restart-cost"),
    }
    return {name: value for name, value in given.items() if value is not None}


def check_options(options: dict[str, Any]) -> None:
    """Refuse options of a simulation by the names that they are typed with."""
    from optsched.errors import InvalidInput
    from optsched.simulation.options import simulation_options

    try:
        simulation_options(options)
    except InvalidInput as error:
        name = error.path.split(".")[1].replace("_", "-")
        raise InvalidArgument(f"--{name}", error.found, error.expected) from None


def policies_of(texts: Sequence[str] | None) -> list[dict[str, Any]]:
    """Documents of the policies that are typed."""
    return [policy_document(text) for text in texts or (DEFAULT,)]


def policy_document(text: str) -> dict[str, Any]:
    """``NAME``, ``NAME:key=value,...`` or a file, as a document of `RoundPolicy`."""
    from optsched.cli.policy_options import read_policy
    from optsched.registry import policy_kind
    from optsched.rounds.policy import RoundPolicy

    if Path(text).suffix.lower() in FILES:
        return read_policy(text).model_dump(mode="json", exclude_unset=True)
    name, typed = values.named(text, "--policy", "a formulation or a ranking")
    fields = set(RoundPolicy.model_fields) - {"formulation", "ranking", "options"}
    try:
        document: dict[str, Any] = {policy_kind(name, also=", or a policy file"): name}
    except UsageError as error:
        raise UsageError(f"--policy: {error}") from None
    if own := {key: value for key, value in typed.items() if key not in fields}:
        document["options"] = own
    return document | {key: value for key, value in typed.items() if key in fields}
