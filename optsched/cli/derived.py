"""Options derived from the library: parameters of its functions and fields of its models.

A parameter is defined once, where it is declared: its name, type and default in the code, its help
in the first sentence of its entry in the docstring. The name of the type implies the unit: options
of `Seconds` accept 90, 5m and 2h.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from optsched.errors import WrongValue
from optsched.lazy import imported

SECTION = re.compile(
    r"^(?:Parameters|Attributes)\n-+\n(.*?)(?=^\w+\n-+$|\Z)", re.DOTALL | re.MULTILINE
)
ENTRY = re.compile(r"^([a-z_][\w, ]*?) :.*\n((?:[ ]+.*\n|\n)+)", re.MULTILINE)
SENTENCE = re.compile(r"(.*?\.)(?:\s|\Z)", re.DOTALL)


@dataclass(frozen=True)
class Described:
    """A parameter of a function, or a field of a model.

    Attributes
    ----------
    name : str
    type : str
        Name of the type as written, without None and without type arguments: ``Seconds``,
        ``Mapping``.
    required : bool
    default : object
        None if it is required.
    help : str
    """

    name: str
    type: str
    required: bool
    default: Any
    help: str


@dataclass(frozen=True)
class Fields:
    """Fields of a model, or of a dataclass, that are options of a command.

    The command's parameter gets those that are given, by name.

    Attributes
    ----------
    model : str
        ``module:Class``, imported when the command is made.
    sections : mapping from str to str
        The names of the fields, with blanks between them, by section of the help.
    """

    model: str
    sections: Mapping[str, str]

    @property
    def names(self) -> tuple[str, ...]:
        """The fields in the order of the help."""
        return tuple(name for names in self.sections.values() for name in names.split())

    def described(self) -> Iterator[tuple[str, Described]]:
        """The fields with their sections."""
        known = described(imported(self.model))
        for section, names in self.sections.items():
            for name in names.split():
                yield section, known[name]


def described(owner: Callable[..., Any]) -> dict[str, Described]:
    """The parameters of a function, or the fields of a pydantic model, in declared order."""
    helps = _helps(inspect.getdoc(owner) or "")
    # Annotations are texts, because these modules postpone their evaluation
    written = inspect.unwrap(owner).__annotations__
    return {
        name: Described(
            name, re.split(r"\W", written[name])[0], required, default, helps.get(name, "")
        )
        for name, required, default in _declared(owner)
    }


def _declared(owner: Any) -> Iterator[tuple[str, bool, Any]]:
    """Name, whether it is required, and default of each parameter or field."""
    # An incomplete pydantic model has no useful signature
    if hasattr(owner, "model_fields"):
        for name, field in owner.model_fields.items():
            yield name, field.is_required(), None if field.is_required() else field.default
        return
    for name, parameter in inspect.signature(owner).parameters.items():
        required = parameter.default is parameter.empty
        yield name, required, None if required else parameter.default


def _helps(text: str) -> dict[str, str]:
    """The first sentence of each entry of a docstring, as plain text."""
    section = SECTION.search(f"{text}\n")
    helps = {}
    for entry in ENTRY.finditer(section[1] if section else ""):
        sentence = SENTENCE.match(" ".join(entry[2].split()))
        for name in entry[1].split(","):
            helps[name.strip()] = sentence[1].replace("``", "") if sentence else ""
    return helps


def opening(owner: Callable[..., Any]) -> str:
    """The first two paragraphs of a docstring before its sections, as plain text."""
    text = (inspect.getdoc(owner) or "").partition("\nParameters\n")[0]
    return "\n\n".join(text.replace("``", "").strip().split("\n\n")[:2])


@contextmanager
def errors_name(flags: Mapping[str, str]) -> Iterator[None]:
    """Context: in errors, replace a leading parameter name by its flag."""
    try:
        yield
    except WrongValue as error:
        flag = flags.get(error.path.rpartition(".")[2])
        plain = type(error)(error.path, error.found, error.expected, error.file)
        # An error with its own sentence is not changed
        if flag is None or str(plain) != str(error):
            raise
        raise type(error)(flag, error.found, error.expected, error.file) from None
