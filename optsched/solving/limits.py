"""Limits of a call: the keywords of all functions that solve, checked in one place."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from inspect import Parameter, Signature, signature
from numbers import Integral, Real
from typing import Any, TypedDict, TypeVar

from optsched.errors import InvalidArgument, checks_keywords
from optsched.instance.durations import Duration, Timer, seconds_or_none
from optsched.instance.reading import show
from optsched.solvers import Limits, Progress

Function = TypeVar("Function", bound=Callable[..., Any])

MOST = 2**31 - 1
"""Largest number that solvers take as a limit or a seed."""


class LimitOptions(TypedDict, total=False):
    """Keywords of `make_limits`, for ``**limits: Unpack[LimitOptions]``; see `optsched.solve`."""

    time_limit: Duration | Timer | None
    """Seconds, or text such as ``"5m"`` (default: none)."""
    work_limit: int | None
    """Nodes, iterations or conflicts, whichever the solver counts (default: none)."""
    gap: float | None
    """Relative gap at which an integer program may stop (default: the solver's)."""
    tolerance: float
    """How far rows may be violated, relative (default: 1e-9)."""
    threads: int
    """Of the solver; 0 for all cores (default: 1)."""
    seed: int
    """Of the solver (default: 0)."""
    solver_options: Mapping[str, Any] | None
    """The solver's own, by their names there."""
    on_progress: Callable[[Progress], None] | None
    """Called with bounds and incumbents while the solver runs."""
    on_log: Callable[[str], None] | None
    """Called with each line of the solver's log."""


def takes_limits(function: Function) -> Function:
    """Give ``**limits`` of a function the parameters of `make_limits`, and refuse other keywords.

    They stand in the signature that help and notebooks show.
    """
    parameters = list(signature(function).parameters.values())[:-1]
    limits = signature(make_limits).parameters.values()
    shared = [limit.replace(kind=Parameter.KEYWORD_ONLY) for limit in limits]
    checked: Any = checks_keywords(function, [limit.name for limit in shared])
    checked.__signature__ = Signature([*parameters, *shared])
    return checked  # type: ignore[no-any-return]


def timer_of(time_limit: Duration | Timer | None) -> Timer:
    """The timer of a call that begins now, or the one that it shares with its caller."""
    if isinstance(time_limit, Timer):
        return time_limit
    return Timer.after(seconds_or_none(time_limit, "time_limit"))


def make_limits(
    time_limit: Duration | Timer | None = None,
    work_limit: int | None = None,
    gap: float | None = None,
    tolerance: float = 1e-9,
    threads: int = 1,
    seed: int = 0,
    solver_options: Mapping[str, Any] | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    on_log: Callable[[str], None] | None = None,
) -> Limits:
    """Limits from what a user gives, checked; 0 threads are all that there are."""
    seconds = timer_of(time_limit).seconds
    reals = {"gap": gap, "tolerance": tolerance}
    wholes = {"work_limit": work_limit, "threads": threads, "seed": seed}
    for names, kind, expected in ((reals, Real, "a number"), (wholes, Integral, "a whole number")):
        for name, given in names.items():
            if given is None and name in ("gap", "work_limit"):
                continue
            # In Python True is a number, but as a limit it is a mistake.
            if isinstance(given, bool) or not isinstance(given, kind):
                raise InvalidArgument(name, repr(given), expected)
    for name, value in (("time_limit", seconds), ("work_limit", work_limit)):
        # Written so that NaN is refused too, here and below.
        if value is not None and not value > 0:
            raise InvalidArgument(name, _digits(value), "a number above 0")
    if gap is not None and not gap >= 0:
        raise InvalidArgument("gap", _digits(gap), "0 or more")
    if not 0 < tolerance <= 0.01:
        raise InvalidArgument("tolerance", _digits(tolerance), "a number above 0, at most 0.01")
    if work_limit is not None and work_limit > MOST:
        raise InvalidArgument("work_limit", str(work_limit), f"at most {MOST}")
    if not 0 <= seed <= MOST:
        raise InvalidArgument("seed", str(seed), f"a whole number from 0 to {MOST}")
    if threads < 0:
        raise InvalidArgument("threads", str(threads), "0 (all) or more")
    if threads != 1:
        cores = os.cpu_count() or 1
        threads = min(threads or cores, cores)
    named = isinstance(solver_options, Mapping) and all(
        isinstance(name, str) for name in solver_options
    )
    if solver_options is not None and not named:
        raise InvalidArgument(
            "solver_options", show(solver_options), "options of the solver by name"
        )
    options = dict(solver_options or {})
    return Limits(seconds, work_limit, gap, tolerance, threads, seed, options, on_progress, on_log)


def _digits(value: float) -> str:
    """A number with few digits; a whole number may be beyond all floats."""
    try:
        return f"{value:g}"
    except OverflowError:
        return show(value)
