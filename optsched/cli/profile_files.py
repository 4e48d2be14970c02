"""Which profiles a command reads, and which models it fits: what the commands below ``optsched model`` share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from optsched.cli import values
from optsched.errors import InvalidInput, UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from optsched.cli.shell import Shell
    from optsched.formats.profiles import Repeats
    from optsched.performance.profiles import Profiles

PROFILES, MODELS = "Profiles", "Models"


@dataclass(frozen=True)
class Told:
    """What the files of profiles do not say themselves."""

    workload: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Workload of tables that name none.", rich_help_panel=PROFILES
        ),
    ] = None
    gpu: Annotated[
        str | None,
        typer.Option(
            metavar="TYPE", help="GPU type of tables that name none.", rich_help_panel=PROFILES
        ),
    ] = None
    gpus_per_node: Annotated[
        str | None,
        typer.Option(
            metavar="N", help="Of tables that do not tell nodes.", rich_help_panel=PROFILES
        ),
    ] = None
    repeats: Annotated[
        str | None,
        typer.Option(
            metavar="first|all", rich_help_panel=PROFILES,
            help="Which of several measurements of one way to run count (AdaptDL's files: first, else all).",
        ),
    ] = None  # fmt: skip

    def read(self, files: Sequence[str]) -> Profiles:
        """The profiles in files and folders."""
        from optsched.formats.profiles import read_profiles

        return read_profiles(
            files,
            workload=self.workload,
            gpu=self.gpu,
            gpus_per_node=values.whole(self.gpus_per_node, "--gpus-per-node"),
            repeats=cast("Repeats | None", self.repeats),
        )


ProfileFiles = Annotated[
    list[str],
    typer.Argument(
        metavar="PROFILES...", show_default=False,
        help="Measured steps: CSV files or folders of them, or tables of Gavel (json) or ElasticFlow.",
    ),
]  # fmt: skip


@dataclass(frozen=True)
class Models:
    """What is fitted."""

    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model", "-m", metavar="NAME[:KEY=VALUE,...]", rich_help_panel=MODELS, show_default=False,
            help="See `optsched model list`; cross-validated if none is named. Can be repeated.",
        ),
    ] = None  # fmt: skip
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option", "-O", metavar="KEY=VALUE", rich_help_panel=MODELS,
            help="Option of the model, where there is one. Can be repeated.",
        ),
    ] = None  # fmt: skip

    @property
    def wanted(self) -> list[tuple[str, dict[str, Any]]]:
        """What --model and -O give; names are checked."""
        from optsched.study.fitting import USUAL, time_model

        pairs = [values.named(text, "--model") for text in self.model or (USUAL,)]
        further = values.pairs(self.option or (), "-O")
        if further and len(pairs) > 1:
            raise UsageError(
                "-O beside several models: give each its options as --model NAME:KEY=VALUE"
            )
        for name, own in pairs:
            time_model(name)
            for key in further:
                if key in own:
                    raise UsageError(f"--model {name}: {key} is given twice")
        return [(name, {**own, **further}) for name, own in pairs]


@contextmanager
def telling_parts(example: str) -> Iterator[None]:
    """Where a fit lacks the model that it stands on, say how the command line gives it."""
    try:
        yield
    except InvalidInput as error:
        if error.path != "performance.of" or error.found != "nothing":
            raise
        told = f"""the model that it stands on, such as -O of='{{"model": "{example}"}}'"""
        raise InvalidInput(error.path, error.found, told) from None


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
    from optsched.performance.files import model_bytes

    if output == "-":
        shell.write(model_bytes(document).decode())
        return 0
    write_model(document, output)
    if as_json:
        shell.document({"file": output, **found})
    elif not shell.quiet:
        shell.print(*view(found))
        shell.tell("")
        shell.tell(f"model written to {output}")
    return 0
