"""What `import optsched` offers: names, signatures, and what its functions take in place of files and numbers."""

from __future__ import annotations

import ast
import inspect
import json
import pickle
import pkgutil
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from refusals import refuses

import optsched
from optsched import errors
from optsched.api import make_limits
from optsched.simulation import SimulationOptions
from optsched.solving import LimitOptions

QUICKSTART = optsched.load("@quickstart").to_document()
OPEN = {
    "solve": "formulation_options",
    "fit_model": "options",
    "fit_pairs": "options",
}
"""Functions that pass further keywords on: options of a formulation or a model, which a plug-in may bring."""

# --- names ---------------------------------------------------------------------------------------------------------


def test_every_error_is_exported() -> None:
    found = {
        name
        for name, item in vars(errors).items()
        if isinstance(item, type) and issubclass(item, Exception)
    }
    assert found <= set(optsched.__all__)
    assert all(getattr(optsched, name) is getattr(errors, name) for name in found)


def test_no_module_has_the_name_of_what_its_package_loads_when_asked() -> None:
    """Python puts a module that was imported into its package, where it would hide the name that is still to load."""
    root = Path(optsched.__file__).parent
    lazy = [
        path.parent for path in root.rglob("*/__init__.py") if "lazy_names(" in path.read_text()
    ]
    assert lazy
    for folder in lazy:
        package = import_module(".".join(("optsched", *folder.relative_to(root).parts)))
        body = ast.parse((folder / "__init__.py").read_text()).body
        at_once = {
            alias.name for node in body if isinstance(node, ast.ImportFrom) for alias in node.names
        }
        assert not (set(package.__all__) - at_once) & {
            module.name for module in pkgutil.iter_modules(package.__path__)
        }


def test_a_formulation_and_a_side_constraint_of_one_s_own() -> None:
    from optsched.formulation import Formulation, SideConstraint

    assert (optsched.Formulation, optsched.SideConstraint) == (Formulation, SideConstraint)


def test_another_solve_of_an_instance_compiles_it_no_more() -> None:
    instance = optsched.load("@quickstart")
    first, again = optsched.solve(instance), optsched.solve(instance)
    assert again.candidates.columns is first.candidates.columns
    assert again.candidates.instance is instance
    planned = optsched.solve(instance, "deadline-fluid")  # plans with later jobs as well
    assert planned.candidates.columns is not first.candidates.columns
    for other in (replace(instance, name="other"), pickle.loads(pickle.dumps(instance))):
        anew = optsched.solve(other)
        assert anew.candidates.columns is not first.candidates.columns
        assert anew.objective == first.objective


def test_a_solve_has_its_own_capacities() -> None:
    instance = optsched.load("@quickstart")
    first = optsched.solve(instance)
    first.candidates.resources.capacity[:] = 0.0  # as a formulation may do that reserves GPUs
    assert optsched.solve(instance).objective == first.objective


def test_an_instance_whose_model_reads_a_file_is_compiled_anew(tmp_path: Path) -> None:
    instance = optsched.load("@quickstart")
    copied = replace(instance, performance={"model": "chain", "models": [{"model": "table"}]})
    first, again = optsched.solve(copied).candidates, optsched.solve(copied).candidates
    assert again.columns is not first.columns


def test_solve_takes_a_formulation_with_its_options() -> None:
    made = optsched.api.make_formulation("alpha-fairness", {"alpha": 2.0})
    named = optsched.solve(QUICKSTART, "alpha-fairness", alpha=2.0)
    assert optsched.solve(QUICKSTART, made).objective == named.objective
    with pytest.raises(errors.UsageError, match="give none beside it"):
        optsched.solve(QUICKSTART, made, alpha=1.0)


# --- documentation -------------------------------------------------------------------------------------------------

PUBLIC = [name for name in optsched.__all__ if inspect.isroutine(getattr(optsched, name))]


def lacking(name: str, function: Callable[..., Any]) -> list[str]:
    """What the docstring of a function should say and does not."""
    lines, signature = (inspect.getdoc(function) or "").splitlines(), inspect.signature(function)
    wanted = ["Raises"] if name in PUBLIC and name not in CANNOT_FAIL else []
    if "Returns" not in lines and signature.return_annotation not in ("None", None):
        wanted.append("Returns")
    parameters = [
        ("*" * (item.kind - 2 if item.kind == 4 else item.kind == 2)) + item.name
        for item in signature.parameters.values()
        if item.name != "self"
    ]
    if parameters:
        wanted.append("Parameters")
    found = [f"{name}: no section {section}" for section in wanted if section not in lines]
    stated = {word for line in lines for word in line.partition(" : ")[0].split(", ")}
    if "**limits" in stated:
        stated |= set(LimitOptions.__annotations__)
    return found + [f"{name}: {item}" for item in parameters if item not in stated]


CANNOT_FAIL = {"envelope_gap"}


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_function_documents_its_parameters_results_and_errors(name: str) -> None:
    assert lacking(name, getattr(optsched, name)) == []


def test_every_public_name_is_in_the_reference() -> None:
    folder = Path(__file__).parent.parent / "docs" / "reference" / "api"
    text = "".join(path.read_text() for path in sorted(folder.glob("*.md")))
    listed = re.findall(r"^::: optsched(?:\.verify)?\.(\w+)$", text, re.MULTILINE)
    assert sorted(listed) == sorted(set(optsched.__all__) - {"__version__"})


# --- signatures ----------------------------------------------------------------------------------------------------


def functions() -> dict[str, Callable[..., Any]]:
    found = {name: getattr(optsched, name) for name in optsched.__all__ if not name[0].isupper()}
    del found["__version__"]
    for owner in (optsched.Scheduler, optsched.Instance, optsched.Simulation):
        for name, method in inspect.getmembers(owner, callable):
            if not name.startswith("_"):
                found[f"{owner.__name__}.{name}"] = method
    return found


def test_public_functions_say_what_they_take() -> None:
    further = {
        name: parameter.name
        for name, function in functions().items()
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind is inspect.Parameter.VAR_KEYWORD
    }
    assert further == OPEN


@pytest.mark.process
def test_verify_says_what_it_takes_after_its_package_was_imported() -> None:
    program = (
        "import inspect, optsched; before = inspect.signature(optsched.verify); import optsched.verify;"
        "assert inspect.signature(optsched.verify) == before, inspect.signature(optsched.verify);"
        "assert optsched.verify(optsched.solve('@quickstart')).ok"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300)


def test_options_of_a_simulation_are_parameters_with_the_same_defaults() -> None:
    fields = {name: field.default for name, field in SimulationOptions.model_fields.items()}
    parameters = inspect.signature(optsched.simulate).parameters
    assert {name: parameters[name].default for name in fields} == fields
    assert set(parameters) - set(fields) == {"trace", "policy", "performance", "truth"}


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: optsched.solve("nowhere.json", timelimit=3), "time_limit"),
        (lambda: optsched.solve("nowhere.json", "alpha-fairness", alhpa=3), "alpha"),
        (lambda: optsched.compare("nowhere.json", timelimit=3), "time_limit"),
        (lambda: optsched.whatif("nowhere.json", ad={"v100": 1}), "add"),
        (lambda: optsched.pareto("nowhere.json", ("makespan", "cost"), point=3), "points"),
        (lambda: optsched.simulate("nowhere.json", replann="events"), "replan"),
        (lambda: optsched.verify("nowhere.json", "nothing.json", resolv=True), "resolve"),
        (lambda: optsched.solve_program("nowhere.mps", thread=2), "threads"),
        (lambda: optsched.load("nowhere.json", performanc="m.json"), "performance"),
        (lambda: optsched.solve_round("nowhere.json", polcy="srtf"), "policy"),
        (lambda: optsched.Scheduler("nowhere.json", jurnal="j"), "journal"),
        (lambda: optsched.Scheduler.recover("nowhere", clok=None), "clock"),
        (lambda: optsched.Instance.from_arrays(pools={"a": 1}, troughput=1.0), "throughput"),
    ],
    ids=lambda item: item if isinstance(item, str) else "",
)
def test_an_unknown_keyword_is_refused_with_the_closest_one(
    call: Callable[[], object], name: str
) -> None:
    with pytest.raises(optsched.UsageError) as caught:
        call()
    assert str(caught.value).endswith(f"; did you mean {name}?")


def test_the_message_of_an_unknown_keyword() -> None:
    with pytest.raises(optsched.UsageError) as caught:
        optsched.solve("@quickstart", timelimit=3)
    told = "solve has no parameter and max-min-fairness no option 'timelimit'; did you mean time_limit?"
    assert str(caught.value) == told


def test_where_no_keyword_is_close_all_are_named() -> None:
    with pytest.raises(optsched.UsageError) as caught:
        optsched.verify("@quickstart", solution=3)
    told = "verify has no parameter 'solution', expected one of instance, document, resolve, model, performance"
    assert str(caught.value) == told


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: optsched.solve("@quickstart", "makespan", solver=3), "solver: found 3"),
        (lambda: optsched.solve("@quickstart", "makespan", constraints=3), "constraints: found 3"),
        (
            lambda: optsched.solve("@quickstart", "makespan", solver_options=3),
            "solver_options: found 3",
        ),
        (lambda: optsched.compare("@quickstart", 3), "formulations: found 3"),
        (lambda: optsched.compare("@quickstart", ["makespan", 3]), "formulations[1]: found 3"),
        (lambda: optsched.compare("@quickstart", [("makespan",)]), "formulations[0]: found ..."),
    ],
    ids=lambda item: item if isinstance(item, str) else "",
)
def test_values_of_a_wrong_type_are_refused(call: Callable[[], object], told: str) -> None:
    with refuses(told, optsched.UsageError):
        call()


# --- durations -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "seconds"),
    [(90, 90.0), ("90", 90.0), ("90s", 90.0), ("5m", 300.0), (" 2 h ", 7200.0), ("1d", 86400.0)],
)
def test_time_limits_are_seconds_or_text(given: float | str, seconds: float) -> None:
    assert make_limits(given).time == seconds
    assert optsched.RoundPolicy(time_limit=given).time_limit == seconds
    assert SimulationOptions(until=given).until == seconds


@pytest.mark.parametrize("given", ["5 parsecs", "-5m", "", "9" * 400, True, [5]])
def test_what_is_no_duration_is_refused(given: Any) -> None:
    with refuses("time_limit", optsched.UsageError):
        optsched.solve("@quickstart", time_limit=given)
    with pytest.raises(optsched.InvalidInput) as caught:
        optsched.simulate("@quickstart", {"time_limit": given})
    assert caught.value.path == "policy.time_limit"


def test_functions_that_take_a_time_limit_take_text() -> None:
    solution = optsched.solve("@quickstart", time_limit="5m")
    assert optsched.realise(solution, time_limit="5m").rounds is not None
    assert (
        optsched.compare("@quickstart", ["makespan"], time_limit="5m").rows[0].solution is not None
    )
    assert optsched.capacity_ranging(solution, ["v100"], time_limit="5m")["v100"].finished


def test_sweeps_take_text_and_make_the_same_tasks() -> None:
    from optsched.benchmarking import Benchmark
    from optsched.benchmarking.sources import ProblemSource

    source = ProblemSource("a", {"format": "optsched-instance/1"}, False)
    keys = {Benchmark([source], time_limit=limit).tasks()[0].key for limit in (300, 300.0, "5m")}
    assert len(keys) == 1


@pytest.mark.parametrize(
    "given",
    [
        {"seed": "a"},
        {"seed": 1.0},
        {"threads": 1.5},
        {"gap": "small"},
        {"tolerance": "1e-9"},
        {"gap": True},
    ],
)
def test_limits_that_are_no_numbers_are_refused(given: dict[str, Any]) -> None:
    with refuses(next(iter(given)), optsched.UsageError):
        optsched.solve("nowhere.json", **given)


@pytest.mark.parametrize("name", ["tolerance", "threads", "seed"])
def test_a_limit_that_has_a_default_cannot_be_none(name: str) -> None:
    with refuses(f"{name}: found None, expected a...", optsched.UsageError):
        optsched.solve("nowhere.json", **{name: None})  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [3, ["makespan"], {"name": "makespan"}])
def test_what_is_no_name_of_a_formulation_is_refused(given: Any) -> None:
    with refuses(f"formulation: found {given!r}, expected the name of one", optsched.UsageError):
        optsched.solve("nowhere.json", given)


@pytest.mark.parametrize("given", [3, ["cost"], "cost"])
def test_what_is_no_mapping_of_options_is_refused(given: Any) -> None:
    with refuses("options: found ..., expected options of makespan by name", optsched.UsageError):
        optsched.solve("nowhere.json", "makespan", options=given)


# --- documents in place of files -----------------------------------------------------------------------------------


def test_a_document_stands_for_its_file() -> None:
    instance = optsched.load("@quickstart")
    assert optsched.load(QUICKSTART).sha256 == instance.sha256
    assert optsched.load(instance) is instance
    assert optsched.solve(QUICKSTART).objective == optsched.solve("@quickstart").objective
    assert optsched.compile(QUICKSTART).instance.sha256 == instance.sha256
    assert optsched.compare(QUICKSTART, ["makespan"]).instance.sha256 == instance.sha256
    assert optsched.whatif(QUICKSTART, add={"v100": 1}).base.instance.sha256 == instance.sha256
    assert optsched.load_trace(QUICKSTART).instance.sha256 == instance.sha256


def test_a_document_that_is_wrong_is_refused_with_its_path() -> None:
    with pytest.raises(optsched.InvalidInput) as caught:
        optsched.solve({**QUICKSTART, "round": -1.0})
    assert caught.value.path == "round"
    with refuses("instance: found 3, expected an Instance...", optsched.UsageError):
        optsched.load(3)  # type: ignore[arg-type]


def test_what_is_easily_mistaken_is_explained() -> None:
    with pytest.raises(optsched.InvalidInput) as caught:
        optsched.solve("quickstart")
    assert caught.value.expected == "a file, or @quickstart for the instance that ships"
    with refuses("instance: found '@quickstat', expected one of...", optsched.UsageError):
        optsched.solve("@quickstat")
    for call in (optsched.solve, optsched.compare):
        with refuses('constraints: found "deadlines"', optsched.UsageError):
            call("@quickstart", constraints="deadlines")  # type: ignore[operator]
    with refuses("objectives: found 'makespan', expected two formulations", optsched.UsageError):
        optsched.pareto("@quickstart", "makespan")
    assert optsched.compare("@quickstart", "makespan").rows[0].formulation == "makespan"


# --- verify --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("formulation", ["max-min-fairness", "proportional-shares", "lease"])
def test_verify_takes_a_solution(formulation: str) -> None:
    solution = optsched.solve("@leases" if formulation == "lease" else "@quickstart", formulation)
    checked = optsched.verify(solution)
    assert checked.ok
    assert checked == optsched.verify(solution.instance, solution)
    assert checked == optsched.verify(solution.instance, solution.to_document())


def test_verify_finds_what_is_wrong_with_a_solution() -> None:
    solution = optsched.solve("@quickstart")
    assert solution.objective is not None
    found = optsched.verify(replace(solution, objective=2 * solution.objective)).findings
    assert "objective" in {finding.field for finding in found}
    with refuses("verify: found two solutions", optsched.UsageError):
        optsched.verify(solution, solution)
    with refuses("verify: found no solution", optsched.UsageError):
        optsched.verify("@quickstart")


# --- schedulers ----------------------------------------------------------------------------------------------------


@pytest.fixture
def begun() -> optsched.RoundState:
    with optsched.Scheduler("@quickstart", {"formulation": "makespan"}, isolate=False) as scheduler:
        scheduler.solve(now=0.0)
        scheduler.solve(now=360.0)
        return scheduler.state


def test_a_scheduler_goes_on_from_a_state(begun: optsched.RoundState, tmp_path: Path) -> None:
    expected = optsched.solve_round(begun).id
    file = tmp_path / "state.json"
    file.write_text(json.dumps(begun.to_document()))
    digests = []
    for source in (begun, begun.to_document(), file):
        with optsched.Scheduler(source, isolate=False) as scheduler:
            assert scheduler.state.round == 2
            assert scheduler.state.policy.formulation == "makespan"
            digests.append(scheduler.solve(now=begun.now).id)
    assert digests == [expected] * 3


def test_a_policy_takes_the_place_of_the_state_s_own(begun: optsched.RoundState) -> None:
    with optsched.Scheduler(begun, {"formulation": "max-throughput"}, isolate=False) as scheduler:
        assert scheduler.state.policy.formulation == "max-throughput"
        assert scheduler.state.round == 2


def test_a_journal_begins_with_a_state(begun: optsched.RoundState, tmp_path: Path) -> None:
    with optsched.Scheduler(
        begun, isolate=False, journal=tmp_path / "journal", fsync=False
    ) as scheduler:
        plan = scheduler.solve(now=720.0)
        after = scheduler.state.to_document()
    with optsched.Scheduler.recover(tmp_path / "journal", isolate=False, fsync=False) as recovered:
        assert recovered.state.to_document() == after
        assert recovered.plan is not None
        assert recovered.plan.id == plan.id
    assert optsched.replay(tmp_path / "journal").plan.round == 2
