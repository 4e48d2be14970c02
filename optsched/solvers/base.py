"""The interface of a back-end: capabilities, limits, and sessions that hold a program which can be
changed and solved again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np
import scipy.sparse as sp

from optsched.arrays import FloatArray, IntArray
from optsched.arrays.matrices import beside
from optsched.arrays.values import replace
from optsched.errors import SolverUnavailable, UnsuitableSolver
from optsched.program import AllocationProgram, LinearArrays
from optsched.program.arrays import Block, differing_entries, with_entries
from optsched.solution.values import Basis, Values

if TYPE_CHECKING:  # few back-ends take these
    from optsched.program import ConicProgram, TimelineProgram
    from optsched.program.filling import Path


class Capability(StrEnum):
    """Capabilities of a back-end; the conformance suite tests each one that it claims."""

    CONTINUOUS = "continuous"
    INTEGER = "integer"
    CONIC = "conic"
    ALLOCATION = "allocation"
    TIMELINE = "timeline"
    DUALS = "duals"
    BASIS = "basis"
    START = "start"
    PROGRESS = "progress"
    INTERRUPT = "interrupt"
    IIS = "iis"
    INCREMENTAL = "incremental"


START_DROPPED = "start dropped"
PROGRESS_EVERY = 0.2
"""Seconds between progress events, at least."""


def load_library(module: str, what: str, remedy: str) -> Any:
    """Import the library of a back-end; raises `SolverUnavailable`, which says how to get it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise SolverUnavailable(f"{what} cannot be loaded ({error}){remedy}") from None


class Progress(NamedTuple):
    """One progress event: seconds since the start of the run,
    best objective and bound so far (None if unknown).
    """

    elapsed: float
    incumbent: float | None
    bound: float | None
    words: str = ""


@dataclass(frozen=True)
class Limits:
    """Limits and options of a run.

    Attributes
    ----------
    time : float or None
        Seconds.
    work : int or None
        Simplex or interior-point iterations, branch-and-bound nodes, or conflicts of CP-SAT: stops
        reproducibly, on one thread.
    gap : float or None
        Relative gap at which an integer program may stop.
    tolerance : float
        Feasibility and optimality tolerance asked of the solver.
    threads, seed : int
    options : mapping
        Extra options in the solver's own names.
    on_progress : callable or None
    on_point : callable or None
        Takes each better point of an integer program, in its columns; some back-ends have only the
        last one.
    on_log : callable or None
        Takes the log of the back-end as it writes it, in pieces of any length; some back-ends give
        it at the end.
    """

    time: float | None = None
    work: int | None = None
    gap: float | None = None
    tolerance: float = 1e-9
    threads: int = 1
    seed: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    on_progress: Callable[[Progress], None] | None = None
    on_log: Callable[[str], None] | None = None
    on_point: Callable[[FloatArray], None] | None = None

    def after(self, seconds: float) -> Limits:
        """The limits after some seconds were spent, such as on building a model.

        Parameters
        ----------
        seconds : float

        Returns
        -------
        Limits
            At least a millisecond is left.
        """
        return self if self.time is None else replace(self, time=max(self.time - seconds, 1e-3))


class FillingSession(Protocol):
    """The stages of one water filling, one after the other."""

    def stage(self, path: Path, limits: Limits) -> tuple[int, Values, float]:
        """The segment of a path in which the rise ends, values of its linear program, and the part
        of all levels that the point has.
        """

    def last(self, program: AllocationProgram, limits: Limits) -> Values:
        """Values of the last program (`Filling.final`)."""


class Session(ABC):
    """A program loaded in a back-end.

    The setters change a linear program. A back-end that cannot make a change in its loaded model
    loads the program again.

    The base class keeps the arrays up to date. Every setter calls `_changed` at its end, which
    collects the reasons for loading again; `run` reports them in ``Values.rebuilt``.

    Parameters
    ----------
    arrays : LinearArrays
        The program, also as the attribute ``arrays``, which the setters keep up to date.
    """

    def __init__(self, arrays: LinearArrays) -> None:
        self.arrays = arrays
        self._start: Basis | FloatArray | None = None
        self._rebuild: list[str] = []

    def set_cost(self, cost: FloatArray) -> None:
        """Replace the cost vector.

        Parameters
        ----------
        cost : FloatArray, shape (N,)
        """
        self.arrays = replace(self.arrays, cost=np.asarray(cost, np.float64))
        self._changed("cost", "set_cost", cost)

    def set_bounds(self, lower: FloatArray, upper: FloatArray) -> None:
        """Replace the column bounds; where they are finite, they replace the implied bounds too.

        Parameters
        ----------
        lower, upper : FloatArray, shape (N,)
        """
        self.arrays = replace(
            self.arrays,
            lower=lower,
            upper=upper,
            implied_lower=np.where(np.isfinite(lower), lower, self.arrays.implied_lower),
            implied_upper=np.where(np.isfinite(upper), upper, self.arrays.implied_upper),
        )
        self._changed("column bounds", "set_bounds", lower, upper)

    def set_rows(self, lower: FloatArray, upper: FloatArray) -> None:
        """Replace the row bounds. Implied column bounds that came from rows must still hold.

        Parameters
        ----------
        lower, upper : FloatArray, shape (M,)
        """
        self.arrays = replace(self.arrays, row_lower=lower, row_upper=upper)
        self._changed("row bounds", "set_rows", lower, upper)

    def set_coefficients(self, rows: IntArray, columns: IntArray, values: FloatArray) -> None:
        """Set single coefficients of A.

        Parameters
        ----------
        rows, columns : IntArray
            Places of the entries.
        values : FloatArray
        """
        self.arrays = replace(self.arrays, A=with_entries(self.arrays.A, rows, columns, values))
        self._changed("coefficients", "set_coefficients", rows, columns, values)

    def add_columns(
        self,
        matrix: sp.csc_matrix,
        cost: FloatArray,
        upper: FloatArray,
        name: str = "added columns",
    ) -> None:
        """Append columns x >= 0 with finite upper bounds (implied by the rows or not).

        Parameters
        ----------
        matrix : csc_matrix, shape (M, added columns)
        cost, upper : FloatArray, shape (added columns,)
        name : str
            Of the block of the added columns.
        """
        old = self.arrays
        count = matrix.shape[1]
        zero = np.zeros(count)
        self.arrays = replace(
            old,
            A=beside(old.A, matrix),
            cost=np.concatenate([old.cost, cost]),
            lower=np.concatenate([old.lower, zero]),
            upper=np.concatenate([old.upper, upper]),
            implied_lower=np.concatenate([old.implied_lower, zero]),
            implied_upper=np.concatenate([old.implied_upper, upper]),
            integer=np.concatenate([old.integer, zero.astype(bool)]),
            columns=(*old.columns, Block(name, old.shape[1], old.shape[1] + count)),
        )
        self._changed("columns were added", "add_columns", matrix, cost, upper, name)

    def add_rows(
        self, matrix: sp.csr_matrix, lower: FloatArray, upper: FloatArray, name: str = "added rows"
    ) -> None:
        """Append rows.

        Parameters
        ----------
        matrix : csr_matrix, shape (added rows, N)
        lower, upper : FloatArray, shape (added rows,)
        name : str
            Of the block of the added rows.
        """
        old = self.arrays
        count = matrix.shape[0]
        self.arrays = replace(
            old,
            A=sp.csc_matrix(sp.vstack([old.A, matrix])),
            row_lower=np.concatenate([old.row_lower, lower]),
            row_upper=np.concatenate([old.row_upper, upper]),
            rows=(*old.rows, Block(name, old.shape[0], old.shape[0] + count)),
        )
        self._changed("rows were added", "add_rows", matrix, lower, upper, name)

    def set_start(self, start: Basis | FloatArray) -> None:
        """Start the next run from a basis or a point; one of the wrong size is dropped, and
        ``Values.rebuilt`` says so.

        Parameters
        ----------
        start : Basis or FloatArray, shape (N,)
        """
        rows, columns = self.arrays.shape
        sizes = (
            (len(start.rows), len(start.columns))
            if isinstance(start, Basis)
            else (rows, len(np.asarray(start)))
        )
        if sizes != (rows, columns):
            self._rebuild.append(
                f"{START_DROPPED}: {sizes[1]} columns and {sizes[0]} rows are not "
                f"{columns} and {rows}"
            )
            return
        self._start = start

    def become(self, arrays: LinearArrays) -> None:
        """Change the program into another one of the same shape, by its differences.

        Parameters
        ----------
        arrays : LinearArrays

        Raises
        ------
        ValueError
            The shapes or the integer columns differ.
        """
        if arrays.shape != self.arrays.shape or not np.array_equal(
            arrays.integer, self.arrays.integer
        ):
            raise ValueError(
                f"a program of the shape {self.arrays.shape} cannot become one of {arrays.shape}"
            )
        entries = differing_entries(self.arrays.A, arrays.A)
        if len(entries[0]):
            self.set_coefficients(*entries)
        if not np.array_equal(arrays.cost, self.arrays.cost):
            self.set_cost(arrays.cost)
        if not (
            np.array_equal(arrays.lower, self.arrays.lower)
            and np.array_equal(arrays.upper, self.arrays.upper)
        ):
            self.set_bounds(arrays.lower, arrays.upper)
        old = self.arrays
        if not (
            np.array_equal(arrays.row_lower, old.row_lower)
            and np.array_equal(arrays.row_upper, old.row_upper)
        ):
            self.set_rows(arrays.row_lower, arrays.row_upper)
        self.arrays = arrays

    def _changed(self, reason: str, setter: str, *arguments: Any) -> None:
        """Called after the arrays changed, with the setter and its arguments.

        A back-end that can make the change in its loaded model overrides this method, and records
        no reason.
        """
        self._rebuild.append(reason)

    def _take_reasons(self) -> tuple[str, ...]:
        reasons = tuple(self._rebuild)
        self._rebuild.clear()
        return reasons

    @abstractmethod
    def run(self, limits: Limits) -> Values:
        """Solve the program with all changes so far. A failure is never returned as an answer.

        Parameters
        ----------
        limits : Limits

        Returns
        -------
        Values

        Raises
        ------
        SolverCrashed
            The back-end fails.
        """

    def basis(self) -> Basis | None:
        """The simplex basis in which the last run ended, if there is one."""
        return None

    def conflict(self) -> IntArray:
        """Rows of an irreducible infeasible subsystem; empty if none was found.

        Returns
        -------
        IntArray

        Raises
        ------
        SolverUnavailable
            The back-end lacks `Capability.IIS`.
        """
        raise SolverUnavailable("this solver has no infeasibility analysis (iis)")


class ReloadedSession(Session):
    """A session of a back-end that cannot change a loaded program: each run passes the program
    again.

    Parameters
    ----------
    arrays : LinearArrays
    solve : callable
        Solves a program within limits, from a point to start from or None.
    """

    def __init__(
        self,
        arrays: LinearArrays,
        solve: Callable[[LinearArrays, Limits, FloatArray | None], Values],
    ) -> None:
        super().__init__(arrays)
        self._solve = solve

    def run(self, limits: Limits) -> Values:
        """Solve the program with all changes so far."""
        reasons = self._take_reasons()
        start, self._start = self._start, None
        # These back-ends take points, but no bases.
        point = start if isinstance(start, np.ndarray) else None
        values = self._solve(self.arrays, limits, point)
        return replace(values, rebuilt=(*reasons, *values.rebuilt))


class Solver(ABC):
    """A back-end: its name, what it can do, and how to load a program in it."""

    name: ClassVar[str]
    capabilities: ClassVar[frozenset[Capability]]
    optional: ClassVar[bool] = False
    """Whether it is a separate product that optsched does not install."""
    keeps_time: ClassVar[bool] = False
    """Whether every run ends by itself soon after its time limit, whatever the program.

    A large program of any other back-end is solved in a process that can be killed, where a time
    limit is set.
    """
    sharpens: ClassVar[bool] = False
    """Whether it stops inside the feasible set, and a smaller tolerance costs few more iterations.

    Then it runs again if the certified gap of its optimum is above the tolerance.
    """

    @classmethod
    @abstractmethod
    def version(cls) -> str:
        """Version of the back-end;
        raises `SolverUnavailable` with the reason if it cannot be used.
        """

    @abstractmethod
    def open(self, program: LinearArrays) -> Session:
        """Load a linear program.

        Parameters
        ----------
        program : LinearArrays

        Returns
        -------
        Session
        """

    def solve_conic(self, program: ConicProgram, limits: Limits) -> Values:
        """Solve a conic program (back-ends with `Capability.CONIC`).

        Parameters
        ----------
        program : ConicProgram
        limits : Limits

        Returns
        -------
        Values
            ``y`` are the multipliers of the rows.

        Raises
        ------
        SolverUnavailable
            The back-end takes none.
        """
        raise SolverUnavailable(f"solver {self.name} takes no conic programs")

    def solve_timeline(
        self, program: TimelineProgram, limits: Limits, start: FloatArray | None = None
    ) -> Values:
        """Solve a timeline program (back-ends with `Capability.TIMELINE`).

        Parameters
        ----------
        program : TimelineProgram
        limits : Limits
        start : FloatArray, optional
            A point to start from.

        Returns
        -------
        Values
            ``x`` are the starts of all activities, then their modes, in whole numbers.

        Raises
        ------
        SolverUnavailable
            The back-end takes none.
        """
        raise SolverUnavailable(f"solver {self.name} takes no timeline programs")

    @classmethod
    def refuses(cls, program: AllocationProgram) -> str | None:
        """Why this back-end does not take an allocation program as it is.

        Parameters
        ----------
        program : AllocationProgram

        Returns
        -------
        str or None
            None if it does.
        """
        return f"solver {cls.name} takes rows and columns"

    def solve_allocation(
        self, program: AllocationProgram, limits: Limits, start: FloatArray | None = None
    ) -> Values:
        """Solve an allocation program as it is (back-ends with `Capability.ALLOCATION`).

        Parameters
        ----------
        program : AllocationProgram
        limits : Limits
        start : FloatArray, optional
            Prices near the optimal ones, of the rows that limit the program (`LimitRows`). An
            allocation to start from is not passed on: who has one chooses a solver with
            `Capability.START`.

        Returns
        -------
        Values
            ``x`` and ``y`` are those of the linear program that it would be lowered to.

        Raises
        ------
        SolverUnavailable
            The back-end takes none.
        """
        raise SolverUnavailable(f"solver {self.name} takes no allocation programs")

    def open_filling(self, program: AllocationProgram, limits: Limits) -> FillingSession:
        """Begin a water filling of an allocation program that the back-end does not refuse.

        Parameters
        ----------
        program : AllocationProgram
        limits : Limits

        Returns
        -------
        FillingSession

        Raises
        ------
        SolverUnavailable
            The back-end takes none.
        """
        raise SolverUnavailable(f"solver {self.name} takes no allocation programs")

    @classmethod
    def require(cls, capability: Capability, why: str) -> None:
        """Refuse a program that needs a capability which this back-end lacks.

        Parameters
        ----------
        capability : Capability
        why : str
            The part of the program that needs it, for the message.

        Raises
        ------
        SolverUnavailable
            The back-end lacks it.
        """
        if capability not in cls.capabilities:
            raise UnsuitableSolver(
                "solver",
                cls.name,
                f"one with {capability.value}",
                sentence=f"solver {cls.name} lacks {capability.value!r}, which {why} needs: "
                "auto takes a solver that has it",
            )

    @classmethod
    def require_columns(cls, program: LinearArrays) -> None:
        """Refuse integer columns, or continuous ones, if this back-end takes none.

        Parameters
        ----------
        program : LinearArrays

        Raises
        ------
        SolverUnavailable
            The back-end lacks `Capability.INTEGER` or `Capability.CONTINUOUS`.
        """
        if program.is_integer:
            cls.require(Capability.INTEGER, "an integer program")
        if not program.integer.all():
            cls.require(Capability.CONTINUOUS, "a program with continuous columns")

    @classmethod
    def require_rows(cls, task: str = "programs of rows and columns") -> None:
        """Refuse what is solved by programs of rows and columns if this back-end takes none.

        Parameters
        ----------
        task : str
            What is solved, for the message.

        Raises
        ------
        SolverUnavailable
            The back-end takes none.
        """
        if not cls.capabilities & {Capability.CONTINUOUS, Capability.INTEGER}:
            raise UnsuitableSolver(
                "solver",
                cls.name,
                f"one for {task}",
                sentence=f"solver {cls.name} takes allocation programs as they are, and no {task}: "
                "choose auto, highs or clarabel",
            )


class ReloadingSolver(Solver):
    """A back-end that gets the whole program for each run."""

    def open(self, program: LinearArrays) -> Session:
        """Load a linear program."""
        self.require_columns(program)
        return ReloadedSession(program, self.solve_linear)

    @abstractmethod
    def solve_linear(
        self, arrays: LinearArrays, limits: Limits, start: FloatArray | None = None
    ) -> Values:
        """Solve a linear or integer program,
        from a point to start from where the back-end takes one.
        """


class EngineSolver(ReloadingSolver):
    """A back-end that is called through another package, which has a name for it."""

    engine: ClassVar[str]
    """The package's name of the back-end."""

    @classmethod
    def of_engine(
        cls, family: str, package: str, engine: str, capabilities: Iterable[Capability]
    ) -> type[Self]:
        """The class of a back-end without a name in the catalogue,
        which is called ``family:engine``.
        """
        attributes = {
            "__doc__": f"{engine}, as {package} calls it.",
            "__module__": cls.__module__,
            "name": f"{family}:{engine}",
            "engine": engine,
            "optional": True,
            "capabilities": frozenset(capabilities),
        }
        return type(f"{family.title()}_{engine}", (cls,), attributes)

    @classmethod
    def unnamed(cls, engines: Iterable[str]) -> list[str]:
        """Those of the engines that have no name in the catalogue."""
        named = {solver.engine for solver in cls.__subclasses__() if ":" not in solver.name}
        return sorted(set(engines) - named)


def is_highs(solver: str) -> bool:
    """Whether a solver is HiGHS, also where another package calls it: HiGHS is no second opinion
    on it.
    """
    return "highs" in solver.lower() or solver == "cvxpy:SCIPY"
