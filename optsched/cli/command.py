"""How a command is declared: arguments, options, guarded execution, and help in sections."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Annotated, Any, ClassVar, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from optsched.cli import values
from optsched.cli.logs import logging_to
from optsched.cli.shell import WIDTH, Shell
from optsched.errors import UsageError

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": WIDTH}
COMMON = "Messages"

ORDER = (
    "solve",
    "verify",
    "validate",
    "compare",
    "explain",
    "whatif",
    "pareto",
    "round",
    "replay",
    "top",
    "simulate",
    "bench",
    "profile",
    "plot",
    "export",
    "import",
    "generate",
    "trace",
    "model",
    "formulations",
    "solvers",
    "instances",
    "doctor",
)


def _help(context: typer.Context, wanted: bool) -> None:
    if wanted:
        sys.stdout.write(context.get_help() + "\n")
        raise typer.Exit


# typer's own help option would load pydantic whenever it is not given
Help = Annotated[
    bool,
    typer.Option("--help", "-h", callback=_help, is_eager=True, help="Show this message and exit."),
]


@dataclass(frozen=True)
class Argument:
    """A value that is given by its place.

    Attributes
    ----------
    metavar, help : str
    source : bool
        Whether ``-`` stands for standard input, which only one value of a command can be read from.
    """

    metavar: str
    help: str
    source: bool = False


@dataclass(frozen=True)
class Option:
    """A value that is given by name.

    Attributes
    ----------
    help : str
    metavar : str, optional
    flag : str, optional
        Default: the name of the parameter; ``time_limit`` is --time-limit.
    short : str, optional
    section : str, optional
        Section of the help. Default: that of the dataclass that declares the option.
    read : callable, optional
        Makes the value of the text and the name of the option. Whole numbers (``int``) and numbers
        (``float``) need none.
    many : bool
        Whether the option can be repeated; ``read`` then gets all the texts.
    default : str, optional
        The default as the help shows it, where that is not its ``str``.
    source : bool
        As in `Argument`.
    count : bool
        Whether the value is how often the option is given.
    """

    help: str
    metavar: str | None = None
    flag: str | None = None
    short: str | None = None
    section: str | None = None
    read: Callable[[Any, str], Any] | None = None
    many: bool = False
    default: str | None = None
    source: bool = False
    count: bool = False


@dataclass(frozen=True)
class Messages:
    """The options that every command has."""

    section: ClassVar = COMMON

    quiet: Annotated[bool, Option("Print nothing but errors.", short="-q")] = False
    verbose: Annotated[
        int,
        Option(
            "Log on standard error what is done and why (-vv: more).",
            short="-v",
            count=True,
        ),
    ] = 0
    log: Annotated[str | None, Option("Append the log to a file; as JSON to a .jsonl.", "FILE")] = (
        None
    )
    debug: Annotated[bool, Option("Show where an error comes from.")] = False


class Command(TyperCommand):
    """A command whose help lists arguments and options in sections (``rich_help_panel``) as plain text."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Arguments first, then options."""
        # Click puts [OPTIONS] first; readers look for the arguments
        names = [
            _name(parameter) if parameter.required else f"[{_name(parameter)}]"
            for parameter in self.get_params(ctx)
            if parameter.param_type_name == "argument"
        ]
        return [*names, "[OPTIONS]"]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the sections: arguments, then options in the order of declaration."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": []}
        for parameter in self.get_params(ctx):
            if parameter.param_type_name == "argument":
                sections["Arguments"].append(
                    (_name(parameter), getattr(parameter, "help", None) or "")
                )
            elif (record := parameter.get_help_record(ctx)) is not None:
                sections.setdefault(
                    getattr(parameter, "rich_help_panel", None) or COMMON, []
                ).append(record)
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the epilog as it stands: it holds examples."""
        # Click would fold the lines of the examples into a paragraph
        if self.epilog:
            formatter.write_paragraph()
            formatter.write(f"Examples:\n{_indented(self.epilog)}\n")


class Commands(TyperGroup):
    """A list of commands in a fixed order, each with its first sentence in full, as plain text."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names in the order of use."""
        return sorted(
            self.commands, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER)
        )

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the names and sentences."""
        rows = [(name, _sentence(self.commands[name])) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _sentence(command: Any) -> str:
    text = command.help or ""
    return " ".join(text.split("\n\n")[0].split()).removesuffix(".")


def _name(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.upper())


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" if line else "" for line in inspect.cleandoc(text).splitlines())


class _Parameter:
    """A parameter of a command: as its function declares it, as typer sees it, and its value."""

    def __init__(self, name: str, annotation: Any, default: Any, section: str | None) -> None:
        self.name = name
        self._annotation = annotation
        self._default = default
        self._section = section
        self._type, declared = _declaration(annotation)
        self._argument = declared if isinstance(declared, Argument) else None
        self._option = declared if isinstance(declared, Option) else None
        self._read = self._reader()

    @property
    def is_source(self) -> bool:
        """Whether - stands for standard input."""
        declared = self._option or self._argument
        return declared is not None and declared.source

    @property
    def is_argument(self) -> bool:
        return self._argument is not None

    def _reader(self) -> Callable[[Any, str], Any] | None:
        if self._option is None or self._option.count:
            return None
        return self._option.read or READERS.get(self._type)

    @property
    def _flag(self) -> str:
        assert self._option is not None
        return self._option.flag or f"--{self.name.replace('_', '-')}"

    def for_typer(self) -> inspect.Parameter:
        """The parameter with typer's own declaration."""
        annotation, default = self._annotation, self._default
        if default is MISSING:
            default = inspect.Parameter.empty
        if self._argument is not None:
            given = self._argument
            declared = typer.Argument(metavar=given.metavar, help=given.help, show_default=False)
            annotation = Annotated[get_args(annotation)[0], declared]
        elif self._option is not None:
            annotation, default = self._option_for_typer(self._option, default)
        return inspect.Parameter(
            self.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
        )

    def _option_for_typer(self, option: Option, default: Any) -> tuple[Any, Any]:
        kind = get_args(self._annotation)[0]
        if option.many and default is inspect.Parameter.empty:
            kind = list[str]
        elif option.many:
            kind, default = list[str] | None, None
        # typer reads text alone: `value` makes the values, so that errors are the library's own
        elif self._read is not None and default is not inspect.Parameter.empty:
            kind = str | None
            default = None if default is None else option.default or str(default)
        elif self._read is not None:
            kind = str
        declared = typer.Option(
            self._flag,
            *([option.short] if option.short else []),
            metavar=option.metavar,
            help=option.help,
            rich_help_panel=option.section or self._section,
            count=option.count,
            show_default=bool(default) and isinstance(default, str),
        )
        return Annotated[kind, declared], default

    def value(self, given: Any) -> Any:
        """The value of what typer found on the command line."""
        if self._read is None:
            return given
        assert self._option is not None
        # typer gives an empty list, or None, for an option that can be repeated and is not there
        absent = not given if self._option.many else given is None
        if absent:
            return self._default
        label = self._option.short if self._option.many else None
        return self._read(given, label or self._flag)


# How texts become values of a type.
READERS: Mapping[Any, Callable[[str, str], Any]] = {int: values.whole, float: values.real}


def _declaration(annotation: Any) -> tuple[Any, Any]:
    """The type without None, and the `Argument` or `Option`, of an annotation."""
    if get_origin(annotation) is not Annotated:
        return annotation, None
    kind, declared, *_ = get_args(annotation)
    choices = [part for part in get_args(kind) if part is not type(None)]
    return choices[0] if len(choices) == 1 else kind, declared


def _parameters(parameter: inspect.Parameter) -> list[_Parameter]:
    """A parameter of a command's function, or the fields of one that is a dataclass."""
    owner = parameter.annotation
    # A dataclass of options is one parameter in Python and many on the command line
    if not is_dataclass(owner):
        default = MISSING if parameter.default is inspect.Parameter.empty else parameter.default
        return [_Parameter(parameter.name, owner, default, None)]
    hints = get_type_hints(owner, include_extras=True)
    section = getattr(owner, "section", None)
    found = []
    for field in fields(owner):
        made = field.default_factory
        default = field.default if made is MISSING else made()
        found.append(_Parameter(field.name, hints[field.name], default, section))
    return found


def add_command(
    app: typer.Typer,
    name: str,
    function: Callable[..., int | None],
    examples: str = "",
    prepare: Callable[[], None] | None = None,
) -> None:
    """Register ``function(shell, ...)`` as a command.

    Of a parameter that is a dataclass every field becomes an argument or option. The options of
    `Messages` are added. Texts become values, and errors exit codes; what the function returns is the
    exit code (None: 0). ``prepare`` runs before anything else, also before values are read: some
    readers load numpy.
    """
    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    # The last section of every help
    common = inspect.Parameter("messages", inspect.Parameter.KEYWORD_ONLY, annotation=Messages)
    parameters = [part for parameter in (*own, common) for part in _parameters(parameter)]

    def run(**given: Any) -> int:
        messages = _grouped(Messages, given)
        shell = Shell(messages.quiet, messages.debug)
        if prepare is not None:
            prepare()
        try:
            with logging_to(messages.verbose, messages.log):
                _check_sources(parameters, given)
                read = {
                    part.name: part.value(given[part.name])
                    for part in parameters
                    if part.name in given
                }
                # `_grouped` takes the fields of its dataclass out of what was read: the rest are
                # single parameters
                groups = {
                    parameter.name: _grouped(parameter.annotation, read)
                    for parameter in own
                    if is_dataclass(parameter.annotation)
                }
                return function(shell, **groups, **read) or 0
        # Every error becomes one line and an exit code
        except (Exception, KeyboardInterrupt) as error:
            return shell.failed(error)

    # Typer reads the signature and the annotations, so the function gets those of its parameters
    seen = [part.for_typer() for part in parameters]
    run.__signature__ = inspect.Signature(seen, return_annotation=int)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in seen}
    run.__doc__ = function.__doc__
    app.command(name, cls=Command, context_settings=CONTEXT, epilog=examples)(run)


def build_group(
    help_text: str, commands: Mapping[str, tuple[Callable[..., int | None], str]]
) -> typer.Typer:
    """A group of commands: each name with its function and its examples."""
    app = typer.Typer(
        cls=Commands, context_settings=CONTEXT, add_help_option=False, rich_markup_mode=None
    )

    def show_help(help: Help = False) -> None: ...

    show_help.__doc__ = help_text
    app.callback()(show_help)
    for name, (function, examples) in commands.items():
        add_command(app, name, function, examples)
    return app


def _check_sources(parameters: Iterable[_Parameter], given: Mapping[str, Any]) -> None:
    """Refuse to read two values from standard input."""
    # Arguments are named first in the message, as in the usage line
    ordered = sorted(parameters, key=lambda parameter: not parameter.is_argument)
    piped = [
        parameter.name.removesuffix("_file")
        for parameter in ordered
        if parameter.is_source and given[parameter.name] == "-"
    ]
    if len(piped) > 1:
        raise UsageError(f"the {piped[0]} and the {piped[1]} cannot both come from standard input")


def _grouped(owner: Any, given: dict[str, Any]) -> Any:
    """A dataclass made of its part of the values, which are removed from them."""
    return owner(**{field.name: given.pop(field.name) for field in fields(owner)})
