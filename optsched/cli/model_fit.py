"""``optsched model fit``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from optsched.cli.options import Json, output_option
from optsched.cli.profile_files import Models, ProfileFiles, ProfileReading, naming_parts, written
from optsched.cli.progress import progress
from optsched.cli.shell import Shell

if TYPE_CHECKING:
    from rich.console import RenderableType

    from optsched.performance.profiles import Profiles

EXAMPLES = """
    optsched model fit profiles.csv -o model.json
    optsched model fit profiles.csv --model pollux -o model.json
    optsched model fit bert/placements-t4.csv --model interpolation --model pollux -o model.json
    optsched model fit throughputs.json --model interpolation --gpus-per-node 4 -o model.json
"""


def fit(
    shell: Shell,
    profiles: ProfileFiles,
    models: Models,
    reading: ProfileReading,
    output: Annotated[str, output_option("FILE.json; - for standard output.")],
    as_json: Json = False,
) -> int:
    """Fit a performance model to measured times of steps.

    Without --model each workload on each GPU type gets the law (pollux, usl or interpolation) that best predicts
    measured ways that are left out of the fit. Several --model make a chain: each speaks of what those before it do not
    know. The file goes to --model of `optsched solve` and the other commands, or into the instance as its
    `performance`.

    Exit codes: 0 fitted and written, 2 usage, 3 the profiles are wrong or cannot determine the model, 7 an extra that
    the model needs is missing.
    """
    wanted = models.wanted
    from optsched.study.fitting import fit_model

    with progress(shell, "fitting"):
        measured = reading.read(profiles)
        with naming_parts("pollux"):
            document = fit_model(measured, wanted)
        found = _summary(document, measured)
    return written(shell, document, output, found, _view, as_json)


def _summary(document: Mapping[str, Any], profiles: Profiles) -> dict[str, Any]:
    """What was fitted, to what, and how well it tells the same measurements."""
    import numpy as np

    from optsched.study.fitting import predict_times

    predicted = predict_times(document, profiles.ways).seconds
    known = np.isfinite(predicted)
    error = np.abs(predicted[known] / profiles.seconds[known] - 1)
    return {
        "models": _names(document),
        "measurements": len(profiles),
        "workloads": list(profiles.ways.workloads),
        "gpu_types": list(profiles.ways.gpu_types),
        "known": int(known.sum()),
        "mape": float(error.mean()) if len(error) else None,
        "median_ape": float(np.median(error)) if len(error) else None,
        "chosen": _chosen(document, profiles),
    }


def _chosen(document: Mapping[str, Any], profiles: Profiles) -> list[dict[str, Any]]:
    """The law of each workload on each GPU type, the range that it was fitted in, and its cross-validated error."""
    ways = profiles.ways
    rows = []
    for workload, by_gpu in document.get("chosen", {}).items():
        for gpu, choice in by_gpu.items():
            mine = (ways.workload == ways.workloads.index(workload)) & (
                ways.gpu == ways.gpu_types.index(gpu)
            )
            ranges = {
                name: [
                    getattr(ways, name)[mine].min().item(),
                    getattr(ways, name)[mine].max().item(),
                ]
                for name in ("gpus", "nodes", "samples")
            }
            law = choice["laws"][0]
            rows.append(
                {
                    "workload": workload,
                    "gpu": gpu,
                    "ways": choice["ways"],
                    **ranges,
                    "law": law,
                    "error": choice["error"],
                }
            )
    return rows


def _names(document: Mapping[str, Any]) -> list[str]:
    """The models of a chain in order, or the one model, with what it stands on."""
    # A chain asks its models in order
    if document["model"] == "chain":
        return [name for part in document["models"] for name in _names(part)]
    parts = [*document.get("models", []), *([document["of"]] if document.get("of") else [])]
    inside = " and ".join(name for part in parts for name in _names(part))
    return [f"{document['model']} ({inside})" if inside else document["model"]]


def _view(found: Mapping[str, Any]) -> Iterator[RenderableType]:
    from optsched.cli.tables import count, facts, listed, percent

    yield facts(
        [
            ("model", ", then ".join(found["models"])),
            ("fitted to", count(found["measurements"], "measured step")),
            ("workloads", listed(found["workloads"], most=8)),
            ("GPU types", listed(found["gpu_types"], most=8)),
            (
                "error on them",
                "it has no word for any of them"
                if found["mape"] is None
                else f"{percent(found['mape'])} mean, {percent(found['median_ape'])} median"
                + (
                    ""
                    if found["known"] == found["measurements"]
                    else f", of the {found['known']:,} that it knows"
                ),
            ),
        ]
    )
    if found["chosen"]:
        yield ""
        yield from _chosen_view(found["chosen"])
    yield ""
    yield "`optsched model evaluate` says how well it tells what it has not seen."


# Rows of the table of laws.
SHOWN = 40


def _chosen_view(chosen: Sequence[Mapping[str, Any]]) -> Iterator[RenderableType]:
    from optsched.cli.tables import count, name, number, percent, table

    def span(ends: Sequence[float]) -> str:
        return number(ends[0]) if ends[0] == ends[1] else f"{number(ends[0])} to {number(ends[1])}"

    rows = [
        [
            name(row["workload"]),
            name(row["gpu"]),
            row["law"],
            "" if row["error"] is None else percent(row["error"]),
            f"{row['ways']:,}",
            *(span(row[column]) for column in ("gpus", "nodes", "samples")),
        ]
        for row in chosen[:SHOWN]
    ]
    columns = ["workload", "GPU type", "law", "error", "ways", "GPUs", "nodes", "samples"]
    yield table(*columns, rows=rows, left=3, title="Law of each workload on each GPU type")
    if len(chosen) > SHOWN:
        yield f"... and {count(len(chosen) - SHOWN, 'more pair')} (use --json)"
    yield "error: mean on measured ways that were left out of the fit; outside of these ranges times are extrapolated"
    few = sum(row["error"] is None for row in chosen)
    if few:
        yield (
            f"{count(few, 'pair')} with one or two measured ways: nothing can be left out, so the law is the simplest "
            "one that they determine"
        )
