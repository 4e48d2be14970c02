"""``trace describe`` on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


def test_tables(run: Any, write: Any, small: dict[str, Any]) -> None:
    result = run("trace", "describe", write(small))
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("small: 4 jobs on 6 GPUs\n")
    assert "all at once" in result.out and "offered load" not in result.out
    assert (
        "Jobs that can run nowhere\n- 1 job (wide): can run nowhere: fast: needs 9 GPUs"
        in result.out
    )
    assert max(map(len, result.out.splitlines())) <= 100


def test_json_and_standard_input(run: Any, write: Any, small: dict[str, Any]) -> None:
    path = write(small)
    document = run("trace", "describe", path, "--json").json
    assert (document["format"], document["jobs"], document["load"]) == (
        "optsched-trace-summary/1",
        4,
        None,
    )
    assert run("trace", "describe", "-", "--json", stdin=path.read_bytes()).json == document


@pytest.mark.picture
def test_a_page(run: Any, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    target = tmp_path / "page.png"
    result = run("trace", "describe", "@quickstart", "-o", target)
    assert result.code == 0 and result.out.endswith(f"picture written to {target}\n")
    assert target.read_bytes()[:4] == b"\x89PNG"
    assert (
        run("trace", "describe", "@quickstart", "-o", tmp_path / "page.svg", "--json").json["jobs"]
        == 12
    )


def test_what_is_refused(run: Any, write: Any, small: dict[str, Any], tmp_path: Path) -> None:
    assert run("trace", "describe", write(small), "-o", tmp_path / "page.txt").refused(
        "found page.txt"
    )
    assert run("trace", "describe", tmp_path / "none.json").code == 3
    assert run("trace", "describe", write({"format": "optsched-trace/1"})).code == 3
