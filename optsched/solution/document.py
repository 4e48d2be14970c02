"""Models of the stored formats: ``optsched-solution/1`` and ``optsched-program-solution/1``.

`Solution.to_document` and `optsched.solve_program` write them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Generic, Literal, TypeVar, get_args, overload

from pydantic import BaseModel, Field, GetCoreSchemaHandler, Strict
from pydantic_core import CoreSchema, core_schema

from optsched.instance.documents import Document
from optsched.instance.reading import columns_of, fields_of
from optsched.solution.explanation import Explanation
from optsched.solution.solution import Status
from optsched.solution.values import Termination

PROGRAM_FORMAT = "optsched-program-solution/1"


Number = Annotated[float, Field(allow_inf_nan=False)]


Row = TypeVar("Row", bound=BaseModel)


class RowColumns(Sequence[Row], Generic[Row]):
    """Rows of a document as one list per field. An object is made when its row is asked for: a
    hundred thousand objects take longer than all checks of their numbers.
    """

    def __init__(self, model: type[Row], columns: Mapping[str, list[Any]]) -> None:
        self._model = model
        self._columns = columns

    @classmethod
    def of(cls, model: type[Row], rows: Iterable[Row]) -> RowColumns[Row]:
        """The columns of these rows."""
        kept = list(rows)
        return cls(
            model, {name: [getattr(row, name) for row in kept] for name in model.model_fields}
        )

    def column(self, name: str) -> list[Any]:
        """The values of one field."""
        return self._columns[name]

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    @overload
    def __getitem__(self, row: int) -> Row: ...
    @overload
    def __getitem__(self, row: slice) -> Sequence[Row]: ...
    def __getitem__(self, row: int | slice) -> Row | Sequence[Row]:
        if isinstance(row, slice):
            return [self[place] for place in range(*row.indices(len(self)))]
        # A default counts as not given: `exclude_unset` then leaves the field out.
        fields = fields_of(self._model)
        values = {name: column[row] for name, column in self._columns.items()}
        given = {name: value for name, value in values.items() if value is not fields[name][1]}
        return self._model.model_construct(**given)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        (model,) = get_args(source)

        def read(value: Any, check: core_schema.ValidatorFunctionWrapHandler) -> RowColumns[Row]:
            columns = columns_of(model, value, {}) if isinstance(value, list) else None
            # Where the fast way refuses, pydantic reads row by row and says what is wrong.
            return cls.of(model, check(value)) if columns is None else cls(model, columns)

        return core_schema.no_info_wrap_validator_function(
            read,
            handler.generate_schema(list[model]),  # type: ignore[valid-type]
            serialization=core_schema.plain_serializer_function_ser_schema(list),
        )


class InstanceReference(Document):
    """Which instance was solved."""

    name: str
    sha256: str


class AttemptDocument(Document):
    """An attempt at the program."""

    name: str
    outcome: str


class SolverDocument(Document):
    """Which solver was used."""

    name: str
    version: str
    options: dict[str, Any]
    seed: int
    gap: Number | None
    attempts: list[AttemptDocument] | None = None
    by_clock: bool = False


class CertificateDocument(Document):
    """The certificate as written."""

    ok: bool
    proof: Literal["dual", "claimed", "cross-checked", "rule", "counted", "none"]
    residuals: dict[str, Number]
    problems: list[str]


class AllocationRow(Document):
    """One row of the allocation."""

    job: str | None = None
    jobs: Annotated[tuple[str, str], Strict(False)] | None = None
    pool: str | None
    gpus: int
    nodes: int
    fraction: Number
    share: Number = 1.0
    attributes: dict[str, Any] = Field(default_factory=dict)
    option: int | None = None


class ScheduleRow(Document):
    """A stretch of time in which a job runs."""

    job: str
    pool: str | None
    gpus: int
    nodes: int
    start: Number
    end: Number
    share: Number = 1.0
    attributes: dict[str, Any] = Field(default_factory=dict)
    option: int | None = None


class UnplacedRow(Document):
    """A job that is not in the program, or that the placement does not let run on."""

    job: str
    reason: str


class SliceDocument(Document):
    """A part of the window in which some rows of the allocation run."""

    duration: Number
    run: list[int]


class RoundsDocument(Document):
    """The allocation cut into slices."""

    method: Literal["at-once", "open-shop", "patterns", "priority"]
    window: Number
    scale: Number
    bound: Number
    finished: bool
    slices: list[SliceDocument]


class PlacementRow(Document):
    """GPUs of one row of the allocation, or why it has none."""

    row: Annotated[int, Field(ge=0)]
    job: str | None = None
    jobs: Annotated[tuple[str, str], Strict(False)] | None = None
    gpus: list[str]
    granted: Number | None = None
    reason: str | None = None


class ColumnsMadeDocument(Document):
    """How many columns were made, of how many that could be."""

    of: Literal["pairs", "configurations"]
    made: Annotated[int, Field(ge=0)]
    possible: Annotated[int, Field(ge=0)]


class PackedDocument(Document):
    """How many rows that run side by side find whole GPUs."""

    rows: int
    held: int
    most: int
    time: Number | None = None
    turns: Number | None = None


class TimePricesDocument(Document):
    """What a second of a unit of each resource costs in pieces of time that end one after the other."""

    ends: list[Number]
    prices: dict[str, list[Number]]


class StageDocument(Document):
    """A program that was solved before the last one."""

    name: str
    value: Number
    bound: Number | None
    duals: dict[str, list[Number]] | None
    kept: dict[str, list[Number]]
    words: list[str]


class SolutionDocument(Document):
    """A whole solution file."""

    format: Literal["optsched-solution/1"]
    instance: InstanceReference
    formulation: str
    options: dict[str, Any]
    constraints: list[dict[str, Any]]
    solver: SolverDocument
    classes: bool
    sense: Literal["max", "min", "rule"]
    objective: Number | None
    bound: Number | None
    bound_source: Literal["dual", "solver", "relaxation", "none"]
    gap: Number | None
    termination: Annotated[Termination, Strict(False)]
    status: Annotated[Status, Strict(False)]
    reproducible: bool
    certificate: CertificateDocument
    allocation: RowColumns[AllocationRow]
    throughput: dict[str, Number]
    prices: dict[str, Number]
    duals: dict[str, list[Number]] | None
    conflicts: list[str]
    assumptions: list[str] | None = None
    unplaced: list[UnplacedRow]
    declined: list[UnplacedRow] | None = None
    metrics: dict[str, Any]
    timings: dict[str, Number]
    explanation: Annotated[Explanation, Strict(False)] = Explanation.IRREDUCIBLE
    notes: list[str] = Field(default_factory=list)
    figures: dict[str, dict[str, Number]] | None = None
    columns_made: ColumnsMadeDocument | None = None
    packed: PackedDocument | None = None
    stages: list[StageDocument] | None = None
    schedule: list[ScheduleRow] | None = None
    layouts: dict[str, dict[str, Annotated[int, Field(ge=0)]]] | None = None
    time_prices: TimePricesDocument | None = None
    rounds: RoundsDocument | None = None
    placement: list[PlacementRow] | None = None
    placement_figures: dict[str, Number] | None = None
    placement_contradicts: list[UnplacedRow] | None = None


# --- solutions of programs that no formulation made -----------------------------------------------


class ProgramReference(Document):
    """Which program was solved."""

    name: str
    rows: int
    columns: int
    integer: int
    nonzeros: int
    sense: Literal["max", "min"]


class ProgramSolutionDocument(Document):
    """The solution file of a program that no formulation made."""

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
