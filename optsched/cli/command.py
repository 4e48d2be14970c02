"""How a command is declared: common options, guarded execution, and help in sections."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from optsched.cli.logs import logging_to
from optsched.cli.shell import WIDTH, Shell

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": WIDTH}
COMMON = "Messages"

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.", rich_help_panel=COMMON)]
Verbose = Annotated[
    int,
    typer.Option(
        "--verbose", "-v", count=True, show_default=False, rich_help_panel=COMMON,
        help="Log on standard error what is done and why (-vv: more).",
    ),
]  # fmt: skip
Log = Annotated[str | None, typer.Option(metavar="FILE", help="Append the log to a file.", rich_help_panel=COMMON)]
Debug = Annotated[bool, typer.Option("--debug", help="Show where an error comes from.", rich_help_panel=COMMON)]
JSON = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.", rich_help_panel="Output")]


def _common(quiet: Quiet = False, verbose: Verbose = 0, log: Log = None, debug: Debug = False) -> None:
    """The options that every command has."""


class Command(TyperCommand):
    """A command whose help lists arguments and options in sections (``rich_help_panel``) as plain text."""

    def collect_usage_pieces(self, ctx: typer.Context) -> list[str]:
        """Arguments first, then options."""
        names = [
            _name(parameter) if parameter.required else f"[{_name(parameter)}]"
            for parameter in self.get_params(ctx)
            if parameter.param_type_name == "argument"
        ]
        return [*names, "[OPTIONS]"]

    def format_options(self, ctx: typer.Context, formatter: Any) -> None:
        """Write the sections: arguments, then options in the order of declaration."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": []}
        for parameter in self.get_params(ctx):
            if parameter.param_type_name == "argument":
                sections["Arguments"].append((_name(parameter), getattr(parameter, "help", None) or ""))
            elif (record := parameter.get_help_record(ctx)) is not None:
                sections.setdefault(getattr(parameter, "rich_help_panel", None) or COMMON, []).append(record)
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)

    def format_epilog(self, ctx: typer.Context, formatter: Any) -> None:
        """Write the epilog as it stands: it holds examples."""
        if self.epilog:
            formatter.write_paragraph()
            formatter.write(f"Examples:\n{_indented(self.epilog)}\n")


def _name(parameter: Any) -> str:
    return parameter.metavar or parameter.name.upper()


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" if line else "" for line in inspect.cleandoc(text).splitlines())


def add_command(
    app: typer.Typer, name: str, function: Callable[..., int | None], examples: str = ""
) -> None:
    """Register ``function(shell, ...)`` as a command.

    The options -q, -v, --log and --debug are added to its own; errors are reported and become exit codes, and what it
    returns is the exit code (None: 0).
    """

    @functools.wraps(function)
    def run(*, quiet: bool, verbose: int, log: str | None, debug: bool, **given: Any) -> int:
        shell = Shell(quiet, debug)
        try:
            with logging_to(verbose, log):
                return function(shell, **given) or 0
        except (Exception, KeyboardInterrupt) as error:
            return shell.failed(error)

    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    common = list(inspect.signature(_common, eval_str=True).parameters.values())
    parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in (*own, *common)]
    run.__signature__ = inspect.Signature(parameters, return_annotation=int)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    del run.__wrapped__
    app.command(name, cls=Command, context_settings=CONTEXT, epilog=examples)(run)
