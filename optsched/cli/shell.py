"""Common part of all commands: streams, verbosity, conversion of errors to exit codes."""

from __future__ import annotations

import io
import logging
import os
import shutil
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from optsched.display import printable
from optsched.errors import Interrupted, InvalidInput, OptschedError, cannot_write

if TYPE_CHECKING:
    from rich.console import RenderableType

# Columns of prose at most; tables take the whole terminal.
WIDTH = 100
# Columns of tables in a file or a pipe.
WITHOUT_TERMINAL = 200
INTERNAL = 1
INTERRUPTED = 130
# Characters of an error message.
LONGEST = 500


class _Paper(io.StringIO):
    """Buffer for standard output, with its encoding: rich uses ASCII lines if it must."""

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return getattr(sys.stdout, "encoding", None) or "utf-8"


@dataclass(frozen=True)
class Shell:
    """The streams of one command.

    Attributes
    ----------
    quiet : bool
        Print only errors and the document of ``--json``.
    debug : bool
        Show tracebacks.
    """

    quiet: bool = False
    debug: bool = False

    def print(self, *renderables: RenderableType) -> None:
        """Print for people, unless quiet: tables as wide as the terminal,
        prose at most `WIDTH` columns; in colour on a terminal alone."""
        if self.quiet:
            return
        from rich.console import Console

        from optsched.cli.tables import Grid

        # Rich writes into a string, so that a closed pipe is handled in one place
        paper = _Paper()
        colour = colourful(sys.stdout)
        console = Console(
            file=paper,
            width=terminal_width(most=None),
            force_terminal=colour,
            color_system="auto" if colour else None,
            markup=False,
            highlight=False,
            emoji=False,
        )
        for renderable in renderables:
            console.print(
                renderable, width=None if isinstance(renderable, Grid) else terminal_width()
            )
        # Rich pads lines with blanks, which make diffs of outputs noisy
        lines = paper.getvalue().lstrip("\n").splitlines()
        self.write("".join(f"{line.rstrip()}\n" for line in lines))

    def tell(self, line: str) -> None:
        """Print one line unchanged (such as the path of a written file), unless quiet."""
        if not self.quiet:
            self.write(f"{printable(line)}\n")

    def document(self, document: Mapping[str, Any]) -> None:
        """Print a document as JSON on standard output, even if quiet."""
        from optsched.instance.files import pretty_json

        self.write(pretty_json(dict(document)))

    def write(self, text: str) -> None:
        """Write to standard output; a closed pipe ends the output silently."""
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except BrokenPipeError:
            silence_stdout()
        except OSError as error:
            silence_stdout()
            raise cannot_write("standard output", error.strerror) from None

    def answer(
        self,
        as_json: bool,
        document: Callable[[], Mapping[str, Any]],
        view: Iterable[RenderableType],
        notes: Iterable[str] = (),
        written: Iterable[str] = (),
    ) -> None:
        """Show the answer of a command: as JSON, or, unless quiet, as tables.

        Parameters
        ----------
        as_json : bool
        document : callable
            Makes the JSON document.
        view : iterable of renderables
            The tables; a generator is only evaluated if it is shown.
        notes : iterable of str
            Notes on the answer.
        written : iterable of str
            Lines about files that were written.
        """
        if as_json:
            self.document(document())
        elif not self.quiet:
            self.print(*view)
            self.note(notes)
            for line in written:
                self.tell(line)

    def complain(self, line: str) -> None:
        """One line on standard error, after the program's name."""
        with suppress(OSError):
            sys.stderr.write(f"optsched: {one_line(line)}\n")
            sys.stderr.flush()

    def note(self, notes: Iterable[str]) -> None:
        """Notes on answers, each once, on standard error; unless quiet."""
        if not self.quiet:
            for note in dict.fromkeys(notes):
                self.complain(f"note: {note}")

    def failed(self, error: BaseException) -> int:
        """Report an error; returns its exit code."""
        if self.debug and not isinstance(error, Interrupted):
            traceback.print_exception(error, file=sys.stderr)
        # Ctrl-C and SIGTERM both give code 130
        if isinstance(error, KeyboardInterrupt):
            error = Interrupted("interrupted")
        if isinstance(error, OptschedError):
            if isinstance(error, Interrupted):
                self.complain(str(error))
                return error.exit_code
            # Each wrong cell of a table gets its own line
            several = isinstance(error, InvalidInput) and error.others
            for line in str(error).splitlines() if several else [str(error)]:
                self.complain(f"error: {line}")
            return error.exit_code
        self.complain(f"internal error: {type(error).__name__}: {error}")
        if not self.debug:
            self.complain(
                "this is a bug in optsched or in a package that extends it; "
                "--debug after the command shows where it happened"
            )
        return INTERNAL


def colourful(stream: TextIO) -> bool:
    """Whether to write colours: a terminal, and no NO_COLOR."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def terminal_width(most: int | None = WIDTH) -> int:
    """Columns for output: those of the terminal (else `WITHOUT_TERMINAL`), at most ``most``."""
    # With fewer columns every word of a table would be broken
    columns = max(40, shutil.get_terminal_size((WITHOUT_TERMINAL, 24)).columns)
    return columns if most is None else min(columns, most)


def one_line(text: str) -> str:
    """A message on one line, without control characters, shortened."""
    line = printable(" ".join(text.split()))
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 3]}..."


def silence_stdout() -> None:
    """Discard all further output to standard output, also at exit."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):  # a stream of a test
        sys.stdout = io.StringIO()
        return
    # Python flushes standard output at exit, which would raise again on a closed pipe
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


def check_target(path: str | None) -> None:
    """Refuse an output file that cannot be written, before any work is done."""
    if path is None or path == "-":
        return
    target = Path(path)
    if target.is_dir():
        raise cannot_write(target, "it is a folder")
    if not target.parent.is_dir():
        raise cannot_write(target, f"there is no folder {target.parent}")


def written_to(**files: str | None) -> list[str]:
    """An empty line, and ``plan written to FILE`` for each of the files;
    empty if there are none.
    """
    lines = [f"{what.replace('_', ' ')} written to {path}" for what, path in files.items() if path]
    return ["", *lines] if lines else []


def write_document(make: Callable[[], Mapping[str, Any]], path: str | None) -> None:
    """Write a document as a JSON file, atomically; without a path, nothing is written.

    For ``-`` nothing is written here either: `Shell.answer` prints the document.
    """
    if path is None or path == "-":
        return
    from optsched.api import write_atomically
    from optsched.instance.files import pretty_json

    write_atomically(path, pretty_json(dict(make())).encode())


# --- the log of the library -----------------------------------------------------------------------


class _Lines(logging.Handler):
    """Log lines on the current standard error. If it cannot be written, the command continues."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line; a traceback only with ``-vv``."""
        line = self.format(record) if self.level <= logging.DEBUG else record.getMessage()
        try:
            sys.stderr.write(f"optsched: {line}\n")
        except (
            OSError
        ):  # a full disk, or a pipe that nobody reads any more: there is no place to say so
            self.setLevel(logging.CRITICAL + 1)


class _LogFile(logging.FileHandler):
    """Log lines in a file. If it cannot be written (a full disk), the command continues."""

    failed: OSError | None = None

    def handleError(self, record: logging.LogRecord) -> None:
        """Store the first error, and stop writing."""
        error = sys.exc_info()[1]
        if isinstance(error, OSError):
            self.failed = self.failed or error
            self.setLevel(logging.CRITICAL + 1)
        else:
            super().handleError(record)

    def close(self) -> None:
        """Close the file; flushing may fail too."""
        try:
            super().close()
        except OSError as error:
            self.failed = self.failed or error


def _format(file: str) -> logging.Formatter:
    """The formatter of a log file: JSON lines if its name has that suffix."""
    if not file.lower().endswith(".jsonl"):
        return logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    from optsched.rounds.telling import JsonLines

    return JsonLines()


@contextmanager
def logging_to(verbosity: int, file: str | None) -> Iterator[None]:
    """Send the log of optsched to standard error (warnings; INFO with ``-v``, DEBUG
    from two on) and to a file.

    A file that could not be written is an error when the command is done.
    """
    log = logging.getLogger("optsched")
    level = logging.DEBUG if verbosity > 1 else logging.INFO
    handlers: list[logging.Handler] = [_Lines()]
    in_file = None
    if file is not None:
        try:
            in_file = _LogFile(file, encoding="utf-8")
        except OSError as error:
            raise cannot_write(file, error.strerror) from None
        in_file.setFormatter(_format(file))
        handlers.append(in_file)
    before = log.level
    log.setLevel(level)
    for handler in handlers:
        handler.setLevel(level)
    if not verbosity:
        # Without -v only warnings are shown, but the file gets everything
        handlers[0].setLevel(logging.WARNING)
    for handler in handlers:
        log.addHandler(handler)
    try:
        yield
    # Restore the state: a program may run several command lines, as tests do
    finally:
        log.setLevel(before)
        for handler in handlers:
            log.removeHandler(handler)
            handler.close()
    if file is not None and in_file is not None and in_file.failed is not None:
        raise cannot_write(file, in_file.failed.strerror)
