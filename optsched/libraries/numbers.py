"""Numbers of a text, in order; an error states the line."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from optsched.arrays import BoolArray, FloatArray
from optsched.errors import InvalidInput
from optsched.instance.reading import show

MOST = 1e15
"""Largest number that is read: up to here all whole ones are exact."""


def at_line(line: int, found: str, expected: str) -> InvalidInput:
    """The refusal of what is in a line, counted from 1."""
    return InvalidInput(f"line {line}", found, expected)


class Numbers:
    """The words of a text, read from the first to the last. Line breaks mean nothing.

    Parameters
    ----------
    text : str
    """

    def __init__(self, text: str) -> None:
        self._lines = text.splitlines()
        self._words = text.split()
        self._next = 0

    def whole(self, what: str, least: int = 1) -> int:
        """The next word, a whole number.

        Parameters
        ----------
        what : str
            What the number is, for messages.
        least : int

        Raises
        ------
        InvalidInput
            With the line.
        """
        expected = f"{what}, a whole number of at least {least}"
        right = self._checked(
            1, expected, lambda value: (value == np.round(value)) & (value >= least)
        )
        return int(right[0])

    def word(self, what: str) -> str:
        """The next word, such as a name."""
        if self._next == len(self._words):
            raise at_line(max(len(self._lines), 1), "the end of the file", what)
        self._next += 1
        return self._words[self._next - 1]

    def several(self, count: int, what: str, least: float = 0.0) -> FloatArray:
        """So many numbers.

        Parameters
        ----------
        count : int
        what : str
            What the numbers are, for messages.
        least : float

        Returns
        -------
        FloatArray, shape (count,)

        Raises
        ------
        InvalidInput
            With the line.
        """
        numbers = "number" if count == 1 else "numbers"
        limit = numbers if least == -np.inf else f"{numbers} of at least {least:g}"
        expected = f"{count} {limit}: {what}"
        return self._checked(count, expected, lambda value: value >= least)

    def end(self, what: str) -> None:
        """Refuse what follows; ``what`` says what was read."""
        if self._next < len(self._words):
            rest = len(self._words) - self._next
            more = f" and {rest - 1} more" if rest > 1 else ""
            found = f"{show(self._words[self._next])}{more} after {what}"
            raise at_line(self.line_of(self._next), found, "the end of the file")

    def _checked(
        self, count: int, expected: str, right: Callable[[FloatArray], BoolArray]
    ) -> FloatArray:
        words = self._words[self._next : self._next + count]
        value = np.array([_number(word) for word in words])
        wrong = np.flatnonzero(~(right(value) & (np.abs(value) <= MOST)))
        if len(wrong):
            place = int(wrong[0])
            ordinal = f", as number {place + 1} of these" if count > 1 else ""
            found = show(words[place])
            if abs(value[place]) > MOST:
                expected = f"a number of at most {MOST:g}"
            raise at_line(self.line_of(self._next + place), f"{found}{ordinal}", expected)
        if len(words) < count:
            found = f"the end of the file after {len(words)}" if words else "the end of the file"
            raise at_line(max(len(self._lines), 1), found, expected)
        self._next += count
        return value

    def line_of(self, word: int) -> int:
        """The line of a word, counted from 1."""
        before = 0
        for number, line in enumerate(self._lines, 1):
            before += len(line.split())
            if word < before:
                return number
        return max(len(self._lines), 1)


def is_exact(digits: str) -> bool:
    """Whether a whole number is at most `MOST`.

    Parameters
    ----------
    digits : str
        Nothing but digits.
    """
    # Python converts no more than 4,300 digits to a whole number
    return float(digits) <= MOST


def _number(word: str) -> float:
    """What a word says; NaN if it is no number."""
    try:
        # Python reads 1_000 as a number
        return np.nan if "_" in word else float(word)
    except ValueError:
        return np.nan
