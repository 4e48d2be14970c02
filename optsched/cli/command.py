"""How a command is declared: common options, guarded execution, and help in sections."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from optsched.cli.logs import logging_to
from optsched.cli.shell import WIDTH, Shell

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": WIDTH}
COMMON = "Messages"

ORDER = (
    "solve", "verify", "validate", "compare", "explain", "whatif", "pareto", "round", "replay", "top",
    "simulate", "bench", "profile", "plot", "export", "import", "generate", "trace", "model", "formulations", "solvers",
    "instances", "doctor",
)  # fmt: skip


def _help(context: typer.Context, wanted: bool) -> None:
    if wanted:
        sys.stdout.write(context.get_help() + "\n")
        raise typer.Exit


# typer's own help option would load pydantic whenever it is not given
Help = Annotated[
    bool,
    typer.Option("--help", "-h", callback=_help, is_eager=True, help="Show this message and exit."),
]


Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print nothing but errors.", rich_help_panel=COMMON)
]
Verbose = Annotated[
    int,
    typer.Option(
        "--verbose", "-v", count=True, show_default=False, rich_help_panel=COMMON,
        help="Log on standard error what is done and why (-vv: more).",
    ),
]  # fmt: skip
Log = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Append the log to a file; as JSON to a .jsonl.",
        rich_help_panel=COMMON,
    ),
]
Debug = Annotated[
    bool, typer.Option("--debug", help="Show where an error comes from.", rich_help_panel=COMMON)
]


@dataclass(frozen=True)
class Messages:
    """The options that every command has."""

    quiet: Quiet = False
    verbose: Verbose = 0
    log: Log = None
    debug: Debug = False


class Command(TyperCommand):
    """A command whose help lists arguments and options in sections (``rich_help_panel``) as plain text."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Arguments first, then options."""
        names = [
            _name(parameter) if parameter.required else f"[{_name(parameter)}]"
            for parameter in self.get_params(ctx)
            if parameter.param_type_name == "argument"
        ]
        return [*names, "[OPTIONS]"]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the sections: arguments, then options in the order of declaration."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": []}
        for parameter in self.get_params(ctx):
            if parameter.param_type_name == "argument":
                sections["Arguments"].append(
                    (_name(parameter), getattr(parameter, "help", None) or "")
                )
            elif (record := parameter.get_help_record(ctx)) is not None:
                sections.setdefault(
                    getattr(parameter, "rich_help_panel", None) or COMMON, []
                ).append(record)
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the epilog as it stands: it holds examples."""
        if self.epilog:
            formatter.write_paragraph()
            formatter.write(f"Examples:\n{_indented(self.epilog)}\n")


class Commands(TyperGroup):
    """A list of commands in a fixed order, each with its first sentence in full, as plain text."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names in the order of use."""
        return sorted(
            self.commands, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER)
        )

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the names and sentences."""
        rows = [(name, _sentence(self.commands[name])) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _sentence(command: Any) -> str:
    text = command.help or ""
    return " ".join(text.split("\n\n")[0].split()).removesuffix(".")


def _name(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.upper())


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" if line else "" for line in inspect.cleandoc(text).splitlines())


def add_command(
    app: typer.Typer, name: str, function: Callable[..., int | None], examples: str = ""
) -> None:
    """Register ``function(shell, ...)`` as a command.

    Of a parameter that is a dataclass every field becomes an argument or option. The options of `Messages` are added;
    errors are reported and become exit codes, and what the function returns is the exit code (None: 0).
    """
    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    flat = [field for parameter in own for field in _fields(parameter)]

    def run(**given: Any) -> int:
        messages = _taken(Messages, given)
        shell = Shell(messages.quiet, messages.debug)
        try:
            with logging_to(messages.verbose, messages.log):
                grouped = {
                    p.name: _taken(p.annotation, given) for p in own if is_dataclass(p.annotation)
                }
                return function(shell, **grouped, **given) or 0
        except (Exception, KeyboardInterrupt) as error:
            return shell.failed(error)

    common = _fields(
        inspect.Parameter("messages", inspect.Parameter.KEYWORD_ONLY, annotation=Messages)
    )
    parameters = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in (*flat, *common)
    ]
    run.__signature__ = inspect.Signature(parameters, return_annotation=int)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__doc__ = function.__doc__
    app.command(name, cls=Command, context_settings=CONTEXT, epilog=examples)(run)


def _fields(parameter: inspect.Parameter) -> list[inspect.Parameter]:
    """The fields of a parameter that is a dataclass, as parameters; any other parameter itself."""
    owner = parameter.annotation
    if not is_dataclass(owner):
        return [parameter]
    hints = get_type_hints(owner, include_extras=True)
    empty = inspect.Parameter.empty
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=empty if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in fields(owner)
    ]


def _taken(owner: Any, given: dict[str, Any]) -> Any:
    """A dataclass from its part of the values, which are taken out."""
    return owner(**{field.name: given.pop(field.name) for field in fields(owner)})
