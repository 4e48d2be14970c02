"""``optsched model fit-pairs``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

from optsched.cli import values
from optsched.cli.command import Argument, Option
from optsched.cli.options import Json, output_option, settings_option
from optsched.cli.profile_files import naming_parts, with_options, written
from optsched.cli.progress import progress
from optsched.cli.shell import Shell

if TYPE_CHECKING:
    from rich.console import RenderableType

    from optsched.performance.learned import PairProfiles

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
        Argument(
            "PAIRS...", "Measured pairs of jobs on one GPU: CSV files, or tables of Gavel (json)."
        ),
    ],
    output: Annotated[str, output_option("FILE.json; - for standard output.")],
    alone: Annotated[
        list[str] | None,
        Option(
            "Rates alone (gpu, workload, rate), where the pairs do not have them. Can be repeated.",
            "FILE",
            section=PROFILES,
        ),
    ] = None,
    model: Annotated[
        tuple[str, dict[str, Any]],
        Option(
            "auto, row-column, gaussian-pairs, boosted-pairs, completion or conformal-pairs.",
            "NAME[:KEY=VALUE,...]",
            short="-m",
            section=MODEL,
            read=values.named,
            default="auto",
        ),
    ] = ("auto", {}),
    options: Annotated[
        dict[str, Any] | None,
        settings_option("Option of the model. Can be repeated.", section=MODEL),
    ] = None,
    base: Annotated[
        str | None,
        Option(
            "What jobs run at alone: a file of `optsched model fit`. Default: what the instance states.",
            "MODEL.json",
            section=MODEL,
        ),
    ] = None,
    as_json: Json = False,
) -> int:
    """Fit a model of jobs that share GPUs to measured pairs of them.

    It is written as an `interference` model: alone, jobs run as the instance states or as the model of --base says; in
    pairs, each keeps the fraction of that rate that the pairs say. The file goes to --model of `optsched solve` and the
    other commands, or into the instance as its `performance`.

    Exit codes: 0 fitted and written, 2 usage, 3 the pairs are wrong or cannot determine the model, 7 an extra that the
    model needs is missing.
    """
    chosen = with_options(model, options or {})
    from optsched.formats.pairs import read_pairs
    from optsched.performance.files import read_model
    from optsched.study.fitting import fit_pairs as fit

    with progress(shell, "fitting"):
        below = None if base is None else read_model(base)
        measured = read_pairs(pairs, alone=alone or ())
        with naming_parts("row-column"):
            document = fit(measured, chosen, base=below)
        found = _summary(document, measured)
    return written(shell, document, output, found, _view, as_json)


def _summary(document: Mapping[str, Any], measured: PairProfiles) -> dict[str, Any]:
    """What was fitted, to what, and how many of the pairs that are possible were measured."""
    import numpy as np

    pairs, known = measured.pairs, measured.features
    low, high = np.minimum(pairs.first, pairs.second), np.maximum(pairs.first, pairs.second)
    count = len(known.workloads)
    fitted = document["pairs"]
    return {
        "model": fitted["model"],
        "chosen": fitted["chosen"]["model"] if fitted["model"] == "auto" else None,
        "because": fitted.get("because"),
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
