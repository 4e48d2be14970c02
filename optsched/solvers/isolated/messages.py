"""Messages between a program and the process that solves for it."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from optsched.errors import Interrupted, OptschedError, SolverCrashed, SolverUnavailable, UsageError
from optsched.processes import tells_of_memory
from optsched.program import LinearArrays
from optsched.solvers import FAMILIES, Solver


@dataclass(frozen=True)
class Address:
    """Where a solver's class is found:
    an attribute of a module, or what the ``engine_solver`` of a family makes.
    """

    module: str
    name: str
    engine: str = ""

    @classmethod
    def of(cls, solver: type[Solver]) -> Address:
        """The address of a class; raises `UsageError` where another process could not find it."""
        family, _, engine = solver.name.partition(":")
        address = cls(solver.__module__, solver.__qualname__)
        if engine and family in FAMILIES:
            address = cls(FAMILIES[family], "engine_solver", engine)
        # Tried here, before a process is started for nothing.
        try:
            found = None if address.module == "__main__" else address.solver()
        except (ImportError, AttributeError):
            found = None
        if found is not solver:
            raise UsageError(
                f"solver {solver.name} cannot run in its own process: "
                f"its class {solver.__qualname__} cannot be "
                f"imported from {solver.__module__}; put it into a module, "
                "not inside of a function or a script"
            )
        return address

    def solver(self) -> type[Solver]:
        found: Any = import_module(self.module)
        for part in self.name.split("."):
            found = getattr(found, part)
        return found(self.engine) if self.engine else found  # type: ignore[no-any-return]


Change = tuple[str, tuple[Any, ...]]
"""A setter of a session and its arguments."""


@dataclass(frozen=True)
class Prepare:
    """Import solvers and look up their versions;
    then take at most ``memory`` bytes more (None: no limit).
    """

    number: int
    solvers: Sequence[Address]
    memory: int | None


@dataclass(frozen=True)
class Call:
    """Call a method of a solver, or of one of its sessions.

    Attributes
    ----------
    number : int
        Comes back with everything that answers it.
    solver : Address
    method : str
    arguments : tuple
        A `Limits` among them comes without its callbacks.
    session : int or None
        Key of the session whose method it is; None for a method of the solver.
    program : LinearArrays or None
        Opens the session anew.
    changes : tuple of Change
        Made to the session before the call.
    forgotten : tuple of int
        Sessions that nobody has any more.
    progress, log : bool
        Whether the caller has these callbacks.
    """

    number: int
    solver: Address
    method: str
    arguments: tuple[Any, ...] = ()
    session: int | None = None
    program: LinearArrays | None = None
    changes: tuple[Change, ...] = ()
    forgotten: tuple[int, ...] = ()
    progress: bool = False
    log: bool = False


PASSED_ON = {
    kind.__name__: kind for kind in (Interrupted, SolverCrashed, SolverUnavailable, UsageError)
}
"""Errors that come back as what they are."""


@dataclass(frozen=True)
class Failure:
    """An error in the process:
    its type and words, where it was raised, and whether memory had run out.
    """

    kind: str
    words: str
    trace: str
    memory: bool

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """The failure that an exception is."""
        words = str(error)
        crashed = isinstance(error, SolverCrashed)
        memory = isinstance(error, MemoryError) or (crashed and tells_of_memory(words))
        kind = next(
            (name for name, kind in PASSED_ON.items() if isinstance(error, kind)),
            type(error).__name__,
        )
        return cls(kind, words, "".join(traceback.format_exception(error)), memory)

    def error(self, solver: str, limit: str) -> OptschedError:
        """The error to raise; ``limit`` is that of the memory in words, empty if there is none."""
        described = f"{self.kind}: {self.words}" if self.words else self.kind
        if self.memory:
            bounded = f" (limit {limit})" if limit else ""
            return SolverCrashed(f"solver {solver} ran out of memory{bounded}: {described}")
        if self.kind in PASSED_ON:
            return PASSED_ON[self.kind](self.words)
        error = SolverCrashed(f"solver {solver} raised {described}")
        error.add_note(f"In the process of the solver:\n{self.trace}")
        return error
