"""The ``optsched`` command: builds the application and turns what typer refuses into exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any

import typer
from typer.main import get_command

from optsched import __version__
from optsched.cli import (
    bench,
    compare,
    doctor,
    explain,
    export,
    formulations,
    generate,
    imports,
    instances,
    model,
    pareto,
    plot,
    profile,
    replay,
    round,
    simulate,
    solve,
    solvers,
    top,
    trace,
    validate,
    verify,
    whatif,
)
from optsched.cli.command import CONTEXT, Commands, Help, add_command
from optsched.cli.shell import Shell, silence_stdout
from optsched.cli.signals import terminated_like_interrupted
from optsched.errors import UsageError

USAGE = 2


def _version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"optsched {__version__}\n")
        raise typer.Exit


Version = Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")]


def _root(
    context: typer.Context,
    version: Version = False,
    help: Help = False,
) -> int:
    """Optimal scheduling of GPU clusters: an instance becomes an allocation, and a certificate of how good it is."""
    if context.invoked_subcommand is None:
        sys.stdout.write(context.get_help() + "\n")
        return USAGE
    return 0


def build_app() -> typer.Typer:
    """The application with all its commands."""
    app = typer.Typer(
        name="optsched",
        cls=Commands,
        context_settings=CONTEXT,
        add_completion=False,
        add_help_option=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    app.callback(invoke_without_command=True)(_root)
    add_command(app, "solve", solve.solve, solve.EXAMPLES)
    add_command(app, "verify", verify.verify, verify.EXAMPLES)
    add_command(app, "validate", validate.validate, validate.EXAMPLES)
    add_command(app, "compare", compare.compare, compare.EXAMPLES)
    add_command(app, "explain", explain.explain, explain.EXAMPLES)
    add_command(app, "whatif", whatif.whatif, whatif.EXAMPLES)
    add_command(app, "pareto", pareto.pareto, pareto.EXAMPLES)
    add_command(app, "round", round.plan_round, round.EXAMPLES)
    add_command(app, "replay", replay.replay, replay.EXAMPLES)
    add_command(app, "top", top.top, top.EXAMPLES)
    add_command(app, "simulate", simulate.simulate, simulate.EXAMPLES)
    add_command(app, "bench", bench.bench, bench.EXAMPLES)
    add_command(app, "profile", profile.profile, profile.EXAMPLES)
    add_command(app, "export", export.export, export.EXAMPLES)
    add_command(app, "plot", plot.plot, plot.EXAMPLES)
    app.add_typer(imports.build_imports(), name="import")
    app.add_typer(generate.build_generators(), name="generate")
    app.add_typer(model.build_models(), name="model")
    app.add_typer(trace.build_traces(), name="trace")
    add_command(app, "formulations", formulations.formulations, formulations.EXAMPLES)
    add_command(app, "solvers", solvers.solvers, solvers.EXAMPLES)
    add_command(app, "instances", instances.instances, instances.EXAMPLES)
    add_command(app, "doctor", doctor.doctor, doctor.EXAMPLES)
    return app


@cache
def _command() -> Any:
    """The application as a command, built once: it takes longer than most command lines run."""
    return get_command(build_app())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line (default: the program's own); returns the exit code."""
    _prepare_streams()
    with terminated_like_interrupted():
        code = _run(list(sys.argv[1:] if arguments is None else arguments))
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        silence_stdout()
    except OSError as error:
        silence_stdout()
        return code or Shell().failed(UsageError(f"cannot write standard output: {error.strerror}"))
    return code


def _prepare_streams() -> None:
    """A closed stream swallows what is written; a character that an encoding lacks is written as its escape."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  (open until the end)
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _run(arguments: list[str]) -> int:
    shell = Shell(debug="--debug" in arguments)
    try:
        code = _command().main(arguments, prog_name="optsched", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except SystemExit:  # what typer does when the reader of a help text has gone away
        return 0
    except typer.Abort:
        return shell.failed(KeyboardInterrupt())
    except (Exception, KeyboardInterrupt) as error:
        return _refused(shell, error)


def _refused(shell: Shell, error: BaseException) -> int:
    """Report an error outside of the commands: what typer refuses, or standard output that cannot be written."""
    if isinstance(error, OSError):
        silence_stdout()
        return shell.failed(UsageError(f"cannot write standard output: {error.strerror}"))
    if not hasattr(error, "format_message"):
        return shell.failed(error)
    message, context = str(error.format_message()).removesuffix("."), getattr(error, "ctx", None)
    shell.complain(f"error: {message[:1].lower()}{message[1:]}")
    shell.complain(f"try '{'optsched' if context is None else context.command_path} --help'")
    return USAGE


if __name__ == "__main__":
    sys.exit(main())
