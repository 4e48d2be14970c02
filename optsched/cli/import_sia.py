"""``optsched import sia``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from optsched.cli import values
from optsched.cli.export import write_trace
from optsched.cli.import_options import SELECTION, Name, Output, Pools, nodes_of_pools
from optsched.cli.progress import progress
from optsched.cli.shell import Shell, check_target
from optsched.errors import InvalidArgument, UsageError

if TYPE_CHECKING:
    from optsched.formats.sia import Pace

EXAMPLES = """
    optsched import sia workload-1.csv --profiles profiles --pool aws=16x4 -o pollux.json
    optsched import sia workload-1.csv --profiles profiles --pool aws=6x4 --pool dgx-ext=2x8 --pool rtx=3x8 \\
        --adaptive --application cifar10:slowdown=1.8,restart=50 --application bert:restart=120 -o sia.json
"""


def sia(
    shell: Shell,
    workload: Annotated[str, typer.Argument(metavar="WORKLOAD", help="Table of jobs (CSV).")],
    profiles: Annotated[
        str,
        typer.Option(
            metavar="FOLDER", rich_help_panel=SELECTION,
            help="Folder with the profiles of each application, in which pools are called like kinds of machines.",
        ),
    ],
    pool: Pools,
    output: Output,
    adaptive: Annotated[
        bool,
        typer.Option(
            "--adaptive", rich_help_panel=SELECTION,
            help="Jobs take any number of GPUs, with the best batch for it; otherwise what they ask for.",
        ),
    ] = False,
    most: Annotated[
        str, typer.Option(metavar="N", help="GPUs of an adaptive job.", rich_help_panel=SELECTION, show_default=True)
    ] = "64",
    application: Annotated[
        list[str] | None,
        typer.Option(
            "--application", metavar="NAME:slowdown=X,restart=S", rich_help_panel=SELECTION,
            help="How much slower than in the profiles its steps are (1), and what a start costs, s (0). "
            "Can be repeated.",
        ),
    ] = None,
    name: Name = "sia",
) -> int:  # fmt: skip
    """Make a trace of a workload of Sia (SOSP 2023) or Pollux (OSDI 2021), and of their profiles.

    A step is one of an application's first batch; every epoch of its training is a regime with rates of its own.
    """
    check_target(output)
    sizes, widest, paces = (
        nodes_of_pools(pool),
        values.whole(most, "--most"),
        _paces(application or ()),
    )
    from optsched.formats.sia import import_sia
    from optsched.instance.files import kind_of
    from optsched.instance.reading import read_bytes

    kind = "json" if output == "-" else kind_of(Path(output))
    with progress(shell, "importing"):
        trace = import_sia(
            read_bytes(Path(workload)),
            profiles,
            sizes,
            adaptive=adaptive,
            most=widest or 0,
            paces=paces,
            name=name,
            file=workload,
        )
    write_trace(shell, trace, output, kind)
    return 0


def _paces(texts: Sequence[str]) -> dict[str, Pace]:
    from optsched.formats.sia import Pace

    found: dict[str, Pace] = {}
    for text in texts:
        name, given = values.named(text, "--application", "NAME")
        wrong = [f"{key}={value}" for key, value in given.items() if not _fits(key, value)]
        if wrong or not given:
            told = wrong[0] if wrong else text
            raise InvalidArgument(
                "--application", repr(told), "a slowdown above 0 or a restart of at least 0"
            )
        if name in found:
            raise UsageError(f"--application: {name} is given twice")
        found[name] = Pace(**{key: float(value) for key, value in given.items()})
    return found


def _fits(key: str, value: object) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1e9
    return number and (key == "restart" or (key == "slowdown" and value != 0))
