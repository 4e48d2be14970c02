"""Parts that are solved in other processes: the same answer as in this one, to the last bit."""

from __future__ import annotations

import dataclasses
import json
import logging
import pickle
import time
from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from test_pair_parts import packed

import optsched
from optsched.assembly import compile, make_formulation
from optsched.candidates import Classes
from optsched.errors import UsageError
from optsched.formulation import SideConstraint
from optsched.instance.durations import UNLIMITED, Timer
from optsched.program import AllocationProgram, SideRows
from optsched.registry import load_solver
from optsched.solution import Solution, Termination
from optsched.solvers import Limits

# Private names: parts must be small for a test, and nothing is sent
from optsched.solving import Engine, side_by_side
from optsched.solving.column_generation import pair_generation, pair_parts
from optsched.solving.side_by_side import EngineSettings

pytestmark = pytest.mark.process

EXECUTORS = ["processes", "ray"]


def untimed(solution: Solution) -> str:
    """The document of a solution without what took how long."""
    document = json.loads(json.dumps(solution.to_document()))
    for key in ("timings", "created"):
        document.pop(key, None)
    return json.dumps(document)


def without(executor: str) -> None:
    if executor == "ray":
        pytest.importorskip("ray", reason="the extra ray is not installed")


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_packed_program_is_the_same(executor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    without(executor)
    monkeypatch.setattr(pair_generation, "IN_PARTS_FROM", 40)
    monkeypatch.setattr(pair_parts, "EACH", 20)
    solve = partial(optsched.solve, packed(11, 80), generate_columns=True)
    here = solve()
    there = solve(processes=2, executor=executor)
    assert here.allocation is not None and there.allocation is not None
    assert here.solver is not None and here.solver.iterations > 0
    assert untimed(here) == untimed(there)
    assert here.allocation.x.tobytes() == there.allocation.x.tobytes()


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("name", ["max-min-fairness", "proportional-fairness"])
def test_a_program_in_parts_is_the_same(name: str, executor: str) -> None:
    without(executor)
    solve = partial(optsched.solve, "@large", name, parts=3)
    assert untimed(solve()) == untimed(solve(processes=2, executor=executor))


def test_other_processes_that_nothing_is_for_are_told_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "optsched"):
        optsched.solve("@quickstart", processes=2)
    assert "other processes were of no use: the program of max-min-fairness" in caplog.text


@pytest.mark.unit
def test_an_engine_of_a_part_has_what_is_left_of_the_time() -> None:
    settings = EngineSettings.of(Engine(load_solver, "highs", Limits(time=1e6)))
    assert settings.engine(UNLIMITED).timer.seconds is None
    late = settings.engine(Timer(1.0, time.monotonic() - 2.0))
    assert late.timer.seconds == 0.0 and late.time_left <= 0
    assert 0 < settings.engine(Timer.after(100.0)).time_left <= 100.0
    assert late.solver == "highs"


@pytest.mark.unit
def test_a_timer_that_is_sent_has_what_was_left_whatever_the_clock_there_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent = pickle.dumps(Timer(60.0, time.monotonic() - 20.0))
    over = pickle.dumps(Timer(60.0, time.monotonic() - 70.0))
    monkeypatch.setattr(time, "monotonic", lambda: -1e9)
    # The default clock of a class was set when it was made
    monkeypatch.setattr(Timer.after.__func__, "__defaults__", (time.monotonic,))
    arrived = pickle.loads(sent)
    assert arrived.spent == 0.0 and 39.0 < arrived.left <= 40.0
    assert pickle.loads(over).left == 0.0
    assert pickle.loads(pickle.dumps(Timer.after(None))).seconds is None


@pytest.mark.unit
def test_nobody_hears_what_is_found_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Any] = []
    monkeypatch.setattr(side_by_side, "Calls", lambda _, shared, **how: sent.extend(shared))
    heard = Limits(on_progress=print, on_log=print, on_point=print)
    engine = Engine(load_solver, limits=heard, processes=2)
    side_by_side.SideBySide(engine, lambda *of: None, ())
    limits = sent[1].limits
    assert (limits.on_progress, limits.on_log, limits.on_point) == (None, None, None)


@pytest.mark.unit
def test_an_engine_of_a_part_wants_the_same_optimum() -> None:
    for whole in (Engine(load_solver, inside=True), Engine(load_solver, vertex=True)):
        part = EngineSettings.of(whole).engine(UNLIMITED)
        assert (part.inside, part.vertex) == (whole.inside, whole.vertex)


def _pressed(engine: Engine, shared: tuple[Any, ...], item: int) -> None:
    raise KeyboardInterrupt


@pytest.mark.unit
def test_ctrl_c_in_this_process_is_no_error_that_a_script_goes_on_after() -> None:
    with pytest.raises(KeyboardInterrupt):
        side_by_side.SideBySide(Engine(load_solver), _pressed, ()).results([0])


@pytest.mark.unit
def test_a_part_that_there_is_no_time_for_is_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair_parts.PairParts, "pricing_of", None)  # to be called by nobody
    late = Engine(load_solver, limits=Limits(time=1e-9))
    parts = pair_parts.PairParts(None, None, ())  # type: ignore[arg-type]
    assert pair_parts.SolvePart(0).solved(late, parts, None) is Termination.TIME_LIMIT


@pytest.mark.unit
@pytest.mark.parametrize("wrong", [{"processes": 0}, {"executor": "slurm"}])
def test_wrong_executors_are_refused_before_anything_is_read(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        optsched.solve("nowhere.json", **wrong)


class Local(SideConstraint):
    """Rows with words that no other process can have."""

    kind = "local"

    def __init__(self) -> None:
        super().__init__(self.Options())

    def rows(self, C: Classes) -> SideRows | None:
        matrix = sp.csr_matrix(C.usage)[:1]
        nothing, most = np.array([-np.inf]), C.capacity[:1]
        return SideRows("local", matrix, nothing, most, lambda row: "of this script")


@pytest.mark.unit
def test_words_that_cannot_be_sent_are_refused() -> None:
    with pytest.raises(UsageError, match="what is to be sent to other processes cannot be"):
        optsched.solve("@quickstart", parts=2, constraints=[Local()], processes=2)


ASKED: list[dict[str, Any]] = [
    {"kind": "budget", "limit": 200.0},
    {"kind": "deadlines"},
    {"kind": "forbidden", "pools": ["k80"], "jobs": ["resnet-18-3"]},
    {"kind": "minimum-service", "fraction": 0.01},
    {"kind": "minimum-service", "fraction": 0.01, "of": "isolated"},
    {"kind": "minimum-throughput", "rate": 0.1},
    {"kind": "quota", "tenant": "vision", "gpus": 4.0},
    {"kind": "minimum-share", "tenant": "vision", "gpus": 1.0},
]


@pytest.mark.unit
@pytest.mark.parametrize("asked", ASKED, ids=[item["kind"] for item in ASKED])
def test_side_rows_come_back_with_their_words(asked: dict[str, Any]) -> None:
    made = make_formulation("max-min-fairness", constraints=[asked])
    program = made.program(made.classes(compile("@quickstart")))
    assert isinstance(program, AllocationProgram)
    (rows,) = program.side
    (again,) = pickle.loads(pickle.dumps(program)).side
    words = [rows.describe(row) for row in range(len(rows.upper))]
    assert words and [again.describe(row) for row in range(len(words))] == words
    assert dataclasses.replace(rows, lower=again.lower).name == again.name
