"""Thousands of damaged instances: each loads and can be written again, or is refused with `InvalidInput`."""

from __future__ import annotations

import copy
import datetime
import decimal
import functools
import io
import json
import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import yaml

from optsched.errors import InvalidInput
from optsched.instance import Instance, instance_bytes

# Private names: readers and writers are checked one by one, below `Instance`
from optsched.instance.archive import from_npz
from optsched.instance.reading import parse_json
from optsched.instance.yaml_text import parse_yaml

pytestmark = pytest.mark.property

Document = dict[str, Any]

DEEP: list[Any] = []
for _ in range(150):
    DEEP = [DEEP]
NUMBERS = [
    0,
    1,
    -1,
    2,
    3,
    8,
    1.5,
    0.5,
    -0.0,
    math.nan,
    math.inf,
    -math.inf,
    1e308,
    5e-324,
    2**31,
    10**30,
    10**400,
]
TEXTS = [
    "",
    "a",
    "b",
    "c",
    "v100",
    "a100",
    "resnet",
    "lm",
    "big",
    "1",
    "-1",
    "01",
    "x" * 400,
    "\n",
    "\x00",
    "ü",
    "\u2028",
]
CONTAINERS = [
    [],
    {},
    [1],
    ["a"],
    [[]],
    {"a": 1},
    {"1": {"1": 2}},
    {"v100": 1},
    {"min": 1, "max": 4},
    [{"id": "a"}],
    DEEP,
]
PLAIN = [None, True, False, *NUMBERS, *TEXTS, *CONTAINERS]
ODD = [
    *(
        16**5000,
        "\ud800",
        (),
        (1, 2),
        ("a", "c"),
        {1: 2},
        {None: 1},
        {"a": {1: 2, "b": 3}},
        b"x",
        {1, 2},
        frozenset("ac"),
    ),
    *(
        datetime.date(2020, 1, 1),
        datetime.datetime(2020, 1, 1),
        decimal.Decimal(1),
        1j,
        object(),
        range(3),
        int,
        len,
    ),
    *(
        np.float64(2),
        np.float64("nan"),
        np.float32(2),
        np.int64(2),
        np.bool_(True),
        np.array([1, 2]),
        np.str_("a"),
    ),
]


ODD_TOO = [*PLAIN, *ODD]


def places(value: Any) -> list[tuple[Any, Any]]:
    """(container, key) of everything inside."""
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting:
        container = waiting.pop()
        for key, item in container.items() if isinstance(container, dict) else enumerate(container):
            found.append((container, key))
            if isinstance(item, dict | list):
                waiting.append(item)
    return found


def replacement(value: Any, rng: random.Random, values: list[Any]) -> Any:
    """Half of the time something of the same kind, which often still makes sense."""
    if rng.random() < 0.5:
        return copy.deepcopy(rng.choice(values))
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return rng.choice([0, 1, 2, 3, 4, 8, 0.5, 2.5, 100])
    if isinstance(value, str):
        return rng.choice(TEXTS)
    return None if value else copy.deepcopy(rng.choice(CONTAINERS))


def mutate(document: Document, rng: random.Random, values: list[Any]) -> None:
    """One structural change somewhere, in place."""
    spots = places(document)
    container, key = rng.choice(spots)
    other, at = rng.choice(spots)
    change = rng.randrange(8)
    if change <= 2:
        container[key] = replacement(container[key], rng, values)
    elif change == 3:
        del container[key]
    elif change == 4:
        container[key], other[at] = copy.deepcopy((other[at], container[key]))
    elif change == 5:
        container[key] = rng.choice([[container[key]], {"a": container[key]}, (container[key],)])
    elif change == 6:
        container[key] = copy.deepcopy(other[at])
    elif isinstance(container, list):
        container.insert(rng.randrange(len(container) + 1), copy.deepcopy(container[key]))
    else:
        odd_keys = [1, None] if values is ODD_TOO else []
        new = rng.choice(["a", "v100", "steps", "nodes", f"{key}s", "<x", "", "1", *odd_keys])
        container[new] = container.pop(key)


def load(read: Callable[[], Instance]) -> Instance | None:
    try:
        return read()
    except InvalidInput as error:
        for one in error.one_by_one():
            assert len(str(one)) < 300 and str(one).isprintable()
        return None


def check_writing(instance: Instance, kind: str) -> None:
    data = instance_bytes(instance, kind)
    if kind == "npz":
        again = from_npz(data)
    else:
        again = Instance.from_document(
            (parse_json if kind == "json" else parse_yaml)(data, "instance")
        )
    assert again.sha256 == instance.sha256
    assert again.to_document() == instance.to_document()


@pytest.mark.parametrize("seed", range(10))
def test_damaged_documents(document: Document, seed: int) -> None:
    rng = random.Random(seed)
    loaded, text = 0, json.dumps(document)
    for number in range(100):
        damaged = json.loads(text)
        for _ in range(rng.choice([1, 1, 1, 2, 3])):
            mutate(damaged, rng, ODD_TOO)
        instance = load(functools.partial(Instance.from_document, damaged))
        if instance is not None:
            loaded += 1
            check_writing(
                instance, "yaml" if number % 25 == 0 else "npz" if number % 4 == 1 else "json"
            )
    assert 5 < loaded < 100


@pytest.mark.parametrize("kind", ["json", "yaml"])
def test_damaged_text(document: Document, kind: str) -> None:
    rng = random.Random(5)
    text = json.dumps(document) if kind == "json" else yaml.safe_dump(document)
    pieces = [
        *"{}[],:\"\\-.0189eE \n\t#&*!|>%@`'\x00\xff?~",
        "null",
        "true",
        "NaN",
        "Infinity",
        "1e999",
        "<<: *a",
        "&a ",
    ]
    parse = parse_json if kind == "json" else parse_yaml
    for _ in range(150):
        damaged = text
        for _ in range(rng.choice([1, 1, 3])):
            start = rng.randrange(len(damaged))
            end = start + rng.choice([0, 0, 1, 1, 5, 50])
            damaged = (
                damaged[:start] + rng.choice([*pieces, "", damaged[end : end + 30]]) + damaged[end:]
            )
        data = damaged.encode("latin-1")
        instance = load(lambda data=data: Instance.from_document(parse(data, "instance")))
        if instance is not None:
            check_writing(instance, "json")


def test_damaged_npz(everything: Document) -> None:
    rng = random.Random(6)
    with np.load(io.BytesIO(instance_bytes(Instance.from_document(everything), "npz"))) as archive:
        good = dict(archive)
    header = json.loads(good["header"].tobytes())
    dtypes = ["i1", "u8", "f4", "f8", "?", "U3", "S1", "M8[s]", "c8", ">i4"]
    loaded = 0
    for _ in range(200):
        arrays = dict(good)
        if rng.random() < 0.5:
            damaged = copy.deepcopy(header)
            mutate(damaged, rng, [value for value in PLAIN if value is not DEEP])
            arrays["header"] = np.frombuffer(json.dumps(damaged).encode(), np.uint8)
        else:
            name = rng.choice(list(arrays))
            array = arrays[name].copy()
            change = rng.randrange(5)
            if change == 0:
                array[rng.randrange(len(array))] = rng.choice([0, 1, 2, 5, 100])
            elif change == 1 and array.dtype == np.float64:
                array[rng.randrange(len(array))] = rng.choice([math.nan, math.inf, -1.0, -math.inf])
            elif change == 2:
                with np.errstate(invalid="ignore"):
                    array = array.astype(rng.choice(dtypes))
            elif change == 3:
                array = rng.choice(
                    [array[:-1], array[None], array[0], np.repeat(array, 2), array[:0]]
                )
            else:
                arrays[rng.choice(list(arrays))] = array
            arrays[name] = array
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)
        instance = load(functools.partial(from_npz, buffer.getvalue()))
        if instance is not None:
            loaded += 1
            check_writing(instance, rng.choice(["json", "npz"]))
    assert 10 < loaded < 180
