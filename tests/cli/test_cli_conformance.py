"""``optsched solvers --check``: the suite as a table, as JSON, and as an exit code."""

from __future__ import annotations

from typing import Any

import pytest

from optsched import conformance
from optsched.conformance import Case, Failed, Subject
from optsched.solvers import Capability


def fails(subject: Subject) -> None:
    raise Failed("two and two are five")


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A suite of three cases: one passes, one fails, one is not asked."""
    bank = conformance.BANKS["linear"][:1]
    odd = (Case("sums", fails), Case("cones", fails, frozenset({Capability.CONIC})))
    monkeypatch.setattr("optsched.conformance.run.BANKS", {"linear": bank, "odd": odd})


@pytest.mark.usefixtures("short")
def test_table_and_exit_code(run: Any) -> None:
    result = run("solvers", "--check", "glop")
    assert result.code == 6
    assert "maximum" in result.out and "failed: two and two are five" in result.out
    assert result.out.endswith(
        "1 passed, 1 failed, 0 skipped; 1 more need what it does not claim\n"
    )
    assert result.err == "optsched: error: glop fails 1 of 3 cases\n"
    quiet = run("solvers", "--check", "glop", "--quiet")
    assert (quiet.out, quiet.err) == (
        "",
        "optsched: error: glop fails 'sums': two and two are five\n",
    )


@pytest.mark.usefixtures("short")
def test_json(run: Any) -> None:
    told = run("solvers", "--check", "glop", "--json").json
    assert (told["solver"], told["ok"]) == ("glop", False)
    assert told["counts"] == {"passed": 1, "failed": 1, "skipped": 1}
    assert [item["verdict"] for item in told["cases"]] == ["passed", "failed", "skipped"]
    assert told["cases"][2]["reason"] == "does not claim conic"


def test_all_is_well(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "optsched.conformance.run.BANKS", {"linear": conformance.BANKS["linear"][:3]}
    )
    result = run("solvers", "--check", "highs")
    assert (result.code, result.err) == (0, "")


@pytest.mark.oracle
def test_what_is_not_here(run: Any) -> None:
    for name in ("gurobi", "pulp:NONE", "cvxpy:NONE", "highz"):
        result = run("solvers", "--check", name)
        assert result.code == 7 and name.rpartition(":")[2] in result.err
