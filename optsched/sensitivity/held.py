"""A program whose coefficients are held while its right sides change:
one session, changed in place and run again.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

from optsched.arrays import FloatArray
from optsched.candidates import Classes
from optsched.errors import InvalidArgument
from optsched.formulation import Formulation
from optsched.program import AllocationProgram, LinearArrays, Method, SideRows
from optsched.solution import Solution
from optsched.solvers import Session
from optsched.solving.certify import certified_allocation
from optsched.solving.engine import Engine
from optsched.solving.outcome import NO_OPTIMUM, Outcome
from optsched.solving.proof import proved_allocation

REASON = "linear program whose right sides change"


@dataclass
class HeldProgram:
    """An allocation program with changing capacities and bounds of side rows,
    and everything else as it was.

    Columns, levels and side rows are those of the program, with whatever normalisers they were
    built with; what changes is ``capacity`` in ``usage @ x <= capacity`` and the bounds of the side
    rows. A linear program is loaded in one session (of HiGHS where the solver is ``auto``, which
    goes on from the last basis). A concave utility is solved from scratch each time, as conic
    solvers cannot be changed in place.

    Attributes
    ----------
    formulation : Formulation
    program : AllocationProgram
    engine : Engine
        Its budget of time is that of all runs together.
    runs : int
        Runs so far.
    anew : list of str
        Why a run was not left to the session, run by run.
    """

    formulation: Formulation
    program: AllocationProgram
    engine: Engine
    runs: int = 0
    anew: list[str] = field(default_factory=list)

    @property
    def classes(self) -> Classes:
        """The classes that the program is over."""
        return self.program.classes

    @property
    def rebuilt(self) -> tuple[str, ...]:
        """Reasons for which something was rebuilt or solved anew, each once;
        empty if one session did it all.
        """
        return tuple(dict.fromkeys((*self.engine.rebuilt, *self.anew)))

    @cached_property
    def arrays(self) -> LinearArrays:
        return self.engine.build(lambda: self.program.to_linear().arrays)

    @cached_property
    def session(self) -> Session:
        """The lowered program in a solver."""
        self.engine.require_rows("programs whose right sides change (what-if, ranges, fronts)")
        # HiGHS changes right sides in place and starts warm from the last basis
        return self.engine.open(self.arrays, prefer=("highs", REASON))

    def with_capacity(self, capacity: FloatArray) -> AllocationProgram:
        """The program with other capacities, shape (R,)."""
        return replace(self.program, classes=self.classes.with_capacity(capacity))

    def with_side(self, *sides: SideRows) -> AllocationProgram:
        """The program with other bounds of the side rows of these names."""
        by_name = {side.name: side for side in sides}
        return replace(
            self.program, side=tuple(by_name.get(side.name, side) for side in self.program.side)
        )

    def run(self, program: AllocationProgram) -> Outcome:
        """Solve the program with the right sides of another one that differs
        in nothing else, and certify.

        What has no optimum is solved anew, which proves and explains it; so is an answer whose
        certificate fails.
        """
        return proved_allocation(self.engine, program, self._run(program))

    def _run(self, program: AllocationProgram) -> Outcome:
        self.runs += 1
        if program.concave:
            self.anew.append(
                "solved from scratch, as a utility that is not linear cannot be changed in place"
            )
            return self.engine.solve_directly(program)
        arrays = self.right_sides(program)
        self.session.set_rows(arrays.row_lower, arrays.row_upper)
        values = self.engine.run(self.session)
        if values.x is None or values.termination in NO_OPTIMUM:
            self.anew.append(f"solved anew, as the session ended with {values.termination}")
            return self.engine.solve_directly(program)
        outcome = certified_allocation(self.engine, program, values, values.y, arrays)
        if outcome.certificate.ok:
            return outcome
        self.anew.append(
            f"solved anew, as a certificate did not hold: {'; '.join(outcome.certificate.problems)}"
        )
        return self.engine.solve_directly(program)

    def right_sides(self, program: AllocationProgram) -> LinearArrays:
        """The arrays with the capacities and side bounds of a program."""
        if (
            program.extend is not None
        ):  # implied bounds of a researcher's own columns may come from the right sides
            return program.to_linear().arrays
        lower = self.arrays.row_lower.copy()
        upper = self.arrays.row_upper.copy()
        upper[self.arrays.row_block("capacity").slice] = program.classes.capacity
        for side in program.side:
            rows = self.arrays.row_block(side.name).slice
            lower[rows], upper[rows] = side.lower, side.upper
        return replace(self.arrays, row_lower=lower, row_upper=upper)

    def solution(self, program: AllocationProgram, outcome: Outcome) -> Solution:
        """An outcome in the units of the formulation."""
        return self.formulation.solution(program.classes.candidates, program, outcome, self.engine)


def single_program(formulation: Formulation, C: Classes) -> AllocationProgram:
    """The one allocation program that a formulation is.

    Raises
    ------
    InvalidArgument
        The formulation is a rule, its answer is a schedule, or it is solved in several stages.
    Infeasible
        A side constraint that no allocation can meet.
    """
    if not formulation.is_one_program:
        problem = "is a rule or is solved in several stages: it is no single program"
        raise _not_held(formulation, problem)
    program = formulation.program(C)
    if not isinstance(program, AllocationProgram):
        problem = "decides what runs when: its program is not one of fractions of time"
        raise _not_held(formulation, problem)
    if program.parts is not None:
        raise _not_held(formulation, "is solved in parts (option parts): it is no single program")
    if program.utility.method is not Method.DIRECT or program.utility.homogenised:
        raise _not_held(formulation, "is solved in several stages: it is no single program")
    return program


def _not_held(formulation: Formulation, problem: str) -> InvalidArgument:
    expected = "one that is a single program of fractions of time"
    sentence = f"{formulation.name} {problem}"
    return InvalidArgument("formulation", formulation.name, expected, sentence=sentence)
