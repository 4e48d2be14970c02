"""Numbers and names as text."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence, Sized
from itertools import islice

MOST_GAP = 100.0
"""Gap above which only that it is large is said: where the objective is nearly 0, the quotient
means nothing.
"""


def amount(value: float) -> str:
    """Four significant digits, of large numbers all before the point: ``0.9714``, ``31,345``."""
    return f"{value:,.0f}" if 10_000 <= abs(value) < 1e12 else f"{value:.4g}"


def moment(value: float, now: float) -> str:
    """A moment rounded up, so that what is in time for it is in time for the text.

    The time from now has four significant digits, whatever the clock counts from: ``1700000001.3``.
    """
    left = abs(value - now)
    digits = 9 if left == 0 else min(max(3 - math.floor(math.log10(left)), 0), 9)
    text = f"{value:.{digits}f}"
    if float(text) < value:
        # What was rounded down lacks at most half a digit: a little more than that is rounded up.
        text = f"{value + 0.6 * 10.0**-digits:.{digits}f}"
    return text.rstrip("0").rstrip(".") if digits else text


def number(value: float) -> str:
    """Six significant digits, thousands apart: ``31,344.5``."""
    return f"{value:,.6g}"


def rounded(value: float) -> str:
    """Four significant digits: a rate or a price."""
    return number(float(f"{value:.4g}"))


def percent(fraction: float) -> str:
    """A share: ``37.5 %``; small ones keep a digit, and only what is whole is called 100 %."""
    if fraction == 0:
        return "0 %"
    if 0 < fraction < 0.0005:
        return "< 0.1 %"
    text = f"{100 * fraction:.1f}"
    # 99.96 % rounds to 100.0, but must not be read as all
    if text == "100.0":
        return "100 %" if fraction > 1 - 1e-9 else "> 99.9 %"
    return f"{text} %"


def share(gap: float) -> str:
    """A gap in percent, two digits; what is rounding is 0, and more than `MOST_GAP` is not
    counted.
    """
    # Less is rounding of the two numbers that were subtracted
    if gap < 1e-12:
        return "0 %"
    if gap > MOST_GAP:
        return f"over {100 * MOST_GAP:,.0f} %"
    return f"{100 * gap:,.0f} %" if gap >= 1 else f"{100 * gap:.2g} %"


def signed_percent(change: float) -> str:
    """A relative change: ``+3.14 %``, ``-2,980 %``; none is ``0 %``."""
    if change == 0:
        return "0 %"
    return f"{100 * change:+,.0f} %" if abs(change) >= 10 else f"{100 * change:+.3g} %"


def seconds(value: float) -> str:
    """``12 ms``, ``1.23 s``, ``2.1 min``, ``3.4 h``, ``2.1 d``."""
    if value == 0:
        return "0 s"
    if value < 0.9995:
        return f"{1000 * value:.0f} ms" if value >= 0.0095 else f"{1000 * value:.1f} ms"
    if value < 120:
        return f"{value:.3g} s"
    if value < 7200:
        return f"{value / 60:.3g} min"
    return f"{value / 3600:.3g} h" if value < 172800 else f"{value / 86400:,.3g} d"


def clock(seconds: float) -> str:
    """A time on the clock: ``0:06:00``, ``26:30:00.5``."""
    minutes, rest = divmod(round(seconds, 3), 60)
    hours, minutes = divmod(int(minutes), 60)
    whole, part = divmod(rest, 1)
    return f"{hours:,}:{minutes:02}:{int(whole):02}" + (f"{part:.3g}"[1:] if part else "")


def count(number: int, one: str, many: str = "") -> str:
    """``1 job``, ``1,200 jobs``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def first_of(names: Collection[str], most: int = 5) -> str:
    """``a, b, c and 12 more``."""
    listed = ", ".join(islice(names, most))
    return f"{listed} and {len(names) - most:,} more" if len(names) > most else listed


def enumerated(words: Sequence[str], conjunction: str) -> str:
    """``a``, ``a or b``, ``a, b or c``."""
    *first, last = words
    return f"{', '.join(first)} {conjunction} {last}" if first else last


def shortened(text: str, width: int) -> str:
    """The text, cut where it is longer than ``width`` characters."""
    return text if len(text) <= width else f"{text[: width - 3]}..."


def in_short(value: object) -> str:
    """A value in a word: an array is its shape, a collection the number of its items."""
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple):
        return f"({' x '.join(map(str, shape))})"
    if isinstance(value, str):
        return value or "''"
    if isinstance(value, float):
        return amount(value)
    if isinstance(value, Sized):
        return f"({len(value)})"
    return str(value) if value is None or isinstance(value, int) else type(value).__name__


def one_line(text: str) -> str:
    """The text without line breaks and other control characters."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def printable(text: str) -> str:
    """The text with control characters written as escapes: a job's name may hold anything."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )
