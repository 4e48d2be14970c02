"""The subcommands of ``optsched model``: performance models and the profiles for their fits."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, cast

from optsched.cli import values
from optsched.cli.command import Argument, Group, Option
from optsched.cli.formulations import mathematics
from optsched.cli.options import OUTPUT, Json, ManyOptions, output_option, settings_option
from optsched.cli.progress import progress
from optsched.cli.shell import Shell, written_to
from optsched.cli.tables import (
    bullets,
    facts,
    heading,
    listed,
    more,
    name,
    number,
    percent,
    rounded,
    table,
)
from optsched.cli.values import JsonTarget, Kind, Named, NamedList, Picture, Settings
from optsched.display import count
from optsched.errors import (
    InvalidArgument,
    InvalidInput,
    UsageError,
    did_you_mean,
    given_twice,
    unknown_name,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

    from optsched.arrays import FloatArray
    from optsched.formats.profiles import Repeats
    from optsched.performance.evaluation import ErrorRow, Evaluation
    from optsched.performance.files import PerformanceObject
    from optsched.performance.profiles import Profiles

PROFILES, MODELS = "Profiles", "Models"


# --- what the commands share ----------------------------------------------------------------------


@dataclass(frozen=True)
class ProfileReading:
    """What the files of profiles do not state themselves."""

    section: ClassVar = PROFILES

    workload: Annotated[
        str | None,
        Option("Workload of tables that do not name it.", "NAME"),
    ] = None
    gpu: Annotated[
        str | None,
        Option("GPU type of tables that do not name it.", "TYPE"),
    ] = None
    gpus_per_node: Annotated[
        int | None,
        Option("GPUs per node, of tables without a column of nodes.", "N"),
    ] = None
    repeats: Annotated[
        str | None,
        Option(
            "Which of several measurements of one configuration count (default: "
            "first in AdaptDL's files, else all).",
            "first|all",
        ),
    ] = None

    def read(self, files: Sequence[str]) -> Profiles:
        """The profiles in files and folders."""
        from optsched.formats.profiles import read_profiles

        return read_profiles(
            files,
            workload=self.workload,
            gpu=self.gpu,
            gpus_per_node=self.gpus_per_node,
            repeats=cast("Repeats | None", self.repeats),
        )


ProfileFiles = Annotated[
    list[str],
    Argument(
        "PROFILES...",
        "Measured steps: CSV files or folders of them, or tables of Gavel (json) or ElasticFlow.",
    ),
]


def _model_names(texts: Sequence[str], option: str) -> list[tuple[str, dict[str, Any]]]:
    """Models with their options."""
    return values.named_each(texts, "--model")


ModelNames = Annotated[
    list[tuple[str, dict[str, Any]]], Kind(_model_names, values.NAMED, many=True)
]


@dataclass(frozen=True)
class Models:
    """The models that are fitted."""

    section: ClassVar = MODELS

    models: Annotated[
        ModelNames,
        Option(
            "See `optsched model list`; without it the best is chosen by cross-validation. Can be "
            "repeated.",
            flag="--model",
            short="-m",
        ),
    ] = field(default_factory=list)
    options: Annotated[
        Settings,
        settings_option("Option of the model, if there is one. Can be repeated.", section=MODELS),
    ] = field(default_factory=dict)

    @property
    def wanted(self) -> list[tuple[str, dict[str, Any]]]:
        """What --model and -O give; names are checked."""
        from optsched.study.fitting import USUAL, time_model

        chosen = self.models or [(USUAL, {})]
        if self.options and len(chosen) > 1:
            raise UsageError(
                "-O beside several models: give each its options as --model NAME:KEY=VALUE"
            )
        for model, _ in chosen:
            time_model(model)
        return [with_options(model, self.options) for model in chosen]


def with_options(
    model: tuple[str, dict[str, Any]], further: Mapping[str, Any]
) -> tuple[str, dict[str, Any]]:
    """A model with the options of -O; repeated options are refused."""
    name, options = model
    for key in further:
        if key in options:
            raise given_twice(f"--model {name}", key)
    return name, {**options, **further}


@contextmanager
def naming_parts(example: str) -> Iterator[None]:
    """Context: if a fit lacks its base model, the error says how to give it by an option."""
    try:
        yield
    except InvalidInput as error:
        if error.path != "performance.of" or error.found != "nothing":
            raise
        expected = f"""its base model, such as -O of='{{"model": "{example}"}}'"""
        raise InvalidInput(error.path, error.found, expected) from None


def written(
    shell: Shell,
    document: Mapping[str, Any],
    output: str,
    found: Mapping[str, Any],
    view: Callable[[Mapping[str, Any]], Iterable[RenderableType]],
    as_json: bool,
) -> int:
    """Write a fitted model (``-`` is standard output), and print a summary."""
    from optsched.api import write_model
    from optsched.performance.files import model_bytes

    if output == "-":
        shell.write(model_bytes(document).decode())
        return 0
    write_model(document, output)
    shell.answer(
        as_json,
        lambda: {"file": output, **found},
        view(found),
        written=written_to(model=output),
    )
    return 0


# --- optsched model list -------------------------------------------------------------------------


FITTED, COMPOSED, STATED, PAIRED = "profiles", "other models", "the instance", "pairs"


def list_models(
    shell: Shell,
    model: Annotated[
        str | None,
        Argument("NAME", "A model, of rates or of pairs: its mathematics and options."),
    ] = None,
    as_json: Json = False,
) -> int:
    """List the performance models, or show one in full.

    Examples:
        optsched model list
        optsched model list pollux
        optsched model list row-column --json
    """
    if model is not None:
        document = described(model)
        shell.answer(as_json, lambda: document, _model_view(document))
        return 0
    found = catalogue()
    shell.answer(as_json, lambda: {"models": found}, _models_view(found))
    return 0


def _models_view(found: list[dict[str, Any]]) -> Iterator[RenderableType]:
    rows = [[item["name"], item["made_of"], item["summary"]] for item in found]
    yield table("name", "made of", "summary", rows=rows, left=3, title="Performance models")
    yield ""
    yield "Those made of profiles are fitted by `optsched model fit`."
    yield (
        "`optsched model list NAME` shows the mathematics and the options of one, "
        "also of a model of pairs."
    )


def catalogue() -> list[dict[str, Any]]:
    """Name, input, and first line of the docstring of each model."""
    from optsched.registry import load_model, names

    found = []
    for model in names("performance model"):
        owner = load_model(model)
        summary = " ".join(inspect.cleandoc(owner.__doc__ or "").split("\n\n")[0].split())
        found.append({"name": model, "made_of": _made_of(owner), "summary": summary.rstrip(".,:")})
    return found


def described(model: str) -> dict[str, Any]:
    """One model as plain data; ``text`` is its docstring, which includes the options."""
    from optsched.performance.learned import PAIR_MODELS, pair_class
    from optsched.registry import load_model, names

    is_paired = model in PAIR_MODELS and model not in names("performance model")
    owner: Any = pair_class(model) if is_paired else load_model(model)
    return {
        "name": model,
        "made_of": PAIRED if is_paired else _made_of(owner),
        "module": owner.__module__,
        "text": inspect.cleandoc(owner.__doc__ or ""),
    }


def _made_of(owner: Any) -> str:
    from optsched.performance.composed import ComposedModel
    from optsched.performance.times import TimeModel

    if not isinstance(owner, type):
        return STATED
    if issubclass(owner, TimeModel):
        return FITTED
    return COMPOSED if issubclass(owner, ComposedModel) else STATED


# How to use a model, by its kind of input.
HOW = {
    FITTED: "optsched model fit PROFILES --model {name} [-O KEY=VALUE] -o MODEL.json",
    PAIRED: "optsched model fit-pairs PAIRS --model {name} [-O KEY=VALUE] -o MODEL.json",
    COMPOSED: '"performance": {{"model": "{name}", "{parts}": ..., KEY: VALUE}} in an instance',
    STATED: '"performance": {{"model": "{name}", KEY: VALUE}} in an instance',
}


def _model_view(document: dict[str, Any]) -> Iterator[RenderableType]:
    from optsched.registry import load_model

    model = document["name"]
    made_of = document["made_of"]
    parts = getattr(load_model(model), "made_of", "of") if made_of == COMPOSED else ""
    yield heading(f"{model}, a {'model of pairs' if made_of == PAIRED else 'performance model'}")
    yield ""
    yield facts(
        [
            ("made of", made_of),
            ("asked for by", HOW[made_of].format(name=model, parts=parts)),
            ("code", document["module"]),
        ]
    )
    yield ""
    yield from mathematics(document["text"])
    if "``of``" in document["text"] and made_of in (FITTED, PAIRED):
        inner = "row-column" if made_of == PAIRED else "pollux"
        yield ""
        yield f"""Its base model is given as -O of='{{"model": "{inner}"}}'."""
    if "``models``" in document["text"] and made_of == FITTED:
        yield ""
        yield """The models that it is made of are given as -O models='[{"model": "pollux"}, {"model": "usl"}]'."""


# --- optsched model fit --------------------------------------------------------------------------


ModelOutput = Annotated[JsonTarget, output_option("FILE.json; - for standard output.")]


def fit(
    shell: Shell,
    profiles: ProfileFiles,
    models: Models,
    reading: ProfileReading,
    running: ManyOptions,
    output: ModelOutput,
    as_json: Json = False,
) -> int:
    """Fit a performance model to measured times of steps.

    Without --model, cross-validation chooses the law (pollux, usl or interpolation) of each
    workload on each GPU type. Several --model make a chain: each answers where those before it have
    no answer. `optsched solve` and other commands read the file with --model; it can also be the
    `performance` of an instance.

    Exit codes: 0 fitted and written, 2 usage, 3 the profiles are wrong or cannot determine the
    model, 7 an extra that the model needs is missing.

    Examples:
        optsched model fit profiles.csv -o model.json
        optsched model fit profiles.csv --model pollux -o model.json
        optsched model fit profiles.csv --jobs 4 -o model.json
        optsched model fit bert/placements-t4.csv --model interpolation --model pollux -o model.json
        optsched model fit throughputs.json --model interpolation --gpus-per-node 4 -o model.json
    """
    wanted = models.wanted
    from optsched.study.fitted import fit_summary
    from optsched.study.fitting import fit_model

    with progress(shell, "fitting"):
        measured = reading.read(profiles)
        with naming_parts("pollux"):
            document = fit_model(
                measured, wanted, processes=running.jobs, executor=running.executor
            )
        found = fit_summary(document, measured)
    return written(shell, document, output, found, _fit_view, as_json)


def _fit_view(found: Mapping[str, Any]) -> Iterator[RenderableType]:
    yield facts(
        [
            ("model", ", then ".join(found["models"])),
            ("fitted to", count(found["measurements"], "measured step")),
            ("workloads", listed(found["workloads"], most=8)),
            ("GPU types", listed(found["gpu_types"], most=8)),
            (
                "error on them",
                "it predicts none of them"
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
        yield from _chosen_view(found["chosen"], found["whole_steps"])
    yield ""
    yield "`optsched model evaluate` measures its errors on data that are left out of the fit."


# Rows of the table of laws, at most.
MOST_LAWS = 40


def _chosen_view(
    chosen: Sequence[Mapping[str, Any]], whole_steps: Collection[str]
) -> Iterator[RenderableType]:
    def span(ends: Sequence[float]) -> str:
        return number(ends[0]) if ends[0] == ends[1] else f"{number(ends[0])} to {number(ends[1])}"

    rows = [
        [
            name(row["workload"]),
            name(row["gpu"]),
            row["law"],
            "" if row["error"] is None else percent(row["error"]),
            f"{row['ways']:,}",
            *(span(row[column]) for column in ("gpus", "nodes")),
            # Workloads measured without samples have fractions of a step instead of samples
            "whole steps" if row["workload"] in whole_steps else span(row["samples"]),
        ]
        for row in chosen[:MOST_LAWS]
    ]
    columns = ["workload", "GPU type", "law", "error", "ways", "GPUs", "nodes", "samples"]
    yield table(*columns, rows=rows, left=3, title="Law of each workload on each GPU type")
    yield from more(len(chosen) - MOST_LAWS, "pair", see="--json")
    yield (
        "error: mean on measured ways that were left out of the fit; "
        "outside of these ranges times are extrapolated"
    )
    few = sum(row["error"] is None for row in chosen)
    if few:
        yield (
            f"{count(few, 'pair')} with one or two measured ways: nothing can be left out, "
            "so the law is the simplest "
            "one that they determine"
        )


# --- optsched model fit-pairs --------------------------------------------------------------------


def fit_pairs(
    shell: Shell,
    pairs: Annotated[
        list[str],
        Argument(
            "PAIRS...", "Measured pairs of jobs on one GPU: CSV files, or tables of Gavel (json)."
        ),
    ],
    output: ModelOutput,
    alone: Annotated[
        list[str] | None,
        Option(
            "Rates of jobs alone (gpu, workload, rate), if the pairs lack them. Can be repeated.",
            "FILE",
            section=PROFILES,
        ),
    ] = None,
    model: Annotated[
        Named,
        Option(
            "auto, row-column, gaussian-pairs, boosted-pairs, completion or conformal-pairs.",
            short="-m",
            section=MODELS,
            default="auto",
        ),
    ] = ("auto", {}),
    options: Annotated[
        Settings | None,
        settings_option("Option of the model. Can be repeated.", section=MODELS),
    ] = None,
    base: Annotated[
        str | None,
        Option(
            "Model of jobs alone (`optsched model fit`). Default: the rates of the instance.",
            "MODEL.json",
            section=MODELS,
        ),
    ] = None,
    as_json: Json = False,
) -> int:
    """Fit a model of jobs that share GPUs to measured pairs.

    The file is an `interference` model: a job alone runs at the rate of the instance, or of the
    model of --base; in a pair it keeps a fraction of that rate, which is fitted. `optsched solve`
    and other commands read the file with --model; it can also be the `performance` of an instance.

    Exit codes: 0 fitted and written, 2 usage, 3 the pairs are wrong or cannot determine the model,
    7 an extra that the model needs is missing.

    Examples:
        optsched model fit-pairs pairs.csv -o pairs.json
        optsched model fit-pairs rates.csv --alone alone.csv --model row-column --base model.json -o both.json
        optsched model fit-pairs simulation_throughputs.json -o pairs.json
    """
    chosen = with_options(model, options or {})
    from optsched.formats.pairs import read_pairs
    from optsched.performance.files import read_model
    from optsched.study.fitted import pairs_summary
    from optsched.study.fitting import fit_pairs as fit_to_pairs

    with progress(shell, "fitting"):
        below = None if base is None else read_model(base)
        measured = read_pairs(pairs, alone=alone or ())
        with naming_parts("row-column"):
            document = fit_to_pairs(measured, chosen, base=below)
        found = pairs_summary(document, measured)
    return written(shell, document, output, found, _pairs_view, as_json)


def _pairs_view(found: Mapping[str, Any]) -> Iterator[RenderableType]:
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
                f"{count(found['pairs'], 'pair')} of {found['possible']:,} that there "
                f"can be{apart}",
            ),
            ("workloads", listed(found["workloads"], most=8)),
            ("GPU types", listed(found["gpu_types"], most=8)),
        ]
    )


# --- optsched model predict ----------------------------------------------------------------------


# Share of the intervals that are shown.
NOMINAL = 0.9
WAYS = "Configurations, instead of PROFILES"


def _counts(text: str, option: str) -> list[int]:
    """Numbers of at least 1."""
    numbers = [values.whole(part, option) for part in text.split(",")]
    for found in numbers:
        if not 1 <= found < 2**31:
            raise InvalidArgument(option, str(found), "whole numbers of at least 1")
    return numbers


Counts = Annotated[list[int], Kind(_counts, "N,...")]


@dataclass(frozen=True)
class Asked:
    """Ways to run, given by options."""

    section: ClassVar = WAYS

    gpus: Annotated[
        Counts | None, Option("Numbers of GPUs; give --workload and --gpu too.", "K,...")
    ] = None
    nodes: Annotated[
        Counts | None, Option("Numbers of nodes, one for each of --gpus.", "N,...")
    ] = None
    batch: Annotated[Counts | None, Option("Batch of the whole job, in samples.", "B,...")] = None
    batch_per_gpu: Annotated[Counts | None, Option("Batch of one GPU, in samples.", "M,...")] = None
    max_batch_per_gpu: Annotated[
        Counts | None,
        Option("Largest batch that fits one GPU at once; a larger one takes several passes.", "M"),
    ] = None


def predict(
    shell: Shell,
    model: Annotated[
        str,
        Argument("MODEL", "File that `optsched model fit` wrote, or - for standard input."),
    ],
    asked: Asked,
    reading: ProfileReading,
    profiles: Annotated[
        list[str] | None,
        Argument("[PROFILES...]", "Measured steps to compare with the predictions."),
    ] = None,
    as_json: Json = False,
) -> int:
    """Predict how fast workloads run, with 90 % intervals and the source of each prediction.

    Exit codes: 0 predicted (without a rate where the model has no answer), 2 usage, or a workload
    or GPU type that the model was not fitted to, 3 a file is wrong.

    Examples:
        optsched model predict model.json profiles.csv
        optsched model predict model.json --workload bert --gpu T4 --gpus 1,2,4,8 --gpus-per-node 4 --batch-per-gpu 32
        optsched model predict model.json --workload bert --gpu T4 --gpus 4,8 --nodes 1,2 --batch 256 --json
    """
    if bool(profiles) == (asked != Asked()):
        raise UsageError(
            "expected PROFILES, or --workload, --gpu, --gpus and --batch or --batch-per-gpu"
        )
    from optsched.instance.reading import named
    from optsched.performance.composed import whole_steps_of
    from optsched.performance.files import below, read_model
    from optsched.study.fitting import predict_times

    with progress(shell, "predicting"):
        document = read_model(model)
        if profiles:
            measured = reading.read(profiles)
            per_step = measured.ways.samples_per_step
        else:
            whole_step = reading.workload in whole_steps_of(document)
            measured, per_step = _ways(asked, reading, whole_step)
        with named(model), below(""):
            times = predict_times(document, measured.ways)
        if not profiles and not times.known.any():
            _check_fitted(document, str(reading.workload), str(reading.gpu))
    rows = _predicted(measured, per_step, times, bool(profiles))
    shell.answer(
        as_json,
        lambda: {"model": document["model"], "nominal": NOMINAL, "rows": rows},
        _predicted_view(rows, bool(profiles), whole_steps_of(document)),
    )
    return 0


def _check_fitted(document: PerformanceObject, workload: str, gpu: str) -> None:
    """Refuse names that a fitted model does not have (unknown for other models)."""
    fitted = document.fitted
    if fitted and workload not in fitted:
        raise unknown_name("workload", workload, fitted, hint=did_you_mean(workload, fitted))
    if fitted and gpu not in fitted[workload]:
        raise unknown_name(
            "GPU type", gpu, fitted[workload], f"{workload} was not measured on {gpu!r}"
        )


def _ways(asked: Asked, reading: ProfileReading, whole_step: bool) -> tuple[Profiles, FloatArray]:
    """The ways of the options (every number of GPUs with every batch), and the samples per step.

    For a workload that was measured without samples (``whole_step``), a step is one sample, on any
    number of GPUs.

    Batches are split into whole samples per GPU, as for workloads of an instance. The seconds in
    the returned profiles are not used.
    """
    import numpy as np

    from optsched.performance.batches import Batches
    from optsched.performance.profiles import Profiles

    for option, value in (
        ("--workload", reading.workload),
        ("--gpu", reading.gpu),
        ("--gpus", asked.gpus),
    ):
        if value is None:
            raise UsageError(f"{option} is missing beside the others")
    if whole_step:
        asked = _without_batch(asked, reading)
    batches = asked.batch or asked.batch_per_gpu
    if batches is None or (asked.batch and asked.batch_per_gpu):
        raise UsageError("expected --batch of the whole job or --batch-per-gpu, and not both")
    assert asked.gpus is not None
    nodes = _nodes(asked.gpus, asked, reading)
    most = asked.max_batch_per_gpu or [2**31 - 1]
    if len(most) > 1:
        raise InvalidArgument("--max-batch-per-gpu", f"{len(most)} numbers", "one")
    rows = [(k, n, b) for b in batches for k, n in zip(asked.gpus, nodes, strict=True)]
    for k, n, b in rows:
        if n > k:
            raise InvalidArgument("--nodes", f"{n} nodes for {k} GPUs", "at most one for each GPU")
        if asked.batch and b < k and not whole_step:
            raise InvalidArgument(
                "--batch", f"{b} samples for {k} GPUs", "at least one for each GPU"
            )
    gpus, spread, batch = np.array(rows, np.int64).T
    each = batch.astype(np.float64)
    row = np.arange(len(rows))
    per_gpu = np.full(len(rows), np.nan) if asked.batch else each
    split = Batches((), each, per_gpu, np.full(len(rows), float(most[0])))
    if whole_step:
        samples, passes = 1.0 / gpus, np.ones(len(rows), np.int64)
    else:
        samples, passes = split.split(row, gpus)
    ways = Profiles.of(
        workload=[str(reading.workload)] * len(rows),
        gpu=[str(reading.gpu)] * len(rows),
        gpus=gpus,
        nodes=spread,
        samples=samples,
        passes=passes,
        seconds=np.ones(len(rows)),
    )
    return ways, each if asked.batch else each * gpus


def _without_batch(asked: Asked, reading: ProfileReading) -> Asked:
    """The query for a workload that was measured without samples; a batch is refused."""
    batches = asked.batch or asked.batch_per_gpu or asked.max_batch_per_gpu
    if batches and (asked.batch != [1] or asked.batch_per_gpu or asked.max_batch_per_gpu):
        raise UsageError(
            f"a batch for {reading.workload}, which the model knows in whole steps, "
            "without samples: expected no"
            " --batch, --batch-per-gpu or --max-batch-per-gpu"
        )
    return replace(asked, batch=[1])


def _nodes(gpus: Sequence[int], asked: Asked, reading: ProfileReading) -> list[int]:
    if asked.nodes is not None:
        if len(asked.nodes) != len(gpus):
            expected = f"{len(gpus)}, one for each of --gpus"
            raise InvalidArgument("--nodes", f"{len(asked.nodes)} numbers", expected)
        return asked.nodes
    size = reading.gpus_per_node
    if size is not None and size < 1:
        raise InvalidArgument("--gpus-per-node", str(size), "a whole number of at least 1")
    if size is None and max(gpus) > 1:
        raise UsageError("several GPUs: say over how many nodes with --nodes or --gpus-per-node")
    return [-(-gpus_ // (size or 1)) for gpus_ in gpus]


def _predicted(
    measured: Profiles, per_step: FloatArray, times: Any, with_measured: bool
) -> list[dict[str, Any]]:
    """A record for each way; values that the model does not know are None."""
    import numpy as np
    from scipy.special import ndtri

    from optsched.performance import Source

    ways = measured.ways
    spread = np.exp(ndtri((1 + NOMINAL) / 2) * times.log_sd)
    rows = []
    for row in range(len(ways)):
        record = {
            "workload": ways.workloads[ways.workload[row]],
            "gpu": ways.gpu_types[ways.gpu[row]],
            "gpus": int(ways.gpus[row]),
            "nodes": int(ways.nodes[row]),
            "samples": float(ways.samples[row]),
            "passes": int(ways.passes[row]),
            **dict.fromkeys(("seconds", "samples_per_second", "low", "high", "log_sd", "source")),
        }
        if np.isfinite(times.seconds[row]):
            rate = float(per_step[row] / times.seconds[row])
            record |= {
                "seconds": float(times.seconds[row]),
                "samples_per_second": rate,
                "low": rate / float(spread[row]),
                "high": rate * float(spread[row]),
                "log_sd": float(times.log_sd[row]),
                "source": Source(int(times.source[row])).name.lower(),
            }
        if with_measured:
            record["measured_seconds"] = float(measured.seconds[row])
        rows.append(record)
    return rows


# Name of the source for ways outside of the measured range.
EXTRAPOLATED = "extrapolated"
# Rows of the table, at most.
PREDICTED = 60


def _predicted_view(
    rows: Sequence[dict[str, Any]], with_measured: bool, whole_steps: Collection[str]
) -> Iterator[RenderableType]:
    cells = []
    whole = [row["workload"] in whole_steps for row in rows]
    for row, without_samples in zip(rows[:PREDICTED], whole, strict=False):
        head = [name(row["workload"]), name(row["gpu"]), str(row["gpus"]), str(row["nodes"])]
        batch = number(row["samples"]) + (f" x {row['passes']}" if row["passes"] > 1 else "")
        head.append("whole steps" if without_samples else batch)
        if row["seconds"] is None:
            answer = ["unknown", "", "", ""]
        else:
            answer = [
                rounded(row["samples_per_second"]),
                f"{rounded(row['low'])} - {rounded(row['high'])}",
            ]
            answer += [rounded(row["seconds"]), row["source"]]
        if with_measured:
            answer[2] = rounded(
                row["gpus"] * row["samples"] * row["passes"] / row["measured_seconds"]
            )
        cells.append(head + answer)
    last = "measured" if with_measured else "s/step"
    columns = [
        "workload",
        "GPU type",
        "GPUs",
        "nodes",
        "batch",
        "steps/s" if all(whole) else "samples or steps/s" if any(whole) else "samples/s",
        "90 %",
        last,
        "source",
    ]
    yield table(*columns, rows=cells, left=2)
    yield from more(len(rows) - PREDICTED, "way", see="--json")
    outside = sum(row["source"] == EXTRAPOLATED for row in rows)
    if outside:
        yield (
            f"{count(outside, 'way')} outside of the range of GPUs, "
            "nodes and samples that was measured: extrapolated"
        )


# --- optsched model evaluate ---------------------------------------------------------------------


LEFT_OUT = "What is left out"


def evaluate(
    shell: Shell,
    profiles: ProfileFiles,
    models: Models,
    reading: ProfileReading,
    running: ManyOptions,
    split: Annotated[
        NamedList | None,
        Option(
            "random:fraction=0.5, few-shot, more-gpus:most=4, workload-out or gpu-out. Can be "
            "repeated. Default: all of them.",
            "NAME[:KEY=VALUE]",
            section=LEFT_OUT,
        ),
    ] = None,
    seeds: Annotated[
        int, Option("Random draws of random and few-shot.", "N", section=LEFT_OUT)
    ] = 3,
    nominal: Annotated[
        float,
        Option("Nominal coverage of the intervals.", "P", section=LEFT_OUT),
    ] = 0.9,
    chain: Annotated[
        bool, Option("Also evaluate the chain of all models.", section=MODELS)
    ] = False,
    workloads: Annotated[
        bool, Option("Also show each workload separately.", section=OUTPUT)
    ] = False,
    plot: Annotated[
        Picture | None,
        Option("Draw predicted against measured (png, svg or pdf).", section=OUTPUT),
    ] = None,
    as_json: Json = False,
) -> int:
    """Measure the errors of models on times of steps that are left out of the fit.

    Left out are: random: a part of the configurations of each workload; few-shot: all
    configurations but 1 GPU, one placement on one node and one over several; more-gpus:
    configurations with more GPUs than were profiled; workload-out: a whole workload; gpu-out: a GPU
    type except on 1 GPU.

    Exit codes: 0 evaluated, 2 usage, 3 the profiles are wrong, 7 an extra that a model needs is
    missing.

    Examples:
        optsched model evaluate profiles.csv --model pollux --model interpolation
        optsched model evaluate profiles.csv -m pollux --split random:fraction=0.1 --split few-shot --seeds 5
        optsched model evaluate profiles.csv -m pollux --split gpu-out --workloads --plot errors.png
    """
    wanted = models.wanted
    from optsched.study.fitting import evaluate_models

    with progress(shell, "evaluating"):
        measured = reading.read(profiles)
        found = evaluate_models(
            measured,
            wanted,
            split,
            chain=chain,
            seeds=seeds,
            nominal=nominal,
            processes=running.jobs,
            executor=running.executor,
        )
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
        _errors_view(found, workloads),
        written=written_to(picture=plot),
    )
    return 0


def _errors_view(found: Evaluation, workloads: bool) -> Iterator[RenderableType]:
    from optsched.performance.evaluation import split_words

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
            f"in {100 * found.nominal:g} % interval",
            rows=[_error_cells(row, workloads) for row in rows],
            left=len(columns),
            title=f"{split}: {split_words(split)}",
        )
        refused = dict.fromkeys(f"{row.model}: {row.refused}" for row in rows if row.refused)
        if refused:
            yield bullets(refused)
    profiles = found.profiles
    yield ""
    yield (
        f"{count(len(profiles), 'measured step')} of "
        f"{count(len(profiles.ways.workloads), 'workload')} on "
        f"{count(len(profiles.ways.gpu_types), 'GPU type')}; MAPE: "
        "mean absolute error of the times that are known, "
        "and its standard deviation over seeds; bias: above 0 where predicted times are too long; "
        "last: share of times in the interval, which should be as large as its heading says"
    )


def _error_cells(row: ErrorRow, workloads: bool) -> list[str]:
    head = [
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


MODEL_COMMANDS = Group(
    "Fit performance models to measured times of steps, evaluate them, and predict with them.",
    lambda: {
        "list": list_models,
        "fit": fit,
        "fit-pairs": fit_pairs,
        "predict": predict,
        "evaluate": evaluate,
    },
)
