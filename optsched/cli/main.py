"""The ``optsched`` command: builds the application and converts errors of typer to exit codes."""

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
except KeyboardInterrupt:  # these imports take as long as solving a small problem
    sys.stderr.write("optsched: interrupted\n")
    raise SystemExit(Interrupted.exit_code) from None

USAGE = 2
# Number of new objects after which the garbage collector runs. With a larger number, large arrays
# in cycles would be kept too long.
COLLECT_AFTER = 10_000
# Location of each command, in the order of the help; a name in capitals is a group of commands.
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
    # A notebook passes the matplotlib backend of its kernel to child processes. They may not have
    # it, and only write files.
    os.environ.pop("MPLBACKEND", None)
    # Processes for many tasks are forked where libraries have one thread each; numpy is not loaded
    # yet
    if any(word.startswith(("--jobs", "--executor")) for word in sys.argv):
        from optsched.processes.forking import few_threads  # takes 10 ms

        few_threads()
    # Most objects of a command, especially modules, live to its end. By default the collector would
    # scan new objects after every 700, and repeatedly all objects.
    gc.set_threshold(COLLECT_AFTER)
    code = main()
    solving = sys.modules.get("optsched.solvers.new_thread")
    # Otherwise Python would wait for it at exit
    if solving is not None and solving.left_running():
        sys.stderr.flush()
        os._exit(code)
    # Skip the collection of all objects at exit, which is useless
    gc.freeze()
    return code


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line (default: the program's own); returns the exit code."""
    _prepare_streams()
    with terminated_like_interrupted():
        code = _run(list(sys.argv[1:] if arguments is None else arguments))
    try:
        sys.stdout.flush()
    # A closed pipe, as in `optsched ... | head`, is not an error
    except BrokenPipeError:
        silence_stdout()
    except OSError as error:
        silence_stdout()
        return code or Shell().failed(cannot_write("standard output", error.strerror))
    return code


@contextmanager
def terminated_like_interrupted() -> Iterator[None]:
    """Context: SIGTERM acts like Ctrl-C, so that a command keeps its results.

    Outside of the main thread nothing changes. Programs that use the library keep their own signal
    handling.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_signal(number: int, frame: FrameType | None) -> None:
        interrupted = signal.getsignal(signal.SIGINT)
        # SIGINT may be ignored, as for background commands of a script
        if not callable(interrupted):
            raise KeyboardInterrupt
        interrupted(signal.SIGINT, frame)

    before = signal.signal(signal.SIGTERM, on_signal)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _prepare_streams() -> None:
    """Discard output to closed streams; write characters that an encoding lacks as escapes."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  (open until the end)
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _behind_the_command(arguments: list[str]) -> list[str]:
    """Options of all commands may be given before the command name; move them after it."""
    place = 0
    while place < len(arguments) and MESSAGE_OPTION.fullmatch(arguments[place]):
        place += 2 if arguments[place] == "--log" else 1
    leading, rest = arguments[:place], arguments[place:]
    if not rest or rest[0] not in COMMANDS:
        return rest
    # A subcommand has two words
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
    except SystemExit:  # typer exits if the reader of a help text has closed the pipe
        return 0
    except typer.Abort:
        return shell.failed(KeyboardInterrupt())
    except (Exception, KeyboardInterrupt) as error:
        return _refused(shell, error)


def _refused(shell: Shell, error: BaseException) -> int:
    """Report an error outside of the commands:
    errors of typer, or standard output that cannot be written.
    """
    if isinstance(error, OSError):
        silence_stdout()
        return shell.failed(cannot_write("standard output", error.strerror))
    # Only errors of typer and click have a message of this form
    if not hasattr(error, "format_message"):
        return shell.failed(error)
    message = str(error.format_message()).removesuffix(".")
    context = getattr(error, "ctx", None)
    shell.complain(f"error: {message[:1].lower()}{message[1:]}")
    shell.complain(f"try '{'optsched' if context is None else context.command_path} --help'")
    return USAGE


if __name__ == "__main__":
    sys.exit(run())
