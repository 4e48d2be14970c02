"""Which profiles a command reads, and which models it fits: what the commands below ``optsched model`` share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, cast

from optsched.cli import values
from optsched.cli.command import Argument, Option
from optsched.cli.options import settings_option
from optsched.errors import InvalidInput, UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from optsched.cli.shell import Shell
    from optsched.formats.profiles import Repeats
    from optsched.performance.profiles import Profiles

PROFILES, MODELS = "Profiles", "Models"


@dataclass(frozen=True)
class ProfileReading:
    """What the files of profiles do not state themselves."""

    section: ClassVar = PROFILES

    workload: Annotated[
        str | None,
        Option("Workload of tables that name none.", "NAME"),
    ] = None
    gpu: Annotated[
        str | None,
        Option("GPU type of tables that name none.", "TYPE"),
    ] = None
    gpus_per_node: Annotated[
        int | None,
        Option("Of tables that do not tell nodes.", "N"),
    ] = None
    repeats: Annotated[
        str | None,
        Option(
            "Which of several measurements of one way to run count (AdaptDL's files: first, else all).",
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


def model_names(texts: Sequence[str], option: str) -> list[tuple[str, dict[str, Any]]]:
    """Models with their options."""
    return values.named_each(texts, "--model")


@dataclass(frozen=True)
class Models:
    """What is fitted."""

    section: ClassVar = MODELS

    models: Annotated[
        list[tuple[str, dict[str, Any]]] | None,
        Option(
            "See `optsched model list`; cross-validated if none is named. Can be repeated.",
            "NAME[:KEY=VALUE,...]",
            flag="--model",
            short="-m",
            read=model_names,
            many=True,
        ),
    ] = None
    options: Annotated[
        dict[str, Any],
        settings_option(
            "Option of the model, where there is one. Can be repeated.", section=MODELS
        ),
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
        for name, _ in chosen:
            time_model(name)
        return [with_options(model, self.options) for model in chosen]


def with_options(
    model: tuple[str, dict[str, Any]], further: Mapping[str, Any]
) -> tuple[str, dict[str, Any]]:
    """A model with the options of -O; none may be given twice."""
    name, own = model
    for key in further:
        if key in own:
            raise UsageError(f"--model {name}: {key} is given twice")
    return name, {**own, **further}


@contextmanager
def naming_parts(example: str) -> Iterator[None]:
    """Where a fit lacks the model that it stands on, say how the command line gives it."""
    try:
        yield
    except InvalidInput as error:
        if error.path != "performance.of" or error.found != "nothing":
            raise
        expected = f"""the model that it stands on, such as -O of='{{"model": "{example}"}}'"""
        raise InvalidInput(error.path, error.found, expected) from None


def written(
    shell: Shell,
    document: Mapping[str, Any],
    output: str,
    found: Mapping[str, Any],
    view: Callable[[Mapping[str, Any]], Iterable[RenderableType]],
    as_json: bool,
) -> int:
    """Write a fitted model, to standard output if that is ``-``, and tell what was fitted."""
    from optsched.api import write_model
    from optsched.cli.shell import written_to
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
