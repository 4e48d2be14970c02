"""The two documents that the tests of this folder work on, each a fresh copy that a test may change."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from optsched.errors import InvalidInput
from optsched.instance import Instance, read_instance

HERE = Path(__file__).parent
TEXTS = {name: (HERE / f"{name}.json").read_text() for name in ("two-types", "everything")}

Document = dict[str, Any]


def parsed(name: str) -> Document:
    document: Document = json.loads(TEXTS[name])
    return document


@pytest.fixture
def two_types() -> Document:
    """The example of the format's description."""
    return parsed("two-types")


@pytest.fixture
def everything() -> Document:
    """A document that uses every key of the format."""
    return parsed("everything")


@pytest.fixture(params=TEXTS)
def document(request: pytest.FixtureRequest) -> Document:
    """Each of the two in turn."""
    return parsed(request.param)


@pytest.fixture
def edit() -> Callable[[Document, str, Any], Document]:
    """Put a value at a path such as ``jobs.0.steps``, in place; ``...`` takes what is there away, ``+`` appends."""

    def edit(document: Document, path: str, value: Any) -> Document:
        *parents, last = path.split(".")
        place: Any = document
        for part in parents:
            place = place[int(part)] if isinstance(place, list) else place[part]
        if last == "+":
            place.append(value)
        elif value is ...:
            del place[int(last) if isinstance(place, list) else last]
        else:
            place[int(last) if isinstance(place, list) else last] = value
        return document

    return edit


@pytest.fixture
def refusal() -> Callable[[object], InvalidInput]:
    """The error with which a document is refused; checks that each wrong value has a short sentence on one line."""

    def refusal(document: object) -> InvalidInput:
        with pytest.raises(InvalidInput) as caught:
            Instance.from_document(document)  # type: ignore[arg-type]
        wrong = caught.value
        lines = str(wrong).split("\n")
        assert len(lines) == len(wrong.one_by_one()) + (wrong.more > 0)
        assert all(line.isprintable() and len(line) < 300 for line in lines)
        return wrong

    return refusal


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all files of these tests; a folder per test would take most of their time."""
    return tmp_path_factory.mktemp("instances")


@pytest.fixture
def file_refusal(folder: Path) -> Callable[[bytes, str], InvalidInput]:
    """The error with which a file of these bytes and suffix is refused, which names it; checked in the same way."""

    def refusal(data: bytes, suffix: str = ".json") -> InvalidInput:
        path = folder / f"instance{suffix}"
        path.write_bytes(data)
        with pytest.raises(InvalidInput) as caught:
            read_instance(path)
        assert caught.value.file == str(path)
        message = str(caught.value).removeprefix(f"{path}: ")
        assert len(message) < 300
        assert message.isprintable()
        return caught.value

    return refusal


@pytest.fixture
def read_bytes(folder: Path) -> Callable[[bytes, str], Instance]:
    """Write bytes to a file with the given suffix and read the instance in it."""

    def read(data: bytes, suffix: str) -> Instance:
        path = folder / f"instance{suffix}"
        path.write_bytes(data)
        return read_instance(path)

    return read
