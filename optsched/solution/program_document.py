"""The file of a program's solution, ``optsched-program-solution/1``: its shape."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, Strict

from optsched.solution.document import CertificateDocument, SolverDocument
from optsched.solution.explanation import Explanation
from optsched.solution.solution import Status
from optsched.solution.values import Termination

FORMAT = "optsched-program-solution/1"
Number = Annotated[float, Field(allow_inf_nan=False)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


class ProgramReference(_Model):
    """Which program was solved."""

    name: str
    rows: int
    columns: int
    integer: int
    nonzeros: int
    sense: Literal["max", "min"]


class ProgramSolutionDocument(_Model):
    """A whole file."""

    format: Literal["optsched-program-solution/1"]
    program: ProgramReference
    solver: SolverDocument
    objective: Number | None
    bound: Number | None
    bound_source: Literal["dual", "solver", "none"]
    gap: Number | None
    termination: Annotated[Termination, Strict(False)]
    status: Annotated[Status, Strict(False)]
    reproducible: bool
    certificate: CertificateDocument
    values: dict[str, Number] | None
    duals: dict[str, Number] | None
    conflicts: list[str]
    timings: dict[str, Number]
    explanation: Annotated[Explanation, Strict(False)] = Explanation.IRREDUCIBLE
