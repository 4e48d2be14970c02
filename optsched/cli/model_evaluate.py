"""``optsched model evaluate``."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from optsched.cli import values
from optsched.cli.command import Option
from optsched.cli.options import OUTPUT, Json
from optsched.cli.profile_files import MODELS, Models, ProfileFiles, ProfileReading
from optsched.cli.progress import progress
from optsched.cli.shell import Shell, written_to

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
    reading: ProfileReading,
    split: Annotated[
        list[tuple[str, dict[str, Any]]] | None,
        Option(
            "random:fraction=0.5, few-shot, more-gpus:most=4, workload-out or gpu-out. Can be repeated. Default: "
            "all of them.",
            "NAME[:KEY=VALUE]",
            section=SPLITS,
            read=values.named_each,
            many=True,
        ),
    ] = None,
    seeds: Annotated[int, Option("Draws of random and few-shot.", "N", section=SPLITS)] = 3,
    nominal: Annotated[
        float,
        Option("Share that the intervals should hold.", "P", section=SPLITS),
    ] = 0.9,
    chain: Annotated[bool, Option("Also the chain of all models.", section=MODELS)] = False,
    workloads: Annotated[bool, Option("Also each workload by itself.", section=OUTPUT)] = False,
    plot: Annotated[
        str | None,
        Option(
            "Draw predicted against measured (png, svg or pdf).",
            "FILE",
            section=OUTPUT,
            read=values.picture,
        ),
    ] = None,
    as_json: Json = False,
) -> int:
    """Say how well models tell times of steps that they were not fitted to.

    random: a part of each workload's ways to run is left out; few-shot: all but 1 GPU, one placement on a node and one
    over several; more-gpus: more GPUs than were profiled; workload-out: a workload as a whole; gpu-out: a GPU type but
    for its rows on 1 GPU.

    Exit codes: 0 evaluated, 2 usage, 3 the profiles are wrong, 7 an extra that a model needs is missing.
    """
    wanted = models.wanted
    from optsched.study.fitting import evaluate_models

    with progress(shell, "evaluating"):
        measured = reading.read(profiles)
        found = evaluate_models(measured, wanted, split, chain=chain, seeds=seeds, nominal=nominal)
    if plot is not None:
        from optsched.report import evaluation_picture, save_picture

        save_picture(evaluation_picture(found), plot)
    shell.answer(
        as_json,
        lambda: {
            "measurements": len(measured),
            "nominal": nominal,
            "seeds": seeds,
            "rows": [asdict(row) for row in found.rows],
        },
        _view(found, workloads),
        written=written_to(picture=plot),
    )
    return 0


def _view(found: Evaluation, workloads: bool) -> Iterator[RenderableType]:
    from optsched.cli.tables import bullets, count, percent, table

    columns = ("model", *(("workload",) if workloads else ()))
    for split in dict.fromkeys(row.split for row in found.rows):
        rows = [
            row for row in found.rows if row.split == split and (workloads or row.workload is None)
        ]
        yield table(
            *columns,
            "left out",
            "known",
            "MAPE",
            "median",
            "bias",
            f"in {percent(found.nominal)}",
            rows=[_cells(row, workloads) for row in rows],
            left=len(columns),
            title=split,
        )
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
