"""The instance format ``optsched-instance/1`` as pydantic models:
what a document may say, field by field.

These models check one document at a time and are thrown away afterwards; what is kept are arrays
(`optsched.instance.tables`). Rules that need two fields or two objects are in
`optsched.instance.build`.

Units: times in absolute seconds on the clock of ``now``, rates in steps/s of the whole job, memory
in GB, bandwidth in GB/s per direction, power in W, money in USD.
"""

import sys
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PlainValidator,
    Tag,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from optsched.instance.durations import Spelled
from optsched.instance.reading import key, show

FORMAT = "optsched-instance/1"
MAX_FLOAT = sys.float_info.max
MAX_DEPTH = 100
"""Levels of nesting of free content (parameters, attributes, topology, constraints)."""

Name = Annotated[str, Field(min_length=1)]
LARGEST, SMALLEST = 1e100, 1e-100
"""Numbers beyond these are slips of the pen;
products and ratios of numbers within them are finite.
"""
Finite = Annotated[float, Field(ge=-LARGEST, le=LARGEST, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, le=LARGEST, allow_inf_nan=False)]
Positive = Annotated[float, Field(ge=SMALLEST, le=LARGEST, allow_inf_nan=False)]
Seconds = Annotated[Positive, Spelled]
Delay = Annotated[NonNegative, Spelled]
Count = Annotated[int, Field(ge=0, le=2**31)]
PositiveCount = Annotated[int, Field(ge=1, le=2**31)]
MAX_NODES, MAX_GPUS = 10**7, 10**8
"""Of a cluster."""
Share = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]

T = TypeVar("T")
_FROM_LIST = BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value)
Tuple = Annotated[tuple[T, ...], _FROM_LIST]
"""A JSON list, kept as a tuple; sets, which YAML has, are refused: they have no order."""
NonEmpty = Annotated[tuple[T, ...], Field(min_length=1), _FROM_LIST]
Pair = Annotated[tuple[T, T], _FROM_LIST]
Triple = Annotated[tuple[T, T, T], _FROM_LIST]

RateEntry = tuple[str, int, int | str, float]
"""(place, GPUs, nodes spanned or the name of a level, steps/s); 0 GPUs: a plain number; 0 nodes:
whatever the count needs.
"""


class Document(BaseModel):
    """Base of all documents: unknown keys are refused, numbers are not made from text."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


def changed_fields(document: BaseModel) -> list[str]:
    """``field=value`` of each field that is not at its default."""
    defaults = {
        name: field.get_default(call_default_factory=True)
        for name, field in type(document).model_fields.items()
    }
    return [f"{name}={value}" for name, value in document if value != defaults[name]]


def refused(found: str, expected: str, subpath: str = "") -> PydanticCustomError:
    """What a document's own check of several fields raises;
    `optsched.instance.reading.validate` tells it with the whole path.

    ``subpath`` leads on from the document that is checked: ``.seconds``, ``[3]``.
    """
    context = {"subpath": subpath, "found": found, "expected": expected}
    return PydanticCustomError("optsched", "{expected}", context)


def _refuse(subpath: str, found: object, expected: str) -> PydanticCustomError:
    return refused(show(found), expected, subpath)


Keys = tuple[str | int, ...]
"""Keys and places of lists that lead to a value. Only a refusal writes them as a path: most values
are right.
"""


def _path(keys: Keys) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{key(part)}" for part in keys)


def _rate(value: object, keys: Keys) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        if SMALLEST <= value <= LARGEST or value == 0:
            return float(value) + 0.0  # turns -0.0 into 0.0
        if 0 < value <= MAX_FLOAT:
            expected = f"0, or a rate in steps/s from {SMALLEST:g} to {LARGEST:g}"
            raise _refuse(_path(keys), value, expected)
    raise _refuse(_path(keys), value, "a finite rate in steps/s, at least 0")


def _count(value: object, keys: Keys, what: str) -> int:
    """A count as a key; YAML also has keys that are numbers."""
    text = str(value) if type(value) is int and 0 < value < 2**31 else value
    number = parse_index(text) if isinstance(text, str) else -1
    if 1 <= number < 2**31:
        return number
    raise _refuse(_path(keys), value, f"a whole number of {what}, at least 1, as the key")


def parse_index(text: str) -> int:
    """The whole number that a text spells in the one usual way (no sign, space
    or leading zero); -1 for any other.
    """
    # 18 digits always fit into 64 bits.
    usual = (
        text.isascii() and text.isdecimal() and len(text) <= 18 and (text[0] != "0" or text == "0")
    )
    return int(text) if usual else -1


def parse_rates(value: object) -> tuple[RateEntry, ...]:
    """Flatten ``{"v100": 40.2, "k80": {"2": {"1": 9.0, "2":
    8.0}}}`` into rate entries, in the order given.
    """
    if not isinstance(value, dict):
        raise _refuse("", value, 'an object such as {"v100": 40.2} (rates by pool or GPU type)')
    entries: list[RateEntry] = []
    # Three levels: place, then GPUs, then nodes, each of the last two optional.
    for place, by_count in value.items():
        if not isinstance(place, str):
            raise _refuse("", place, "text as the key: a pool or GPU type")
        if not isinstance(by_count, dict):
            entries.append((place, 0, 0, _rate(by_count, (place,))))
            continue
        for count, by_nodes in by_count.items():
            gpus = _count(count, (place,), "GPUs")
            at = place, str(gpus)
            if not isinstance(by_nodes, dict):
                entries.append((place, gpus, 0, _rate(by_nodes, at)))
                continue
            for nodes, rate in by_nodes.items():
                if isinstance(nodes, str) and nodes[:1].isalpha():
                    # A level of the topology; which ones there are, the cluster says.
                    entries.append((place, gpus, nodes, _rate(rate, (*at, nodes))))
                    continue
                spanned = _count(nodes, at, "nodes spanned")
                if spanned > gpus:
                    raise _refuse(_path(at), nodes, f"at most {gpus} nodes, as the key")
                entries.append((place, gpus, spanned, _rate(rate, (*at, str(spanned)))))
    return tuple(entries)


def is_unicode(text: str) -> bool:
    """Whether a text can be written to a file: half of a surrogate pair cannot."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def _plain(value: Any, keys: Keys = ()) -> Any:
    """A copy of free content, which is found at these keys."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        if value.isascii() or is_unicode(value):
            return str(value)
        raise _refuse(_path(keys), value, "text in Unicode")
    if isinstance(value, int | float):
        # Refuses NaN, the infinities, and whole numbers that no float can hold.
        if -MAX_FLOAT <= value <= MAX_FLOAT:
            return int(value) if isinstance(value, int) else float(value)
        raise _refuse(_path(keys), value, "a finite number")
    if len(keys) > MAX_DEPTH:
        raise _refuse("", value, f"data nested at most {MAX_DEPTH} deep")
    if isinstance(value, list | tuple):
        return [_plain(item, (*keys, row)) for row, item in enumerate(value)]
    if isinstance(value, dict):
        for name in value:
            if not isinstance(name, str):
                raise _refuse(_path(keys), name, "text as the key")
        return {_plain(name, keys): _plain(item, (*keys, name)) for name, item in value.items()}
    expected = "plain data: text, a number, true, false, null, a list or an object"
    raise _refuse(_path(keys), value, expected)


def parse_object(value: object) -> dict[str, Any]:
    """A copy of an object of free content;
    it must be what JSON can hold, so that every format keeps it.
    """
    if not isinstance(value, dict):
        raise _refuse("", value, "an object")
    copy: dict[str, Any] = _plain(value)
    return copy


Plain = Annotated[Any, PlainValidator(lambda value: _plain(value)), WithJsonSchema({})]
"""Free content: whatever JSON can hold."""
PlainObject = Annotated[
    dict[str, Any],
    PlainValidator(lambda value: parse_object(value)),
    WithJsonSchema({"type": "object"}),
]
"""Free content by name."""

_RATE_SCHEMA = {"type": "number", "minimum": 0}
Rates = Annotated[
    tuple[RateEntry, ...],
    PlainValidator(parse_rates),
    WithJsonSchema(
        {
            "type": "object",
            "description": (
                "steps/s by pool or GPU type: a number, or by GPU count, "
                "and by nodes spanned or level"
            ),
            "additionalProperties": {
                "anyOf": [
                    _RATE_SCHEMA,
                    {
                        "type": "object",
                        "additionalProperties": {
                            "anyOf": [
                                _RATE_SCHEMA,
                                {"type": "object", "additionalProperties": _RATE_SCHEMA},
                            ]
                        },
                    },
                ]
            },
        }
    ),
]


class GpuRange(Document):
    """GPUs of an elastic job: from ``min`` to ``max``, or only the ``levels`` among them."""

    min: PositiveCount
    max: PositiveCount
    levels: NonEmpty[PositiveCount] | None = None


def _tag(branch: type | tuple[type, ...], name: str, other: str) -> Discriminator:
    """Choose the branch of a union by the type of the input,
    so that errors speak of one branch only.
    """
    return Discriminator(lambda value: name if isinstance(value, branch) else other)


Gpus = Annotated[
    Annotated[PositiveCount, Tag("<gang>")] | Annotated[GpuRange, Tag("<range>")],
    _tag(dict, "<range>", "<gang>"),
]

NODE_STATES = ("up", "drain", "down", "reserved")
NodeState = Literal["up", "drain", "down", "reserved"]


class NodeDocument(Document):
    """One node of a pool; what it leaves out is taken from the pool."""

    name: Name
    gpus: Count | None = None
    cpus: NonNegative | None = None
    memory: NonNegative | None = None
    state: NodeState = "up"
    available_from: Finite | None = None


class BandwidthDocument(Document):
    """Bandwidths of the default topology (GPU - node - leaf switch
    of the pool - spine), GB/s per direction.
    """

    intra_node: Positive | None = None
    node: Positive | None = None
    leaf: Positive | None = None


class PartitionDocument(Document):
    """One way to slice a GPU (MIG):
    a profile with its compute and memory slices and where it may start.
    """

    profile: Name
    compute_slices: PositiveCount
    memory_slices: PositiveCount
    starts: NonEmpty[Count]
    memory: Positive | None = None


class PoolDocument(Document):
    """A group of nodes with one GPU type."""

    name: Name
    gpu: Name | None = None
    nodes: Annotated[
        Annotated[int, Field(ge=0, le=MAX_NODES), Tag("<count>")]
        | Annotated[Tuple[NodeDocument], Tag("<list>")],
        _tag((list, tuple), "<list>", "<count>"),
    ]
    gpus_per_node: Annotated[int, Field(ge=0, le=MAX_GPUS)] | None = None
    gpu_memory: Positive | None = None
    cpus_per_node: NonNegative | None = None
    memory_per_node: NonNegative | None = None
    cost_per_gpu_hour: NonNegative | None = None
    watts_per_gpu: NonNegative | None = None
    watts_idle: NonNegative | None = None
    bandwidth: BandwidthDocument | None = None
    partitions: Tuple[PartitionDocument] | None = None


class ResourceDocument(Document):
    """A capacity beside the GPUs: of the cluster, of a pool, or of a group of nodes."""

    name: Name
    kind: Literal["renewable", "consumable"] = "renewable"
    capacity: NonNegative
    pool: Name | None = None
    nodes: NonEmpty[Name] | None = None


class ClusterDocument(Document):
    """Pools, further resources and the topology graph (networkx node-link JSON)."""

    pools: NonEmpty[PoolDocument]
    resources: Tuple[ResourceDocument] = ()
    topology: PlainObject | None = None
    levels: Plain | None = None


class PerformanceDocument(BaseModel):
    """Name of a performance model and its own options."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True, defer_build=True)
    __pydantic_extra__: dict[str, Plain]

    model: Name


class ConstraintDocument(BaseModel):
    """A side constraint: its kind and that kind's own options."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True, defer_build=True)
    __pydantic_extra__: dict[str, Plain]

    kind: Name


RestartCost = Annotated[
    Annotated[NonNegative, Tag("<seconds>")]
    | Annotated[dict[Name, NonNegative], Tag("<by GPUs>"), Field(min_length=1)],
    _tag(dict, "<by GPUs>", "<seconds>"),
]
"""Seconds that a restart costs on a pool: for any number of GPUs, or for some numbers of them."""


class WorkloadDocument(Document):
    """A kind of work that many jobs do; ``demand`` is per GPU, ``gpu_memory`` too."""

    throughput: Rates | None = None
    demand: dict[Name, NonNegative] = Field(default_factory=dict)
    gpu_memory: NonNegative | None = None
    parameters: PlainObject = Field(default_factory=dict)
    restart_cost: dict[Name, RestartCost] = Field(default_factory=dict)


class TenantDocument(Document):
    """A group of jobs that shares by ``policy`` inside and by ``weight`` among tenants."""

    name: Name
    weight: Positive = 1.0
    policy: Literal["fairness", "fifo"] = "fairness"


class OptionDocument(Document):
    """One explicit way to run a job; ``uses`` are totals, ``duration`` is exact."""

    pool: Name | None = None
    gpus: Count = 0
    nodes: PositiveCount | None = None
    share: Share = 1.0
    limit: Share | None = None
    throughput: NonNegative | None = None
    duration: Positive | None = None
    uses: dict[Name, NonNegative] = Field(default_factory=dict)
    value: Finite = 0.0
    cost: Finite = 0.0
    attributes: PlainObject = Field(default_factory=dict)


class RunningDocument(Document):
    """Where a job runs now: GPUs are written ``node/index``."""

    pool: Name
    gpus: NonEmpty[Name]
    since: Finite | None = None


class HistoryDocument(Document):
    """What a job has had so far; ``isolated_time`` in seconds (finish-time fairness)."""

    isolated_time: NonNegative = 0.0


class JobDocument(Document):
    """A job: work with a number of steps, a gang size or an elastic range of GPUs."""

    id: Name
    workload: Name | None = None
    gpus: Gpus = 1
    steps: NonNegative = 1.0
    steps_done: NonNegative = 0.0
    weight: Positive = 1.0
    arrival: Finite | None = None
    deadline: Finite | None = None
    deadline_kind: Literal["hard", "soft"] = "hard"
    tenant: Name | None = None
    preemptible: bool = True
    restart_cost: NonNegative = 0.0
    exempt_time: Delay = 0.0
    checkpoint_interval: Delay = 0.0
    running: RunningDocument | None = None
    after: Tuple[Name] = ()
    throughput: Rates | None = None
    options: NonEmpty[OptionDocument] | None = None
    history: HistoryDocument | None = None


_PlainRate = Annotated[
    Positive | Annotated[float, Field(ge=0, le=0)], Field(union_mode="left_to_right")
]
PLAIN_JOBS: Mapping[str, Any] = {"gpus": PositiveCount, "throughput": dict[str, _PlainRate] | None}
"""What fields of jobs usually are: gangs, and a rate by place."""


class ColocationDocument(Document):
    """Throughputs of two jobs, or of any two jobs of two workloads,
    that share the same GPUs of a pool.
    """

    workloads: Pair[Name] | None = None
    jobs: Pair[Name] | None = None
    pool: Name
    gpus: PositiveCount = 1
    nodes: PositiveCount | None = None
    throughput: Pair[NonNegative]


class HeaderDocument(Document):
    """An instance without its jobs."""

    format: Literal["optsched-instance/1"]
    name: Name = "unnamed"
    round: Positive = 360.0
    now: Finite = 0.0
    cluster: ClusterDocument
    # Not validated, which would build a schema when this module loads.
    performance: PerformanceDocument = PerformanceDocument.model_construct(model="table")
    workloads: dict[Name, WorkloadDocument] = Field(default_factory=dict)
    throughputs: dict[Name, Rates] = Field(default_factory=dict)
    tenants: Tuple[TenantDocument] = ()
    constraints: Tuple[ConstraintDocument] = ()
    colocation: Tuple[ColocationDocument] = ()


class InstanceDocument(HeaderDocument):
    """A whole instance file."""

    jobs: Tuple[JobDocument]
