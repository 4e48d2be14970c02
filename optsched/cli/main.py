"""The ``optsched`` command: builds the application and turns what typer refuses into exit codes."""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from types import FrameType
from typing import Annotated, Any

from optsched import __version__
from optsched.errors import Interrupted, cannot_write

try:
    import typer

    from optsched.cli.command import Group, Help, make_group
    from optsched.cli.shell import Shell, silence_stdout
except KeyboardInterrupt:  # these take as long to load as a small problem to be solved
    sys.stderr.write("optsched: interrupted\n")
    raise SystemExit(Interrupted.exit_code) from None

USAGE = 2
# New objects after which the program looks for cycles. With more, large arrays would wait in cycles
# for too long.
COLLECT_AFTER = 10_000
# Where each command is, in the order of the help; a name in capitals is that of a group of
# commands.
COMMANDS = {
    "solve": "solve:solve",
    "verify": "verify:verify",
    "validate": "validate:validate",
    "compare": "compare:compare",
    "explain": "explain:explain",
    "admit": "admit:admit",
    "whatif": "whatif:whatif",
    "pareto": "pareto:pareto",
    "round": "rounds:plan_round",
    "replay": "rounds:replay",
    "top": "rounds:top",
    "simulate": "simulate:simulate",
    "bench": "bench:bench",
    "profile": "profile:profile",
    "plot": "plot:plot",
    "export": "export:export",
    "import": "imports:IMPORTS",
    "generate": "generate:GENERATED_BY",
    "trace": "trace:TRACES",
    "model": "model:MODEL_COMMANDS",
    "formulations": "formulations:formulations",
    "solvers": "solvers:solvers",
    "instances": "instances:instances",
    "doctor": "doctor:doctor",
}
# The options of `optsched.cli.command.Messages`
MESSAGE_OPTION = re.compile(r"--debug|--quiet|-q|--verbose|-v+|--log(=.*)?", re.DOTALL)


def _version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"optsched {__version__}\n")
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
]


def _root(
    context: typer.Context,
    version: Version = False,
    help: Help = False,
) -> int:
    if context.invoked_subcommand is None:
        sys.stdout.write(context.get_help() + "\n")
        return USAGE
    return 0


@cache
def _application() -> Any:
    """The program as a group of commands."""
    help = (
        "Schedule GPU clusters by mathematical optimization, with a certificate for every answer."
    )
    return make_group("optsched", Group(help, lambda: COMMANDS), _root)


def run() -> int:
    """The ``optsched`` program: `main` with its own command line."""
    # A notebook names the backend of its kernel to its children. They may not have it, and write
    # files only.
    os.environ.pop("MPLBACKEND", None)
    # A command makes objects to keep them, modules before all. By default the collector would walk
    # the new ones after every 700 and, time and again, all of them.
    gc.set_threshold(COLLECT_AFTER)
    code = main()
    solving = sys.modules.get("optsched.solvers.new_thread")
    # Python would wait for it
    if solving is not None and solving.left_running():
        sys.stderr.flush()
        os._exit(code)
    # Python walks all objects when it ends, to collect what ends with the process anyway
    gc.freeze()
    return code


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line (default: the program's own); returns the exit code."""
    _prepare_streams()
    with terminated_like_interrupted():
        code = _run(list(sys.argv[1:] if arguments is None else arguments))
    try:
        sys.stdout.flush()
    # `optsched ... | head` is no error
    except BrokenPipeError:
        silence_stdout()
    except OSError as error:
        silence_stdout()
        return code or Shell().failed(cannot_write("standard output", error.strerror))
    return code


@contextmanager
def terminated_like_interrupted() -> Iterator[None]:
    """While inside, SIGTERM does what Ctrl-C does: a command keeps what it has found.

    Outside of the main thread nothing changes. Programs that use the library keep their own way to
    terminate.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_signal(number: int, frame: FrameType | None) -> None:
        interrupted = signal.getsignal(signal.SIGINT)
        # As for commands in the background of a script
        if not callable(interrupted):
            raise KeyboardInterrupt
        interrupted(signal.SIGINT, frame)

    before = signal.signal(signal.SIGTERM, on_signal)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _prepare_streams() -> None:
    """A closed stream swallows what is written;
    a character that an encoding lacks is written as its escape.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  (open until the end)
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _behind_the_command(arguments: list[str]) -> list[str]:
    """Options of all commands may come before the command's name: they are moved behind it."""
    place = 0
    while place < len(arguments) and MESSAGE_OPTION.fullmatch(arguments[place]):
        place += 2 if arguments[place] == "--log" else 1
    leading, rest = arguments[:place], arguments[place:]
    if not rest or rest[0] not in COMMANDS:
        return rest
    # The name of a command of a group has two words
    words = 2 if COMMANDS[rest[0]].partition(":")[2].isupper() else 1
    if len(rest) < words or rest[words - 1].startswith("-"):
        return rest
    return [*rest[:words], *leading, *rest[words:]]


def _run(arguments: list[str]) -> int:
    shell = Shell(debug="--debug" in arguments)
    arguments = _behind_the_command(arguments)
    try:
        code = _application().main(arguments, prog_name="optsched", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except SystemExit:  # what typer does when the reader of a help text has gone away
        return 0
    except typer.Abort:
        return shell.failed(KeyboardInterrupt())
    except (Exception, KeyboardInterrupt) as error:
        return _refused(shell, error)


def _refused(shell: Shell, error: BaseException) -> int:
    """Report an error outside of the commands:
    what typer refuses, or standard output that cannot be written.
    """
    if isinstance(error, OSError):
        silence_stdout()
        return shell.failed(cannot_write("standard output", error.strerror))
    # Only what typer and click refuse has a message of this form
    if not hasattr(error, "format_message"):
        return shell.failed(error)
    message = str(error.format_message()).removesuffix(".")
    context = getattr(error, "ctx", None)
    shell.complain(f"error: {message[:1].lower()}{message[1:]}")
    shell.complain(f"try '{'optsched' if context is None else context.command_path} --help'")
    return USAGE


if __name__ == "__main__":
    sys.exit(run())
