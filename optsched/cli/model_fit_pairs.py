"""``optsched model fit-pairs``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from optsched.cli import values
from optsched.cli.options import OUTPUT, Json
from optsched.cli.profile_files import telling_parts, written
from optsched.cli.progress import progress
from optsched.cli.shell import Shell, check_target
from optsched.errors import UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from optsched.performance.learned.pairs import PairProfiles

EXAMPLES = """
    optsched model fit-pairs pairs.csv -o pairs.json
    optsched model fit-pairs rates.csv --alone alone.csv --model row-column --base model.json -o both.json
    optsched model fit-pairs simulation_throughputs.json -o pairs.json
"""
PROFILES, MODEL = "Profiles", "Model"


def fit_pairs(
    shell: Shell,
    pairs: Annotated[
        list[str],
        typer.Argument(
            metavar="PAIRS...", show_default=False,
            help="Measured pairs of jobs on one GPU: CSV files, or tables of Gavel (json).",
        ),
    ],
    output: Annotated[
        str,
        typer.Option(
            "--output", "-o", metavar="FILE", rich_help_panel=OUTPUT, help="FILE.json; - for standard output."
        ),
    ],
    alone: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE", rich_help_panel=PROFILES, show_default=False,
            help="Rates alone (gpu, workload, rate), where the pairs do not have them. Can be repeated.",
        ),
    ] = None,
    model: Annotated[
        str, typer.Option("--model", "-m", metavar="NAME[:KEY=VALUE,...]", rich_help_panel=MODEL, show_default=True,
                          help="auto, row-column, gaussian-pairs, boosted-pairs, completion or "
                          "conformal-pairs."),
    ] = "auto",
    option: Annotated[
        list[str] | None,
        typer.Option("--option", "-O", metavar="KEY=VALUE", rich_help_panel=MODEL,
                     help="Option of the model. Can be repeated."),
    ] = None,
    base: Annotated[
        str | None,
        typer.Option(
            "--base", metavar="MODEL.json", rich_help_panel=MODEL, show_default=False,
            help="What jobs run at alone: a file of `optsched model fit`. Default: what the instance states.",
        ),
    ] = None,
    as_json: Json = False,
) -> int:  # fmt: skip
    """Fit a model of jobs that share GPUs to measured pairs of them.

    It is written as an `interference` model: alone, jobs run as the instance states or as the model of --base says; in
    pairs, each keeps the fraction of that rate that the pairs say. The file goes to --model of `optsched solve` and the
    other commands, or into the instance as its `performance`.

    Exit codes: 0 fitted and written, 2 usage, 3 the pairs are wrong or cannot determine the model, 7 an extra that the
    model needs is missing.
    """
    check_target(output)
    name, options = values.named(model, "--model")
    for key, value in values.pairs(option or (), "-O").items():
        if key in options:
            raise UsageError(f"--model {name}: {key} is given twice")
        options[key] = value
    from optsched.formats.pairs import read_pairs
    from optsched.performance.files import read_model
    from optsched.study.fitting import fit_pairs as fit

    with progress(shell, "fitting"):
        below = None if base is None else read_model(base)
        measured = read_pairs(pairs, alone=alone or ())
        with telling_parts("row-column"):
            document = fit(measured, (name, options), base=below)
        found = _summary(document, measured)
    return written(shell, document, output, found, _view, as_json)


def _summary(document: Mapping[str, Any], measured: PairProfiles) -> dict[str, Any]:
    """What was fitted, to what, and how many of the pairs that are possible were measured."""
    import numpy as np

    pairs, known = measured.pairs, measured.features
    low, high = np.minimum(pairs.first, pairs.second), np.maximum(pairs.first, pairs.second)
    count = len(known.workloads)
    told = document["pairs"]
    return {
        "model": told["model"],
        "chosen": told["chosen"]["model"] if told["model"] == "auto" else None,
        "because": told.get("because"),
        "of": document["of"]["model"],
        "pairs": len(np.unique((pairs.gpu * count + low) * count + high)),
        "possible": len(known.gpu_types) * count * (count + 1) // 2,
        "apart": len(measured) - len(measured.ran),
        "workloads": list(known.workloads),
        "gpu_types": list(known.gpu_types),
    }


def _view(found: Mapping[str, Any]) -> Iterator[RenderableType]:
    from optsched.cli.tables import count, facts, listed

    chosen = f"{found['chosen']}: {found['because']}" if found["chosen"] else found["model"]
    apart = (
        f", {count(found['apart'], 'measurement')} of jobs that could not run together"
        if found["apart"]
        else ""
    )
    yield facts(
        [
            ("model", chosen),
            (
                "on top of",
                "the rates that the instance states" if found["of"] == "table" else found["of"],
            ),
            (
                "fitted to",
                f"{count(found['pairs'], 'pair')} of {found['possible']:,} that there can be{apart}",
            ),
            ("workloads", listed(found["workloads"], most=8)),
            ("GPU types", listed(found["gpu_types"], most=8)),
        ]
    )
