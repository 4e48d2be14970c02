"""Notes on answers: each once on standard error, none with --json or -q."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

WORDS = (
    "does not read these fields of the instance, so they have no effect on the answer: deadlines"
)


@pytest.mark.parametrize(
    "command",
    [
        ("solve", "-f", "makespan"),
        ("explain", "-f", "makespan"),
        ("explain", "-f", "makespan", "--job", "a"),
        ("whatif", "-f", "makespan", "--add", "fast:2"),
        ("whatif", "-f", "makespan", "--ranging"),
        ("compare", "-f", "makespan"),
    ],
    ids=" ".join,
)
def test_every_command_that_solves_tells_what_is_not_read(
    run: Any, small: dict[str, Any], write: Callable[..., Path], command: tuple[str, ...]
) -> None:
    small["jobs"][0]["deadline"] = 7200
    name, *options = command
    path = write(small)
    not_read, promised = run(name, path, *options).err.splitlines()
    assert not_read == f"optsched: note: makespan {WORDS}"
    assert promised.startswith("optsched: note: rows of several sizes take turns on fast")
    assert run(name, path, *options, "--json").err == ""
    assert run(name, path, *options, "-q").err == ""


def test_a_comparison_tells_what_each_formulation_does_not_read(
    run: Any, small: dict[str, Any], write: Callable[..., Path]
) -> None:
    small["jobs"][0]["deadline"] = 7200
    small["jobs"][1]["arrival"] = 60
    err = run("compare", write(small), "-f", "makespan", "-f", "max-throughput").err
    first, later, second = err.splitlines()
    assert first == f"optsched: note: makespan {WORDS}"
    assert later.startswith("optsched: note: 1 of 4 jobs have not arrived")
    assert second == f"optsched: note: max-throughput {WORDS}"
