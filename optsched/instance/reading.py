"""From text to checked documents. Every error is one sentence: where, what was found, what was
expected.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, get_type_hints

import pydantic_core
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails, PydanticUndefined

from optsched.display.text import shortened
from optsched.errors import MOST_SHOWN, InvalidArgument, InvalidInput, all_wrong, did_you_mean
from optsched.instance.durations import PATTERN
from optsched.instance.shipped import shipped_names

Model = TypeVar("Model", bound=BaseModel)
Value = TypeVar("Value")

CHUNK = 4096
"""Jobs per check: enough for speed, few enough for memory."""
BRANCHES = frozenset({"<gang>", "<range>", "<count>", "<list>", "<seconds>", "<by GPUs>"})
"""Tags of union branches (`optsched.instance.documents`):
they stand in pydantic's paths but not in the document.
"""


LARGEST = 4 * 2**30
"""Most bytes of a file. Ten million jobs take less; a device or a pipe may never end."""


def read_stdin() -> bytes:
    """Read standard input to its end; raises if it is closed."""
    if sys.stdin is None:
        raise InvalidInput("", "a closed standard input", "a document on standard input")
    with named("-"):
        return _whole(sys.stdin.buffer)


def _whole(file: BinaryIO) -> bytes:
    """The bytes of a file, read in pieces, so that too large a file is noticed before it fills the
    memory.
    """
    pieces, size = [], 0
    while piece := file.read(2**24):
        pieces.append(piece)
        size += len(piece)
        if size > LARGEST:
            raise InvalidInput("", f"more than {LARGEST:,} bytes", "a smaller file")
    return b"".join(pieces)


def read_bytes(path: Path) -> bytes:
    """Read a file; a missing or unreadable one raises `InvalidInput` with the message of the
    system.
    """
    try:
        with named(path), path.open("rb") as file:
            return _whole(file)
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        reason = getattr(error, "strerror", None) or str(error)
        ships = f", or @{path} for the instance that ships" if str(path) in shipped_names() else ""
        # "" and "." name a folder and no file
        found = (
            f"no readable file at {_file_words(path)} ({reason})" if path.name else "no file name"
        )
        raise InvalidInput("", found, f"a file{ships}") from None


def paths_of(sources: Any, name: str = "sources") -> list[Path]:
    """One path or several as a list; raises `InvalidArgument` for other values."""
    alone = isinstance(sources, str | Path) or not isinstance(sources, Iterable)
    several = [sources] if alone else list(sources)
    for row, source in enumerate(several):
        if not isinstance(source, str | Path):
            raise InvalidArgument(f"{name}[{row}]", show(source), "text or a path")
    return [Path(source) for source in several]


class named:
    """Context: errors raised inside name the file; ``-`` is standard input.

    A class, because each event of a scheduler enters one, and a generator takes three times as long.
    """

    def __init__(self, source: str | Path) -> None:
        self._source = source

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        if not isinstance(error, InvalidInput):
            return
        file = "standard input" if str(self._source) == "-" else _file_words(self._source)
        raise error.each(
            lambda single: InvalidInput(
                single.path, single.found, single.expected, single.file or file
            )
        ) from None


@contextmanager
def inside(path: str) -> Iterator[None]:
    """Context: paths of errors raised inside are prefixed with ``path``."""
    try:
        yield
    except InvalidInput as error:
        raise error.each(
            lambda single: InvalidInput(
                f"{path}.{single.path}" if single.path else path,
                single.found,
                single.expected,
                single.file,
            )
        ) from None


@contextmanager
def named_by_path(files: Mapping[str, str | Path | bytes | None]) -> Iterator[None]:
    """Context for objects made of several files: an error names the file whose key its path begins
    with, if that file has a path.
    """
    try:
        yield
    except InvalidInput as error:
        word = error.path.split(" ")[0].split(",")[0].split(".")[0]
        source = files.get(word)
        if source is None or isinstance(source, bytes):
            raise
        with named(source):
            raise


def _file_words(path: str | Path) -> str:
    where = _printable(str(path))
    return where if len(where) <= 150 else f"...{where[-147:]}"


GZIP_MAGIC = b"\x1f\x8b"
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
MOST_UNPACKED = 2**28
"""Most bytes after decompression: a compressed megabyte can become a gigabyte."""


def unpacked(data: bytes, what: str, path: str = "") -> bytes:
    """Decompress the content of a gzip file.

    Parameters
    ----------
    data : bytes
    what : str
        What the file should be, for messages.
    path : str
        Where the file is, for messages.

    Raises
    ------
    InvalidInput
        gzip cannot read it, or it has more than `MOST_UNPACKED` bytes.
    """
    # Imported here because few commands need it
    import gzip
    import io
    import zlib

    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as packed:
            plain = packed.read(MOST_UNPACKED + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidInput(
            path, f"data that gzip cannot read ({error})", "a file compressed with gzip"
        ) from None
    if len(plain) > MOST_UNPACKED:
        found = f"{what} of more than {MOST_UNPACKED:,} bytes in {len(data):,} compressed ones"
        raise InvalidInput(
            path, found, "one that is not compressed, if it is meant to be that large"
        )
    return plain


_LONE_SURROGATE = re.compile("unexpected end of hex escape|lone leading surrogate in hex escape")
"""Messages of the parser for half of a surrogate pair, such as ``\\ud800``."""


def parse_json(text: bytes | str, what: str) -> Any:
    """Parse JSON.

    A repeated key in an object is refused, because parsers would keep only one of its values. NaN
    and Infinity pass here and are refused later, with the path of their field. A byte order mark is
    ignored.
    """
    text = (
        text.removeprefix("\ufeff") if isinstance(text, str) else text.removeprefix(b"\xef\xbb\xbf")
    )
    if not text.strip():
        raise InvalidInput("", f"an empty {what}", "a JSON document")
    if isinstance(text, bytes) and text.startswith(GZIP_MAGIC):
        raise InvalidInput(
            "",
            "gzip-compressed data",
            "a JSON document that is not compressed: only programs (.mps.gz, .lp.gz) may be",
        )
    if isinstance(text, bytes) and text.startswith(UTF16_MARKS):
        raise InvalidInput("", "text in UTF-16", "a JSON document in UTF-8")
    try:
        # Most texts that are no keys are names, which differ: a cache of them costs time.
        document = pydantic_core.from_json(text, cache_strings="keys")
    except ValueError as error:
        words = _LONE_SURROGATE.sub("half of a surrogate pair, which is no character,", str(error))
        raise InvalidInput("", f"text that is not JSON ({words})", "a JSON document") from None
    _refuse_repeated_keys(text if isinstance(text, bytes) else text.encode(), document)
    return document


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An ``object_pairs_hook`` for `json.loads` that raises ValueError for a repeated key."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError(f"the key {show(first_repeated(name for name, _ in pairs))} comes twice")
    return found


def first_repeated(names: Iterable[Any]) -> Any:
    """The first name that occurs a second time; None if all differ."""
    seen = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def first_places(values: Sequence[Value]) -> dict[Value, int]:
    """The values that differ, in order of appearance, and where each comes first."""
    if len(values) == 1:
        return {values[0]: 0}
    # From the end, so that earlier places replace later ones.
    places = dict(zip(reversed(values), range(len(values) - 1, -1, -1), strict=True))
    return dict(sorted(places.items(), key=itemgetter(1)))


def repeated_key(path: Sequence[int | str]) -> InvalidInput:
    """The error for a repeated key in an object."""
    return InvalidInput(join("", path), "this key a second time", "each key of an object once")


def _refuse_repeated_keys(text: bytes, document: Any) -> None:
    """Compare the number of keys in the text with that in the parsed document, which is much faster
    than parsing.

    Only if the numbers differ, the text is parsed again with a hook that sees all keys.
    """
    # Without blanks, every key ends with a quote and a colon, and little else does: quotes inside a
    # text are escaped. If the document has as many keys, none was dropped.
    ends = text.translate(None, b" \t\n\r").count(b'":')
    if _count_keys(document, ends) == ends:
        return
    again = json.loads(text, object_pairs_hook=_Object, parse_int=str, parse_float=str)
    path = _path_of_repeated(again)
    if path is not None:
        raise repeated_key(path)


class _Object(dict[str, Any]):
    """A JSON object that remembers a repeated key."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.repeated = (
            first_repeated(name for name, _ in pairs) if len(self) < len(pairs) else None
        )


def _path_of_repeated(document: Any) -> list[int | str] | None:
    """The path of the first repeated key. (An inner object may have been dropped, but the outermost
    object with a repeated key is always in the document.)
    """
    places: list[tuple[tuple[int | str, ...], Any]] = [((), document)]
    while places:
        path, value = places.pop()
        if isinstance(value, _Object):
            if value.repeated is not None:
                return [*path, value.repeated]
            places += [((*path, name), item) for name, item in reversed(value.items())]
        elif isinstance(value, list):
            places += [((*path, row), item) for row, item in reversed(list(enumerate(value)))]
    return None


_CONTAINERS = frozenset((dict, list))


def _count_keys(document: Any, most: int) -> int:
    """Number of keys of all objects in a document, counted level by level.

    When ``most`` are found the search ends, as a rule before the numbers of the jobs, which are
    most of the document.
    """
    total = 0
    level: list[Any] = [document] if type(document) in _CONTAINERS else []
    while level:
        objects = [value for value in level if type(value) is dict]
        total += sum(map(len, objects))
        if total >= most:
            break
        inside = [
            value for item in objects for value in item.values() if type(value) in _CONTAINERS
        ]
        lists = (value for value in level if type(value) is list)
        inside += [value for item in lists for value in item if type(value) in _CONTAINERS]
        level = inside
    return total


def validate(
    model: type[Model], document: object, path: str = "", *, hints: type[BaseModel] | None = None
) -> Model:
    """Check a document against a pydantic model; all its wrong fields are reported in one error.

    ``hints`` is the model whose keys are suggested for an unknown key, if it is another one.
    """
    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise translate(error, path, hints or model) from None


def validate_columns(
    model: type[BaseModel],
    documents: Sequence[object],
    path: str,
    plain: Mapping[str, Any],
    start: int = 0,
) -> dict[str, list[Any]]:
    """Check a list of documents and return the values of each field.

    The values of a field are checked together, which takes a third of the time of making an object
    per document. These objects are made of a single document, which is faster, and to find what is
    wrong.

    Parameters
    ----------
    plain : mapping of str to types
        Simpler types that fields usually have, if they are faster to check than the full types.
    start : int
        Number of the first document in its list, for messages.
    """
    columns = None if len(documents) == 1 else columns_of(model, documents, plain)
    if columns is None:
        try:
            objects = list(map(vars, _list_of(model).validate_python(documents)))
        except ValidationError as error:
            raise translate(error, path, model, offset=start) from None
        fields = fields_of(model)
        rows = map(itemgetter(*fields), objects)
        # All fields at once: one event is one document, and has twenty fields.
        values = map(list, zip(*rows, strict=True)) if objects else ([] for _ in fields)
        columns = dict(zip(fields, values, strict=True))
    return columns


def columns_of(
    model: type[BaseModel], documents: Sequence[Any], plain: Mapping[str, Any]
) -> dict[str, list[Any]] | None:
    """The values of each field, or its default; None if something is wrong, or the list is empty.

    ``plain`` as of `validate_columns`.
    """
    # The caller then reads document by document, and says what is wrong.
    if set(map(type, documents)) != {dict}:
        return None
    fields = fields_of(model)
    given = set().union(*documents)
    if not given <= fields.keys():
        return None
    columns = {}
    for name, (kind, default) in fields.items():
        if name in given:
            try:
                values = list(map(itemgetter(name), documents))
            except KeyError:  # some documents leave it out
                values = [document.get(name, default) for document in documents]
            checked = _checked(plain[name], values) if name in plain else None
            checked = _checked(kind, values) if checked is None else checked
            if checked is None:
                return None
            columns[name] = checked
        elif default is PydanticUndefined:
            return None
        else:
            columns[name] = [default] * len(documents)
    return columns


def _checked(kind: Any, values: list[Any]) -> list[Any] | None:
    """The values converted to this type; None if one of them cannot be."""
    try:
        return _list_of(kind).validate_python(values)
    except ValidationError:
        return None


@cache
def fields_of(model: type[BaseModel]) -> dict[str, tuple[Any, Any]]:
    """Type and default of each field; a required field has a default that no field type accepts."""
    types = get_type_hints(model, include_extras=True)
    return {
        name: (types[name], field.get_default(call_default_factory=True))
        for name, field in model.model_fields.items()
    }


@cache
def _list_of(kind: Any) -> TypeAdapter[list[Any]]:
    return TypeAdapter(list[kind], config=ConfigDict(strict=True))


def translate(
    error: ValidationError, path: str, model: type[BaseModel], offset: int | None = None
) -> InvalidInput:
    """Turn pydantic's errors into one `InvalidInput`; ``offset`` is added to a first list index."""
    wrong = _each_once(error.errors(include_url=False))
    shown = [_translated(detail, path, model, offset) for detail in wrong[:MOST_SHOWN]]
    return all_wrong(shown, len(wrong))


def _each_once(errors: list[ErrorDetails]) -> list[ErrorDetails]:
    """Drop errors that are consequences of others."""
    # A list whose entries are all wrong is also reported as too short
    above = {detail["loc"][:depth] for detail in errors for depth in range(len(detail["loc"]))}
    unknown: dict[tuple[int | str, ...], list[object]] = {}
    for detail in errors:
        if detail["type"] == "extra_forbidden":
            unknown.setdefault(detail["loc"][:-1], []).append(detail["loc"][-1])

    def follows(detail: ErrorDetails) -> bool:
        # A misspelled key gives two errors: it is unknown, and the intended key is missing
        *parent, name = detail["loc"] or ("",)
        return detail["loc"] in above or (
            detail["type"] == "missing"
            and any(did_you_mean(typed, [str(name)]) for typed in unknown.get(tuple(parent), ()))
        )

    return [detail for detail in errors if not follows(detail)]


def _translated(
    error: ErrorDetails, path: str, model: type[BaseModel], offset: int | None
) -> InvalidInput:
    """One of pydantic's errors as an `InvalidInput`."""
    loc, kind = error["loc"], error["type"]
    where = [part for part in loc if part not in BRANCHES]
    if offset is not None and where and isinstance(where[0], int):
        where[0] += offset
    if kind == "extra_forbidden":
        name = str(loc[-1])
        known = _keys_at(model, where[:-1])
        # CSV tables have one column per end of the range
        if name in ("gpus_min", "gpus_max") and "gpus" in known:
            hint = ' (gpus takes a range such as {"min": 1, "max": 8})'
        else:
            hint = did_you_mean(name, known, aside=True)
        return InvalidInput(
            join(path, where), f"an unknown key '{key(name)}'", f"one of the format's keys{hint}"
        )
    context = error.get("ctx", {})
    if kind == "optsched":
        location = _shorten_path((join(path, where) + context["subpath"]).lstrip("."))
        return InvalidInput(location, str(context["found"]), str(context["expected"]))
    # In YAML, keys need not be text.
    if kind == "invalid_key":
        return InvalidInput(
            join(path, where[:-1]), f"{show(where[-1])} as a key", "text as the key"
        )
    # pydantic marks errors of keys by an extra entry: the path ends at the object, before the key.
    if kind.startswith("string_") and where[-1:] == ["[key]"]:
        return InvalidInput(
            join(path, where[:-2]),
            f"{show(error['input'])} as a key",
            f"{_EXPECTED[kind]} as the key",
        )
    if kind == "missing":
        return InvalidInput(
            join(path, where), "nothing", "an entry" if isinstance(where[-1], int) else "this key"
        )
    if (
        kind == "greater_than_equal"
        and not isinstance(error["input"], str)
        and error["input"] <= 0 < context["ge"] < 1
    ):
        return InvalidInput(join(path, where), show(error["input"]), "a number above 0")
    # A list is neither a number nor a range; pydantic mentions only the number.
    if "<gang>" in loc and isinstance(error["input"], list):
        expected = 'a whole number, or a range such as {"min": 1, "max": 8}'
        return InvalidInput(join(path, where), show(error["input"]), expected)
    if kind == "float_type" and _has_unit_of_time(error["input"]):
        return InvalidInput(join(path, where), show(error["input"]), "a number of seconds")
    # An integer that is too large for a float.
    if kind == "float_type" and type(error["input"]) is int:
        return InvalidInput(join(path, where), show(error["input"]), "a finite number")
    return InvalidInput(join(path, where), show(error["input"]), expected_by(error))


def _has_unit_of_time(value: object) -> bool:
    """Whether a value is text such as ``3h``: documents state all times in seconds."""
    duration = PATTERN.fullmatch(value.strip()) if isinstance(value, str) else None
    return duration is not None and duration[2] != ""


def expected_by(error: ErrorDetails) -> str:
    """The expected value of a pydantic error, as text."""
    return _expected(error["type"], error.get("ctx", {}), error["msg"])


_EXPECTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "text",
    "string_too_short": "a non-empty text",
    "string_unicode": "text in Unicode",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "int_parsing": "a whole number",
    "float_parsing": "a number",
    "dict_type": "an object",
    "model_type": "an object",
    "list_type": "a list",
    "tuple_type": "a list",
}


def _expected(kind: str, context: Mapping[str, Any], message: str) -> str:
    if kind in _EXPECTED:
        return _EXPECTED[kind]
    if kind == "greater_than_equal":
        return f"a number of at least {_number(context['ge'])}"
    if kind == "greater_than":
        return f"a number above {_number(context['gt'])}"
    if kind == "less_than_equal":
        return f"a number of at most {_number(context['le'])}"
    if kind == "less_than":
        return f"a number below {_number(context['lt'])}"
    if kind in ("too_short", "too_long"):
        bound = "at least" if kind == "too_short" else "exactly"
        count = context.get("min_length", context.get("max_length"))
        return f"{bound} {count} {'entry' if count == 1 else 'entries'}"
    if kind in ("literal_error", "enum"):
        return f"one of {context['expected']}"
    message = message.removeprefix("Value error, ")  # of a rule over several fields
    return message[:1].lower() + message[1:]


def _number(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _keys_at(model: type[BaseModel], where: Sequence[int | str]) -> list[str]:
    """Keys of the objects that are allowed at a path of the document; all indices and names of a
    list or mapping lead to the same model.
    """
    models = [model]
    for part in where:
        inner = [
            m.model_fields[part].annotation
            for m in models
            if isinstance(part, str) and part in m.model_fields
        ]
        if inner:
            models = [found for annotation in inner for found in _models_in(annotation)]
    return [name for m in models for name in m.model_fields]


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [
        model for argument in getattr(annotation, "__args__", ()) for model in _models_in(argument)
    ]


def join(path: str, parts: Sequence[int | str]) -> str:
    """Append keys and indices to a path: ``jobs``, [3, "steps"] -> ``jobs[3].steps``."""
    for part in parts:
        if isinstance(part, int):
            path += f"[{part}]"
        else:
            path += f".{key(part)}" if path else key(part)
    return _shorten_path(path)


def key(name: object) -> str:
    """A key as a part of a path: on one line, shortened."""
    return shortened(_printable(str(name)), 40) or '""'


def listed(names: Iterable[str]) -> str:
    """Names for a message, shortened."""
    return shortened(", ".join(key(name) for name in names), 80)


def show(value: object) -> str:
    """A value as it would be written in the file, on one line, shortened."""
    try:
        text = json.dumps(value, ensure_ascii=False)
        text = text if text.isprintable() else json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        text = _represent(value)
    return shortened(text, 60)


def _represent(value: object) -> str:
    try:
        return _printable(" ".join(repr(value).split()))
    except (ValueError, RecursionError):  # an int of many digits; endless nesting
        return f"a value of type {type(value).__name__}"


def _printable(text: str) -> str:
    return text if text.isprintable() else json.dumps(text)[1:-1]


def _shorten_path(path: str) -> str:
    return path if len(path) <= 120 else f"{path[:60]}...{path[-57:]}"
