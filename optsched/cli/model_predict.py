"""``optsched model predict``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from optsched.cli import values
from optsched.cli.command import Argument, Option
from optsched.cli.options import Json
from optsched.cli.profile_files import ProfileReading
from optsched.cli.progress import progress
from optsched.cli.shell import Shell
from optsched.errors import InvalidArgument, UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from optsched.arrays import FloatArray
    from optsched.performance.profiles import Profiles

EXAMPLES = """
    optsched model predict model.json profiles.csv
    optsched model predict model.json --workload bert --gpu T4 --gpus 1,2,4,8 --gpus-per-node 4 --batch-per-gpu 32
    optsched model predict model.json --workload bert --gpu T4 --gpus 4,8 --nodes 1,2 --batch 256 --json
"""
# Share of the intervals that are shown.
NOMINAL = 0.9
WAYS = "Ways to run, instead of PROFILES"


def counts(text: str, option: str) -> list[int]:
    """Numbers of at least 1."""
    numbers = [values.whole(part, option) for part in text.split(",")]
    for number in numbers:
        if number is None or not 1 <= number < 2**31:
            raise InvalidArgument(option, str(number), "whole numbers of at least 1")
    return [number for number in numbers if number is not None]


@dataclass(frozen=True)
class Asked:
    """Ways to run that are given by options."""

    section: ClassVar = WAYS

    gpus: Annotated[
        list[int] | None,
        Option("Numbers of GPUs, of --workload on --gpu.", "K,...", read=counts),
    ] = None
    nodes: Annotated[
        list[int] | None,
        Option("Nodes that these are spread over, one for each.", "N,...", read=counts),
    ] = None
    batch: Annotated[
        list[int] | None,
        Option("Samples of a step of the whole job.", "B,...", read=counts),
    ] = None
    batch_per_gpu: Annotated[
        list[int] | None,
        Option("Samples of one GPU in a step.", "M,...", read=counts),
    ] = None
    max_batch_per_gpu: Annotated[
        list[int] | None,
        Option("Most of them at a time; more take several passes.", "M", read=counts),
    ] = None

    def given(self) -> bool:
        """Whether any of them is."""
        return any((self.gpus, self.nodes, self.batch, self.batch_per_gpu, self.max_batch_per_gpu))


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
        Argument("[PROFILES...]", "Measured steps: what is said beside them."),
    ] = None,
    as_json: Json = False,
) -> int:
    """Tell how fast workloads run, by a fitted model, with intervals that hold 90 %, and from which source.

    Exit codes: 0 told (a way that the model does not know has no rate), 2 usage, 3 a file is wrong.
    """
    if bool(profiles) == asked.given():
        raise UsageError(
            "expected PROFILES, or --workload, --gpu, --gpus and --batch or --batch-per-gpu"
        )
    from optsched.instance.reading import named
    from optsched.performance.files import below, read_model
    from optsched.study.fitting import predict_times

    with progress(shell, "predicting"):
        document = read_model(model)
        if profiles:
            measured = reading.read(profiles)
            per_step = measured.ways.samples_per_step
        else:
            measured, per_step = _ways(asked, reading)
        with named(model), below(""):
            times = predict_times(document, measured.ways)
    rows = _rows(measured, per_step, times, bool(profiles))
    shell.answer(
        as_json,
        lambda: {"model": document["model"], "nominal": NOMINAL, "rows": rows},
        _view(rows, bool(profiles)),
    )
    return 0


def _ways(asked: Asked, reading: ProfileReading) -> tuple[Profiles, FloatArray]:
    """The ways of the options, every number of GPUs with every batch, and the samples that a step is worth.

    Batches are split as those of an instance's workloads are, into whole samples of the fullest GPU. The seconds of the
    profiles mean nothing.
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
        if asked.batch and b < k:
            raise InvalidArgument(
                "--batch", f"{b} samples for {k} GPUs", "at least one for each GPU"
            )
    gpus, spread, batch = np.array(rows, np.int64).T
    each = batch.astype(np.float64)
    row = np.arange(len(rows))
    per_gpu = np.full(len(rows), np.nan) if asked.batch else each
    split = Batches((), each, per_gpu, np.full(len(rows), float(most[0])))
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
    return [-(-count // (size or 1)) for count in gpus]


def _rows(
    measured: Profiles, per_step: FloatArray, times: Any, with_measured: bool
) -> list[dict[str, Any]]:
    """A record for each way; what the model does not know is None."""
    import numpy as np
    from scipy.special import ndtri

    from optsched.performance import Source

    ways = measured.ways
    spread = np.exp(ndtri((1 + NOMINAL) / 2) * times.log_sd)
    rows = []
    for row in range(len(ways)):
        record: dict[str, Any] = {
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


# The source of ways outside of what the model was fitted to.
EXTRAPOLATED = "extrapolated"
# Rows of the table.
SHOWN = 60


def _view(rows: Sequence[dict[str, Any]], with_measured: bool) -> Iterator[RenderableType]:
    from optsched.cli.tables import count, more, name, number, rounded, table

    cells = []
    for row in rows[:SHOWN]:
        head = [name(row["workload"]), name(row["gpu"]), str(row["gpus"]), str(row["nodes"])]
        head.append(number(row["samples"]) + (f" x {row['passes']}" if row["passes"] > 1 else ""))
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
        "samples/s",
        "90 %",
        last,
        "source",
    ]
    yield table(*columns, rows=cells, left=2)
    yield from more(len(rows) - SHOWN, "way", see="--json")
    outside = sum(row["source"] == EXTRAPOLATED for row in rows)
    if outside:
        yield f"{count(outside, 'way')} outside of the range of GPUs, nodes and samples that was measured: extrapolated"
