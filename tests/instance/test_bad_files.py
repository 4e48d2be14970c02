"""Files that hold no instance at all: one short sentence each, whatever the bytes."""

from __future__ import annotations

import io
import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import refuses, stated

from optsched.errors import InvalidInput, UsageError
from optsched.instance import Instance, read_instance, shipped_path

pytestmark = pytest.mark.property

Document = dict[str, Any]
FileRefusal = Callable[..., InvalidInput]
NOT_JSON, NOT_YAML = "found text that is not JSON (", "found text that is not YAML ("

RANDOM = random.Random(0).randbytes(10**7)
HEAD = b'{"format": "optsched-instance/1", '


@pytest.mark.parametrize(
    ("data", "start"),
    [
        (b"", "found an empty instance, expected a JSON document"),
        (b" \n\t ", "found an empty instance, expected a JSON document"),
        (b"{}", 'format: found nothing, expected "optsched-instance/1"'),
        (b"[]", 'found [], expected an object with "format": "optsched-instance/1"'),
        (b"null", 'found null, expected an object with "format": "optsched-instance/1"'),
        (b'"' + b"x" * 10**6 + b'"', 'found "xxx'),
        (b"{", NOT_JSON),
        (HEAD, NOT_JSON),
        (HEAD + b"}", NOT_JSON + "trailing comma at line 1 column 35), expected a JSON document"),
        (b"{'format': 1}", NOT_JSON),
        (b'{"format": 1} {}', NOT_JSON),
        (b'{"format": "\xff\xfe"}', NOT_JSON + "invalid unicode code point at line 1 column 13)"),
        (
            b'{"format": "\\ud800"}',
            NOT_JSON + "half of a surrogate pair, which is no character, at",
        ),
        (
            b'{"format": "\\udfff"}',
            NOT_JSON + "half of a surrogate pair, which is no character, at",
        ),
        (b"\x1f\x8b\x08", "found gzip-compressed data, expected a JSON document that is not"),
        (b'{"format": "a\nb"}', NOT_JSON),
        (b'{"format": 01}', NOT_JSON),
        (
            '{"format": 1}'.encode("utf-16"),
            "found text in UTF-16, expected a JSON document in UTF-8",
        ),
        (b'{"format": ' + b"1" * 10**5 + b"}", NOT_JSON),
        (b"[" * 10**7, NOT_JSON),
        (b'{"a":' * 10**6, NOT_JSON),
        (RANDOM, NOT_JSON),
    ],
    ids=lambda value: ascii(value[:20]),
)
def test_json(file_refusal: FileRefusal, data: bytes, start: str) -> None:
    assert stated(f"{start}...").holds(file_refusal(data))


@pytest.mark.parametrize(
    ("data", "start"),
    [
        (b"", "found an empty instance, expected a YAML document"),
        (b"# nothing\n", "found an empty instance, expected a YAML document"),
        (b"null", "found an empty instance, expected a YAML document"),
        (b"jobs", 'found "jobs", expected an object with "format": "optsched-instance/1"'),
        (b"[a, b", NOT_YAML + "while parsing a flow sequence, "),
        (b"a: b: c", NOT_YAML + "mapping values are not allowed in this context"),
        (b"a: *nowhere", NOT_YAML + "found undefined alias"),
        (b"{}\n---\n{}", NOT_YAML + "expected a single document"),
        (b"? [1]\n: 2", NOT_YAML + "while constructing a mapping"),
        (b"!!python/object/apply:os.system [ls]", NOT_YAML + "could not determine a constructor"),
        (b"a: !!bool 3", NOT_YAML),
        (b"a: !!timestamp now", NOT_YAML),
        (b"a: !!int ''", NOT_YAML),
        (b"a: 2020-13-45", NOT_YAML + "month must be in 1..12)"),
        (b"a: \xff", NOT_YAML),
        (b"[" * 10**7, NOT_YAML),  # by our limit on nesting, or by the parser's own
        (b"- " * 10**6 + b"1", NOT_YAML + "more than 200 levels of nesting)"),
        (b"? " * 10**5 + b"1", NOT_YAML + "more than 200 levels of nesting)"),
        (RANDOM, NOT_YAML),
    ],
    ids=lambda value: ascii(value[:20]),
)
def test_yaml(file_refusal: FileRefusal, data: bytes, start: str) -> None:
    assert stated(f"{start}...").holds(file_refusal(data, ".yaml"))


def test_a_table_belongs_to_the_import(file_refusal: FileRefusal) -> None:
    assert stated("found a table, expected JSON, YAML or npz; ...").holds(
        file_refusal(b"id,steps\na,3\n", ".csv")
    )


def npy_bytes() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.zeros(3))
    return buffer.getvalue()


@pytest.mark.parametrize("suffix", [".npz", ".json"])
@pytest.mark.parametrize(
    "data",
    [b"PK\x03\x04", b"PK\x03\x04" + RANDOM[: 10**5], b"PK\x05\x06" + bytes(18)],
    ids=["magic", "random", "no entries"],
)
def test_zip(file_refusal: FileRefusal, data: bytes, suffix: str) -> None:
    if suffix == ".json" and not data.startswith(b"PK\x03\x04"):
        assert stated(f"{NOT_JSON}...").holds(file_refusal(data, suffix))
    else:
        error = file_refusal(data, suffix)
        unreadable, empty = "found an npz file that can't be read (...", "header: found nothing"
        assert stated(unreadable).holds(error) or stated(empty).holds(error)


@pytest.mark.parametrize(
    "data", [b"", b"{}", npy_bytes(), RANDOM], ids=["empty", "json", "npy", "random"]
)
def test_npz_that_is_none(file_refusal: FileRefusal, data: bytes) -> None:
    error = file_refusal(data, ".npz")
    assert stated(
        'found an npz file that can\'t be read ("File is not a zip file"), expected an npz file written by optsched'
    ).holds(error)


@pytest.mark.parametrize("step", [1, 7])
def test_truncated_json(file_refusal: FileRefusal, two_types: Document, step: int) -> None:
    text = json.dumps(two_types).encode()
    for length in range(step, len(text), 97):
        assert stated(f"{NOT_JSON}...").holds(file_refusal(text[:length]))


@pytest.mark.parametrize("suffix", [".json", ".yaml"])
@pytest.mark.parametrize(
    ("once", "twice", "path"),
    [
        ('"steps": 5000', '"steps": 1, "steps": 2, "steps" : 5000', "jobs[1].steps"),
        ('"steps": 5000', '"steps": 1, "steps" : 5000', "jobs[1].steps"),
        ('"steps": 5000', '"st\\u0065ps": 1, "steps": 5000', "jobs[1].steps"),
        (
            '"now"',
            '"jobs": [{"id": "x", "id": "y"}], "now"',
            "jobs",
        ),  # the outer one, whose value is left
        ('"steps": 5000', '"steps": 5000, "tenant": ":", "tenant": "\\":"', "jobs[1].tenant"),
    ],
)
def test_a_key_that_stands_twice(
    two_types: Document,
    read_bytes: Callable[[bytes, str], Instance],
    suffix: str,
    once: str,
    twice: str,
    path: str,
) -> None:
    text = json.dumps(two_types)
    assert once in text
    with pytest.raises(InvalidInput) as caught:
        read_bytes(text.replace(once, twice, 1).encode(), suffix)
    assert (caught.value.path, caught.value.found) == (path, "this key a second time")


def test_colons_in_texts_are_no_keys(
    two_types: Document, read_bytes: Callable[[bytes, str], Instance]
) -> None:
    two_types["name"] = ': ":" \\": "name": 1, "name":'
    text = json.dumps(two_types)
    assert read_bytes(text.encode(), ".json").sha256 == Instance.from_document(two_types).sha256


@pytest.mark.parametrize(
    ("number", "message"),
    [
        ("1e400", "jobs[1].steps: found Infinity, expected a finite number"),
        ("-1e400", "jobs[1].steps: found -Infinity, expected a finite number"),
        ("NaN", "jobs[1].steps: found NaN, expected a finite number"),
        ("Infinity", "jobs[1].steps: found Infinity, expected a finite number"),
        ("1" + "0" * 400, "jobs[1].steps: found 1000000000"),
        ('"5000"', 'jobs[1].steps: found "5000", expected a number'),
    ],
)
def test_numbers_of_a_file(
    file_refusal: FileRefusal, two_types: Document, number: str, message: str
) -> None:
    text = json.dumps(two_types).replace('"steps": 5000', f'"steps": {number}')
    assert stated(f"{message}...").holds(file_refusal(text.encode()))


def test_large_numbers_that_are_fine(
    two_types: Document, read_bytes: Callable[[bytes, str], Instance]
) -> None:
    text = json.dumps(two_types).replace('"steps": 5000', '"steps": 1' + "0" * 30)
    assert read_bytes(text.encode(), ".json").jobs["b"].steps == 1e30


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "Is a directory"),
        ("missing.json", "No such file or directory"),
        ("missing/instance.json", "No such file or directory"),
        ("null\0.json", "embedded null byte"),
        ("x" * 1000, "File name too long"),
        ("x" * 200 + "/two\nlines.json", "No such file or directory"),
    ],
    ids=lambda value: ascii(value[:12]),
)
def test_no_such_file(tmp_path: Path, name: str, words: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_instance(str(tmp_path / name))
    assert stated("found no readable file at ...").holds(caught.value)
    assert caught.value.found.endswith(f" ({words})")
    assert caught.value.expected == "a file"
    assert len(str(caught.value)) < 300
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "name", ["nothing", "", "../instances/quickstart", "a/../quickstart", "a" * 300]
)
def test_only_the_folder_of_shipped_instances_is_searched(name: str) -> None:
    assert shipped_path("quickstart").is_file()
    with pytest.raises(UsageError, match=f"no instance @{name} ships"):
        shipped_path(name)


def test_an_empty_name_is_no_file() -> None:
    with refuses("found no file name, expected a file"):
        read_instance("")


@pytest.mark.parametrize("data", [b"", b"{", b"\xff\xfe"])
def test_standard_input(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    with pytest.raises(InvalidInput):
        read_instance("-")
