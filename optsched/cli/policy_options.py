"""Options that say how rounds are decided."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from optsched.cli import values
from optsched.cli.command import Option
from optsched.cli.options import (
    PROBLEM,
    SOLVER,
    constraints_option,
    formulation_option,
    given_fields,
    settings_option,
)
from optsched.errors import UsageError

if TYPE_CHECKING:
    from optsched.rounds.policy import RoundPolicy

POLICY = "Policy"


@dataclass(frozen=True)
class PolicyOptions:
    """Fields of a `RoundPolicy` that replace those of the file or the state."""

    section: ClassVar = SOLVER

    policy_file: Annotated[
        str | None,
        Option(
            "Policy (json, yaml) in the place of the state's; further options change it.",
            "FILE",
            section=PROBLEM,
            source=True,
        ),
    ] = None
    formulation: Annotated[
        str | None, formulation_option("What the rounds follow: see `optsched formulations`.")
    ] = None
    ranking: Annotated[
        str | None,
        Option(
            "Or an order of the jobs, such as fcfs or srtf; no program.", "NAME", section=PROBLEM
        ),
    ] = None
    options: Annotated[
        dict[str, Any] | None,
        settings_option("Option of the formulation or the ranking. Can be repeated."),
    ] = None
    constraints: Annotated[
        list[dict[str, Any]] | None,
        constraints_option("Side constraint, beside those of the instance. Can be repeated."),
    ] = None
    hysteresis: Annotated[
        float | None,
        Option(
            "Rounds that a waiting job must be owed more than one that runs.",
            "ROUNDS",
            section=POLICY,
        ),
    ] = None
    max_moves: Annotated[
        int | None,
        Option("Running jobs that the plan stops or moves, at most.", "N", section=POLICY),
    ] = None
    patience: Annotated[
        int | None,
        Option(
            "Rounds after which a waiting job goes before all others.", "ROUNDS", section=POLICY
        ),
    ] = None
    solver: Annotated[
        str | None,
        Option("See `optsched solvers`.", "NAME"),
    ] = None
    time_limit: Annotated[
        float | None,
        Option(
            "Of the solver; later the plan falls back.  [default: 10s]",
            "TIME",
            read=values.duration,
        ),
    ] = None
    work_limit: Annotated[
        int | None,
        Option("Iterations, nodes or conflicts: reproducible.", "N"),
    ] = None
    gap: Annotated[
        float | None,
        Option("Relative gap at which an integer program may stop.", "G"),
    ] = None
    memory_limit: Annotated[
        float | None,
        Option(
            "Of the solver's process above its imports, such as 4GB.  [default: half of the machine's]",
            "SIZE",
            read=values.size,
        ),
    ] = None
    threads: Annotated[int | None, Option("Of the solver.", "N")] = None
    seed: Annotated[int | None, Option("Of the solver.", "N")] = None

    def applied(self, policy: RoundPolicy) -> RoundPolicy:
        """A policy with these fields; raises `UsageError` and `InvalidInput`."""
        from optsched.instance.reading import validate
        from optsched.rounds.policy import RoundPolicy

        if self.formulation is not None and self.ranking is not None:
            raise UsageError("--formulation and --ranking: a formulation or a ranking, not both")
        given = given_fields(self, "policy_file")
        if self.policy_file is not None:
            policy = read_policy(self.policy_file)
        if not given:
            return policy
        # Fields that the file leaves out stay unset, so that defaults remain defaults
        document = policy.model_dump(mode="json", exclude_unset=True)
        # Options belong to the formulation or the ranking that they were given with
        if "formulation" in given or "ranking" in given:
            for name in ("formulation", "ranking", "options"):
                document.pop(name, None)
        return validate(RoundPolicy, document | given, "policy")


def read_policy(source: str) -> RoundPolicy:
    """A policy from a file; ``-`` is standard input."""
    from pathlib import Path

    from optsched.errors import InvalidInput
    from optsched.instance.reading import named, parse_json, read_bytes, read_stdin, show, validate
    from optsched.instance.yaml_text import parse_yaml
    from optsched.rounds.policy import RoundPolicy

    data = read_stdin() if source == "-" else read_bytes(Path(source))
    with named(source):
        # Standard input is JSON
        yaml = Path(source).suffix.lower() in (".yaml", ".yml")
        document = parse_yaml(data, "policy") if yaml else parse_json(data, "policy")
        if not isinstance(document, Mapping):
            raise InvalidInput("", show(document), "an object with the keys of a policy")
        return validate(RoundPolicy, document)
