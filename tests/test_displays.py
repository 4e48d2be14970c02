"""How results show themselves: one line at a prompt, a table in a notebook, a frame, a picture."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import optsched
from optsched.benchmarking import Benchmark, from_names
from optsched.display import Displayed, DisplayedTable, moment
from optsched.display.columns import RECORDED, title, written
from optsched.display.html import escape
from optsched.errors import InvalidArgument, SolverUnavailable
from optsched.generate import generate
from optsched.sensitivity import capacity_curve
from optsched.solution import Rounds, Termination, Values

WIDEST = 120
"""Characters of a line."""


@pytest.fixture(scope="module")
def results() -> dict[str, Displayed]:
    """A value of every station on the way, and a result of every study."""
    instance = optsched.load("@quickstart")
    solution = optsched.solve(instance)
    realised = optsched.realise(solution)
    placed = optsched.place(realised)
    leases = generate("leases", jobs=4, nodes=3, tightness=2, seed=2).instance
    scheduled = optsched.solve(leases, "lease", admission=True)
    state = optsched.RoundState.first(instance)
    simulation = optsched.simulate(instance, "max-min-fairness")
    allocation, schedule = solution.allocation, scheduled.schedule
    rounds, placement = realised.rounds, placed.placement
    assert allocation is not None and schedule is not None
    assert rounds is not None and placement is not None
    formulation = optsched.api.make_formulation("max-min-fairness")
    program = formulation.build(allocation.classes)
    return {
        "instance": instance,
        "candidates": solution.candidates,
        "classes": allocation.classes,
        "program": program,
        "arrays": program.to_linear().arrays,
        "solution": solution,
        "allocation": allocation,
        "schedule": schedule,
        "prices": solution.prices,
        "rounds": rounds,
        "placement": placement,
        "comparison": optsched.compare(instance, ["max-min-fairness", "makespan"]),
        "front": optsched.pareto(instance, ["max-throughput", "max-min-fairness"], points=3),
        "what-if": optsched.whatif(instance, "max-min-fairness", add={"v100": 1}),
        "sweep": Benchmark(
            from_names(["@quickstart"]), [("makespan", {})], solvers=["highs", "clarabel"]
        ).run(),
        "curve": capacity_curve(solution, "v100"),
        "verification": optsched.verify(instance, solution.to_document()),
        "state": state,
        "plan": optsched.solve_round(state),
        "explanation": optsched.explain_job(solution, "bert-base-2"),
        "trace": simulation.trace,
        "simulation": simulation,
    }


def test_every_repr_is_one_line(results: dict[str, Displayed]) -> None:
    for name, result in results.items():
        text = repr(result)
        assert text.startswith(f"<{type(result).__name__} ") and text.endswith(">"), name
        assert "\n" not in text and len(text) <= WIDEST, (name, text)
        assert result.summary().splitlines()[0] == text[1:-1]


def test_values_that_hold_arrays_do_not_print_them(results: dict[str, Displayed]) -> None:
    solution, simulation = results["solution"], results["simulation"]
    assert isinstance(solution, optsched.Solution) and solution.allocation is not None
    assert isinstance(simulation, optsched.Simulation)
    instance = solution.instance
    with optsched.Scheduler(instance, isolate=False) as scheduler:
        shown = [repr(scheduler)]
    shown += map(
        repr,
        [
            instance.cluster,
            instance.cluster.pools[0],
            instance.jobs_table,
            solution.allocation.rows,
            solution.allocation.classes.configurations,
            simulation.jobs,
            simulation.rounds,
            optsched.capacity_ranging(solution)["v100"],
        ],
    )
    assert [text for text in shown if "\n" in text or "array" in text or len(text) > WIDEST] == []


def test_what_results_lead_to_is_one_line_too(results: dict[str, Displayed]) -> None:
    for name, result in results.items():
        for field in dir(result):
            if field.startswith("_"):
                continue
            try:
                value = getattr(result, field)
            except KeyError:
                continue  # a field of the jobs that the formulation does not read
            ours = type(value).__module__.partition(".")[0] in ("optsched", "formulations")
            if ours and not callable(value):
                text = repr(value)
                assert "\n" not in text and len(text) <= WIDEST, (name, field, text)
                assert " at 0x" not in text, (name, field, text)


def test_a_value_without_words_of_its_own_shows_its_fields() -> None:
    options = optsched.load("@quickstart").options
    assert repr(options).startswith("<OptionTable indptr (1), pool (0), gpus (0)")
    assert repr(optsched.RoundPolicy(patience=3)) == "<RoundPolicy patience=3>"


def test_summaries_say_what_a_line_cannot(results: dict[str, Displayed]) -> None:
    plan, front = results["plan"].summary(), results["front"].summary()
    assert "16 of 16 in use" in plan and "resnet-50-1" in plan
    assert "total throughput, steps/s (more is better)" in front and "at one end" in front
    assert re.search(r": change \+.*, held \+.*, by prices \+", results["what-if"].summary())
    assert "1 of 1 problem settled" in results["sweep"].summary()
    assert "2 of 12 jobs" in results["trace"].summary()
    assert "deadlines met  100 %" in results["simulation"].summary()


def test_the_state_after_a_plan_shows_what_runs(results: dict[str, Displayed]) -> None:
    state, plan = results["state"], results["plan"]
    assert isinstance(state, optsched.RoundState) and isinstance(plan, optsched.Plan)
    after = plan.next_state(state, now=plan.until)
    assert (after.round, after.now) == (1, plan.until)
    columns = after.to_columns()
    shown = dict(zip(columns["job"], columns["gpus"], strict=True))
    assert {job: gpus for job, gpus in shown.items() if gpus} == {
        item.job: item.gpus for item in plan.start
    }
    waits = columns["job"].index("bert-base-2")
    assert columns["owed"][waits] == pytest.approx(columns["fraction"][waits])
    for wrong, now, path in (
        (after, None, "state"),
        (state, 0.0, "now"),
        (state, float("nan"), "now"),
    ):
        with pytest.raises(InvalidArgument) as error:
            plan.next_state(wrong, now)
        assert error.value.path == path


def test_times_on_the_clock_keep_their_digits() -> None:
    assert written("start", 95400.5) == "26:30:00.5" and written("end", -359.9999) == "-0:06:00"
    assert title("deadline") == "deadline, h:mm:ss" and written("deadline", 7200.0) == "2:00:00"


def test_a_placement_names_its_jobs(results: dict[str, Displayed]) -> None:
    placement = results["placement"]
    assert isinstance(placement, DisplayedTable)
    jobs = placement.to_columns()["job"]
    assert set(jobs) <= {job.id for job in optsched.load("@quickstart").jobs}


def test_notebooks_show_a_table_of_each_result_with_rows(results: dict[str, Displayed]) -> None:
    tables = {
        name: result for name, result in results.items() if isinstance(result, DisplayedTable)
    }
    assert set(results) - set(tables) == {"candidates", "program", "arrays"}
    for name, result in tables.items():
        html = result._repr_html_()
        columns = result.to_columns()
        lengths = {len(column) for column in columns.values()}
        assert len(lengths) == 1, name
        shown = [
            column
            for column, values in columns.items()
            if column not in RECORDED and any(written(column, value) for value in values[:20])
        ]
        # In plain words, with the unit behind them
        assert all(
            f">{escape(title(column, result._kinds().get(column)))}<" in html for column in shown
        ), name
        assert not re.search(r"<th[^>]*>\w*_", html), name
        few = result.to_columns(2)
        assert {column: list(values)[:2] for column, values in columns.items()} == {
            column: list(values) for column, values in few.items()
        }, name


def test_a_notebook_shows_the_first_rows_of_many() -> None:
    instance = generate("cluster", jobs=50, seed=1).instance
    html = instance._repr_html_()
    # Names of jobs, such as train-/01, stay on one line
    assert "td:first-child:not(.long) { white-space: nowrap; }" in html
    assert html.count("<tr>") == 21 and "The first 20 rows; to_frame() has all." in html


def test_names_are_escaped_and_stay_on_one_line() -> None:
    instance = optsched.Instance.from_arrays(
        pools={"<b>\n": 2}, throughput=[[1.0]], ids=["<i>"], name="<u>\n"
    )
    assert repr(instance) == "<Instance <u> : 1 job, 2 GPUs in 1 pool>"
    html = instance._repr_html_()
    assert "<u>" not in html and "<i>" not in html and "<b>" not in html and "&lt;i&gt;" in html


def test_frames_have_the_columns(results: dict[str, Displayed]) -> None:
    pytest.importorskip("pandas")
    for name, result in results.items():
        if not isinstance(result, DisplayedTable):
            continue
        frame, columns = result.to_frame(), result.to_columns()
        assert list(frame.columns) == list(columns), name
        assert len(frame) == len(next(iter(columns.values())))


def test_a_frame_without_pandas_says_what_to_install(
    results: dict[str, Displayed], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    allocation = results["allocation"]
    assert isinstance(allocation, DisplayedTable)
    with pytest.raises(SolverUnavailable, match=r"pip install pandas, or .* to_columns\(\)"):
        allocation.to_frame()


def test_a_comparison_is_a_picture_with_a_title() -> None:
    picture = optsched.compare("@quickstart", ["makespan", "isolated"]).plot()
    assert repr(picture) == f"<Picture {picture.axes.get_title('left')}>"


def test_claims_of_a_solver_in_a_line() -> None:
    claims = Values(Termination.OPTIMAL, objective=2.5)
    assert repr(claims) == "<Values optimal: primal none, dual none, objective 2.5>"


def test_the_names_of_the_package_are_those_that_it_lists() -> None:
    assert dir(optsched) == sorted(optsched.__all__)


@pytest.mark.picture
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("instance", None), ("solution", None), ("solution", "rounds"), ("solution", "topology"),
        ("solution", "prices"), ("allocation", None), ("schedule", None), ("prices", None), ("rounds", None),
        ("comparison", None), ("front", None), ("simulation", None), ("sweep", None), ("trace", None), ("plan", None),
    ],
)  # fmt: skip
def test_results_draw_themselves(
    results: dict[str, Displayed], name: str, kind: str | None, tmp_path: Path
) -> None:
    result = results[name]
    picture = result.plot() if kind is None else result.plot(kind)  # type: ignore[attr-defined]
    assert "\n" not in repr(picture) and "<svg" in picture._repr_html_()
    picture.save(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


SHOWN = """
import json, sys
import optsched
from optsched.generate import generate

kind = sys.argv[1]
if kind == "sweep":
    from optsched.benchmarking import Benchmark, from_names
    problems = from_names(["@quickstart"])
    value = Benchmark(problems, [("makespan", {})], solvers=["highs", "clarabel"]).run()
elif kind == "schedule":
    leases = generate("leases", jobs=4, nodes=3, tightness=2, seed=2).instance
    value = optsched.solve(leases, "lease", admission=True).schedule
elif kind == "instance":
    value = optsched.load("@quickstart")
elif kind == "simulation":
    value = optsched.simulate("@quickstart", "fifo")
elif kind == "comparison":
    value = optsched.compare("@quickstart", ["max-min-fairness", "makespan"])
elif kind == "front":
    value = optsched.pareto("@quickstart", ["max-throughput", "max-min-fairness"], points=3)
else:
    solution = optsched.realise(optsched.solve("@quickstart"))
    value = solution if kind == "solution" else getattr(solution, kind)
print(json.dumps([
    repr(value), value.summary(), value._repr_html_(), len(value.to_frame()), value.plot()._repr_html_(),
]))
"""
"""Shows a value of a kind in all five ways, by public names."""


@pytest.mark.process
@pytest.mark.parametrize(
    "kind",
    [
        *("solution", "rounds", "sweep"),
        *(
            pytest.param(kind, marks=pytest.mark.study)
            for kind in (
                "instance",
                "allocation",
                "schedule",
                "prices",
                "comparison",
                "front",
                "simulation",
            )
        ),
    ],
)
def test_a_process_that_has_loaded_nothing_shows_a_value(kind: str) -> None:
    pytest.importorskip("pandas")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SHOWN, kind], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    line, summary, html, rows, picture = json.loads(done.stdout)
    assert "\n" not in line and len(line) <= WIDEST
    assert summary.splitlines()[0] == line[1:-1]
    assert "<table>" in html and rows > 0 and "<svg" in picture


def test_prices_are_a_dictionary(results: dict[str, Displayed]) -> None:
    solution = results["solution"]
    assert isinstance(solution, optsched.Solution)
    prices = solution.prices
    assert json.loads(json.dumps(prices)) == prices == solution.to_document()["prices"]
    assert list(prices.to_columns()["used"]) == list(solution.metrics["utilisation"].values())


def test_prices_that_there_are_not_are_not_drawn() -> None:
    solution = optsched.solve("@quickstart", "isolated")
    assert repr(solution.prices) == "<Prices of quickstart: none>" and not solution.prices
    with pytest.raises(optsched.UsageError, match="no prices"):
        solution.prices.plot()


def test_the_slices_of_rounds_fill_their_window(results: dict[str, Displayed]) -> None:
    rounds = results["rounds"]
    assert isinstance(rounds, Rounds)
    columns = rounds.to_columns()
    assert sum(columns["seconds"]) == pytest.approx(rounds.window * rounds.length.sum())
    assert columns["start"][1] == pytest.approx(columns["seconds"][0])
    assert all(len(jobs) == len(set(jobs)) for jobs in columns["jobs"])


def test_a_wrong_kind_of_picture_is_refused(results: dict[str, Displayed]) -> None:
    with pytest.raises(InvalidArgument) as error:
        results["solution"].plot("gant")  # type: ignore[attr-defined]
    assert (error.value.path, error.value.found) == ("kind", '"gant"')


def test_a_solution_is_asked_for_a_job(results: dict[str, Displayed], tmp_path: Path) -> None:
    solution = results["solution"]
    assert isinstance(solution, optsched.Solution) and solution.allocation is not None
    answer = solution["bert-base-2"]
    assert list(answer.rows) == [
        row for row in solution.allocation.to_records() if row["job"] == "bert-base-2"
    ]
    assert answer.throughput == solution.throughput["bert-base-2"] and not answer.reason
    assert repr(answer) == "<JobAnswer of bert-base-2: 1 row, 19.41 steps/s>"
    assert "bert-base-2" in solution and "nobody" not in solution and 0 not in solution
    assert len(list(solution)) == 12
    with pytest.raises(KeyError, match="nobody"):
        solution["nobody"]
    solution.write(tmp_path / "solution.json")
    assert optsched.verify("@quickstart", tmp_path / "solution.json").ok


def test_a_job_that_gets_nothing_has_a_reason() -> None:
    given = optsched.Instance.from_arrays(pools={"v100": 1}, throughput=[[1.0], [2.0]], gpus=[1, 2])
    answer = optsched.solve(given)["j1"]
    assert answer.rows == () and answer.throughput == 0 and answer.reason
    assert answer.reason in repr(answer)


def test_a_cluster_without_nodes_is_not_drawn() -> None:
    builder = optsched.InstanceBuilder()
    builder.add_pool("v100", nodes=0, gpus_per_node=1)
    with pytest.raises(optsched.UsageError, match="no nodes"):
        builder.instance().plot()


def test_the_columns_of_a_front_have_the_units_of_its_objectives() -> None:
    html = optsched.pareto("@quickstart", ["makespan", "cost"], points=3)._repr_html_()
    assert ">cost, USD/h</th>" in html
    assert not re.search(r"<td>inf [a-z]", html)


@pytest.mark.parametrize(
    ("value", "now", "text"),
    [
        (456.219, 0.0, "456.3"),
        (456.3, 0.0, "456.3"),
        (0.1, 0.0, "0.1"),
        (1.7e9 + 1.3, 1.7e9, "1700000001.3"),
        (123456.5, 0.0, "123457"),
        (-1.0, 5.0, "-1"),
        (5.0, 5.0, "5"),
        (0.0, 0.0, "0"),
        (1e-7 / 3, 0.0, "0.000000034"),
    ],
)
def test_a_moment_is_rounded_up(value: float, now: float, text: str) -> None:
    assert moment(value, now) == text
    assert float(text) >= value
