"""``optsched import``: files of other projects become instances and traces.

Every format has a command. The options of a command are the parameters of its importer
(`optsched.formats`), and its help is the importer's docstring. A new format needs an importer and a
row of `FORMATS`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from optsched.cli import values
from optsched.cli.command import (
    REQUIRED,
    Argument,
    Group,
    derived_command,
    derived_option,
    flag_of,
    keyword,
)
from optsched.cli.derived import Described, described, errors_name, opening
from optsched.cli.export import document_kind, write_trace
from optsched.cli.options import OUTPUT, DocumentOutput
from optsched.cli.progress import progress
from optsched.cli.shell import Shell
from optsched.cli.values import Kind
from optsched.errors import InvalidArgument

if TYPE_CHECKING:
    from optsched.formats.sia import Pace

# The size of a pool is checked later, when the instance is read
POOL = re.compile(r"\s*([^=]+?)\s*=\s*(\d{1,99})\s*(?:x\s*(\d{1,99})\s*)?", re.ASCII)
FILES, CLUSTER, SELECTION = "Files", "Cluster", "Selection"


@dataclass(frozen=True)
class Format:
    """Data of the command of a format, in addition to its importer.

    Attributes
    ----------
    examples : str
    arguments : tuple of str
        Positional parameters, in this order.
    flags : mapping from str to str
        Flags that differ from the names of their parameters.
    """

    examples: str
    arguments: tuple[str, ...] = ()
    flags: Mapping[str, str] = field(default_factory=dict)


FORMATS = {
    "gavel": Format("""
        optsched import gavel --throughputs simulation_throughputs.json --trace small.trace \\
            --pools v100:8,p100:16,k80:24 --active 40 -o gavel.json
        optsched import gavel --throughputs t.json --trace t.trace --pools v100:4,k80:4 \\
            --at 2h --pairs -o - | optsched solve -
    """),
    "shockwave": Format("""
        optsched import shockwave --throughputs tacc_throughputs.json --trace 120.trace --pools v100:32 -o trace.json
        optsched import shockwave --throughputs t.json --trace 900.trace --pools v100:256 --gpus-per-node 4 \\
            --planned -o trace.yaml
    """),
    "csv": Format(
        """
        optsched import csv jobs.csv rates.csv --pool v100=2x4 --pool k80=8 -o instance.json
        optsched import csv jobs.csv rates.csv --pools pools.csv -o - | optsched solve -
        optsched import csv runs.csv rates.csv --pool v100=8 --column Model=workload --ignore-others -o instance.json
        """,
        ("jobs", "rates"),
        {"pool_table": "--pools"},
    ),
    "elasticflow": Format(
        """
        optsched import elasticflow trace.csv --table T4=throughputs_T4 --pool T4=16x4 -o elasticflow.json
        optsched import elasticflow trace.csv --table A100=throughputs_A100 --pool A100=16x8 --at 90d \\
            -o - | optsched solve - -f max-throughput
        """,
        ("trace",),
    ),
    "chronus": Format(
        """
        optsched import chronus trace_job_Philly_MIX2.csv --pool gpu=120x8 -o chronus.npz
        optsched import chronus trace.csv --pool v100=60x8 --locality model_info.json --at 2d \\
            -o - | optsched solve - -f lease -O admission=true
        """,
        ("trace",),
    ),
    "tiresias": Format(
        """
        optsched import tiresias 60_job.csv n32g4.csv -o tiresias.json
        optsched import tiresias 60_job.csv --pool v100=8x4 --pool k80=8x4 --speed k80=0.25 -o tiresias.json
        """,
        ("trace", "cluster"),
    ),
    "openb": Format(
        """
        optsched import openb nodes.csv pods.csv --at 100d -o openb.json
        optsched import openb nodes.csv pods.csv --over-time -o trace.json
        optsched import openb nodes.csv -o cluster.yaml
        """,
        ("nodes", "pods"),
    ),
    "sia": Format(
        """
        optsched import sia workload-1.csv --profiles profiles --pool aws=16x4 -o pollux.json
        optsched import sia workload-1.csv --profiles profiles --pool aws=6x4 --pool dgx-ext=2x8 --pool rtx=3x8 \\
            --adaptive --application cifar10:slowdown=1.8,restart=50 --application bert:restart=120 -o sia.json
        """,
        ("workload",),
    ),
    "philly": Format(
        """
        optsched import philly log.json --machines machines.csv -o philly.npz
        optsched import philly philly_jobs.csv --cluster 6214e9 --pool p100=40x8 -o philly.json
        optsched import philly philly_jobs.csv --pool p100=300x8 --at 30d -o - | optsched solve -
        optsched import philly log.json --cluster ee9e8c --pool v100=8x8 --pool k80=8x4 --speed k80=0.3 -o ee.json
        """,
        ("jobs",),
    ),
}


# --- how texts become values ----------------------------------------------------------------------


def _pool(text: str, option: str) -> tuple[str, tuple[int, int]]:
    """``v100=2x4`` as a pool, its nodes, and the GPUs of a node."""
    match = POOL.fullmatch(text)
    if match is None:
        expected = "NAME=NODES or NAME=NODESxGPUS, such as v100=2x4 for 2 nodes of 4 GPUs"
        raise InvalidArgument(option, repr(text), expected)
    return match[1], (int(match[2]), int(match[3] or 1))


def _column(text: str, option: str) -> tuple[str, str]:
    """``Model=workload`` as a column of a file and its standard name."""
    column, _, meaning = (part.strip() for part in text.rpartition("="))
    if not column or not meaning:
        raise InvalidArgument(option, repr(text), "COLUMN=NAME, such as Model=workload")
    return column, meaning


def _speed(text: str, option: str) -> tuple[str, float]:
    """``v100=1.5`` as a pool and its factor."""
    # The name of a pool may contain equals signs; the factor cannot
    pool, equals, factor = text.rpartition("=")
    try:
        speed = float(factor) if equals and pool.strip() else 0.0
    except ValueError:
        speed = 0.0
    if not 0 < speed < float("inf"):
        expected = "POOL=FACTOR with a factor above 0, such as v100=1.5"
        raise InvalidArgument(option, repr(text), expected)
    return pool.strip(), speed


def _folder(text: str, option: str) -> tuple[str, str]:
    """``T4=throughputs_T4`` as a pool and the folder of its tables."""
    pool, _, folder = (part.strip() for part in text.partition("="))
    if not pool or not folder:
        raise InvalidArgument(option, repr(text), "POOL=FOLDER, such as T4=throughputs_T4")
    return pool, folder


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
    # bool is a subclass of int in Python, but true is not a number of seconds
    number = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1e9
    return number and (key == "restart" or (key == "slowdown" and value != 0))


# Name of the type of an importer's parameter -> section of the help, and how its text is read
TYPES: Mapping[str, tuple[str, Kind]] = {
    "Source": (FILES, Kind(values.name, "FILE")),
    "Folder": (FILES, Kind(values.name, "FOLDER")),
    "Folders": (FILES, Kind(values.by_name(_folder), "POOL=FOLDER", many=True)),
    "Pools": (
        CLUSTER,
        Kind(
            values.by_name(_pool),
            "POOL=NODES[xGPUS]",
            many=True,
            note="Nodes have one GPU by default.",
        ),
    ),
    "Columns": (FILES, Kind(values.by_name(_column), "COLUMN=NAME", many=True)),
    "PoolSizes": (CLUSTER, Kind(values.pool_sizes, "POOL:GPUS,...")),
    "Speeds": (CLUSTER, Kind(values.by_name(_speed), "POOL=FACTOR", many=True)),
    "Paces": (SELECTION, Kind(values.by_name(_pace), "NAME:slowdown=X,restart=S", many=True)),
}


# --- from importers to commands -------------------------------------------------------------------


def _commands() -> dict[str, Callable[..., int]]:
    """The command of each format."""
    from optsched import formats

    return {
        name: _command(getattr(formats, f"import_{name}"), form) for name, form in FORMATS.items()
    }


IMPORTS = Group(
    "Make an instance or a trace from files of other projects, or from tables.", _commands
)


def _command(importer: Callable[..., Any], form: Format) -> Callable[..., int]:
    """A function with the parameters of an importer; it writes the result to ``--output``."""
    known = described(importer)
    flags = {
        name: form.flags.get(name) or flag_of(name, _type(item)[1]) for name, item in known.items()
    }

    def run(shell: Shell, output: str, **given: Any) -> int:
        from optsched.formats.recorded import ImportedLog
        from optsched.traces import load_trace

        # Refuse an output that cannot be written before reading gigabytes of input
        kind = document_kind(output)
        left_out: Mapping[str, int] = {}
        # Parameters that are not given keep the defaults of the importer
        stated = {name: value for name, value in given.items() if value is not None}
        with progress(shell, "importing"), errors_name(flags):
            made = importer(**stated)
            if isinstance(made, ImportedLog):
                left_out = made.left_out
                made = made.instance
            # Validate the imported document like any other
            trace = load_trace(made)
        write_trace(shell, trace, output, kind)
        if left_out and not shell.quiet:
            # Reasons with the most jobs first
            order = sorted(left_out.items(), key=lambda item: -item[1])
            shell.complain(f"left out: {', '.join(f'{count:,} {why}' for why, count in order)}")
        return 0

    parameters = _parameters(known, form, flags)
    return derived_command(run, opening(importer), form.examples, parameters)


def _type(item: Described) -> tuple[str, Kind | None]:
    """The section of the help and the kind of a parameter; None for an option that takes no
    value.
    """
    return TYPES.get(item.type, (SELECTION, values.TYPES.get(item.type)))


def _parameters(
    known: Mapping[str, Described], form: Format, flags: Mapping[str, str]
) -> list[inspect.Parameter]:
    """The arguments, the required options, ``--output``, then the other options."""
    arguments = []
    required: list[inspect.Parameter] = []
    optional: list[inspect.Parameter] = []
    for name in (*form.arguments, *(name for name in known if name not in form.arguments)):
        item = known[name]
        if name in form.arguments:
            declared = Annotated[str | None, Argument(name.upper(), item.help)]
            arguments.append(keyword(name, declared, REQUIRED if item.required else None))
            continue
        section, kind = _type(item)
        section = OUTPUT if name == "name" else section
        option = derived_option(item, kind, section, flags[name])
        (required if item.required else optional).append(option)
    return [*arguments, *required, keyword("output", DocumentOutput), *optional]
