"""``optsched model evaluate``."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from optsched.cli import values
from optsched.cli.options import OUTPUT, Json
from optsched.cli.profile_files import MODELS, Models, ProfileFiles, Told
from optsched.cli.progress import progress
from optsched.cli.shell import Shell, check_target

if TYPE_CHECKING:
    from rich.console import RenderableType

    from optsched.performance.evaluation import ErrorRow, Evaluation

EXAMPLES = """
    optsched model evaluate profiles.csv --model pollux --model interpolation
    optsched model evaluate profiles.csv -m pollux --split random:fraction=0.1 --split few-shot --seeds 5
    optsched model evaluate profiles.csv -m pollux --split gpu-out --workloads --plot errors.png
"""
SPLITS = "What is left out"


def evaluate(
    shell: Shell,
    profiles: ProfileFiles,
    models: Models,
    told: Told,
    split: Annotated[
        list[str] | None,
        typer.Option(
            "--split", metavar="NAME[:KEY=VALUE]", rich_help_panel=SPLITS, show_default=False,
            help="random:fraction=0.5, few-shot, more-gpus:most=4, workload-out or gpu-out. Can be repeated. Default: "
            "all of them.",
        ),
    ] = None,
    seeds: Annotated[
        str, typer.Option(metavar="N", help="Draws of random and few-shot.", rich_help_panel=SPLITS, show_default=True)
    ] = "3",
    nominal: Annotated[
        str, typer.Option(metavar="P", help="Share that the intervals should hold.", rich_help_panel=SPLITS,
                          show_default=True),
    ] = "0.9",
    chain: Annotated[
        bool, typer.Option("--chain", help="Also the chain of all models.", rich_help_panel=MODELS)
    ] = False,
    workloads: Annotated[
        bool, typer.Option("--workloads", help="Also each workload by itself.", rich_help_panel=OUTPUT)
    ] = False,
    plot: Annotated[
        str | None,
        typer.Option("--plot", metavar="FILE", help="Draw predicted against measured (png, svg or pdf).",
                     rich_help_panel=OUTPUT),
    ] = None,
    as_json: Json = False,
) -> int:  # fmt: skip
    """Say how well models tell times of steps that they were not fitted to.

    random: a part of each workload's ways to run is left out; few-shot: all but 1 GPU, one placement on a node and one
    over several; more-gpus: more GPUs than were profiled; workload-out: a workload as a whole; gpu-out: a GPU type but
    for its rows on 1 GPU.

    Exit codes: 0 evaluated, 2 usage, 3 the profiles are wrong, 7 an extra that a model needs is missing.
    """
    wanted = models.wanted
    splits = [values.named(text, "--split") for text in split] if split else None
    draws, share = values.whole(seeds, "--seeds"), values.real(nominal, "--nominal")
    assert draws is not None
    assert share is not None
    if plot is not None:
        from optsched.report.pictures import picture_format, require_matplotlib

        picture_format(plot)
        check_target(plot)
        require_matplotlib()
    from optsched.study.fitting import evaluate_models

    with progress(shell, "evaluating"):
        measured = told.read(profiles)
        found = evaluate_models(measured, wanted, splits, chain=chain, seeds=draws, nominal=share)
    if plot is not None:
        from optsched.report import evaluation_picture, save_picture

        save_picture(evaluation_picture(found), plot)
    if as_json:
        shell.document(
            {
                "measurements": len(measured),
                "nominal": share,
                "seeds": draws,
                "rows": list(map(asdict, found.rows)),
            }
        )
    elif not shell.quiet:
        shell.print(*_view(found, workloads))
        if plot is not None:
            shell.tell("")
            shell.tell(f"picture written to {plot}")
    return 0


def _view(found: Evaluation, workloads: bool) -> Iterator[RenderableType]:
    from optsched.cli.tables import bullets, count, percent, table

    columns = ("model", *(("workload",) if workloads else ()))
    for split in dict.fromkeys(row.split for row in found.rows):
        rows = [
            row for row in found.rows if row.split == split and (workloads or row.workload is None)
        ]
        yield table(
            *columns, "left out", "known", "MAPE", "median", "bias", f"in {percent(found.nominal)}",
            rows=[_cells(row, workloads) for row in rows], left=len(columns), title=split,
        )  # fmt: skip
        refused = dict.fromkeys(f"{row.model}: {row.refused}" for row in rows if row.refused)
        if refused:
            yield bullets(refused)
    profiles = found.profiles
    yield ""
    yield (
        f"{count(len(profiles), 'measured step')} of {count(len(profiles.ways.workloads), 'workload')} on "
        f"{count(len(profiles.ways.gpu_types), 'GPU type')}; MAPE: mean absolute error of the times that are known, "
        "and its standard deviation over seeds; bias: above 0 where times are told too long; last: share of times in "
        "the interval that should hold so many"
    )


def _cells(row: ErrorRow, workloads: bool) -> list[str]:
    from optsched.cli.tables import name, percent

    head: list[Any] = [
        name(row.model),
        *(["all" if row.workload is None else name(row.workload)] if workloads else []),
    ]
    head += [f"{row.tested:,}", percent(row.known / row.tested) if row.tested else ""]
    if row.mape is None:
        return [*head, "", "", "", ""]
    assert row.median_ape is not None
    assert row.bias is not None
    assert row.coverage is not None
    spread = f" ± {100 * row.mape_sd:.1f}" if row.mape_sd is not None else ""
    errors = [
        f"{100 * row.mape:.1f}{spread} %",
        f"{100 * row.median_ape:.1f} %",
        f"{100 * math.expm1(row.bias):+.1f} %",
    ]
    return [*head, *errors, percent(row.coverage)]
