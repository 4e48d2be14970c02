"""What a formulation has solved, as plain values:
the programs of its procedure, and what they come to.

Most formulations are one program. Others look at the answer of a program before they write the next
one: their `Formulation.procedure` is a generator that yields programs, receives an `Optimum` of
each, and returns what these come to. It runs no solver itself (`optsched.solving.procedures` does),
so that it can be tested with optima written by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from optsched.arrays import FloatArray
from optsched.program import AllocationProgram, LinearArrays, LinearProgram
from optsched.solution import Status, Termination

if TYPE_CHECKING:
    from optsched.solution.plan import Plan


class Auxiliary(NamedTuple):
    """A program beside the formulation's own.

    Attributes
    ----------
    program : AllocationProgram or LinearProgram
    required : bool
        Without its proved optimum there is no answer: the procedure ends here.
    exact : bool
        Solved to a gap of 0, whatever gap was asked for; the point is rounded to whole numbers.
    vertex : bool
        The point of a linear program is to be a vertex.
    prices : FloatArray, optional
        Duals of the `limit_rows` of an allocation program that may be near those of its optimum.
    """

    program: AllocationProgram | LinearProgram
    required: bool = False
    exact: bool = False
    vertex: bool = False
    prices: FloatArray | None = None


class PricedRows(NamedTuple):
    """A program whose rows ``lower <= A x <= upper`` get prices
    (`optsched.decomposition.lagrangian`).

    Its `Optimum` has the average of the points as ``x``, and the Lagrangian bound; it has no value.

    Attributes
    ----------
    lower, upper : FloatArray, shape (rows,)
    solve : callable
        Prices -> (x, c'x, A x) of the best point without the rows, by cost less priced activity.
    """

    lower: FloatArray
    upper: FloatArray
    solve: Callable[[FloatArray], tuple[FloatArray, float, FloatArray]]


class Probe(NamedTuple):
    """A program that is run once, for whatever feasible point it finds; nothing is proved."""

    program: LinearArrays


class Optimum(NamedTuple):
    """What is known of a program that was solved.

    Attributes
    ----------
    x : FloatArray or None
        The best feasible point found: totals of the class columns, or all columns of a linear
        program.
    value, bound : float or None
        Of the program, as it is written.
    status : Status
        `OPTIMAL` if the bound proves it.
    termination : Termination
        How the run ended.
    duals : mapping, or None
        Row duals by block, which prove the bound.
    """

    x: FloatArray | None
    value: float | None
    bound: float | None
    status: Status
    termination: Termination
    duals: Mapping[str, FloatArray] | None = None


class Reduced(NamedTuple):
    """An allocation that is less than the optimum
    of the formulation's own program (`Formulation.optimum`).

    Attributes
    ----------
    x : FloatArray, shape (columns of the classes,)
    figures : mapping
        Figures of each class, shape (K,), that lead back to the optimum.
    """

    x: FloatArray
    figures: Mapping[str, FloatArray]


class Undecided(NamedTuple):
    """Why the optimum could not be reduced: it is the answer as it is, and not called optimal.

    Attributes
    ----------
    termination : Termination
        How the run ended that should have decided it.
    words : str
    """

    termination: Termination
    words: str


class RuleDecision(NamedTuple):
    """An allocation that a rule computed.

    Attributes
    ----------
    program : AllocationProgram
        The rows that the allocation must keep. Its classes may be finer than `Formulation.classes`:
        a rule decides job by job.
    x : FloatArray, shape (columns of the classes,)
    value : float
        The objective of the rule.
    bound : (float, str) or None
        A bound on the objective, and its source.
    notes : tuple of str
        What the rule guarantees, and where it goes beyond what the instance allows.
    promise : float or None
        The part of the bound that the objective reaches at least; the certificate checks it.
    """

    program: AllocationProgram
    x: FloatArray
    value: float
    bound: tuple[float, str] | None = None
    notes: tuple[str, ...] = ()
    promise: float | None = None


Step: TypeAlias = "AllocationProgram | Plan | Auxiliary | Probe | PricedRows"
"""What a procedure asks for:
the formulation's own program, at most once, and programs beside it.
"""
Result = RuleDecision | Reduced | Undecided | None
"""What the optima come to; None: the optimum of the formulation's own program is the answer."""
Procedure = Generator[Step, Optimum, Result]
