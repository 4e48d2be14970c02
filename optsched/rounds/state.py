"""The state of a round: everything that the next plan depends on, as one value.

A document of the format ``optsched-round/1`` has an instance and the records of earlier rounds.
Only the instance is required: alone it is the state before a first round. All parts refer to jobs
by name, so a user may add jobs to the instance of such a document, or remove jobs.
"""

from __future__ import annotations

import base64
import binascii
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, model_validator

from optsched.arrays import AnyArray, BoolArray, FloatArray, IntArray, mask_of
from optsched.arrays.npz import text_array, text_in, unzip_arrays, zip_arrays
from optsched.arrays.values import cached_property, replace
from optsched.assembly import load
from optsched.display import DisplayedTable, TableColumns, count
from optsched.errors import InvalidArgument, InvalidInput
from optsched.instance import Instance, json_schema
from optsched.instance.cluster import UP, Cluster
from optsched.instance.documents import (
    NODE_STATES,
    Count,
    Document,
    Finite,
    Name,
    NonNegative,
    Pair,
    PositiveCount,
    Share,
    Tuple,
)
from optsched.instance.files import read_file
from optsched.instance.rates import LEVEL
from optsched.instance.reading import inside, show, validate
from optsched.rounds.ledger import GPUS, POOL, Ledger, Service, Standing
from optsched.rounds.policy import (
    RoundPolicy,
    as_stored,
    policy_document,
    policy_of,
)
from optsched.rounds.stops import Grace, PastMoves, Stops, checkpoint_interval, stops_document
from optsched.solving.warm_start import WarmStart

# --- the document ----------------------------------------------------------------------------

FORMAT = "optsched-round/1"


class GraceDocument(Document):
    """GPUs (``node/index``) that jobs which were stopped hold until a time (seconds)."""

    gpus: Tuple[Name]
    until: Finite


class MovesDocument(Document):
    """How many running jobs a plan preempted or moved at a time (seconds)."""

    at: Finite
    jobs: PositiveCount


class ReservationDocument(Document):
    """Nodes that take no work from ``start`` to ``end`` (seconds)."""

    nodes: Tuple[Name]
    start: Finite
    end: Finite
    name: str = ""


class LedgerRow(Document):
    """A job, or two that share GPUs, in a configuration:
    its part of the time, and what it is owed and has received.
    """

    job: Name | None = None
    jobs: Pair[Name] | None = None
    pool: Name | None
    gpus: Count
    # Files of before `level` have it in `nodes`, as keys of a ledger have (`LEVEL`).
    nodes: Annotated[int, Field(ge=0, le=2**62)]
    level: Name | None = None
    option: Count | None = None
    workers: Count = 0
    servers: Count = 0
    share: Share = 1.0
    fraction: NonNegative = 0.0
    owed: Finite = 0.0
    received: Finite = 0.0
    runs: bool = False

    @model_validator(mode="after")
    def _one_or_two(self) -> LedgerRow:
        if (self.job is None) == (self.jobs is None):
            raise ValueError("a job or two jobs")
        return self


class JobService(Document):
    """What a job has had; null where there is no such time: it runs, or never ran."""

    executed: NonNegative = 0.0
    attained: NonNegative = 0.0
    waiting_since: Finite | None = None
    first_run: Finite | None = None
    starts: Count = 0
    speed: NonNegative = 0.0
    resumes: Finite = 0.0
    executed_before: NonNegative = 0.0
    attained_before: NonNegative = 0.0
    isolated: NonNegative = 0.0
    counted: NonNegative = 0.0
    owed: Finite = 0.0
    standing: Literal["admitted", "declined", "planned"] | None = None


class RoundDocument(Document):
    """What a round is decided from."""

    format: Literal["optsched-round/1"] = "optsched-round/1"
    round: Count = 0
    policy: RoundPolicy = RoundPolicy()
    reservations: Tuple[ReservationDocument] = ()
    graces: Tuple[GraceDocument] = ()
    moves: Tuple[MovesDocument] = ()
    service: dict[Name, JobService] = Field(default_factory=dict)
    ledger: Tuple[LedgerRow] = ()
    basis: str | None = None
    instance: dict[str, Any]


def state_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of ``optsched-round/1``."""
    schema = RoundDocument.model_json_schema()
    instance: dict[str, Any] = dict(json_schema())
    version = instance.pop("$schema")
    parts: dict[str, Any] = instance.pop("$defs", {})
    definitions = {**schema.get("$defs", {}), **parts}
    schema["$defs"] = {**definitions, "InstanceDocument": instance}
    schema["properties"]["instance"] = {"$ref": "#/$defs/InstanceDocument"}
    return {"$schema": version} | schema


# --- a simplex basis as one text -------------------------------------------------------------

BLOCKS = ("columns", "rows")


def basis_parts(warm: WarmStart) -> tuple[dict[str, Any], dict[str, AnyArray]]:
    """A basis as a JSON object, which has the names of its blocks and its prices, and arrays."""
    blocks = {"columns": warm.columns, "rows": warm.rows}
    header = {kind: list(found) for kind, found in blocks.items()}
    arrays = {"of_job": warm.of_job, "column": warm.column}
    for kind, found in blocks.items():
        arrays |= {f"{kind}.{number}": part for number, part in enumerate(found.values())}
    return header | {"prices": dict(warm.prices)}, arrays


def basis_of(header: Mapping[str, Any], arrays: Mapping[str, AnyArray]) -> WarmStart:
    """The basis of which `basis_parts` made these parts."""
    columns, rows = (
        {name: arrays[f"{kind}.{number}"] for number, name in enumerate(header[kind])}
        for kind in BLOCKS
    )
    prices = header.get("prices", {})
    return WarmStart(arrays["of_job"], arrays["column"], columns, rows, prices)


def basis_text(warm: WarmStart, names: Sequence[str]) -> str:
    """A basis as text; its jobs have these names."""
    # A basis without prices has the format of versions that had no prices.
    header, arrays = basis_parts(warm)
    if not warm.prices:
        del header["prices"]
    text = text_array(json.dumps({"jobs": list(names), **header}))
    return base64.b64encode(zip_arrays({"header": text, **arrays})).decode()


def read_basis(text: str, row: Mapping[str, int]) -> WarmStart:
    """The basis of a text, for jobs in these rows; jobs that it does not have are in no class.

    Raises
    ------
    InvalidInput
    """
    try:
        file = io.BytesIO(base64.b64decode(text, validate=True))
        header = json.loads(text_in(unzip_arrays(file, {"header"})["header"]))
        blocks = {f"{kind}.{number}" for kind in BLOCKS for number in range(len(header[kind]))}
        arrays = unzip_arrays(file, {"of_job", "column", *blocks})
        for name, array in arrays.items():
            _check_whole(array, 2 if name == "column" else 1)
        of_job = np.full(len(row), -1, np.int64)
        for name, class_ in zip(header["jobs"], arrays["of_job"].tolist(), strict=True):
            if name in row:
                of_job[row[name]] = class_
        prices = {str(name): _price(value) for name, value in header.get("prices", {}).items()}
        return replace(basis_of(header, arrays), of_job=of_job, prices=prices)
    except (ValueError, LookupError, TypeError, AttributeError, binascii.Error):
        raise InvalidInput(
            "basis",
            show(text),
            "null, or the text that a state was written with",
        ) from None


def _check_whole(array: AnyArray, dimensions: int) -> None:
    if array.dtype != np.int64 or array.ndim != dimensions:
        raise ValueError("an array of another type")


def _price(value: Any) -> float:
    if not isinstance(value, float) or not 0.0 < value < np.inf:
        raise ValueError("no price")
    return value


# --- the state -------------------------------------------------------------------------------

HOUR = 3600.0
"""Seconds."""
RESERVED = NODE_STATES.index("reserved")


@dataclass(frozen=True)
class Reservation:
    """Nodes that take no work from ``start`` to ``end`` (seconds)."""

    nodes: tuple[str, ...]
    start: float
    end: float
    name: str = ""


@dataclass(frozen=True, repr=False)
class RoundState(DisplayedTable):
    """Everything that a plan depends on.

    Attributes
    ----------
    instance : Instance
        The jobs, the GPUs of running jobs (``running``), the nodes and their states, the time and
        the length of a round.
    policy : RoundPolicy
    round : int
        Number of the coming round.
    ledger : Ledger
        The allocation in force, with the time owed.
    service : Service
        Running time, GPU time and starts of each job.
    warm : WarmStart, optional
        The basis in which the last program ended.
    reservations : tuple of Reservation
    graces : tuple of Grace
        GPUs that stopped jobs still hold; some may have ended.
    moves : tuple of PastMoves
        Those of the last hour, if the policy limits them.
    """

    instance: Instance
    policy: RoundPolicy
    round: int
    ledger: Ledger
    service: Service
    warm: WarmStart | None = None
    reservations: tuple[Reservation, ...] = field(default=())
    graces: tuple[Grace, ...] = ()
    moves: tuple[PastMoves, ...] = ()

    @classmethod
    def first(
        cls,
        instance: Instance,
        policy: RoundPolicy | Mapping[str, Any] | None = None,
        reservations: Sequence[Reservation] = (),
    ) -> RoundState:
        """The state before the first round: all deficits are 0, and running jobs have just started.

        Parameters
        ----------
        instance : Instance
        policy : RoundPolicy or mapping, optional
            Default: max-min fairness.
        reservations : sequence of Reservation
            Nodes that are reserved for other use for some time.

        Returns
        -------
        RoundState
        """
        table = instance.jobs_table
        running = mask_of(table.places.job, len(table))
        return cls(
            instance,
            RoundPolicy() if policy is None else policy_of(policy),
            0,
            Ledger.empty(len(table)),
            Service.new(table.arrival, running, instance.now),
            None,
            tuple(reservations),
        )

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> RoundState:
        """Read a state from its document, ``optsched-round/1``.

        Records of jobs that are not in the instance are left out.

        Parameters
        ----------
        document : mapping

        Returns
        -------
        RoundState

        Raises
        ------
        InvalidInput
            Naming the field, what was found and what was expected.
        """
        if isinstance(document, Mapping) and document.get("format", FORMAT) != FORMAT:
            raise InvalidInput("format", show(document["format"]), f'"{FORMAT}"')
        given = dict(document)
        if "policy" in given:
            given["policy"] = as_stored(given["policy"])
        checked = validate(RoundDocument, given)
        with inside("instance"):
            instance = Instance.from_document(checked.instance)
        row_of = {name: row for row, name in enumerate(instance.jobs_table.names.written())}
        carried, service = _read_service(checked, instance, row_of)
        state = cls(
            instance=instance,
            policy=checked.policy,
            round=checked.round,
            ledger=_read_ledger(checked, instance, row_of, carried),
            service=service,
            warm=None if checked.basis is None else read_basis(checked.basis, row_of),
            reservations=_read_reservations(checked, instance.cluster),
            graces=tuple(Grace(item.gpus, item.until) for item in checked.graces),
            moves=tuple(PastMoves(item.at, item.jobs) for item in checked.moves),
        )
        # Users edit the instance of a document between rounds: it is right where the ledger
        # differs.
        return state.stopped(_no_longer_running(state))

    def to_document(self) -> dict[str, Any]:
        """The state as a document; `from_document` reads an equal state from it, with the same
        plan.
        """
        names = self.instance.jobs_table.names.written()
        return {
            "format": FORMAT,
            "round": self.round,
            "policy": policy_document(self.policy),
            "reservations": [
                {
                    "name": item.name,
                    "nodes": list(item.nodes),
                    "start": item.start,
                    "end": item.end,
                }
                for item in self.reservations
            ],
            **stops_document(self.graces, self.moves),
            "service": dict(zip(names, _service_rows(self), strict=True)),
            "ledger": _ledger_rows(self),
            "basis": None if self.warm is None else basis_text(self.warm, names),
            "instance": self.instance.to_document(),
        }

    @property
    def now(self) -> float:
        """The time of the instance, seconds."""
        return self.instance.now

    @property
    def until(self) -> float:
        """The end of the coming round, seconds."""
        return self.instance.now + self.instance.round

    @cached_property
    def stops(self) -> Stops:
        """The cost of stopping jobs now, and the jobs that must not be stopped."""
        return Stops(self.instance, self.policy, self.service, self.graces)

    @property
    def most_moves(self) -> int | None:
        """Most running jobs that the coming plan may preempt or move to follow its allocation;
        None: any number.
        """
        limits = [] if self.policy.max_moves is None else [self.policy.max_moves]
        if self.policy.moves_per_hour is not None:
            limits.append(
                max(self.policy.moves_per_hour - sum(item.jobs for item in self.moves_of_hour), 0)
            )
        return min(limits, default=None)

    @property
    def moves_of_hour(self) -> tuple[PastMoves, ...]:
        """The moves of the last hour."""
        return tuple(item for item in self.moves if item.at > self.now - HOUR)

    def moves_after(self, stopped: BoolArray) -> tuple[PastMoves, ...]:
        """The moves to keep after a plan.

        Parameters
        ----------
        stopped : BoolArray, shape (jobs,)
            Jobs that the plan preempts or moves.

        Returns
        -------
        tuple of PastMoves
        """
        if self.policy.moves_per_hour is None:
            return ()
        jobs = int(stopped.sum())
        return (*self.moves_of_hour, *([PastMoves(self.now, jobs)] if jobs else []))

    @property
    def patience(self) -> float:
        """Seconds after which a waiting job is starved; inf where no job ever is."""
        rounds = self.policy.patience
        return np.inf if rounds is None else rounds * self.instance.round

    def stopped(self, jobs: BoolArray) -> RoundState:
        """The state after some jobs stopped running, for any reason.

        Parameters
        ----------
        jobs : BoolArray, shape (jobs,)
            Mask of these jobs.

        Returns
        -------
        RoundState
        """
        if not jobs.any():
            return self
        table = self.instance.jobs_table
        places = table.places
        # Running jobs are recorded in three places: the job table, the ledger and the service.
        stay = (~jobs[places.job]).nonzero()[0]
        running = places.take(stay, places.job[stay])
        return replace(
            self,
            instance=replace(self.instance, jobs_table=replace(table, running=running)),
            ledger=self.ledger.stopped(jobs),
            service=self.service.stopped(jobs, self.now),
        )

    def under(self, policy: RoundPolicy) -> RoundState:
        """The state under another policy, which decides the coming round.

        Running jobs, service and reservations do not change. With another formulation or ranking,
        the basis of the last program is dropped, and so are values that only the last one used:
        isolated time, and renewals by a ranking. Deficits are kept from formulation to formulation.

        Parameters
        ----------
        policy : RoundPolicy

        Returns
        -------
        RoundState
        """
        before = self.policy
        if (before.formulation, before.ranking) == (policy.formulation, policy.ranking):
            return replace(self, policy=policy)
        # Under a ranking rows receive time, but none is owed. Carried over to a formulation, that
        # would starve the jobs that ran most often.
        owes = before.ranking is None and policy.ranking is None
        return replace(
            self,
            policy=policy,
            ledger=self.ledger if owes else self.ledger.settled(),
            service=self.service.begun_anew(),
            warm=None,
        )

    def most_ahead(self) -> FloatArray:
        """The most time by which each row of the ledger may be ahead of its claim.

        Returns
        -------
        FloatArray
            Seconds, of the length of ``ledger``.
        """
        rows = self.ledger
        every = checkpoint_interval(self.instance.jobs_table.checkpoint_interval, self.policy)
        pool, gpus = rows.key[:, 2 + POOL], rows.key[:, 2 + GPUS]

        def most(job: IntArray) -> FloatArray:  # upper bound on the cost of stopping the job
            return self.stops.restart(job, pool, gpus) + every[job] + self.policy.grace_time

        cost = most(rows.job)
        if len(rows.pairs):
            cost = np.maximum(cost, np.where(rows.partner >= 0, most(rows.partner), 0.0))
        return self.instance.round * (1.0 + self.policy.hysteresis) + cost

    def _headline(self) -> str:
        jobs = self.instance.jobs_table
        running = self.instance.jobs_table.running
        return (
            f"before round {self.round} of {self.instance.name}: {count(len(jobs), 'job')}, "
            f"{len(running):,} of them running, by {self.policy.ranking or self.policy.formulation}"
        )

    def to_columns(self, first: int | None = None) -> TableColumns:
        """One row per job: its GPUs now, and its service so far.

        ``fraction`` is its fraction of the time in the allocation in force, ``owed`` its deficit in
        rounds; times are seconds.
        """
        table = self.instance.jobs_table
        pools = self.instance.cluster.pools
        names = [table.names[row] for row in range(len(table))[:first]]
        held = [table.running.get(row) for row in range(len(names))]
        fraction, owed = self.ledger.claims()
        rows = slice(first)
        return {
            "job": names,
            "pool": [None if place is None else pools[place[0]].name for place in held],
            "gpus": [() if place is None else place[1] for place in held],
            "fraction": fraction[rows].tolist(),
            "owed": (owed[rows] / self.instance.round).tolist(),
            "steps_left": table.steps_left[rows].tolist(),
            "executed": self.service.executed[rows].tolist(),
            "waiting_since": [
                None if since == np.inf else since
                for since in self.service.waiting_since[rows].tolist()
            ],
        }


StateSource = RoundState | Instance | Mapping[str, Any] | str | Path
"""A state, or the instance of a first round: the object, its document, or an argument of
`optsched.load`.
"""


def state_of(
    source: StateSource, policy: RoundPolicy | Mapping[str, Any] | None = None
) -> RoundState:
    """The state of a round.

    Parameters
    ----------
    source : RoundState, Instance, mapping, str or Path
        A state; or an instance, for which it is the first round. The ``format`` of a file or
        document says which it is.
    policy : RoundPolicy or mapping, optional
        Instead of the policy of the state.

    Raises
    ------
    UsageError, InvalidInput
    """
    policy = None if policy is None else policy_of(policy)
    if isinstance(source, str) and source.startswith("@"):
        source = load(source)
    elif isinstance(source, str | Path):
        source = read_file(source, "state", _state_or_instance)
    if isinstance(source, Mapping):
        source = _state_or_instance(source)
    if isinstance(source, Instance):
        return RoundState.first(source, policy)
    if not isinstance(source, RoundState):
        raise InvalidArgument(
            "",
            f"a {type(source).__name__}",
            "a RoundState, an Instance or a file of one",
        )
    return source if policy is None else source.under(policy)


def _state_or_instance(document: Any) -> RoundState | Instance:
    """A state if the format of the document is that of a state, else an instance."""
    named = document.get("format", "") if isinstance(document, Mapping) else ""
    if str(named).startswith("optsched-round"):
        return RoundState.from_document(document)
    return Instance.from_document(document)


def cluster_in_round(
    cluster: Cluster,
    reservations: Sequence[Reservation],
    now: float,
    until: float,
) -> Cluster:
    """The cluster in which nodes with a reservation between ``now`` and ``until`` are reserved."""
    names = {
        name
        for item in reservations
        if item.start < until and item.end > now
        for name in item.nodes
    }
    if not names:
        return cluster
    numbering = cluster.numbering
    nodes = np.array(
        sorted(numbering.by_name[name] for name in names if name in numbering.by_name),
        np.int64,
    )
    pools = []
    for number, pool in enumerate(cluster.pools):
        rows = numbering.row[nodes[numbering.pool[nodes] == number]]
        if len(rows):
            state = pool.node_state.copy()
            # A node that is down or drains keeps that state.
            state[rows[state[rows] == UP]] = RESERVED
            pool = replace(pool, node_state=state)
        pools.append(pool)
    return cluster.with_pools(tuple(pools))


# --- documents: writing -----------------------------------------------------------------------


def _service_rows(state: RoundState) -> list[dict[str, Any]]:
    """One object per job; infinite times are null, because JSON has no infinity."""
    columns = {item.name: getattr(state.service, item.name) for item in fields(Service)}
    columns["owed"] = state.ledger.carried
    standings = columns.pop("standing").tolist()
    values = [
        [value if np.isfinite(value) else None for value in column.tolist()]
        for column in columns.values()
    ]
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True)]
    for row, standing in zip(rows, standings, strict=True):
        if standing != Standing.NONE:
            row["standing"] = Standing(standing).name.lower()
    return rows


def _ledger_rows(state: RoundState) -> list[dict[str, Any]]:
    names = state.instance.jobs_table.names
    pools, levels = state.instance.cluster.pools, state.instance.cluster.level_names
    ledger = state.ledger
    # A key has the bits of the share as a whole number.
    shares = np.ascontiguousarray(ledger.key[:, 8]).view(np.float64).tolist()
    amounts = {
        name: getattr(ledger, name).tolist() for name in ("fraction", "owed", "received", "runs")
    }
    rows = []
    for place, (key, share) in enumerate(zip(ledger.key.tolist(), shares, strict=True)):
        job, partner, pool, gpus, nodes, option, workers, servers, _ = key
        row: dict[str, Any] = {}
        if partner < 0:
            row["job"] = names[job]
        else:
            row["jobs"] = [names[job], names[partner]]
        level, nodes = divmod(nodes, LEVEL)
        row |= {"pool": None if pool < 0 else pools[pool].name, "gpus": gpus, "nodes": nodes}
        if level:
            row["level"] = levels[level - 1]
        if option >= 0:
            row["option"] = option
        if workers or servers:
            row |= {"workers": workers, "servers": servers}
        if share != 1.0:
            row["share"] = share
        rows.append(row | {name: values[place] for name, values in amounts.items()})
    return rows


# --- documents: reading -----------------------------------------------------------------------


def checked_reservation(reservation: Reservation, cluster: Cluster, path: str = "") -> Reservation:
    """Return a reservation; raise `InvalidInput` if it ends before it starts or names no node."""
    start, end = reservation.start, reservation.end
    if not end > start:
        raise InvalidInput(f"{path}end", show(end), f"a time after the start ({start:g})")
    for place, node in enumerate(reservation.nodes):
        if cluster.find_node(node)[0] < 0:
            raise InvalidInput(f"{path}nodes[{place}]", show(node), "the name of a node")
    return reservation


def _read_reservations(document: RoundDocument, cluster: Cluster) -> tuple[Reservation, ...]:
    found = (
        Reservation(item.nodes, item.start, item.end, item.name) for item in document.reservations
    )
    return tuple(
        checked_reservation(item, cluster, f"reservations[{number}].")
        for number, item in enumerate(found)
    )


def _read_service(
    document: RoundDocument, instance: Instance, row_of: Mapping[str, int]
) -> tuple[FloatArray, Service]:
    """Carried time and service of each job; jobs that have left are skipped."""
    table = instance.jobs_table
    runs = mask_of(list(table.running), len(table))
    new = Service.new(table.arrival, runs, instance.now)
    columns = {item.name: getattr(new, item.name).copy() for item in fields(Service)}
    columns["owed"] = np.zeros(len(table))
    for name, job in document.service.items():
        if name not in row_of:
            continue
        for key in sorted(job.model_fields_set):
            value = getattr(job, key)
            if key == "standing":
                value = Standing.NONE if value is None else Standing[value.upper()]
            columns[key][row_of[name]] = np.inf if value is None else value
    # The instance decides which jobs run.
    columns["waiting_since"][runs] = np.inf
    return columns.pop("owed"), Service(**columns)


def _read_ledger(
    document: RoundDocument,
    instance: Instance,
    row_of: Mapping[str, int],
    carried: FloatArray,
) -> Ledger:
    """The ledger.

    Of a row with a job that has left, only the time owed to the other job is kept: jobs that have
    left first get numbers behind all other jobs, and are then removed like any other job.
    """
    rows = document.ledger
    named = [name for item in rows for name in _jobs_of(item)]
    left = [name for name in dict.fromkeys(named) if name not in row_of]
    number = {
        **row_of,
        **{name: len(row_of) + at for at, name in enumerate(left)},
    }
    pools = {pool.name: at for at, pool in enumerate(instance.cluster.pools)}
    levels = {name: at for at, name in enumerate(instance.cluster.level_names, 1)}
    key = np.empty((len(rows), 9), np.int64)
    share = np.array([item.share for item in rows], np.float64).view(np.int64)
    for at, item in enumerate(rows):
        for what, value, known in (
            ("pool", item.pool, pools),
            ("level", item.level, levels),
        ):
            if value is not None and value not in known:
                raise InvalidInput(
                    f"ledger[{at}].{what}", show(value), f"one of {', '.join(known) or 'none'}"
                )
        job, partner = (*(number[name] for name in _jobs_of(item)), -1)[:2]
        pool = -1 if item.pool is None else pools[item.pool]
        option = -1 if item.option is None else item.option
        level = 0 if item.level is None else levels[item.level]
        size = (pool, item.gpus, item.nodes + LEVEL * level)
        key[at] = (job, partner, *size, option, item.workers, item.servers, share[at])
    ledger = Ledger(
        key,
        np.array([item.fraction for item in rows], np.float64),
        np.array([item.owed for item in rows], np.float64),
        np.array([item.received for item in rows], np.float64),
        np.array([item.runs for item in rows], bool),
        np.concatenate([carried, np.zeros(len(left))]),
    )
    return ledger.revised(np.arange(len(row_of), dtype=np.int64), 0) if left else ledger


def _jobs_of(row: LedgerRow) -> tuple[str, ...]:
    """The one or two jobs of a row."""
    return row.jobs if row.jobs is not None else (row.job or "",)


def _no_longer_running(state: RoundState) -> BoolArray:
    """Mask of the jobs that run on GPUs in the ledger, but not in the instance."""
    ledger = state.ledger
    ran = ledger.jobs_of(ledger.runs & (ledger.key[:, 3] > 0))
    ran[list(state.instance.jobs_table.running)] = False
    return ran
