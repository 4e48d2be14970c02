"""What ``optsched simulate`` simulates: the options that say it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from optsched.cli import values
from optsched.cli.command import Option
from optsched.cli.options import DEFAULT_FORMULATION, PROBLEM, given_fields
from optsched.errors import InvalidArgument, UsageError

WORLD = "World"
FILES = (".json", ".yaml", ".yml")


def policy_documents(texts: Sequence[str], option: str) -> list[dict[str, Any]]:
    """Policies, each as `policy_document` reads it."""
    return [policy_document(text) for text in texts]


@dataclass(frozen=True)
class PolicyChoice:
    """The policies, and how time passes."""

    section: ClassVar = PROBLEM

    policies: Annotated[
        list[dict[str, Any]] | None,
        Option(
            "A formulation or a ranking, with options of its own or of the rounds (hysteresis=0.5); "
            "or a policy file. Can be repeated.  [default: max-min-fairness]",
            "NAME[:KEY=VALUE,...]",
            flag="--policy",
            short="-p",
            read=policy_documents,
            many=True,
        ),
    ] = None
    seeds: Annotated[
        Any,
        Option(
            "How many, or which (3..7): of noise, failures and random choices.",
            "N",
            read=values.typed,
        ),
    ] = "1"
    mode: Annotated[
        str,
        Option(
            "rounds, fluid (the allocation to the letter), or gavel (by the rules of Gavel's simulator).",
            "MODE",
        ),
    ] = "rounds"
    round: Annotated[
        float | None,
        Option("Length of a round, not the trace's.", "TIME", read=values.duration),
    ] = None
    replan: Annotated[
        str | None,
        Option(
            "rounds (default), or events: also when a job comes or ends or a node changes.", "WHEN"
        ),
    ] = None
    warm_up: Annotated[
        float | None,
        Option("Part of the jobs, from the first, that do not count.", "PART"),
    ] = None
    cool_down: Annotated[
        float | None,
        Option("The same, the last.", "PART"),
    ] = None
    until: Annotated[
        float | None,
        Option("End, from the first arrival, whatever still runs.", "TIME", read=values.duration),
    ] = None
    reset_interval: Annotated[
        float | None,
        Option("Mode gavel: between two allocations.", "TIME", read=values.duration),
    ] = None
    pool_order: Annotated[
        str | None,
        Option("Mode gavel: listed or random.", "HOW"),
    ] = None

    @property
    def documents(self) -> list[dict[str, Any]]:
        """The policies as documents of `RoundPolicy`."""
        return self.policies or [policy_document(DEFAULT_FORMULATION)]


@dataclass(frozen=True)
class Conditions:
    """What the world does to the jobs."""

    section: ClassVar = WORLD

    noise: Annotated[
        float | None,
        Option("Of the log of each job's true rate.", "SD"),
    ] = None
    observe: Annotated[
        bool,
        Option("The scheduler is told true rates."),
    ] = False
    failures: Annotated[
        float | None,
        Option("Mean between two failures of a node.", "HOURS"),
    ] = None
    repair: Annotated[
        float | None,
        Option("That it is down then.  [default: 1]", "HOURS"),
    ] = None
    checkpoint: Annotated[
        float | None,
        Option(
            "Between two checkpoints of a job.  [default: a round]", "TIME", read=values.duration
        ),
    ] = None
    restart_cost: Annotated[
        float | None,
        Option("Without progress after each further start.", "TIME", read=values.duration),
    ] = None
    truth: Annotated[
        str | None,
        Option("Performance model by which jobs really run.", "FILE", source=True),
    ] = None


def options_of(simulated: PolicyChoice, conditions: Conditions) -> dict[str, Any]:
    """`SimulationOptions` that are given, apart from the seed."""
    return given_fields(simulated, "policies", "seeds") | given_fields(conditions, "truth")


def check_options(options: dict[str, Any]) -> None:
    """Refuse options of a simulation by the names of the command line."""
    from optsched.errors import InvalidInput
    from optsched.simulation.options import simulation_options

    try:
        simulation_options(options)
    except InvalidInput as error:
        name = error.path.split(".")[1].replace("_", "-")
        raise InvalidArgument(f"--{name}", error.found, error.expected) from None


def policy_document(text: str) -> dict[str, Any]:
    """``NAME``, ``NAME:key=value,...`` or a file, as a document of `RoundPolicy`."""
    from optsched.cli.policy_options import read_policy
    from optsched.registry import policy_kind
    from optsched.rounds.policy import RoundPolicy

    if Path(text).suffix.lower() in FILES:
        return read_policy(text).model_dump(mode="json", exclude_unset=True)
    name, given = values.named(text, "--policy", "a formulation or a ranking")
    # What is no field of a policy is an option of its formulation or ranking
    fields = set(RoundPolicy.model_fields) - {"formulation", "ranking", "options"}
    try:
        document: dict[str, Any] = {policy_kind(name, also=", or a policy file"): name}
    except UsageError as error:
        raise UsageError(f"--policy: {error}") from None
    if own := {key: value for key, value in given.items() if key not in fields}:
        document["options"] = own
    return document | {key: value for key, value in given.items() if key in fields}
