"""Errors that a user can cause, each with the exit code that the command line returns for it."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path
    from typing import Any, ParamSpec, Self, TypeVar

    Given = ParamSpec("Given")
    Result = TypeVar("Result")


def checks_keywords(
    function: Callable[Given, Result], more: Iterable[str] = ()
) -> Callable[Given, Result]:
    """Let a function refuse unknown keywords by a `UsageError` that names the closest one, or all.

    ``more`` are names that it takes as ``**keywords``.
    """
    code = function.__code__
    known = (*code.co_varnames[: code.co_argcount + code.co_kwonlyargcount], *more)

    @wraps(function)
    def checked(*positional: Given.args, **given: Given.kwargs) -> Result:
        for name in given:
            if name not in known:
                called = function.__qualname__.removesuffix(".__init__")
                parameters = [parameter for parameter in known if parameter not in ("self", "cls")]
                hint = (
                    did_you_mean(name, parameters) or f", expected one of {', '.join(parameters)}"
                )
                raise UsageError(f"{called} has no parameter {name!r}{hint}")
        return function(*positional, **given)

    return checked


CLOSE_AMONG = 10_000
"""Names that are compared at most: comparing is slow, and a cluster may have millions."""
LIKENESS = 0.65
"""Likeness from which a name may have been meant; from 0.6 where the first letter is the same:
maximum may mean max, but notes does not mean steps.
"""

BEGINNING = 3
"""Letters from which the beginning of a name is taken for it."""


def did_you_mean(name: object, known: Iterable[str], *, aside: bool = False) -> str:
    """A hint for a message, or nothing where no known name is close.

    ``"; did you mean time_limit?"`` ends a message; ``" (did you mean time_limit?)"`` is
    ``aside`` inside one.
    """
    import re
    from difflib import SequenceMatcher, get_close_matches
    from itertools import islice

    if not isinstance(name, str):
        return ""  # a key of a mapping that a caller made
    names = {one.casefold(): one for one in islice(known, CLOSE_AMONG)}
    typed = name.casefold()
    close = [
        one
        for one in get_close_matches(typed, names)
        if one[0] == typed[0] or SequenceMatcher(None, one, typed).ratio() >= LIKENESS
    ]
    # A beginning is meant too, whatever stands between words: maxmin for max-min-fairness
    letters = re.sub(r"\W|_", "", typed)
    if not close and len(letters) >= BEGINNING:
        close = [one for one in names if re.sub(r"\W|_", "", one).startswith(letters)]
    if not close:
        return ""
    meant = names[close[0]]
    return f" (did you mean {meant}?)" if aside else f"; did you mean {meant}?"


class OptschedError(Exception):
    """Base of every error raised on purpose; anything else is an internal error.

    Attributes
    ----------
    exit_code : int
        What the command line returns (docs/reference/command-line.md, "Exit codes").
    jobs : tuple of int
        Rows of the jobs that a formulation does not deal with, where all others would do:
        `optsched.solve` refuses the instance for them, and rounds go on without them.
    """

    exit_code = 1
    jobs: tuple[int, ...] = ()

    def __reduce__(self) -> tuple[Any, ...]:
        # As it is: a subclass may be made of other arguments than its message
        return _restored, (type(self), self.args, self.__dict__)

    def of_jobs(self, jobs: Iterable[int]) -> Self:
        """The same error, which names the jobs that a formulation does not deal with.

        Parameters
        ----------
        jobs : iterable of int
            Rows of the job table.

        Returns
        -------
        OptschedError
            This error, to be raised.
        """
        self.jobs = tuple(jobs)
        return self


class UsageError(OptschedError):
    """An option, a name or a combination of them makes no sense."""

    exit_code = 2


def _restored(
    kind: type[OptschedError], args: tuple[Any, ...], fields: dict[str, Any]
) -> OptschedError:
    """An error that came from another process."""
    error = kind.__new__(kind, *args)
    error.__dict__.update(fields)
    return error


class WrongValue(OptschedError):
    """Something has a value that it cannot have; raised as `InvalidArgument`,
    `InvalidInput` or `UnsuitableSolver`.

    Parameters
    ----------
    path : str
        Where, e.g. ``--seed`` or ``jobs[3].steps``; empty for the argument or the document as a
        whole.
    found : str
        What is there, in the user's words.
    expected : str
        What should stand there.
    file : str
        The file that it is in; empty if it is in none.
    sentence : str
        The message, where another one reads better than ``path: found X, expected Y``.
    """

    def __init__(
        self, path: str, found: str, expected: str, file: str = "", *, sentence: str = ""
    ) -> None:
        self.path, self.found, self.expected, self.file = path, found, expected, file
        where = "".join(f"{part}: " for part in (file, path) if part)
        super().__init__(sentence or f"{where}found {found}, expected {expected}")


class InvalidArgument(WrongValue, UsageError):
    """An argument of a function, or an option of the command line,
    has a value that it cannot have.
    """


def cannot_write(path: str | Path, reason: str | None) -> InvalidArgument:
    """The refusal of a file that cannot be written, with the system's words."""
    found, expected = reason or "an error", "a file that can be written"
    return InvalidArgument(str(path), found, expected, sentence=f"cannot write {path}: {found}")


def wrong_ending(path: str | Path, endings: str) -> InvalidArgument:
    """The refusal of a file to write whose name does not tell its format."""
    expected = f"a name that ends in {endings}"
    return InvalidArgument("", str(path), expected, sentence=f"{path}: expected {expected}")


def given_twice(path: str, name: str) -> InvalidArgument:
    """The refusal of a name or value that is given twice."""
    return InvalidArgument(path, f"{name} twice", "each one once")


def unknown_name(
    path: str, name: str, known: Iterable[str], problem: str = "", hint: str = ""
) -> InvalidArgument:
    """The refusal of a name that is none of those that are known.

    ``problem`` begins the message (default: ``unknown PATH 'NAME'``), and ``hint`` ends it.
    """
    one_of = f"one of {', '.join(known)}"
    problem = problem or f"unknown {path} {name!r}"
    return InvalidArgument(path, repr(name), one_of, sentence=f"{problem}, expected {one_of}{hint}")


class InvalidInput(WrongValue):
    """A document or an array is not what the format asks for.

    Attributes
    ----------
    others : tuple of InvalidInput
        More values that are wrong, such as other fields of a document or cells of a table. The
        message has a line for each.
    more : int
        How many there are beside these.
    """

    exit_code = 3
    others: tuple[InvalidInput, ...] = ()
    more: int = 0

    def one_by_one(self) -> tuple[InvalidInput, ...]:
        """The errors of all values, each with its own message."""
        if not self.others:
            return (self,)
        return (InvalidInput(self.path, self.found, self.expected, self.file), *self.others)

    def each(self, change: Callable[[InvalidInput], InvalidInput]) -> InvalidInput:
        """The same error with each of its values changed, such as given the name of their file.

        Parameters
        ----------
        change : callable
            Takes the error of one value, and returns another one.

        Returns
        -------
        InvalidInput
        """
        wrong = [change(one) for one in self.one_by_one()]
        return all_wrong(wrong, len(wrong) + self.more)


MOST_SHOWN = 20
"""Wrong values that a message lists; more are counted."""
MOST_COUNTED = 1000
"""Wrong values after which nobody looks for more: a file may be wrong everywhere."""


def all_wrong(errors: Sequence[InvalidInput], count: int) -> InvalidInput:
    """One error for ``count`` wrong values, of which at least the first `MOST_SHOWN` are given."""
    first, *others = errors[:MOST_SHOWN]
    more = count - len(others) - 1
    if not others and not more:
        return first
    lines = [str(error) for error in (first, *others)]
    if more:
        lines.append(f"and {'at least ' if count >= MOST_COUNTED else ''}{more:,} more")
    sentence = "\n".join(lines)
    whole = InvalidInput(first.path, first.found, first.expected, first.file, sentence=sentence)
    whole.others, whole.more = tuple(others), more
    return whole


class JournalError(OptschedError):
    """A scheduler's journal cannot be read or written:
    in use, closed, no room, no permission, or not there.
    """

    exit_code = 2


class JournalDamaged(JournalError):
    """A journal holds what no writer left there, or lacks what one did; nothing of it is repaired.

    Parameters
    ----------
    journal : str
        The journal's folder.
    file : str
        The file in it that is wrong.
    line : int | None
        The line, counted from 1; None where it is the file as a whole.
    found, expected : str
        What is there, and what should be.
    """

    exit_code = 3

    def __init__(
        self, journal: str, file: str, line: int | None, found: str, expected: str
    ) -> None:
        self.journal, self.file, self.line, self.found, self.expected = (
            journal,
            file,
            line,
            found,
            expected,
        )
        where = file if line is None else f"{file}, line {line}"
        super().__init__(
            f"journal {journal} is damaged: {where}: found {found}, expected {expected}"
        )


class ReplayDiffers(JournalError):
    """A round of a journal, planned again, has another plan:
    by another version of optsched or of a solver.
    """

    exit_code = 6


class NoAllocation(OptschedError):
    """A simulation cannot go on:
    its policy gives no certified allocation at some time of the trace.
    """

    exit_code = 4


class VerificationFailed(OptschedError):
    """A certificate does not hold, or a solution file does not agree with its instance."""

    exit_code = 6


class SolverUnavailable(OptschedError):
    """A solver, an algorithm or an extra that was asked for is not installed
    or lacks the capability.
    """

    exit_code = 7


class UnsuitableSolver(WrongValue, SolverUnavailable):
    """The solver that was asked for is unknown, or lacks what the program needs."""


class SolverCrashed(OptschedError):
    """A back-end raised or returned garbage; the message has its own words."""

    exit_code = 7


NOTHING_YET = "interrupted before any feasible point was found"
"""What is said where the user stops a run that has nothing to return."""


class Interrupted(OptschedError):
    """Stopped by the user before any feasible point was found."""

    exit_code = 130
