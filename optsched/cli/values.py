"""Parsing of values on the command line: durations, ``key=value``, side constraints, pools.

A reader takes the text and the name of the option, which it uses in errors. The end of the file
defines the types of options from the readers.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

from optsched.cli.shell import check_target
from optsched.errors import InvalidArgument, given_twice, wrong_ending

SIZE = re.compile(r"(\d+\.?\d*|\.\d+)\s*(?:([KMGT])?(i)?B)?", re.ASCII | re.IGNORECASE)
MOST_DIGITS = 18
# Matches the text after a comma between two ``key=value``; other commas belong to the value.
NEXT_KEY = re.compile(r"\s*[A-Za-z_][\w-]*\s*=")
# A quoted text as a whole, or one character.
TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|.', re.DOTALL)


Value = TypeVar("Value")


@dataclass(frozen=True)
class Kind:
    """The parser of a type of option values.

    A type includes its kind, as in ``Annotated[float, Kind(read_duration, "TIME")]``; numbers and
    lists of texts have those of `KINDS`. The text of a type without a kind is not changed.

    Attributes
    ----------
    read : callable
        (text, name of the option) -> value.
    metavar : str
        Placeholder of the value in the help.
    many : bool
        Whether the option can be repeated; ``read`` then gets all the texts.
    note : str
        Note on the format of the text, for the help of options derived from the library.
    writes : bool
        Whether the value is a file that is written: no file that the command reads, and no other
        one that it writes (`optsched.cli.command`).
    """

    read: Callable[[Any, str], Any]
    metavar: str
    many: bool = False
    note: str = ""
    writes: bool = False


def duration(text: str, option: str) -> float:
    """Seconds of ``90``, ``90s``, ``5m``, ``2h`` or ``1d``."""
    # Imported here, because help does not need it
    from optsched.instance.durations import seconds_of

    return seconds_of(text, option)


def size(text: str, option: str) -> float:
    """Bytes of ``4GB``, ``500 MB`` or ``2GiB``; a number alone is in bytes."""
    match = SIZE.fullmatch(text.strip())
    if not match:
        raise InvalidArgument(option, repr(text), "a size such as 500MB, 4GB or 2GiB")
    # GB is 10^9 bytes, GiB is 2^30
    unit = 1024 if match[3] else 1000
    return float(match[1]) * float(unit ** " KMGT".index((match[2] or " ").upper()))


def whole(text: str, option: str) -> int:
    """A whole number, with or without a sign."""
    if not re.fullmatch(r"\s*[+-]?\d+\s*", text, re.ASCII):
        raise InvalidArgument(option, repr(text), "a whole number")
    # Limit to 64 bits, for arrays; the library checks the limits of an option.
    digits = len(text.strip().lstrip("+-"))
    if digits > MOST_DIGITS:
        expected = f"a whole number of at most {MOST_DIGITS} digits"
        raise InvalidArgument(option, f"one of {digits} digits", expected)
    return int(text)


def name(text: str, option: str) -> str:
    """A name; a blank text is refused, because it would count as an option that was left out."""
    if not text.strip():
        raise InvalidArgument(option, repr(text), "a name")
    return text


def real(text: str, option: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise InvalidArgument(option, repr(text), "a number")
    return number


def value(text: str) -> Any:
    """The value of a text of the command line.

    JSON (``true``, ``null``, ``3``, ``{"a": 1}``) is parsed. ``[a, b]`` is a list of texts, because
    shells remove the quotes of ``["a", "b"]``. Any other text is returned unchanged.
    """
    try:
        parsed = json.loads(text, parse_constant=str, object_pairs_hook=_object)
    except ValueError:
        bare = re.fullmatch(r'\[([^\[\]{}"]+)\]', text, re.DOTALL)
        return text if bare is None else [value(part.strip()) for part in bare[1].split(",")]
    return text if isinstance(parsed, float) and not math.isfinite(parsed) else parsed


def typed(text: str, option: str) -> Any:
    """`value`, as a reader of options."""
    return value(text)


def _object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    from optsched.instance.reading import once

    try:
        return once(members)
    except ValueError as error:
        raise InvalidArgument("", f"{error} in one object", "it once") from None


def by_name(
    read: Callable[[str, str], tuple[str, Value]],
) -> Callable[[Iterable[str], str], dict[str, Value]]:
    """Read texts as a mapping: ``read`` makes name and value of each; names must differ."""

    def read_all(texts: Iterable[str], option: str) -> dict[str, Value]:
        found: dict[str, Value] = {}
        for text in texts:
            name, value = read(text, option)
            if name in found:
                raise given_twice(option, name)
            found[name] = value
        return found

    return read_all


def pairs(texts: Iterable[str], option: str) -> dict[str, Any]:
    """``key=value`` texts as a mapping; hyphens in keys count as underscores."""
    return by_name(_pair)(texts, option)


def _pair(text: str, option: str) -> tuple[str, Any]:
    key, equals, rest = text.partition("=")
    key = key.strip().replace("-", "_")
    if not equals or not key:
        raise InvalidArgument(option, repr(text), "key=value")
    return key, value(rest.strip())


def constraint(text: str) -> dict[str, Any]:
    """A side constraint: ``kind``,
    ``kind:key=value,key=value`` or a JSON object with a ``kind``.
    """
    if text.lstrip().startswith("{"):
        parsed = value(text)
        if isinstance(parsed, dict):
            return parsed
    kind, options = named(text, "-C", "kind")
    return {"kind": kind, **options}


def named(text: str, option: str, what: str = "name") -> tuple[str, dict[str, Any]]:
    """A name and its options, written ``name`` or ``name:key=value,key=value``."""
    name, _, rest = text.partition(":")
    if not name.strip() or "=" in name:
        raise InvalidArgument(option, repr(text), f"{what} or {what}:key=value,key=value")
    return name.strip(), pairs(_parts(rest), f"{option} {name.strip()}") if rest.strip() else {}


def constraints(texts: Iterable[str], option: str) -> list[dict[str, Any]]:
    """Side constraints, each as `constraint` reads it."""
    return [constraint(text) for text in texts]


def named_each(texts: Iterable[str], option: str) -> list[tuple[str, dict[str, Any]]]:
    """Names with options, each as `named` reads it."""
    return [named(text, option) for text in texts]


def choice(*known: str) -> Callable[[str, str], str]:
    """Reader of one of several words."""
    expected = " or ".join(known) if len(known) == 2 else f"one of {', '.join(known)}"

    def read(text: str, option: str) -> str:
        if text not in known:
            raise InvalidArgument(option, repr(text), expected)
        return text

    return read


def target(path: str, option: str) -> str:
    """A file that can be written, or - for standard output; refused before any work is done."""
    check_target(path)
    return path


def json_target(path: str, option: str) -> str:
    """A file for a JSON document, or - for standard output."""
    if Path(path).suffix.lower() not in ("", ".json"):
        raise wrong_ending(path, ".json")
    return target(path, option)


def picture(path: str, option: str) -> str:
    """A file for a picture; refused if matplotlib is missing."""
    from optsched.report.pictures import picture_format, require_matplotlib

    picture_format(path)
    require_matplotlib()
    return target(path, option)


def page(path: str, option: str) -> str:
    """A file for a page or a picture; refused if matplotlib is missing."""
    from optsched.report.pictures import require_matplotlib

    if Path(path).suffix.lower() not in (".html", ".svg", ".png", ".pdf"):
        raise wrong_ending(path, ".html, .svg, .png or .pdf")
    require_matplotlib()
    return target(path, option)


def _parts(text: str) -> list[str]:
    """``key=value,key=value`` split at commas that precede a key and are outside of quotes and
    brackets.
    """
    # Commas may be in JSON, in a quoted text or in a list of names; only one before a key separates
    parts = []
    depth = 0
    start = 0
    for token in TOKEN.finditer(text):
        depth += (token[0] in "[{") - (token[0] in "]}")
        if token[0] == "," and depth <= 0 and NEXT_KEY.match(text, token.end()):
            parts.append(text[start : token.start()])
            start = token.end()
    return [*parts, text[start:]]


def pool_sizes(text: str, option: str) -> dict[str, int]:
    """``v100:8,p100:16`` as GPUs by pool."""
    return by_name(_pool_size)(text.split(","), option)


def _pool_size(text: str, option: str) -> tuple[str, int]:
    name, colon, gpus = text.strip().rpartition(":")
    if not colon or not name or not gpus.strip().isdecimal():
        raise InvalidArgument(option, repr(text.strip()), "pool:gpus, such as v100:8,p100:16")
    return name, int(gpus)


# --- types of options -----------------------------------------------------------------------------


def texts(given: Iterable[str], option: str) -> list[str]:
    return list(given)


# The kinds of builtin types.
KINDS: Mapping[Any, Kind] = {
    int: Kind(whole, "N"),
    float: Kind(real, "X"),
    list[str]: Kind(texts, "TEXT", many=True),
}
# The kinds of types by their names in the library (`optsched.cli.derived`); other types are flags.
TYPES: Mapping[str, Kind] = {
    "str": Kind(name, "NAME"),
    **dict.fromkeys(("int", "Count", "PositiveCount"), Kind(whole, "N")),
    **dict.fromkeys(("float", "NonNegative", "Positive"), Kind(real, "X")),
    **dict.fromkeys(("Seconds", "Delay", "Duration"), Kind(duration, "TIME")),
    "Bytes": Kind(size, "SIZE"),
    "Hours": Kind(real, "HOURS"),
    "Rounds": Kind(real, "ROUNDS"),
    "Deviation": Kind(real, "SD"),
    "Part": Kind(real, "PART"),
    "Mode": Kind(name, "MODE"),
    "Replan": Kind(name, "WHEN"),
    "PoolOrder": Kind(name, "HOW"),
    "Names": Kind(texts, "NAME", many=True),
    "Seeds": Kind(typed, "N", note="How many, from 0 on; a range such as 3..7; or a list."),
    "Settings": Kind(pairs, "KEY=VALUE", many=True),
}
NAMED = "NAME[:KEY=VALUE,...]"

Name = Annotated[str, Kind(name, "NAME")]
Seconds = Annotated[float, Kind(duration, "TIME")]
Bytes = Annotated[float, Kind(size, "SIZE")]
Json = Annotated[Any, Kind(typed, "VALUE")]
Settings = Annotated[dict[str, Any], Kind(pairs, "KEY=VALUE", many=True)]
Constraints = Annotated[list[dict[str, Any]], Kind(constraints, "KIND[:KEY=VALUE,...]", many=True)]
Named = Annotated[tuple[str, dict[str, Any]], Kind(named, NAMED)]
NamedList = Annotated[list[tuple[str, dict[str, Any]]], Kind(named_each, NAMED, many=True)]
Target = Annotated[str, Kind(target, "FILE", writes=True)]
JsonTarget = Annotated[str, Kind(json_target, "FILE", writes=True)]
Picture = Annotated[str, Kind(picture, "FILE", writes=True)]
Page = Annotated[str, Kind(page, "FILE", writes=True)]
Log = Annotated[str, Kind(name, "FILE", writes=True)]
