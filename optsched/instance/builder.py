"""`InstanceBuilder`: an instance piece by piece, each checked when it is added."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from decimal import Decimal
from fractions import Fraction
from typing import Any, Literal, TypeVar

import numpy as np
from pydantic import BaseModel

from optsched.display import Displayed, count
from optsched.errors import InvalidArgument, InvalidInput
from optsched.instance.build import (
    Header,
    build_colocation,
    build_header,
    build_instance,
    build_tenant,
    build_workload,
    check_jobs,
)
from optsched.instance.cluster import Tenant
from optsched.instance.columns import JobColumns
from optsched.instance.documents import (
    FORMAT,
    ColocationDocument,
    PoolDocument,
    ResourceDocument,
    TenantDocument,
    WorkloadDocument,
)
from optsched.instance.durations import Duration, seconds_of
from optsched.instance.instance import Instance
from optsched.instance.interning import RateInterner
from optsched.instance.reading import key, show, validate
from optsched.instance.tables import JobTable, Workload, Workloads
from optsched.lazy import convenience

# --- handles -------------------------------------------------------------------------------------


class PoolName(str):
    """A pool that a builder knows: its name, and a key of ``throughput``."""


class JobName(str):
    """A job that a builder knows: its id, and a key of results, as in ``solution[job]``."""


class WorkloadName(str):
    """A workload that a builder knows."""


class TenantName(str):
    """A tenant that a builder knows."""


class ResourceName(str):
    """A resource that a builder knows."""


Item = TypeVar("Item")
Throughput = Mapping[str, float | Mapping[int, Any]]
"""steps/s by pool or GPU type:
a number, or by number of GPUs, or by number of GPUs and of nodes.
"""


# --- the builder ---------------------------------------------------------------------------------


class InstanceBuilder(Displayed):
    """Builds an `Instance` by method calls instead of a document.

    Every ``add_`` method checks its arguments by the rules of the instance format, and adds the
    object or raises. Pools come first, because jobs, workloads and resources name them. Names in
    the options of a constraint are looked up when the instance is solved, as those of a document
    are. Each method returns the name as a handle, which can be used wherever a name can.

    Numbers of seconds mean what they mean in the format: ``now``, ``arrival`` and ``deadline`` are
    on one clock. A text such as ``"2h"`` is a duration; as arrival or deadline it counts from
    ``now``.

    Parameters
    ----------
    name : str
        Of the instance.
    round : float or str
        Length of a round: seconds, or text such as ``"6m"``.
    now : float
        The clock, seconds.
    performance : mapping, optional
        A performance object such as ``{"model": "usl"}`` (default: the stated throughputs alone).

    Examples
    --------
    >>> builder = InstanceBuilder(round="6m")
    >>> v100 = builder.add_pool("v100", nodes=2, gpus_per_node=4)
    >>> k80 = builder.add_pool("k80", nodes=4, gpus_per_node=1)
    >>> a = builder.add_job("a", steps=400_000, throughput={v100: 18.2, k80: 2.1}, deadline="2h")
    >>> builder.instance()
    <Instance unnamed: 1 job, 12 GPUs in 2 pools>
    """

    def __init__(
        self,
        name: str = "unnamed",
        *,
        round: Duration = 360.0,
        now: float = 0.0,
        performance: Mapping[str, Any] | None = None,
    ) -> None:
        self._header: dict[str, Any] = {
            "format": FORMAT,
            "name": name,
            "round": seconds_of(round, "round"),
            "now": now,
            "workloads": {},
            "tenants": [],
            "constraints": [],
            "colocation": [],
        }
        if performance is not None:
            self._header["performance"] = _plain(performance)
        self._cluster: dict[str, Any] = {"pools": [], "resources": []}
        self._jobs: dict[str, dict[str, Any]] = {}
        self._last_header: Header | None = None
        self._workloads: dict[str, Workload] = {}
        self._tenants: dict[str, Tenant] = {}
        self._pairs: dict[tuple[str, frozenset[str]], list[dict[str, Any]]] = {}
        # Check name, clock and performance; only the cluster is still missing in the header.
        self._check(
            "",
            {
                **self._header,
                "cluster": {"pools": [{"name": "pool", "nodes": 0, "gpus_per_node": 0}]},
            },
        )

    def add_pool(
        self,
        name: str,
        *,
        nodes: int | Sequence[Mapping[str, Any]],
        gpus_per_node: int | None = None,
        gpu: str | None = None,
        gpu_memory: float | None = None,
        cpus_per_node: float | None = None,
        memory_per_node: float | None = None,
        cost_per_gpu_hour: float | None = None,
        watts_per_gpu: float | None = None,
        watts_idle: float | None = None,
        bandwidth: Mapping[str, float] | None = None,
        partitions: Sequence[Mapping[str, Any]] | None = None,
    ) -> PoolName:
        """Add a group of nodes with one GPU type.

        Parameters
        ----------
        name : str
        nodes : int, or list of mappings
            How many equal nodes, or a node document for each (``name``, ``gpus``, ``state``, ...).
        gpus_per_node : int, optional
        gpu : str, optional
            GPU type (default: the name of the pool).
        gpu_memory, memory_per_node : float, optional
            GB.
        cpus_per_node : float, optional
        cost_per_gpu_hour : float, optional
            USD.
        watts_per_gpu, watts_idle : float, optional
        bandwidth : mapping, optional
            GB/s per direction: ``intra_node``, ``node``, ``leaf``.
        partitions : list of mappings, optional
            Ways to slice a GPU.

        Returns
        -------
        PoolName
            The name, as a key of ``throughput``.

        Raises
        ------
        InvalidArgument
            Naming the parameter, what was found and what was expected.
        """
        entry = _stated(
            name=name,
            nodes=nodes,
            gpus_per_node=gpus_per_node,
            gpu=gpu,
            gpu_memory=gpu_memory,
            cpus_per_node=cpus_per_node,
            memory_per_node=memory_per_node,
            cost_per_gpu_hour=cost_per_gpu_hour,
            watts_per_gpu=watts_per_gpu,
            watts_idle=watts_idle,
            bandwidth=bandwidth,
            partitions=partitions,
        )
        self._add(self._cluster, "pools", PoolDocument, entry, "cluster.pools")
        return PoolName(name)

    def add_resource(
        self,
        name: str,
        capacity: float,
        *,
        kind: Literal["renewable", "consumable"] = "renewable",
        pool: str | None = None,
        nodes: Sequence[str] | None = None,
    ) -> ResourceName:
        """Add a capacity beside the GPUs: of the cluster, of a pool, or of a group of nodes.

        Parameters
        ----------
        name : str
        capacity : float
        kind : str
            ``renewable`` (held while a job runs) or ``consumable`` (used up).
        pool : str, optional
        nodes : list of str, optional

        Returns
        -------
        ResourceName
            The name, as a key of ``demand``.

        Raises
        ------
        InvalidArgument
        """
        self._require_pool()
        entry = _stated(name=name, capacity=capacity, kind=kind, pool=pool, nodes=nodes)
        self._add(self._cluster, "resources", ResourceDocument, entry, "cluster.resources")
        return ResourceName(name)

    def add_tenant(
        self, name: str, *, weight: float = 1.0, policy: Literal["fairness", "fifo"] = "fairness"
    ) -> TenantName:
        """Add a group of jobs.

        Parameters
        ----------
        name : str
        weight : float
            Its share among tenants.
        policy : str
            How its jobs share: ``fairness`` or ``fifo``.

        Returns
        -------
        TenantName

        Raises
        ------
        InvalidArgument
        """
        entry = _stated(name=name, weight=weight, policy=policy)
        with _arguments(""):
            tenant = build_tenant(validate(TenantDocument, entry))
        if tenant.name in self._tenants:
            raise InvalidArgument("name", f"{show(name)} a second time", "names that differ")
        self._tenants[tenant.name] = tenant
        self._header["tenants"].append(entry)
        return TenantName(name)

    def add_workload(
        self,
        name: str,
        *,
        throughput: Throughput | None = None,
        demand: Mapping[str, float] | None = None,
        gpu_memory: float | None = None,
        parameters: Mapping[str, Any] | None = None,
        restart_cost: Mapping[str, float | Mapping[str, float]] | None = None,
    ) -> WorkloadName:
        """Add a kind of work that many jobs do.

        Parameters
        ----------
        name : str
        throughput : mapping, optional
            steps/s by pool or GPU type (`Throughput`).
        demand : mapping of resource to amount, optional
            Per GPU.
        gpu_memory : float, optional
            GB per GPU.
        parameters : mapping, optional
            What performance models read.
        restart_cost : mapping, optional
            Seconds by pool or GPU type, for any number of GPUs or by GPU count.

        Returns
        -------
        WorkloadName
            The name, for ``workload`` of `add_job`.

        Raises
        ------
        InvalidArgument
        """
        self._require_pool()
        entry = _stated(
            throughput=throughput,
            demand=demand,
            gpu_memory=gpu_memory,
            parameters=parameters,
            restart_cost=restart_cost,
        )
        if not isinstance(name, str) or not name:
            raise InvalidArgument("name", show(name), "text that is not empty")
        if name in self._header["workloads"]:
            raise InvalidArgument("name", f"{show(name)} a second time", "names that differ")
        with _arguments(""):
            document = validate(WorkloadDocument, entry)
        header, known = self._built(), self._workloads
        with _arguments(f"workloads.{key(name)}"):
            known[str(name)] = build_workload(str(name), document, header.rates, header.cluster)
        self._header["workloads"][str(name)] = entry
        return WorkloadName(name)

    def add_job(
        self,
        id: str,
        *,
        steps: float = 1.0,
        gpus: int | Mapping[str, Any] = 1,
        throughput: Throughput | None = None,
        workload: str | None = None,
        options: Sequence[Mapping[str, Any]] | None = None,
        weight: float = 1.0,
        arrival: Duration | None = None,
        deadline: Duration | None = None,
        deadline_kind: Literal["hard", "soft"] = "hard",
        tenant: str | None = None,
        preemptible: bool = True,
        restart_cost: Duration = 0.0,
        exempt_time: Duration = 0.0,
        checkpoint_interval: Duration = 0.0,
        after: Sequence[str] = (),
        steps_done: float = 0.0,
        running: Mapping[str, Any] | None = None,
        isolated_time: Duration = 0.0,
    ) -> JobName:
        """Add a job; it needs a throughput, a workload or options.

        Parameters
        ----------
        id : str
        steps, steps_done : float
            Work in all, and what is done of it.
        gpus : int or mapping
            Gang size, or ``{"min": 1, "max": 8}`` of an elastic job, with ``levels`` where only
            some counts will do.
        throughput : mapping, optional
            steps/s of the whole job by pool or GPU type (`Throughput`).
        workload, tenant : str, optional
        options : list of mappings, optional
            Explicit ways to run (`optsched.instance.documents.OptionDocument`).
        weight : float
        arrival, deadline : float or str, optional
            Seconds on the clock of ``now``, or a duration from ``now`` such as ``"2h"``.
        deadline_kind : str
            ``hard`` or ``soft``.
        preemptible : bool
        restart_cost, exempt_time, checkpoint_interval, isolated_time : float or str
            Seconds, or a duration.
        after : list of str
            Jobs that must end first; they must have been added.
        running : mapping, optional
            Where it runs now: ``{"pool": "v100", "gpus": ["v100-0/0"]}``.

        Returns
        -------
        JobName
            The id, as a key of results: ``solution[job]``.

        Raises
        ------
        InvalidArgument
        """
        isolated = seconds_of(isolated_time, "isolated_time")
        before = _names(after, "after")
        entry = _stated(
            id=id,
            steps=steps,
            gpus=gpus,
            throughput=throughput,
            workload=workload,
            options=options,
            weight=weight,
            arrival=self._time(arrival, "arrival"),
            deadline=self._time(deadline, "deadline"),
            deadline_kind=deadline_kind,
            tenant=tenant,
            preemptible=preemptible,
            restart_cost=seconds_of(restart_cost, "restart_cost"),
            exempt_time=seconds_of(exempt_time, "exempt_time"),
            checkpoint_interval=seconds_of(checkpoint_interval, "checkpoint_interval"),
            steps_done=steps_done,
            running=running,
            after=before or None,
            history={"isolated_time": isolated} if isolated else None,
        )
        if not isinstance(id, str):
            raise InvalidArgument("id", show(id), "text")
        if id in self._jobs:
            raise InvalidArgument("id", f"{show(id)} a second time", "ids that differ")
        for place, predecessor in enumerate(before):
            if predecessor not in self._jobs:
                raise InvalidArgument(
                    f"after[{place}]", show(predecessor), "the id of a job that was added before"
                )
        self._check_job(entry)
        self._jobs[str(id)] = entry
        return JobName(id)

    def add_colocation(
        self,
        pair: tuple[str, str],
        *,
        pool: str,
        throughput: tuple[float, float],
        gpus: int = 1,
        nodes: int | None = None,
    ) -> None:
        """State how fast two jobs, or any two jobs of two workloads, are that share the same GPUs.

        Parameters
        ----------
        pair : (str, str)
            Two jobs, or two workloads.
        pool : str
        throughput : (float, float)
            steps/s of each.
        gpus : int
        nodes : int, optional

        Raises
        ------
        InvalidArgument
        """
        both, rates = _names(pair, "pair"), _listed(throughput, "throughput")
        # Unknown names are looked up as workloads, and refused there.
        owner = "jobs" if all(name in self._jobs for name in both) else "workloads"
        entry = _stated(pool=pool, throughput=rates, gpus=gpus, nodes=nodes, **{owner: both})
        with _arguments("", "pair", owner):
            validate(ColocationDocument, entry)
        jobs = [self._jobs[name] for name in dict.fromkeys(both) if owner == "jobs"]
        header = self._built()
        # A pair may be stated once for each pool, number of GPUs and of nodes.
        same = self._pairs.setdefault((owner, frozenset(both)), [])
        documents = [ColocationDocument.model_validate(item) for item in (*same, entry)]
        with _arguments(f"colocation[{len(same)}]", "pair", owner):
            table, _ = self._table(header, jobs)
            workloads = [self._workloads[name] for name in both if name in self._workloads]
            build_colocation(documents, header.cluster, workloads, table)
        same.append(entry)
        self._header["colocation"].append(entry)

    def add_constraint(self, kind: str, **options: Any) -> None:
        """Add a side constraint.

        Parameters
        ----------
        kind : str
            Such as ``budget`` or ``quota``; ``optsched formulations`` lists the kinds and their
            options.
        **options
            Of the kind, such as ``limit=12.5``.

        Raises
        ------
        UsageError
            For an unknown kind or a wrong option.
        """
        entry = {"kind": kind, **_plain(options)}
        convenience("InstanceBuilder.add_constraint")(entry)
        self._header["constraints"].append(entry)

    def instance(self) -> Instance:
        """The instance with everything added so far; more can be added afterwards.

        Raises
        ------
        InvalidInput
            If there is no pool.
        """
        return build_instance(self._everything())

    def to_document(self) -> dict[str, Any]:
        """Everything added so far, in the format ``optsched-instance/1``."""
        return deepcopy(self._everything())

    # --- checks -----------------------------------------------------------------------------------

    def _headline(self) -> str:
        jobs, pools = count(len(self._jobs), "job"), count(len(self._cluster["pools"]), "pool")
        return f"of {self._header['name']}: {jobs}, {pools}"

    def _time(self, value: Duration | None, name: str) -> float | None:
        """A point in time: a number is a time, a text is a duration from now."""
        if value is None or not isinstance(value, str):
            return value
        return float(self._header["now"]) + seconds_of(value, name)

    def _everything(self) -> dict[str, Any]:
        return {**self._document({}), "jobs": list(self._jobs.values())}

    def _document(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """The instance without its jobs, with some parts changed."""
        return {**self._header, "cluster": self._cluster, **changes}

    def _add(
        self,
        owner: dict[str, Any],
        name: str,
        model: type[BaseModel],
        entry: dict[str, Any],
        path: str,
    ) -> None:
        """Check an entry alone and together with everything added so far, then append it to a list
        of ``owner``.
        """
        with _arguments(""):
            validate(model, entry)
        grown = [*owner[name], entry]
        changes = (
            {"cluster": {**self._cluster, name: grown}} if owner is self._cluster else {name: grown}
        )
        self._check(f"{path}[{len(owner[name])}]", self._document(changes))
        owner[name] = grown

    def _check(self, path: str, document: Mapping[str, Any]) -> None:
        """Check the instance without its jobs (if it has a pool), and drop the cached header."""
        if document["cluster"]["pools"]:
            with _arguments(path):
                build_header(document)
        self._last_header = None
        self._workloads = {}

    def _check_job(self, entry: Mapping[str, Any]) -> None:
        header = self._built()
        with _arguments("jobs[0]", "throughput"):
            table, rates = self._table(header, [entry])
            check_jobs(table, rates.table())

    def _require_pool(self) -> None:
        if not self._cluster["pools"]:
            raise InvalidArgument("pools", "none", "a call of add_pool before this one")

    def _built(self) -> Header:
        """The header without workloads and tenants; refuses objects that name pools before there is
        one.

        Workloads are in `_workloads` and tenants in `_tenants`; otherwise each addition would build
        the whole header again.
        """
        self._require_pool()
        if self._last_header is None:
            header = build_header(self._document({"colocation": [], "tenants": []}))
            self._workloads = {workload.name: workload for workload in header.workloads}
            self._last_header = header._replace(workloads=Workloads())
        return self._last_header

    def _table(
        self, header: Header, jobs: Sequence[Mapping[str, Any]]
    ) -> tuple[JobTable, RateInterner]:
        """A table of these jobs with their rates, checked by the rules of the format."""
        # Predecessors may be among earlier jobs; they were checked before.
        alone = [{name: item for name, item in job.items() if name != "after"} for job in jobs]
        # Leave out the rates of earlier jobs: with them, the time of each call would grow with the
        # number of jobs.
        rates = RateInterner(header.cluster)
        # For the same reason use only the workloads and tenants that these jobs name.
        workloads = _named(jobs, "workload", self._workloads)
        tenants = _named(jobs, "tenant", self._tenants)
        if any(str(job.get("tenant")) not in self._tenants for job in jobs if "tenant" in job):
            # The message about an unknown tenant lists all tenants
            tenants = list(self._tenants.values())
        columns = JobColumns(header.document.now, header.cluster, workloads, tenants, rates)
        return columns.read(alone), rates


def _named(jobs: Iterable[Mapping[str, Any]], field: str, known: Mapping[str, Item]) -> list[Item]:
    """The distinct known names in a field of these jobs; unknown names are left out."""
    names = dict.fromkeys(str(job.get(field)) for job in jobs)
    return [known[name] for name in names if name in known]


def _stated(**fields: Any) -> dict[str, Any]:
    """The given fields (not None) as a document."""
    return {name: _plain(value) for name, value in fields.items() if value is not None}


def _listed(values: object, name: str) -> list[Any]:
    """The values as a list; text is refused, although Python can iterate over it."""
    values = values.tolist() if isinstance(values, np.ndarray) else values
    if isinstance(values, str | Mapping) or not isinstance(values, Iterable):
        raise InvalidArgument(name, show(values), "a list")
    return list(values)


def _names(values: object, name: str) -> list[str]:
    found = _listed(values, name)
    for place, value in enumerate(found):
        if not isinstance(value, str):
            raise InvalidArgument(f"{name}[{place}]", show(value), "text")
    return found


def _plain(value: Any) -> Any:
    """Handles as text, numbers of any kind as those of JSON,
    mappings and sequences as dictionaries and lists.
    """
    if isinstance(value, str):
        return str(value)
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, Fraction | Decimal):
        return float(value)
    if isinstance(value, Mapping):
        return {_plain(name): _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


@contextmanager
def _arguments(path: str, whole: str = "", field: str = "") -> Iterator[None]:
    """Turn errors of the document's object at ``path`` into errors of the argument that it came
    from.

    ``whole`` is the argument to name if the object as a whole, or its ``field``, is wrong.
    """
    try:
        yield
    except InvalidInput as error:
        name = error.path.removeprefix(path).lstrip(".").removeprefix("history.") or whole
        if field and name.startswith(field):
            name = whole + name.removeprefix(field)
        raise InvalidArgument(name, error.found, error.expected) from None
