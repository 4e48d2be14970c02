"""``optsched import``: other projects' files become instances and traces, with a command for each format.

A command is a function. Its parameters are arguments and options, its docstring is the help, and what it returns is
written to ``--output``. A new format needs a reader in `optsched.formats` and a function here.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeAlias, TypeVar

import typer

from optsched.cli import values
from optsched.cli.command import Argument, Option, build_group
from optsched.cli.export import write_trace
from optsched.cli.options import OUTPUT, output_option
from optsched.cli.progress import progress
from optsched.cli.shell import Shell
from optsched.cli.values import Kind
from optsched.errors import InvalidArgument, UsageError

if TYPE_CHECKING:
    from optsched.formats.recorded import ImportedLog
    from optsched.formats.sia import Pace
    from optsched.instance import Instance
    from optsched.traces import Trace

POOL = re.compile(r"\s*([^=]+?)\s*=\s*(\d{1,9})\s*(?:x\s*(\d{1,9})\s*)?", re.ASCII)
CLUSTER, SELECTION = "Cluster", "Selection"

# What a command returns; a mapping is the document of an instance or of a trace.
Imported: TypeAlias = "Instance | Trace | Mapping[str, Any] | ImportedLog"
# The command of each format.
FORMATS: dict[str, Callable[..., Imported]] = {}


def importer(command: Callable[..., Imported]) -> Callable[..., Imported]:
    """Register the command of a format under the function's name."""
    FORMATS[command.__name__] = command
    return command


def build_imports() -> typer.Typer:
    """The commands below ``import``."""
    return build_group(
        "Make an instance or a trace from files of other projects, or from tables.",
        {name: _writing(command) for name, command in FORMATS.items()},
    )


# --- how options become values --------------------------------------------------------------------

Value = TypeVar("Value")


def _by_name(
    texts: Iterable[str], option: str, read: Callable[[str, str], tuple[str, Value]]
) -> dict[str, Value]:
    """What ``read`` makes of each text: a name, which comes once, and its value."""
    found: dict[str, Value] = {}
    for text in texts:
        name, value = read(text, option)
        if name in found:
            raise UsageError(f"{option}: {name} is given twice")
        found[name] = value
    return found


def pool_document(text: str, option: str = "--pool") -> dict[str, Any]:
    """``v100=2x4`` as a pool of a document."""
    match = POOL.fullmatch(text)
    if match is None:
        expected = "NAME=NODES or NAME=NODESxGPUS, such as v100=2x4"
        raise InvalidArgument(option, repr(text), expected)
    return {"name": match[1], "nodes": int(match[2]), "gpus_per_node": int(match[3] or 1)}


def _pool_documents(texts: Iterable[str], option: str) -> list[dict[str, Any]]:
    def read(text: str, option: str) -> tuple[str, dict[str, Any]]:
        document = pool_document(text, option)
        return document["name"], document

    return list(_by_name(texts, option, read).values())


def _nodes(texts: Iterable[str], option: str) -> dict[str, tuple[int, int]]:
    """Nodes, and GPUs of a node, of each pool."""
    documents = [pool_document(text, option) for text in texts]
    pools = {pool["name"]: (pool["nodes"], pool["gpus_per_node"]) for pool in documents}
    if len(pools) < len(documents):
        raise UsageError(f"{option}: a pool is given twice")
    return pools


def _speeds(texts: Iterable[str], option: str) -> dict[str, float]:
    return _by_name(texts, option, _speed)


def _speed(text: str, option: str) -> tuple[str, float]:
    """``v100=1.5`` as a pool and its factor."""
    # A pool's name may have equals signs; the factor has none
    pool, equals, factor = text.rpartition("=")
    try:
        speed = float(factor) if equals and pool.strip() else 0.0
    except ValueError:
        speed = 0.0
    if not 0 < speed < float("inf"):
        expected = "POOL=FACTOR with a factor above 0, such as v100=1.5"
        raise InvalidArgument(option, repr(text), expected)
    return pool.strip(), speed


def _folders(texts: Iterable[str], option: str) -> dict[str, str]:
    return _by_name(texts, option, _folder)


def _folder(text: str, option: str) -> tuple[str, str]:
    """``T4=throughputs_T4`` as a pool and the folder of its tables."""
    pool, _, folder = (part.strip() for part in text.partition("="))
    if not pool or not folder:
        raise InvalidArgument(option, repr(text), "POOL=FOLDER, such as T4=throughputs_T4")
    return pool, folder


def _paces(texts: Iterable[str], option: str) -> dict[str, Pace]:
    return _by_name(texts, option, _pace)


def _pace(text: str, option: str) -> tuple[str, Pace]:
    """``bert:slowdown=1.8,restart=50`` as an application and its `Pace`."""
    from optsched.formats.sia import Pace

    name, given = values.named(text, option, "NAME")
    wrong = [f"{key}={value}" for key, value in given.items() if not _is_pace(key, value)]
    if wrong or not given:
        expected = "a slowdown above 0 or a restart of at least 0"
        raise InvalidArgument(option, repr(wrong[0] if wrong else text), expected)
    return name, Pace(**{key: float(value) for key, value in given.items()})


def _is_pace(key: str, value: object) -> bool:
    # A bool is an int in Python, but true is no number of seconds
    number = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1e9
    return number and (key == "restart" or (key == "slowdown" and value != 0))


def _round(text: str, option: str) -> float:
    """A duration above 0."""
    seconds = values.duration(text, option)
    if not seconds:
        raise InvalidArgument(option, repr(text), "a duration above 0")
    return seconds


def _name(text: str, option: str) -> str:
    if not text:
        raise InvalidArgument(option, "''", "a name")
    return text


# --- options that formats share -------------------------------------------------------------------


Seconds = values.Seconds
PoolNodes = Annotated[dict[str, tuple[int, int]], Kind(_nodes, "POOL=NODES[xGPUS]", many=True)]
PoolSpeeds = Annotated[dict[str, float], Kind(_speeds, "POOL=FACTOR", many=True)]


def pool_option(help: str, section: str = SELECTION) -> Option:
    """--pool POOL=NODESxGPUS, more than once."""
    return Option(help, flag="--pool", section=section)


POOL_HELP = "Nodes of a pool, and GPUs of each node (default: 1). Can be repeated."
JobTable = Annotated[str, Argument("TRACE", "Table of jobs (CSV).")]
Name = Annotated[str, Option("Name of the instance.", "NAME", section=OUTPUT)]
Output = Annotated[
    values.Target, output_option("FILE.json, .yaml or .npz; - for JSON on standard output.")
]
At = Annotated[
    Seconds | None,
    Option("Only the jobs that have arrived by then, on the trace's clock.", section=SELECTION),
]
Nodes = Annotated[PoolNodes, pool_option(POOL_HELP)]
Speeds = Annotated[
    PoolSpeeds | None,
    Option(
        "How much faster than in the trace jobs run in a pool (default: 1). Can be repeated.",
        section=SELECTION,
    ),
]


# --- formats --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GavelOptions:
    """What is taken of the files of Gavel and of its successors; the fields are keywords of their readers."""

    section: ClassVar = SELECTION

    pools: Annotated[
        dict[str, int],
        Option(
            "Worker types and their numbers of GPUs, such as v100:8,p100:16.",
            "POOL:GPUS,...",
            read=values.pool_sizes,
        ),
    ]
    active: Annotated[int | None, Option("The first N jobs, all present at the start.")] = None
    at: At = None
    gpus_per_node: Annotated[int, Option("GPUs of a node.")] = 1
    pairs: Annotated[bool, Option("Also import the rates of two jobs that share GPUs.")] = False


@importer
def gavel(
    throughputs: Annotated[
        str, Option("Throughput table (JSON).", "FILE", section="Gavel's files")
    ],
    trace: Annotated[str, Option("Trace, 10 or 7 columns.", "FILE", section="Gavel's files")],
    selection: GavelOptions,
    reference: Annotated[
        str | None,
        Option(
            "Worker type that fixes durations, and so deadlines. Default: v100, else the fastest.",
            "POOL",
            section=SELECTION,
        ),
    ] = None,
    name: Name = "gavel",
) -> Imported:
    """Make an instance of a throughput table and a trace of Gavel (Narayanan et al., OSDI 2020).

    Examples:
        optsched import gavel --throughputs simulation_throughputs.json --trace small.trace \\
            --pools v100:8,p100:16,k80:24 --active 40 -o gavel.json
        optsched import gavel --throughputs t.json --trace t.trace --pools v100:4,k80:4 \\
            --at 2h --pairs -o - | optsched solve -
    """
    from optsched.formats.gavel import import_gavel

    with _files(throughputs=throughputs, trace=trace) as (table, jobs):
        return import_gavel(table, jobs, **vars(selection), reference=reference, name=name)


@importer
def shockwave(
    throughputs: Annotated[
        str, Option("Throughput table (JSON), as Gavel's.", "FILE", section="Shockwave's files")
    ],
    trace: Annotated[str, Option("Trace of 12 columns.", "FILE", section="Shockwave's files")],
    selection: GavelOptions,
    planned: Annotated[
        bool,
        Option(
            "Batches change as Shockwave's planner expects, instead of as its simulated jobs do.",
            section=SELECTION,
        ),
    ] = False,
    name: Name = "shockwave",
) -> Imported:
    """Make a trace of a throughput table and a trace of Shockwave (Zheng et al., NSDI 2023).

    Jobs in mode accordion or gns change their batch as they progress: these are the regimes of the trace.

    Examples:
        optsched import shockwave --throughputs tacc_throughputs.json --trace 120.trace --pools v100:32 -o trace.json
        optsched import shockwave --throughputs t.json --trace 900.trace --pools v100:256 --gpus-per-node 4 \\
            --planned -o trace.yaml
    """
    from optsched.formats.shockwave import import_shockwave

    with _files(throughputs=throughputs, trace=trace) as (table, jobs):
        return import_shockwave(table, jobs, **vars(selection), planned=planned, name=name)


@importer
def csv(
    jobs: Annotated[
        str,
        Argument(
            "JOBS",
            "Table of jobs: workload; id, gpus (or gpus_min, gpus_max), steps, weight, arrival, "
            "deadline, tenant.",
        ),
    ],
    rates: Annotated[
        str,
        Argument("RATES", "Table of rates: workload, pool (or gpu), throughput; gpus."),
    ],
    pool: Annotated[
        list[dict[str, Any]] | None,
        Option(
            "Nodes of a pool, and GPUs of each node (default: 1). Can be repeated.",
            "NAME=NODES[xGPUS]",
            section=CLUSTER,
            read=_pool_documents,
            many=True,
        ),
    ] = None,
    pools: Annotated[
        str | None,
        Option(
            "Table of pools instead: name, nodes; gpu, gpus_per_node, gpu_memory, cost_per_gpu_hour ...",
            "FILE",
            section=CLUSTER,
        ),
    ] = None,
    now: Annotated[
        Seconds, Option("Time at which the instance begins.", section=CLUSTER, default="0")
    ] = 0.0,
    round: Annotated[
        float, Option("Length of a round.", "TIME", section=CLUSTER, read=_round, default="360")
    ] = 360.0,
    name: Annotated[
        str, Option("Name of the instance.", "NAME", section=OUTPUT, read=_name)
    ] = "csv",
) -> Imported:
    """Make an instance of tables in CSV: jobs and rates, and pools.

    The first line of a table names its columns; commas, semicolons or tabs stand between cells. Times are in seconds,
    rates in steps/s of the whole job.

    Examples:
        optsched import csv jobs.csv rates.csv --pool v100=2x4 --pool k80=8 -o instance.json
        optsched import csv jobs.csv rates.csv --pools pools.csv -o - | optsched solve -
    """
    if (pool is None) == (pools is None):
        raise UsageError("give the cluster by --pool NAME=NODES[xGPUS] or by --pools FILE")
    from optsched.formats.csv import import_csv, read_jobs, read_pools, read_rates

    job_table = read_jobs(_bytes(jobs), Path(jobs).name)
    rate_table = read_rates(_bytes(rates), Path(rates).name)
    cluster: Any = pool
    if pools is not None:
        cluster = read_pools(_bytes(pools), Path(pools).name)
    return import_csv(job_table, rate_table, cluster, name=name, now=now, round=round)


@importer
def elasticflow(
    trace: JobTable,
    table: Annotated[
        dict[str, str],
        Option(
            "Throughputs of the GPUs of a pool: a folder of tables, one for each model. "
            "Can be repeated.",
            "POOL=FOLDER",
            section="ElasticFlow's files",
            read=_folders,
            many=True,
        ),
    ],
    pool: Annotated[PoolNodes, pool_option(POOL_HELP, section="ElasticFlow's files")],
    at: At = None,
    rigid: Annotated[
        bool, Option("Jobs run only on the number of GPUs that they ask for.", section=SELECTION)
    ] = False,
    name: Name = "elasticflow",
) -> Imported:
    """Make an instance of throughput tables and a trace of ElasticFlow (Gu et al., ASPLOS 2023).

    Examples:
        optsched import elasticflow trace.csv --table T4=throughputs_T4 --pool T4=16x4 -o elasticflow.json
        optsched import elasticflow trace.csv --table A100=throughputs_A100 --pool A100=16x8 --at 90d \\
            -o - | optsched solve - -f max-throughput
    """
    from optsched.formats.elasticflow import import_elasticflow

    return import_elasticflow(table, trace, pool, at=at, rigid=rigid, name=name)


@importer
def chronus(
    trace: JobTable,
    pool: Nodes,
    locality: Annotated[
        str | None,
        Option(
            "model_info.json: slowdown of jobs on several nodes. Default: none.",
            "FILE",
            section=SELECTION,
        ),
    ] = None,
    speed: Speeds = None,
    unit: Annotated[
        Seconds,
        Option("Length of a unit of time in the trace.", section=SELECTION, default="1m"),
    ] = 60.0,
    at: At = None,
    name: Name = "chronus",
) -> Imported:
    """Make an instance of a trace of Chronus (Gao et al., SoCC 2021): strict and soft deadlines, best effort.

    Examples:
        optsched import chronus trace_job_Philly_MIX2.csv --pool gpu=120x8 -o chronus.npz
        optsched import chronus trace.csv --pool v100=60x8 --locality model_info.json --at 2d \\
            -o - | optsched solve - -f lease -O admission=true
    """
    from optsched.formats.chronus import import_chronus

    return import_chronus(trace, pool, locality=locality, speeds=speed, unit=unit, at=at, name=name)


@importer
def tiresias(
    trace: JobTable,
    cluster: Annotated[str | None, Argument("CLUSTER", "Cluster file (CSV).")] = None,
    pool: Annotated[
        PoolNodes | None,
        pool_option(
            "Instead of a cluster file: nodes of a pool, and GPUs of each node (default: 1). "
            "Can be repeated."
        ),
    ] = None,
    speed: Speeds = None,
    at: At = None,
    name: Name = "tiresias",
) -> Imported:
    """Make an instance of a trace and a cluster of Tiresias' simulator (Gu et al., NSDI 2019).

    Examples:
        optsched import tiresias 60_job.csv n32g4.csv -o tiresias.json
        optsched import tiresias 60_job.csv --pool v100=8x4 --pool k80=8x4 --speed k80=0.25 -o tiresias.json
    """
    from optsched.formats.tiresias import import_tiresias

    return import_tiresias(trace, cluster, pools=pool, speeds=speed, at=at, name=name)


@importer
def openb(
    nodes: Annotated[str, Argument("NODES", "Node list (CSV).")],
    pods: Annotated[
        str | None,
        Argument("PODS", "Pod list (CSV); without it there are no jobs."),
    ] = None,
    at: Annotated[
        Seconds | None,
        Option(
            "Only the pods that were there then (90, 5m, 2h, 3d). Default: all, as if they came at "
            "once.",
            section=SELECTION,
        ),
    ] = None,
    over_time: Annotated[
        bool,
        Option(
            "Make a trace: pods arrive when they were created; those that never ran are left out.",
            section=SELECTION,
        ),
    ] = False,
    name: Name = "openb",
) -> Imported:
    """Make an instance of a node list and a pod list of the openb cluster (Weng et al., USENIX ATC 2023).

    Examples:
        optsched import openb nodes.csv pods.csv --at 100d -o openb.json
        optsched import openb nodes.csv pods.csv --over-time -o trace.json
        optsched import openb nodes.csv -o cluster.yaml
    """
    from optsched.formats.openb import import_openb
    from optsched.instance.reading import named_by_path

    pod_list = None if pods is None else _bytes(pods)
    # Errors of the two lists begin with their names: the message shows the file instead
    with named_by_path({"nodes": nodes, "pods": pods}):
        return import_openb(_bytes(nodes), pod_list, at=at, over_time=over_time, name=name)


@importer
def sia(
    workload: Annotated[str, Argument("WORKLOAD", "Table of jobs (CSV).")],
    profiles: Annotated[
        str,
        Option(
            "Folder with the profiles of each application, in which pools are called like kinds of machines.",
            "FOLDER",
            section=SELECTION,
        ),
    ],
    pool: Nodes,
    adaptive: Annotated[
        bool,
        Option(
            "Jobs take any number of GPUs, with the best batch for it; otherwise what they ask for.",
            section=SELECTION,
        ),
    ] = False,
    most: Annotated[int, Option("Most GPUs of an adaptive job.", section=SELECTION)] = 64,
    application: Annotated[
        dict[str, Any] | None,
        Option(
            "How much slower than in the profiles its steps are (1), and what a start costs, s (0). "
            "Can be repeated.",
            "NAME:slowdown=X,restart=S",
            section=SELECTION,
            read=_paces,
            many=True,
        ),
    ] = None,
    name: Name = "sia",
) -> Imported:
    """Make a trace of a workload of Sia (SOSP 2023) or Pollux (OSDI 2021), and of their profiles.

    A step is one of an application's first batch; every epoch of its training is a regime with rates of its own.

    Examples:
        optsched import sia workload-1.csv --profiles profiles --pool aws=16x4 -o pollux.json
        optsched import sia workload-1.csv --profiles profiles --pool aws=6x4 --pool dgx-ext=2x8 --pool rtx=3x8 \\
            --adaptive --application cifar10:slowdown=1.8,restart=50 --application bert:restart=120 -o sia.json
    """
    from optsched.formats.sia import import_sia

    return import_sia(
        _bytes(workload),
        profiles,
        pool,
        adaptive=adaptive,
        most=most,
        paces=application,
        name=name,
        file=workload,
    )


@importer
def philly(
    jobs: Annotated[str, Argument("JOBS", "Job log (JSON), or a table of jobs (CSV).")],
    machines: Annotated[
        str | None, Option("Machine list (CSV): the cluster as it was.", "FILE", section=SELECTION)
    ] = None,
    pool: Annotated[
        PoolNodes | None,
        pool_option(
            "Instead of --machines: nodes of a pool, and GPUs of each node (default: 1). Can be repeated."
        ),
    ] = None,
    speed: Speeds = None,
    cluster: Annotated[
        list[str] | None,
        Option(
            "Only jobs of this virtual cluster. Can be repeated.",
            "VC",
            section=SELECTION,
            many=True,
        ),
    ] = None,
    at: At = None,
    name: Name = "philly",
) -> Imported:
    """Make a trace of logs of the Philly cluster (Jeon et al., USENIX ATC 2019).

    A step is a second of the recorded run. Jobs that did not run, or of which times are missing, are left out.

    Examples:
        optsched import philly log.json --machines machines.csv -o philly.npz
        optsched import philly philly_jobs.csv --cluster 6214e9 --pool p100=40x8 -o philly.json
        optsched import philly philly_jobs.csv --pool p100=300x8 --at 30d -o - | optsched solve -
        optsched import philly log.json --cluster ee9e8c --pool v100=8x8 --pool k80=8x4 --speed k80=0.3 -o ee.json
    """
    # Philly's logs name machines by address; their GPUs stand in another file, or nowhere
    if (machines is None) == (pool is None):
        raise UsageError("give the cluster by --machines FILE or by --pool POOL=NODES[xGPUS]")
    from optsched.formats.philly import import_philly, read_machines

    if machines is not None:
        pools = read_machines(_bytes(machines), machines)
    else:
        pools = [
            {"name": name, "nodes": nodes, "gpus_per_node": gpus}
            for name, (nodes, gpus) in (pool or {}).items()
        ]
    return import_philly(
        _bytes(jobs), pools, clusters=cluster or (), speed=speed, at=at, name=name, file=jobs
    )


# --- from options to a file -----------------------------------------------------------------------


def _writing(command: Callable[..., Imported]) -> Callable[..., int]:
    """The command with ``--output`` as its last required option, to which it writes what it makes."""

    def run(shell: Shell, output: str, **given: Any) -> int:
        from optsched.formats.recorded import ImportedLog
        from optsched.instance.files import kind_of
        from optsched.traces import load_trace

        # A name that cannot be written is refused before files of gigabytes are read
        kind = "json" if output == "-" else kind_of(Path(output))
        left_out: Mapping[str, int] = {}
        with progress(shell, "importing"):
            made = command(**given)
            if isinstance(made, ImportedLog):
                left_out = made.left_out
                made = made.instance
            # What was imported passes the checks of any document
            trace = load_trace(made)
        write_trace(shell, trace, output, kind)
        if left_out and not shell.quiet:
            # The reason that cost most jobs first
            order = sorted(left_out.items(), key=lambda item: -item[1])
            shell.complain(f"left out: {', '.join(f'{count:,} {why}' for why, count in order)}")
        return 0

    # Python and the help want required parameters first: --output comes after those of the format
    own = list(inspect.signature(command, eval_str=True).parameters.values())
    required = [parameter for parameter in own if parameter.default is inspect.Parameter.empty]
    keyword = inspect.Parameter.POSITIONAL_OR_KEYWORD
    run.__doc__ = command.__doc__
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter("shell", keyword, annotation=Shell),
            *required,
            inspect.Parameter("output", keyword, annotation=Output),
            *own[len(required) :],
        ]
    )
    return run


@contextmanager
def _files(**paths: str) -> Iterator[list[bytes]]:
    """The contents of the files of a format, in this order.

    A reader of several files begins the path of an error with the name that a file has here, as in
    ``trace:3``. The user knows the file by its path, which takes the name's place.
    """
    from optsched.instance.reading import named, named_by_path

    contents = []
    for path in paths.values():
        with named(path):
            contents.append(_bytes(path))
    with named_by_path(paths):
        yield contents


def _bytes(path: str) -> bytes:
    from optsched.instance.reading import read_bytes

    return read_bytes(Path(path))
