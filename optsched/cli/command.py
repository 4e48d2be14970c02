"""Declaration of commands: arguments, options, error handling, and help in sections."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cached_property
from importlib import import_module
from types import UnionType
from typing import Annotated, Any, ClassVar, Union, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

from optsched.cli.derived import Described, Fields
from optsched.cli.shell import WIDTH, Shell, logging_to
from optsched.cli.values import KINDS, TYPES, Kind, Log
from optsched.errors import Interrupted, InvalidArgument, UsageError

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": WIDTH}
# Help and errors are plain text of this library, not of typer.
PLAIN: dict[str, Any] = {
    "add_completion": False,
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
}
COMMON = "Messages"
# Parameters of the library whose options have another name.
IN_PYTHON = {"processes": "jobs"}
# The order of the sections of every help; "" means all other sections.
SECTIONS = ("Arguments", "Problem", "Files", "", "Output", COMMON)


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
    """A positional value.

    Attributes
    ----------
    metavar, help : str
    source : bool
        Whether ``-`` means standard input, which only one value of a command can be read from.
    """

    metavar: str
    help: str
    source: bool = False


@dataclass(frozen=True)
class Option:
    """A value that is given by an option; the `Kind` of its type says how its text is read.

    Attributes
    ----------
    help : str
    metavar : str, optional
        Default: that of the kind.
    flag : str, optional
        Default: the name of the parameter; ``time_limit`` is --time-limit.
    short : str, optional
    section : str, optional
        Section of the help. Default: that of the dataclass that declares the option.
    default : str, optional
        Text of the default in the help, if it is not ``str`` of the default.
    source : bool
        As in `Argument`.
    replaces : bool
        Whether a file to write may be the one that the command reads, such as the state of rounds.
    count : bool
        Whether the value is the number of times that the option is given.
    """

    help: str
    metavar: str | None = None
    flag: str | None = None
    short: str | None = None
    section: str | None = None
    default: str | None = None
    source: bool = False
    replaces: bool = False
    count: bool = False


@dataclass(frozen=True)
class Messages:
    """The options of every command."""

    section: ClassVar = COMMON

    quiet: Annotated[bool, Option("Print nothing but errors.", short="-q")] = False
    verbose: Annotated[
        int,
        Option(
            "Log to standard error what is done and why (-vv: more).",
            short="-v",
            count=True,
        ),
    ] = 0
    log: Annotated[Log | None, Option("Append the log to a file; to a .jsonl file as JSON.")] = None
    debug: Annotated[bool, Option("Show the traceback of an error.")] = False


class Command(TyperCommand):
    """A command whose help lists arguments and options
    in sections (``rich_help_panel``) as plain text.
    """

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Arguments first, then options."""
        # Click puts [OPTIONS] first, but readers look for the arguments
        names = [
            _name(parameter) if parameter.required else f"[{_name(parameter)}]"
            for parameter in self.get_params(ctx)
            if parameter.param_type_name == "argument"
        ]
        return [*names, "[OPTIONS]"]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the sections in the order of `SECTIONS`."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": []}
        for parameter in self.get_params(ctx):
            if parameter.param_type_name == "argument":
                sections["Arguments"].append(
                    (_name(parameter), getattr(parameter, "help", None) or "")
                )
            elif (record := parameter.get_help_record(ctx)) is not None:
                panel = getattr(parameter, "rich_help_panel", None) or "Options"
                sections.setdefault(panel, []).append(record)
        for title in sorted(sections, key=_place):
            if records := sections[title]:
                with formatter.section(title):
                    formatter.write_dl(records)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the epilog unchanged: it holds examples."""
        # Click would join the lines of the examples into a paragraph
        if self.epilog:
            formatter.write_paragraph()
            formatter.write(f"Examples:\n{_indented(self.epilog)}\n")


@dataclass(frozen=True)
class Group:
    """Subcommands of a command.

    Attributes
    ----------
    help : str
    commands : callable
        Returns the function or the group of each command. A text ``module:name`` is its location
        below `optsched.cli`; a function ``prepare`` of that module runs before the command is made.
    """

    help: str
    commands: Callable[[], Mapping[str, Callable[..., int | None] | Group | str]]


class Made(Mapping[str, Any]):
    """The commands of a group, each made on first use, because making all takes longer than most
    commands run.
    """

    def __init__(self, group: Group) -> None:
        self._group = group
        self._made: dict[str, Any] = {}

    @cached_property
    def _declared(self) -> Mapping[str, Any]:
        return self._group.commands()

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._declared)

    def __len__(self) -> int:
        return len(self._declared)

    def _make(self, name: str) -> Any:
        home, found = self._found(name)
        if isinstance(found, Group):
            return make_group(name, found)
        # Before options are read from the library, which may load numpy
        if (prepare := getattr(home, "prepare", None)) is not None:
            prepare()
        return make_command(name, found)

    def _found(self, name: str) -> tuple[Any, Any]:
        """The module of a command, if it is known, and its function or group."""
        declared = self._declared[name]
        if not isinstance(declared, str):
            return None, declared
        place, _, attribute = declared.partition(":")
        home = import_module(f"optsched.cli.{place}")
        return home, getattr(home, attribute)

    def sentence(self, name: str) -> str:
        """The first sentence of the help of a command, without making the command."""
        _, found = self._found(name)
        text = found.help if isinstance(found, Group) else inspect.cleandoc(found.__doc__ or "")
        return " ".join(text.split("\n\n")[0].split()).removesuffix(".")


class Commands(TyperGroup):
    """A list of commands, each with its first sentence in full, as plain text."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command; typer would end silently if Ctrl-C comes before the command begins."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Interrupted("interrupted") from None

    def list_commands(self, ctx: Any) -> list[str]:
        """Names in the order of declaration; click would sort them."""
        return list(self.commands)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the names and sentences."""
        commands: Any = self.commands
        with formatter.section("Commands"):
            formatter.write_dl([(name, commands.sentence(name)) for name in commands])


def _place(section: str) -> int:
    """Sort key of a section in a help; those with the same key are in declared order."""
    return SECTIONS.index(section) if section in SECTIONS else SECTIONS.index("")


def _name(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.upper())


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" if line else "" for line in inspect.cleandoc(text).splitlines())


REQUIRED = inspect.Parameter.empty
"""The default of a required parameter."""


def keyword(name: str, annotation: Any, default: Any = REQUIRED) -> inspect.Parameter:
    """A parameter that is given by name."""
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


class _Parameter:
    """A parameter of a command: its declaration, its form for typer, and its value."""

    def __init__(self, name: str, annotation: Any, default: Any, section: str | None) -> None:
        self.name = name
        self._annotation = annotation
        self._default = default
        self._section = section
        self._declared, self._kind = _declaration(annotation)

    @property
    def is_source(self) -> bool:
        """Whether - means standard input."""
        return self._declared is not None and self._declared.source

    @property
    def is_argument(self) -> bool:
        return isinstance(self._declared, Argument)

    @property
    def is_output(self) -> bool:
        """Whether it is a file to write."""
        return self._kind is not None and self._kind.writes

    @property
    def replaces(self) -> bool:
        """Whether it may be a file that the command reads."""
        return isinstance(self._declared, Option) and self._declared.replaces

    @property
    def label(self) -> str:
        """The option as users type it."""
        assert isinstance(self._declared, Option)
        return self._declared.short or self._flag(self._declared)

    def for_typer(self) -> inspect.Parameter:
        """The parameter with typer's own declaration."""
        default, annotation = self._default, self._annotation
        if isinstance(self._declared, Argument):
            declared = typer.Argument(
                metavar=self._declared.metavar, help=self._declared.help, show_default=False
            )
            annotation = Annotated[get_args(annotation)[0], declared]
        elif isinstance(self._declared, Option):
            annotation, default = self._option_for_typer(self._declared, default)
        return keyword(self.name, annotation, default)

    def _option_for_typer(self, option: Option, default: Any) -> tuple[Any, Any]:
        required = default is REQUIRED
        shown = get_args(self._annotation)[0]
        # typer reads text alone: `value` makes the values, so that errors are the library's own
        if self._kind is not None and self._kind.many:
            shown = list[str] if required else list[str] | None
            default = default if required else None
        elif self._kind is not None:
            shown = str if required else str | None
            if not required:
                # '' as a default means that the option was left out; a typed empty text is refused.
                default = option.default or str(default) if default not in (None, "") else None
        declared = typer.Option(
            self._flag(option),
            *([option.short] if option.short else []),
            metavar=option.metavar or (self._kind.metavar if self._kind else None),
            help=option.help,
            rich_help_panel=option.section or self._section,
            count=option.count,
            show_default=bool(default) and isinstance(default, str),
        )
        return Annotated[shown, declared], default

    def _flag(self, option: Option) -> str:
        return option.flag or flag_of(self.name)

    def value(self, given: Any) -> Any:
        """The value, from the texts that typer found on the command line."""
        if self._kind is None or not isinstance(self._declared, Option):
            return given
        # typer gives an empty list, or None, for an option that can be repeated and is not there
        absent = not given if self._kind.many else given is None
        if absent:
            return self._default
        label = self._declared.short if self._kind.many else None
        return self._kind.read(given, label or self._flag(self._declared))


def flag_of(name: str, kind: Kind | None = None) -> str:
    """``--time-limit`` for ``time_limit``; ``--pool`` for ``pools``, if values are given one by
    one.
    """
    many = kind is not None and kind.many
    return f"--{(name.removesuffix('s') if many else name).replace('_', '-')}"


def derived_option(
    item: Described, kind: Kind | None, section: str, flag: str | None = None
) -> inspect.Parameter:
    """An option for a parameter of the library; None means that it is not given.

    Parameters
    ----------
    kind : Kind, optional
        How texts become values; without one it is a flag.
    """
    flag = flag or flag_of(item.name, kind)
    if kind is None:
        option = Option(item.help, flag=flag, section=section)
        return keyword(item.name, Annotated[bool, option], False)
    parts = [item.help, *([kind.note] if kind.note else [])]
    if kind.many:
        parts.append("Can be repeated.")
    if isinstance(item.default, int | float):
        unit = " s" if kind.metavar == "TIME" else ""
        parts.append(f" [default: {item.default:g}{unit}]")
    elif isinstance(item.default, str):
        parts.append(f" [default: {item.default}]")
    option = Option(" ".join(parts), flag=flag, section=section)
    return keyword(item.name, Annotated[Any, option, kind], REQUIRED if item.required else None)


def derived_command(
    run: Callable[..., int], words: str, examples: str, parameters: Iterable[inspect.Parameter]
) -> Callable[..., int]:
    """``run(shell, **given)`` with help and parameters derived from the library."""
    run.__doc__ = f"{words}\n\nExamples:\n{inspect.cleandoc(examples)}"
    signature = inspect.Signature([keyword("shell", Shell), *parameters])
    run.__signature__ = signature  # type: ignore[attr-defined]
    return run


def _declaration(annotation: Any) -> tuple[Argument | Option | None, Kind | None]:
    """The `Argument` or `Option` of an annotation, and its kind."""
    if get_origin(annotation) is not Annotated:
        return None, None
    shown, *extras = get_args(annotation)
    declared = next((item for item in extras if isinstance(item, Argument | Option)), None)
    if not isinstance(declared, Option) or declared.count:
        return declared, None
    # The kind of ``int | None`` is that of ``int``
    choices = [part for part in get_args(shown) if part is not type(None)]
    owner = choices[0] if get_origin(shown) in (Union, UnionType) else shown
    if get_origin(owner) is Annotated:
        owner, *kinds = get_args(owner)
        extras += kinds
    own = (item for item in extras if isinstance(item, Kind))
    return declared, next(own, None) or KINDS.get(owner)


def _fields(parameter: inspect.Parameter) -> Fields | None:
    """The fields of a model that belong to a parameter of a command's function."""
    extras = getattr(parameter.annotation, "__metadata__", ())
    return next((extra for extra in extras if isinstance(extra, Fields)), None)


def _parameters(parameter: inspect.Parameter) -> list[_Parameter]:
    """A parameter of a command's function,
    or the fields of one that is a dataclass or belongs to a model.
    """
    owner = parameter.annotation
    if (model := _fields(parameter)) is not None:
        options = [
            derived_option(item, TYPES.get(item.type), section)
            for section, item in model.described()
        ]
        return [
            _Parameter(option.name, option.annotation, option.default, None) for option in options
        ]
    # A dataclass of options is one parameter in Python and many on the command line
    if not is_dataclass(owner):
        return [_Parameter(parameter.name, owner, parameter.default, None)]
    hints = get_type_hints(owner, include_extras=True)
    section = getattr(owner, "section", None)
    found = []
    for field in fields(owner):
        made = field.default_factory
        default = field.default if made is MISSING else made()
        default = REQUIRED if default is MISSING else default
        found.append(_Parameter(field.name, hints[field.name], default, section))
    return found


def make_command(name: str, function: Callable[..., int | None]) -> Any:
    """``function(shell, ...)`` as a command.

    If a parameter is a dataclass, each of its fields becomes an argument or option; if it is
    annotated with `Fields`, so do these fields of the model. The options of `Messages` are added.
    Texts are converted to values, and errors to exit codes. The function returns the exit code
    (None: 0). Its docstring is the help; the part after a line ``Examples:`` has the examples.
    """
    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    # The last section of every help
    common = keyword("messages", Messages)
    parameters = [part for parameter in (*own, common) for part in _parameters(parameter)]

    def run(**given: Any) -> int:
        messages = _grouped(Messages, given)
        shell = Shell(messages.quiet, messages.debug)
        try:
            _check_outputs(parameters, given | {"log": messages.log})
            with logging_to(messages.verbose, messages.log):
                _check_sources(parameters, given)
                read = {
                    part.name: part.value(given[part.name])
                    for part in parameters
                    if part.name in given
                }
                # `_grouped` removes the fields of its dataclass from the values; the rest are
                # single parameters
                groups: dict[str, Any] = {}
                for parameter in own:
                    if is_dataclass(parameter.annotation):
                        groups[parameter.name] = _grouped(parameter.annotation, read)
                    elif (model := _fields(parameter)) is not None:
                        fields_of_model = {name: read.pop(name) for name in model.names}
                        groups[parameter.name] = {
                            name: value
                            for name, value in fields_of_model.items()
                            if value is not None and value is not False
                        }
                return function(shell, **groups, **read) or 0
        # Every error becomes one line and an exit code
        except (Exception, KeyboardInterrupt) as error:
            return shell.failed(_as_typed(error, parameters))

    # Typer reads the signature and the annotations, so set them on the function
    seen = [part.for_typer() for part in parameters]
    run.__signature__ = inspect.Signature(seen, return_annotation=int)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in seen}
    run.__doc__, _, examples = inspect.cleandoc(function.__doc__ or "").partition("\nExamples:\n")
    app = typer.Typer(**PLAIN)
    app.command(name, cls=Command, context_settings=CONTEXT, epilog=examples)(run)
    return get_command(app)


def make_group(
    name: str, group: Group, callback: Callable[..., int | None] | None = None
) -> TyperGroup:
    """A group of commands.

    Parameters
    ----------
    callback : callable, optional
        Function of the group itself, with its own options; by default it shows its help.
    """
    app = typer.Typer(
        name=name, cls=Commands, context_settings=CONTEXT, add_help_option=False, **PLAIN
    )

    def show_help(help: Help = False) -> None: ...

    app.callback(help=group.help, invoke_without_command=callback is not None)(
        callback or show_help
    )
    made = get_group(app)
    # typer makes every command of a group at once; this mapping makes them one by one
    made.commands = Made(group)  # type: ignore[assignment]
    return made


def _check_sources(parameters: Iterable[_Parameter], given: Mapping[str, Any]) -> None:
    """Refuse to read two values from standard input."""
    # Arguments are named first in the message, as in the usage line
    ordered = sorted(parameters, key=lambda parameter: not parameter.is_argument)
    piped = [
        f"the {parameter.name}" if parameter.is_argument else parameter.label
        for parameter in ordered
        if parameter.is_source
        for source in _sources(given[parameter.name])
        if source == "-"
    ]
    if len(piped) > 1:
        raise UsageError(f"{piped[0]} and {piped[1]} cannot both come from standard input")


def _sources(value: str | list[str] | None) -> list[str]:
    return [value] if isinstance(value, str) else value or []


def _as_typed(error: BaseException, parameters: Iterable[_Parameter]) -> BaseException:
    """The error with the option that was typed, where the library names the parameter of a
    function.
    """
    if not isinstance(error, InvalidArgument) or not str(error).startswith(f"{error.path}: "):
        return error
    name = IN_PYTHON.get(error.path, error.path)
    for part in parameters:
        if part.name == name and not part.is_argument:
            return InvalidArgument(part.label, error.found, error.expected, error.file)
    return error


def _check_outputs(parameters: Sequence[_Parameter], given: Mapping[str, Any]) -> None:
    """Refuse to write over a file that is read, and to write two things to one file."""
    read: list[str] = []
    for part in parameters:
        if part.is_argument or part.is_source:
            read += _sources(given[part.name])
    taken: dict[str, str] = {}
    for part in parameters:
        path = given.get(part.name) if part.is_output else None
        # Pipes and devices have no contents to lose.
        if not path or path == "-" or (os.path.exists(path) and not os.path.isfile(path)):
            continue
        place = os.path.realpath(path)
        if not part.replaces and any(os.path.realpath(source) == place for source in read):
            raise InvalidArgument(part.label, f"{path}, which is read", "another file")
        if place in taken:
            raise InvalidArgument(part.label, f"{path}, as {taken[place]}", "another file")
        taken[place] = part.label


def _grouped(owner: Any, given: dict[str, Any]) -> Any:
    """Make a dataclass from its values, and remove these from ``given``."""
    return owner(**{field.name: given.pop(field.name) for field in fields(owner)})
