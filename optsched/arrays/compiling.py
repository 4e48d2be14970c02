"""Functions compiled where numba is installed (the extra ``fast``)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

log = logging.getLogger("optsched")

COMPILED = 4_000_000
"""Entries of a level table from which compiled sweeps are used: a million jobs on four pools. A new
process takes 1 to 2 s to load numba and the compiled code; from this size on they save more. Only
the size decides, so that an answer does not depend on what a process solved before."""


def compiled_by_name(*sweeps: Callable[..., Any], **options: Any) -> SimpleNamespace | None:
    """The compiled functions, each under its name without the underscore; None without numba."""
    made = compiler(**options)
    if made is None:
        return None
    return SimpleNamespace(**{sweep.__name__[1:]: made(sweep) for sweep in sweeps})


def compiler(**options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]] | None:
    """A decorator that compiles a function, or None without numba.

    Compiled code is stored on disk if a folder is writable.
    """
    try:
        import numba
    except ImportError:
        return None

    def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
        made: Callable[..., Any]
        try:
            made = numba.njit(cache=True, nogil=True, **options)(function)
        except RuntimeError as error:
            # Neither the package's folder nor the user's cache can be written.
            log.info("compiled anew in every process: %s", error)
            made = numba.njit(nogil=True, **options)(function)
        return made

    return compiled
