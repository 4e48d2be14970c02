"""Solver and session classes whose work is done in another process (`optsched.solvers.isolated`)."""

from __future__ import annotations

import weakref
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from optsched.arrays import FloatArray, IntArray
from optsched.program import AllocationProgram, ConicProgram, LinearArrays, TimelineProgram
from optsched.solution.values import Basis, Values
from optsched.solvers.base import Capability, Limits, Session, Solver
from optsched.solvers.isolated.messages import Address, Change

if TYPE_CHECKING:
    from optsched.solvers.isolated import SolverProcess

LOST = "loaded anew in another process, as the last run failed or its process is gone"


class IsolatedSession(Session):
    """A program that is loaded in another process with the first run, and changed there with the next ones.

    The arrays are kept here as well. Changes are noted, sent with the next run, and made there one by one, so that the
    session there is what it would be in this process. If the process is gone, the arrays of now are loaded anew, and
    `Values.rebuilt` says so.
    """

    def __init__(self, arrays: LinearArrays, solver: type[IsolatedSolver]) -> None:
        super().__init__(arrays)
        self.key = next(solver.process.numbers)
        self._solver = solver
        self._origin: LinearArrays | None = arrays
        """The program before all changes, until it was sent."""
        self._changes: list[Change] = []
        self._limits = Limits()
        """Time that the last run was given; what is asked about its outcome may take as long."""
        weakref.finalize(self, solver.process.forget, self.key).atexit = False

    def shipment(self, held: bool) -> tuple[LinearArrays | None, tuple[Change, ...]]:
        """(program to load, changes to make then): what brings the session there up to date.

        ``held`` says whether the process holds it as it was after the last run.
        """
        if held:
            return None, tuple(self._changes)
        if self._origin is not None:
            return _plain(self._origin), tuple(self._changes)
        self._rebuild.append(LOST)
        return _plain(self.arrays), tuple(
            change for change in self._changes if change[0] == "set_start"
        )

    def shipped(self) -> None:
        """What was noted has been sent."""
        self._origin = None
        self._changes.clear()

    def _changed(self, reason: str, setter: str, *arguments: Any) -> None:
        """Note the change; the session there tells what it has to rebuild."""
        self._changes.append((setter, arguments))

    def become(self, arrays: LinearArrays) -> None:
        """Change the program into another one; what differs is found there."""
        before = len(self._changes)
        super().become(arrays)
        self._changes[before:] = [("become", (_plain(arrays),))]

    def set_start(self, start: Basis | FloatArray) -> None:
        """Start the next run from a basis or a point; it is checked there."""
        self._changes.append(("set_start", (start,)))

    def run(self, limits: Limits) -> Values:
        """Solve in the process; raises `SolverCrashed` also where it had to be killed."""
        self._limits = Limits(time=limits.time)
        values: Values = self._ask("run", (limits,), limits)
        reasons = self._take_reasons()
        return replace(values, rebuilt=(*reasons, *values.rebuilt)) if reasons else values

    def basis(self) -> Basis | None:
        """The simplex basis of the last run; None also where the process that had it is gone."""
        held = self._solver.process.holds(self.key)
        return self._ask("basis", (), self._limits) if held else None

    def conflict(self) -> IntArray:
        """Rows of an irreducible infeasible subsystem, found within the time that the last run was given."""
        rows: IntArray = self._ask("conflict", (), self._limits)
        return rows

    def _ask(self, method: str, arguments: tuple[Any, ...], limits: Limits) -> Any:
        return self._solver.process.ask(self._solver, method, arguments, limits, self)


RUN_THERE = (Capability.CONTINUOUS, Capability.INTEGER, Capability.CONIC, Capability.TIMELINE)
"""Programs that are solved in the process; allocation programs as they are, are not."""


class IsolatedSolver(Solver):
    """A solver whose programs are solved in another process; `of` makes one of any solver."""

    process: ClassVar[SolverProcess]
    address: ClassVar[Address]
    original: ClassVar[type[Solver]]

    @staticmethod
    def of(original: type[Solver], process: SolverProcess) -> type[IsolatedSolver]:
        """The class that runs a solver in a process; raises `UsageError` if the solver cannot be imported there."""
        attributes = {
            "__doc__": original.__doc__,
            "__module__": __name__,
            "name": original.name,
            "capabilities": original.capabilities,
            "optional": original.optional,
            "process": process,
            "address": Address.of(original),
            "original": original,
        }
        return type(f"Isolated{original.__name__}", (IsolatedSolver,), attributes)

    @classmethod
    def version(cls) -> str:
        """Version as the process sees it; of a solver that never runs there, no process is started to ask."""
        if cls.capabilities.isdisjoint(RUN_THERE):
            return cls.original.version()
        return cls.process.version(cls.name, cls.address)

    def open(self, program: LinearArrays) -> Session:
        """A session; what the solver refuses about the program, it refuses at the first run."""
        return IsolatedSession(program, type(self))

    @classmethod
    def refuses(cls, program: AllocationProgram) -> str | None:
        """Why the solver does not take an allocation program as it is; None if it does."""
        return cls.original.refuses(program)

    def solve_allocation(
        self, program: AllocationProgram, limits: Limits, start: FloatArray | None = None
    ) -> Values:
        """In this process: such solvers are of the library, and look at the clock between passes."""
        return self.original().solve_allocation(program, limits, start)

    def solve_conic(self, program: ConicProgram, limits: Limits) -> Values:
        """Solve a conic program in the process."""
        return self.process.ask(type(self), "solve_conic", (program, limits), limits)  # type: ignore[no-any-return]

    def solve_timeline(
        self, program: TimelineProgram, limits: Limits, start: FloatArray | None = None
    ) -> Values:
        """Solve a timeline program in the process."""
        arguments = (replace(program), limits, start)  # a copy without what was computed of it
        return self.process.ask(type(self), "solve_timeline", arguments, limits)  # type: ignore[no-any-return]


def _plain(arrays: LinearArrays) -> LinearArrays:
    """The arrays without what was computed of them, such as the matrix by rows."""
    return replace(arrays)
