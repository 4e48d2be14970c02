"""Options that say how rounds are decided."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from optsched.cli import values
from optsched.cli.options import PROBLEM, SOLVER
from optsched.errors import UsageError

if TYPE_CHECKING:
    from optsched.rounds.policy import RoundPolicy

POLICY = "Policy"


@dataclass(frozen=True)
class PolicyOptions:
    """What is typed of a policy; what is not is as the file or the state says, else the default."""

    policy_file: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", rich_help_panel=PROBLEM,
            help="Policy (json, yaml) in the place of the state's; further options change it.",
        ),
    ] = None  # fmt: skip
    formulation: Annotated[
        str | None,
        typer.Option(
            "--formulation", "-f", metavar="NAME", rich_help_panel=PROBLEM,
            help="What the rounds follow: see `optsched formulations`.",
        ),
    ] = None  # fmt: skip
    ranking: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            rich_help_panel=PROBLEM,
            help="Or an order of the jobs, such as fcfs or srtf; no program.",
        ),
    ] = None
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option", "-O", metavar="KEY=VALUE", rich_help_panel=PROBLEM,
            help="Option of the formulation or the ranking. Can be repeated.",
        ),
    ] = None  # fmt: skip
    constraint: Annotated[
        list[str] | None,
        typer.Option(
            "--constraint", "-C", metavar="KIND[:KEY=VALUE,...]", rich_help_panel=PROBLEM,
            help="Side constraint, beside those of the instance. Can be repeated.",
        ),
    ] = None  # fmt: skip
    hysteresis: Annotated[
        str | None,
        typer.Option(
            metavar="ROUNDS", rich_help_panel=POLICY,
            help="Rounds that a waiting job must be owed more than one that runs.",
        ),
    ] = None  # fmt: skip
    max_moves: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            rich_help_panel=POLICY,
            help="Running jobs that the plan stops or moves, at most.",
        ),
    ] = None
    patience: Annotated[
        str | None,
        typer.Option(
            metavar="ROUNDS",
            rich_help_panel=POLICY,
            help="Rounds after which a waiting job goes before all others.",
        ),
    ] = None
    solver: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="See `optsched solvers`.", rich_help_panel=SOLVER),
    ] = None
    time_limit: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            rich_help_panel=SOLVER,
            help="Of the solver; later the plan falls back.  [default: 10s]",
        ),
    ] = None
    work_limit: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            rich_help_panel=SOLVER,
            help="Iterations, nodes or conflicts: reproducible.",
        ),
    ] = None
    gap: Annotated[
        str | None,
        typer.Option(
            metavar="G",
            rich_help_panel=SOLVER,
            help="Relative gap at which an integer program may stop.",
        ),
    ] = None
    memory_limit: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE", rich_help_panel=SOLVER,
            help="Of the solver's process above its imports, such as 4GB.  [default: half of the machine's]",
        ),
    ] = None  # fmt: skip
    threads: Annotated[
        str | None, typer.Option(metavar="N", help="Of the solver.", rich_help_panel=SOLVER)
    ] = None
    seed: Annotated[
        str | None, typer.Option(metavar="N", help="Of the solver.", rich_help_panel=SOLVER)
    ] = None

    def applied(self, policy: RoundPolicy) -> RoundPolicy:
        """A policy with what is typed; raises `UsageError` and `InvalidInput`."""
        from optsched.instance.reading import validate
        from optsched.rounds.policy import RoundPolicy

        if self.formulation is not None and self.ranking is not None:
            raise UsageError("--formulation and --ranking: a formulation or a ranking, not both")
        typed = self._typed()
        if self.policy_file is not None:
            policy = read_policy(self.policy_file)
        if not typed:
            return policy
        document = policy.model_dump(mode="json", exclude_unset=True)
        if "formulation" in typed or "ranking" in typed:
            for name in ("formulation", "ranking", "options"):
                document.pop(name, None)
        return validate(RoundPolicy, document | typed, "policy")

    def _typed(self) -> dict[str, Any]:
        """Fields of a policy that options give."""
        given = {
            "formulation": self.formulation,
            "ranking": self.ranking,
            "options": None if self.option is None else values.pairs(self.option, "-O"),
            "constraints": None
            if self.constraint is None
            else [values.constraint(text) for text in self.constraint],
            "hysteresis": values.real(self.hysteresis, "--hysteresis"),
            "max_moves": values.whole(self.max_moves, "--max-moves"),
            "patience": values.whole(self.patience, "--patience"),
            "solver": self.solver,
            "time_limit": values.duration(self.time_limit, "--time-limit"),
            "work_limit": values.whole(self.work_limit, "--work-limit"),
            "gap": values.real(self.gap, "--gap"),
            "memory_limit": values.size(self.memory_limit, "--memory-limit"),
            "threads": values.whole(self.threads, "--threads"),
            "seed": values.whole(self.seed, "--seed"),
        }
        return {name: value for name, value in given.items() if value is not None}


def read_policy(source: str) -> RoundPolicy:
    """A policy from a file; ``-`` is standard input."""
    from pathlib import Path

    from optsched.errors import InvalidInput
    from optsched.instance.reading import named, parse_json, read_bytes, read_stdin, show, validate
    from optsched.instance.yaml_text import parse_yaml
    from optsched.rounds.policy import RoundPolicy

    data = read_stdin() if source == "-" else read_bytes(Path(source))
    with named(source):
        yaml = Path(source).suffix.lower() in (".yaml", ".yml")
        document = parse_yaml(data, "policy") if yaml else parse_json(data, "policy")
        if not isinstance(document, Mapping):
            raise InvalidInput("", show(document), "an object with the keys of a policy")
        return validate(RoundPolicy, document)
