"""Room for a job that waits: which running jobs would have to move."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Unpack

from optsched.api import InstanceSource, Performance, compile, load, own_constraints
from optsched.candidates import Absence
from optsched.display import DisplayedTable, TableColumns, amount, count
from optsched.errors import UsageError
from optsched.instance import Instance
from optsched.instance.arguments import checks_arguments
from optsched.instance.references import job_row
from optsched.placement import Fragmentation, fragmentation_of
from optsched.placement.fewest_migrations import (
    PROGRAM_WORK,
    Migration,
    RoomFound,
    fewest_migrations,
)
from optsched.registry import load_solver
from optsched.solving.engine import Engine
from optsched.solving.limits import LimitOptions, make_limits, takes_limits, timer_of

FORMAT = "optsched-room/1"


@dataclass(frozen=True, repr=False)
class Room(DisplayedTable):
    """How room is made for a job.

    Attributes
    ----------
    instance : Instance
    job : str
    possible : bool or None
        Whether it can have room; None: neither a plan nor a proof was found.
    words : str
        The answer in a sentence.
    pool : str or None
        Where it runs then.
    gpus : tuple of str
        Its GPUs, written ``node/index``.
    migrations : tuple of Migration
        Running jobs that move, in their order.
    fewest : int
        No plan has fewer migrations.
    cheapest : float
        No plan with so few migrations costs fewer seconds of restarts.
    before : Fragmentation
        Free GPUs that the jobs of the instance cannot use, now.
    after : Fragmentation or None
        The same after the migrations, with the job in place.
    """

    instance: Instance
    job: str
    possible: bool | None
    words: str
    pool: str | None
    gpus: tuple[str, ...]
    migrations: tuple[Migration, ...]
    fewest: int
    cheapest: float
    before: Fragmentation
    after: Fragmentation | None

    @property
    def seconds(self) -> float:
        """Seconds that the restarts of the migrations cost."""
        return float(sum(migration.seconds for migration in self.migrations))

    @property
    def optimal(self) -> bool:
        """Whether no plan has fewer migrations, and none with as few is cheaper."""
        fewest = len(self.migrations) <= self.fewest
        return bool(self.possible) and fewest and self.seconds <= self.cheapest * (1 + 1e-9)

    def _headline(self) -> str:
        return f"for {self.job}: {self.words}"

    def _facts(self) -> Mapping[str, str]:
        then = "" if self.after is None else f", then {amount(self.after.gpus)}"
        lost = f"{amount(self.before.gpus)} of {amount(self.before.total)} free GPUs"
        return {"fragmentation": f"{lost}{then}"}

    def to_columns(self, first: int | None = None) -> TableColumns:
        """The migrations: step, job, the GPUs before and after, and the seconds of the restart."""
        names = self.instance.jobs_table.names
        some = self.migrations[:first]
        return {
            "step": [migration.step for migration in some],
            "job": [names[migration.job] for migration in some],
            "from": [list(migration.gpus) for migration in some],
            "to": [list(migration.target) for migration in some],
            "restart": [migration.seconds for migration in some],
        }

    def to_document(self) -> dict[str, Any]:
        """The answer as plain data."""
        rows = self.to_columns()
        return {
            "format": FORMAT,
            "instance": self.instance.identity,
            "job": self.job,
            "possible": self.possible,
            "words": self.words,
            "pool": self.pool,
            "gpus": list(self.gpus),
            "migrations": [
                dict(zip(rows, values, strict=True)) for values in zip(*rows.values(), strict=True)
            ],
            "fewest": self.fewest,
            "seconds": self.seconds,
            "cheapest": self.cheapest,
            "optimal": self.optimal,
            "fragmentation": {
                "free": self.before.total,
                "before": self.before.gpus,
                "after": None if self.after is None else self.after.gpus,
            },
        }


@checks_arguments
@takes_limits
def make_room(
    instance: InstanceSource,
    job: str,
    *,
    solver: str = "auto",
    performance: Performance | None = None,
    **limits: Unpack[LimitOptions],
) -> Room:
    """The fewest migrations of running jobs that make room for one that waits, and of these the
    cheapest.

    A running job moves with the restart cost of the instance, and keeps its configuration. Jobs
    that cannot be preempted, are exempt for now, run on nodes that take no work, or share their
    GPUs with another one stay. The anti-affinity constraints of the instance hold.

    Parameters
    ----------
    instance : Instance, path, ``@name`` or mapping
    job : str
        Id of a job that does not run. It gets room in any of its configurations.
    solver : str
        That of the integer programs.
    performance : PerformanceModel, mapping or path, optional
        In place of the instance's own.
    **limits : LimitOptions
        As of `optsched.solve`. Without a work limit each program stops after 2,000 nodes of branch
        and bound, so that the same instance has the same answer.

    Returns
    -------
    Room
        Exact where the placement has at most some thousand columns; else the best plan of a part of
        the nodes, with bounds that hold for all.

    Raises
    ------
    UsageError
        If there is no such job, it runs already, has no step left, or arrives later; or tenants have
        reserved cells, whose GPUs no placement of an instance fixes.
    """
    limits.setdefault("work_limit", PROGRAM_WORK)
    limits["time_limit"] = timer = timer_of(limits.get("time_limit"))
    made = make_limits(**limits)
    read = load(instance, performance)
    candidates = compile(read, timer=timer)
    row = job_row(read.jobs_table.names, job, "the instance")
    if row in read.jobs_table.running:
        raise UsageError(f"job {job} runs already")
    _refuse_reserved(read)
    absent = dict(candidates.unplaced()).get(row, "")
    classes = candidates.per_job().classes(frozenset(), [])
    engine = Engine(load_solver, solver, made, timer=timer)
    if candidates.absence[row] == Absence.NO_COLUMN:
        found = RoomFound(False)
    elif absent:
        raise UsageError(f"job {job}: {absent}")
    else:
        found = fewest_migrations(classes, row, engine, read.constraints)
    mix = candidates.classes(frozenset(), [])
    pool = None if found.column < 0 else read.cluster.pools[int(classes.pool[found.column])].name
    return Room(
        read,
        job,
        found.possible,
        f"it {absent}" if absent else _words(found),
        pool,
        found.gpus,
        found.migrations,
        found.fewest,
        found.cheapest,
        fragmentation_of(mix),
        None if found.after is None else fragmentation_of(mix, found.after),
    )


def _refuse_reserved(instance: Instance) -> None:
    """Refuse cells that are reserved for tenants: they may be on any nodes, and the fewest migrations
    depend on where.
    """
    for constraint in own_constraints(instance):
        cells = constraint.reserves(instance)
        if cells is not None:
            raise UsageError(
                f"cells of tenant {cells.tenant} are reserved: a round chooses their GPUs, and makes "
                "room beside them (optsched round)"
            )


@checks_arguments
def fragmentation(
    instance: InstanceSource, *, performance: Performance | None = None
) -> Fragmentation:
    """Free GPUs that the jobs of an instance cannot use beside what runs now.

    Parameters
    ----------
    instance : Instance, or what `optsched.load` takes
    performance : PerformanceModel, mapping or path, optional
        In place of the instance's own.

    Returns
    -------
    Fragmentation
        By node, expected over the jobs of the instance: each counts once, whether it runs or waits.

    Raises
    ------
    InvalidInput
        The instance or the performance model is not valid.
    """
    return fragmentation_of(compile(load(instance, performance)).classes(frozenset(), []))


def _words(found: RoomFound) -> str:
    if found.possible:
        moves = len(found.migrations)
        if not moves:
            return "there is room; nobody has to move"
        least = "the fewest" if moves <= found.fewest else f"at least {found.fewest:,} are needed"
        return f"{count(moves, 'migration')} {'makes' if moves == 1 else 'make'} room, {least}"
    if found.counted:
        return (
            "no migration makes room: with all jobs gone that may move, its nodes have too few GPUs"
        )
    if found.possible is False:
        return "no migration makes room"
    return "no plan was found, and it was not shown that there is none"
