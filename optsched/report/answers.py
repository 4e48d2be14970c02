"""Allocation, schedule, rounds and placement in the form that pictures use, from a `Solution` or a
solution file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from optsched.arrays import FloatArray, IntArray
from optsched.assembly import compile_for, make_formulation
from optsched.candidates import Classes
from optsched.display import amount
from optsched.errors import InvalidInput, UsageError
from optsched.instance import Instance
from optsched.instance.files import read_document
from optsched.instance.reading import listed, show, validate
from optsched.solution import Allocation, Prices, Rounds, Schedule, Solution, Status
from optsched.solution.document import CertificateDocument, SolutionDocument

# --- solutions, and files of them ----------------------------------------------------------------


@dataclass(frozen=True)
class SolutionFile:
    """A solution file that was read. Attributes that `Solution` has too have the same names.

    Attributes
    ----------
    instance : Instance
        The instance that was solved; its hash is checked.
    document : SolutionDocument
    """

    instance: Instance
    document: SolutionDocument

    @classmethod
    def read(cls, instance: Instance, source: Mapping[str, Any] | str | Path) -> SolutionFile:
        """Read a solution of an instance: a document, a path, or ``-`` for standard input.

        Raises
        ------
        InvalidInput
            If it cannot be read, does not have the format, or belongs to another instance.
        """
        if isinstance(source, Mapping):
            return cls._of(instance, dict(source))
        return read_document(source, "solution", lambda document: cls._of(instance, document))

    @classmethod
    def _of(cls, instance: Instance, document: object) -> SolutionFile:
        if not isinstance(document, dict):
            raise InvalidInput("", show(document), "a solution: an object")
        made = cls(instance, validate(SolutionDocument, document))
        if made.document.instance.sha256 != instance.sha256:
            raise InvalidInput(
                "instance.sha256",
                show(made.document.instance.sha256),
                f"{instance.sha256}, the hash of this instance",
            )
        return made

    @cached_property
    def classes(self) -> Classes:
        """The classes of jobs that the solution is over, compiled again; raises `InvalidInput`."""
        document = self.document
        constraints = [item for item in document.constraints if item.get("kind") != "extend"]
        try:
            formulation = make_formulation(document.formulation, document.options, constraints)
        except UsageError as error:
            raise InvalidInput(
                "formulation", show(document.formulation), f"one that can be made ({error})"
            ) from None
        candidates = compile_for(formulation, self.instance)
        return formulation.classes(candidates if document.classes else candidates.per_job())

    @property
    def formulation(self) -> str:
        """The registered name of the formulation."""
        return self.document.formulation

    @property
    def status(self) -> Status:
        """Status of the solution."""
        return self.document.status

    @property
    def sense(self) -> str:
        """``max``, ``min`` or ``rule``."""
        return self.document.sense

    @property
    def objective(self) -> float | None:
        """The objective in units of the formulation."""
        return self.document.objective

    @property
    def prices(self) -> Mapping[str, float]:
        """Improvement of the objective per unit of each resource."""
        return self.document.prices

    @property
    def metrics(self) -> Mapping[str, Any]:
        """Figures of the allocation."""
        return self.document.metrics

    @property
    def certificate(self) -> CertificateDocument:
        """The certificate as written."""
        return self.document.certificate


Answer = Solution | SolutionFile
# Parts of a solution that can be drawn alone; they have no status and no objective.
Part = Allocation | Schedule | Rounds | Prices
Shown = Answer | Part


def instance_of(shown: Shown) -> Instance:
    """The instance that was solved."""
    if isinstance(shown, Allocation | Schedule | Rounds):
        return shown.classes.instance
    return shown.instance


def headline(answer: Shown, *more: str) -> str:
    """The subtitle: formulation, status and objective, and additional texts of the picture."""
    if isinstance(answer, Part):
        return "; ".join(filter(None, more))
    value = "" if answer.objective is None else f", objective {amount(answer.objective)}"
    doubt = "" if answer.certificate.ok else ", its certificate does not hold"
    return "; ".join([f"{answer.formulation}: {answer.status}{value}{doubt}", *filter(None, more)])


# --- schedule, rounds and placement --------------------------------------------------------------

NOBODY = -1


@dataclass(frozen=True)
class Runs:
    """Jobs (or pairs) that run somewhere for some time; arrays of length S.

    Attributes
    ----------
    job, partner, pool : IntArray
        Rows of the job table and of the pools; -1 for no partner, no pool.
    gpus : FloatArray
        GPUs held; for a share of a GPU, the share.
    start, end : FloatArray
        Seconds, on the clock or from the beginning of the window, depending on the caller.
    """

    job: IntArray
    partner: IntArray
    pool: IntArray
    gpus: FloatArray
    start: FloatArray
    end: FloatArray

    def __len__(self) -> int:
        return len(self.job)


@dataclass(frozen=True)
class AllocatedRows:
    """Rows of an allocation:
    job, pool (-1: none) and fraction of the time; arrays of equal length.

    Attributes
    ----------
    job, partner, pool : IntArray
        Rows of the job table and of the pools; -1 for no partner, no pool.
    gpus, fraction : FloatArray
        GPUs held (for a share of a GPU, the share), and the fraction of the time.
    option : IntArray
        Rows of the instance's options; -1 for none.
    """

    job: IntArray
    partner: IntArray
    pool: IntArray
    gpus: FloatArray
    fraction: FloatArray
    option: IntArray


@dataclass(frozen=True)
class WindowSlices:
    """Rounds as stretches: a row of the allocation that runs in consecutive slices is one stretch.

    Attributes
    ----------
    runs : Runs
        The stretches, in seconds from the beginning of the window.
    cuts : FloatArray
        Ends of the slices.
    window : float
        Seconds.
    scale : float
        Factor on all fractions of the allocation that the slices realise.
    """

    runs: Runs
    cuts: FloatArray
    window: float
    scale: float


@dataclass(frozen=True)
class GpusInUse:
    """GPUs, each written ``node/index``, and the jobs (rows of the job table) that hold a share of
    each.
    """

    jobs: tuple[int, ...]
    gpus: tuple[str, ...]
    share: float = 1.0


# --- from a solution, or from a file --------------------------------------------------------------


def shares_of(source: Allocation | Rounds | SolutionFile) -> AllocatedRows:
    """The rows of an allocation, or of the allocation of rounds."""
    if isinstance(source, SolutionFile):
        return _allocation_in(source)
    rows, C = source.rows, source.classes
    table = C.configurations
    configuration = C.configuration[rows.column]
    gpus = table.gpus[configuration] * table.share[configuration]
    option = C.candidates.columns.option[C.kind_column[rows.column]]
    pool = table.pool[configuration]
    return AllocatedRows(rows.job, rows.partner, pool, gpus, rows.fraction, option)


def schedule_of(answer: Answer | Schedule) -> Runs:
    """The schedule, in absolute seconds; raises `UsageError` if there is none."""
    if isinstance(answer, SolutionFile):
        return _schedule_in(answer)
    schedule = answer if isinstance(answer, Schedule) else answer.schedule
    if schedule is None:
        assert isinstance(answer, Solution)
        raise _lacks(answer, "schedule")
    table = schedule.classes.configurations
    configuration = schedule.classes.configuration[schedule.column]
    alone = np.full(len(schedule), NOBODY)
    gpus = table.gpus[configuration] * table.share[configuration]
    return Runs(schedule.job, alone, schedule.pool, gpus, schedule.start, schedule.end)


def slices_of(answer: Answer | Rounds) -> WindowSlices:
    """The rounds; raises `UsageError` if there are none."""
    if isinstance(answer, SolutionFile):
        return _slices_in(answer)
    rounds = answer if isinstance(answer, Rounds) else answer.rounds
    if rounds is None:
        assert isinstance(answer, Solution)
        raise _lacks(answer, "rounds")
    duration = rounds.length * rounds.window
    runs = rounds.runs.toarray() > 0
    return _slices(shares_of(rounds), duration, runs, rounds.window, rounds.scale)


def placement_of(answer: Answer) -> tuple[GpusInUse, ...]:
    """The placement; raises `UsageError` if there is none."""
    if isinstance(answer, SolutionFile):
        return _placement_in(answer)
    placement = answer.placement
    if placement is None:
        raise _lacks(answer, "placement")
    job = placement.rows.job[placement.row].tolist()
    partner = placement.rows.partner[placement.row].tolist()
    C = answer.candidates if answer.allocation is None else answer.allocation.classes
    column = placement.rows.column[placement.row]
    share = C.configurations.share[C.configuration[column]].tolist()
    return tuple(
        GpusInUse((a,) if b < 0 else (a, b), gpus, part)
        for a, b, gpus, part in zip(job, partner, placement.gpus, share, strict=True)
    )


def has_schedule(answer: Answer) -> bool:
    """Whether there is a schedule to draw."""
    owner = answer.document if isinstance(answer, SolutionFile) else answer
    return owner.schedule is not None


def has_layouts(answer: Answer) -> bool:
    """Whether there are layouts of GPUs to draw."""
    if isinstance(answer, SolutionFile):
        return answer.document.layouts is not None
    return answer.schedule is not None and answer.schedule.layouts is not None


def _lacks(answer: Answer, name: str) -> UsageError:
    none = "no rounds" if name == "rounds" else f"no {name}"
    return UsageError(f"the solution of {answer.formulation} has {none}: there is nothing to draw")


def _slices(
    rows: AllocatedRows, duration: FloatArray, runs: np.ndarray, window: float, scale: float
) -> WindowSlices:
    """Slices of a window; ``runs``, shape (slices, rows), says which rows run in each."""
    row, start, end, cuts = _joined(duration, runs)
    stretches = Runs(rows.job[row], rows.partner[row], rows.pool[row], rows.gpus[row], start, end)
    return WindowSlices(stretches, cuts, window, scale)


def _joined(
    length: FloatArray, runs: np.ndarray
) -> tuple[IntArray, FloatArray, FloatArray, FloatArray]:
    """Row, start and end of every stretch of consecutive slices in which a row runs; and the ends
    of slices.
    """
    edge = np.concatenate(([0.0], np.cumsum(length)))
    border = np.zeros((1, runs.shape[1]), bool)
    change = np.diff(np.concatenate((border, runs, border)).astype(np.int8), axis=0)
    row, begin = np.nonzero(change.T == 1)
    # Begins and ends of a row alternate, so the two lists match
    _, after = np.nonzero(change.T == -1)
    return row, edge[begin], edge[after], edge[1:]


# --- from the rows of a file ---------------------------------------------------------------------
# The document has the format; the names in its rows are looked up in the instance here.


def _schedule_in(file: SolutionFile) -> Runs:
    rows = file.document.schedule
    if rows is None:
        raise _lacks(file, "schedule")
    job = []
    pool = []
    for place, row in enumerate(rows):
        job.append(_job(file.instance, row.job, f"schedule[{place}].job"))
        pool.append(_pool(file.instance, row.pool, f"schedule[{place}].pool"))
        if row.end < row.start:
            expected = f"at least its start, {row.start:g}"
            raise InvalidInput(f"schedule[{place}].end", show(row.end), expected)
    start = np.array([row.start for row in rows])
    end = np.array([row.end for row in rows])
    gpus = np.array([row.gpus * row.share for row in rows], np.float64)
    return Runs(_rows(job), np.full(len(rows), NOBODY), _rows(pool), gpus, start, end)


def _slices_in(file: SolutionFile) -> WindowSlices:
    rounds = file.document.rounds
    allocation = file.document.allocation
    if rounds is None:
        raise _lacks(file, "rounds")
    if rounds.window <= 0:
        raise InvalidInput("rounds.window", show(rounds.window), "a number above 0")
    runs = np.zeros((len(rounds.slices), len(allocation)), bool)
    for place, piece in enumerate(rounds.slices):
        path = f"rounds.slices[{place}]"
        if piece.duration < 0:
            raise InvalidInput(f"{path}.duration", show(piece.duration), "a number of at least 0")
        for position, number in enumerate(piece.run):
            if not 0 <= number < len(allocation):
                expected = f"the number of one of the {len(allocation)} rows of the allocation"
                raise InvalidInput(f"{path}.run[{position}]", show(number), expected)
        runs[place, piece.run] = True
    duration = np.array([piece.duration for piece in rounds.slices], np.float64)
    return _slices(_allocation_in(file), duration, runs, rounds.window, rounds.scale)


def _allocation_in(file: SolutionFile) -> AllocatedRows:
    """The rows of the allocation of a solution file."""
    instance = file.instance
    rows = file.document.allocation
    job = []
    partner = []
    pool = []
    for place, row in enumerate(rows):
        path = f"allocation[{place}]"
        first, second = (row.job, None) if row.jobs is None else row.jobs
        job.append(_job(instance, first, f"{path}.job" if row.jobs is None else f"{path}.jobs[0]"))
        partner.append(NOBODY if second is None else _job(instance, second, f"{path}.jobs[1]"))
        pool.append(_pool(instance, row.pool, f"{path}.pool"))
    gpus = [row.gpus * row.share for row in rows]
    fraction = [row.fraction for row in rows]
    first = instance.options.indptr[instance.jobs_table.options[_rows(job)]].tolist()
    option = [
        NOBODY if row.option is None else begin + row.option
        for row, begin in zip(rows, first, strict=True)
    ]
    return AllocatedRows(
        _rows(job),
        _rows(partner),
        _rows(pool),
        np.array(gpus, float),
        np.array(fraction, float),
        _rows(option),
    )


def _placement_in(file: SolutionFile) -> tuple[GpusInUse, ...]:
    if file.document.placement is None:
        raise _lacks(file, "placement")
    held = []
    allocation = file.document.allocation
    for place, row in enumerate(file.document.placement):
        path = f"placement[{place}]"
        if (row.job is None) == (row.jobs is None):
            raise InvalidInput(
                path, "both job and jobs" if row.job else "neither job nor jobs", "one of them"
            )
        names = [row.job] if row.jobs is None else row.jobs
        jobs = tuple(_job(file.instance, name, path) for name in names)
        share = allocation[row.row].share if row.row < len(allocation) else 1.0
        held.append(GpusInUse(jobs, tuple(row.gpus), share))
    return tuple(held)


def _rows(numbers: list[int]) -> IntArray:
    return np.array(numbers, np.int64)


def _job(instance: Instance, name: str | None, path: str) -> int:
    try:
        return instance.jobs_table.names.index(name or "")
    except KeyError:
        raise InvalidInput(path, show(name), "the id of a job of the instance") from None


def _pool(instance: Instance, name: str | None, path: str) -> int:
    if name is None:
        return NOBODY
    if name not in instance.cluster.pool_index:
        raise InvalidInput(
            path, show(name), f"one of the pools {listed(instance.cluster.pool_index)}"
        )
    return instance.cluster.pool_index[name]
