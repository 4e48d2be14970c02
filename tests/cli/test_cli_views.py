"""What people read: tables that fit, numbers that are right, words that are clear."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import optsched
from optsched.generate import generate

# Private names: parts of a command are checked without a command line
from optsched.instance.shipped import shipped_names
from optsched.registry import load_formulation, load_solver, names, solver_names

Write = Callable[..., Path]


WIDTHS = (60, 80, 100, 200)
LACKING = (
    "no throughput or duration",
    "expected a price",
    "expected a pool with a price",
    "expected options with their costs",
)
"""What instances may lack that a formulation needs: a knapsack has values and no rates, some pools have no price."""


QUICK = ("infeasible", "quickstart")
"""Instances whose views are looked at each time; all others in the long studies."""


@pytest.mark.property
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in QUICK else pytest.mark.study)
        for name in shipped_names()
    ],
)
def test_every_view_fits(run: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from optsched import api

    monkeypatch.setattr(api, "solve", _remembering(api.solve))
    for formulation in sorted({load_formulation(name).name for name in names("formulation")}):
        for command, widths in (("solve", (60, 100)), ("explain", (60,))):
            for columns in widths:
                result = run(command, f"@{name}", "-f", formulation, columns=columns)
                lacking = any(words in result.err for words in LACKING)
                coarse = result.code == 5 and formulation == "partial-allocation" and name == "smd"
                assert result.code in (0, 2, 4) or (result.code == 3 and lacking) or coarse, (
                    result.err
                )
                result.check_width(columns)
    for columns in WIDTHS:
        run("validate", f"@{name}", columns=columns).check_width(columns)


def _remembering(solve: Callable[..., Any]) -> Callable[..., Any]:
    """Solve each pair of instance and formulation once."""
    known: dict[tuple[str, str], Any] = {}

    def remembered(instance: str, formulation: str, **options: Any) -> Any:
        if (instance, formulation) not in known:
            limit = (
                {"time_limit": 2.0} if load_formulation(formulation).plans_ahead else {}
            )  # whole jobs take long
            known[instance, formulation] = solve(instance, formulation, **{**options, **limit})
        return known[instance, formulation]

    return remembered


@pytest.mark.parametrize("columns", [60, 80, 200])
@pytest.mark.parametrize(
    "given",
    [
        ["formulations"],
        ["formulations", "max-min-fairness"],
        ["formulations", "deadlines"],
        ["solvers"],
        ["instances"],
    ],
)
def test_every_catalogue_fits(run: Any, given: list[str], columns: int) -> None:
    run(*given, columns=columns).check_width(columns)


def test_widest_without_a_terminal_is_100(run: Any) -> None:
    out = run("explain", "@quickstart", "-C", "deadlines").out
    assert 80 < max(map(len, out.splitlines())) <= 100


def test_the_whole_of_a_small_solution(run: Any, small: dict[str, Any], write: Write) -> None:
    out = run("solve", write(small), "-f", "max-throughput").out
    expected = [
        "small: max-throughput",
        "4 jobs, 2 classes, 4 columns",
        "6 usable GPUs in 2 pools: fast 2, slow 4",
        "",
        "status       optimal",
        "objective    4 steps/s  total throughput",
        "bound        4 steps/s  gap 0 %",
        "cost         4.50 USD/h",
        "",
        "job   GPUs    fast    slow   steps/s",
        "────────────────────────────────────",
        "a        1           100 %         1",
        "b        2   100 %                 3",
        "",
        "pool   GPUs   used   utilisation   one more is worth",
        "────────────────────────────────────────────────────",
        "fast      2      2         100 %                   1",
        "slow      4      1        25.0 %",
        "worth: rise of the total throughput (steps/s) for one more, at the margin",
        "",
        "Not placed: 2 jobs",
        "- wide: can run nowhere: fast: needs 9 GPUs, but only 2 are usable; slow: needs 9 GPUs, but only 4",
        "  are usable",
        "- done: no step left to do",
    ]
    assert [
        line for line in out.splitlines() if not line.startswith(("time", "certificate", "solver"))
    ] == expected


def test_pairs_are_told_as_a_plus_b(run: Any) -> None:
    out = run("solve", "@packing").out
    line = next(line for line in out.splitlines() if line.startswith("resnet-18-1 + resnet-18-7"))
    first, second = line.split()[-3], line.split()[-1]
    told = run("solve", "@packing", "--json").json
    row = next(
        row for row in told["allocation"] if row.get("jobs") == ["resnet-18-1", "resnet-18-7"]
    )
    assert f"{100 * row['fraction']:.1f} %" in line
    assert float(first) == pytest.approx(float(second))  # two jobs of one workload


def test_twenty_jobs_are_shown_and_the_rest_counted(run: Any) -> None:
    out = run("solve", "@large").out
    assert sum(line.startswith("j0") for line in out.splitlines()) == 20
    assert "... and 1,980 more jobs (use -o or --json)" in out


def test_elastic_jobs_get_a_line_per_configuration(run: Any, write: Write) -> None:
    document = {
        "format": "optsched-instance/1", "name": "elastic",
        "cluster": {"pools": [{"name": "p", "nodes": 1, "gpus_per_node": 4}]},
        "jobs": [
            {"id": "a", "gpus": {"min": 1, "max": 4, "levels": [1, 4]}, "steps": 9,
             "throughput": {"p": {"1": 1, "4": 2}}},
            {"id": "b", "gpus": 1, "steps": 9, "throughput": {"p": 1.0}},
            {"id": "c", "gpus": 1, "steps": 9, "throughput": {"p": 1.0}},
        ],
    }  # fmt: skip
    out = run("solve", write(document), "-f", "max-throughput").out
    table = out[out.index("job   pool") :].splitlines()
    assert table[0].split() == ["job", "pool", "GPUs", "nodes", "time", "steps/s"]
    allocated = run("solve", write(document), "-f", "max-throughput", "--json").json["allocation"]
    assert sum(line.split()[:1] == [row["job"]] for row in allocated for line in table) >= 3


def _table(out: str) -> list[list[str]]:
    """Cells of the table of jobs, its head first."""
    lines = out[out.index("\njob ") + 1 :].split("\n\n")[0].splitlines()
    return [re.split(r" {2,}", line.strip()) for line in (lines[0], *lines[2:])]


def _chosen(document: dict[str, Any], record: dict[str, Any]) -> dict[str, Any]:
    """The option of a row of a solution."""
    (job,) = (job for job in document["jobs"] if job["id"] == record["job"])
    option: dict[str, Any] = job["options"][record["option"]]
    return option


def test_a_knapsack_shows_the_option_chosen(run: Any, write: Write) -> None:
    document = generate("gap", jobs=9, agents=3, objective="value").instance.to_document()
    given = ("solve", write(document), "-f", "multiple-choice")
    head, *rows = _table(run(*given).out)
    assert head == ["job", "option", "uses", "value", "time"]
    records = run(*given, "--json").json["allocation"]
    assert len(records) > 5
    for row, record in zip(
        rows, records, strict=False
    ):  # a line about jobs without an option follows
        option = _chosen(document, record)
        ((agent, amount),) = option["uses"].items()
        assert row == [
            record["job"],
            str(record["option"]),
            f"{agent} {amount:g}",
            f"{option['value']:g}",
            "100 %",
        ]


def test_a_schedule_shows_the_mode(run: Any) -> None:
    head, *rows = _table(
        run("solve", "@unrelated", "-f", "makespan-unrelated").out.partition("Schedule")[2]
    )
    assert head == ["job", "pool", "mode", "GPUs", "start", "end"]
    records = run("solve", "@unrelated", "-f", "makespan-unrelated", "--json").json["schedule"]
    assert [row[:3] for row in rows] == [
        [record["job"], record["pool"], f"option {record['option']}"] for record in records
    ]


def test_options_without_a_pool_are_told_by_their_attributes(run: Any, write: Write) -> None:
    document = {
        "format": "optsched-instance/1", "name": "options",
        "cluster": {"pools": [{"name": "p", "nodes": 1, "gpus_per_node": 1}],
                    "resources": [{"name": "budget", "kind": "consumable", "capacity": 3}]},
        "jobs": [{"id": "a", "steps": 10, "options": [
            {"throughput": 1, "uses": {"budget": 2}, "attributes": {"servers": 2, "plan": "b"}}]}],
    }  # fmt: skip
    out = run("solve", write(document), "-f", "max-throughput").out
    assert "job   option              uses        time   steps/s" in out
    assert "a     servers=2, plan=b   budget 2   100 %         1" in out
    assert "resource   capacity   used   utilisation" in out
    assert "budget            3      2        66.7 %" in out


def test_ways_of_one_pool_are_added_up_in_the_matrix(run: Any, write: Write) -> None:
    document = {
        "format": "optsched-instance/1", "name": "ways",
        "cluster": {"pools": [{"name": "p", "nodes": 1, "gpus_per_node": 2}],
                    "resources": [{"name": "licence", "kind": "renewable", "capacity": 0.25}]},
        "jobs": [{"id": "a", "steps": 10, "options": [{"pool": "p", "gpus": 1, "throughput": 2, "uses": {"licence": 1}},
                                                      {"pool": "p", "gpus": 1, "throughput": 1}]}],
    }  # fmt: skip
    told = run("solve", write(document), "-f", "max-throughput", "--json").json
    assert sorted(row["fraction"] for row in told["allocation"]) == pytest.approx([0.25, 0.75])
    assert (
        "a        1   100 %      1.25\n"
        in run("solve", write(document), "-f", "max-throughput").out
    )


def test_a_job_that_only_shares_has_something(
    run: Any, small: dict[str, Any], write: Write
) -> None:
    small["cluster"]["pools"][1]["nodes"] = 0
    small["cluster"]["pools"][0]["gpus_per_node"] = 1
    small["jobs"] = [
        {"id": "b", "steps": 9, "throughput": {"fast": 1.0}},
        {"id": "a", "steps": 9, "throughput": {"fast": 1.0}},
    ]
    small["colocation"] = [
        {"jobs": ["a", "b"], "pool": "fast", "gpus": 1, "throughput": [0.9, 0.8]}
    ]
    out = run("solve", write(small), "-f", "max-throughput").out
    assert "0.8 + 0.9\n" in out or "0.9 + 0.8\n" in out
    assert "nothing" not in out


def test_jobs_without_anything_are_named(run: Any) -> None:
    out = run("solve", "@quickstart", "-f", "max-throughput", "-O", "integral=true").out
    assert "3 jobs get nothing: gpt-2-small-6, bert-large-8, vit-b16-12\n" in out
    assert "options      integral=true\n" in out
    assert "one more is worth" not in out


def test_prices_are_not_told_of_a_point_that_is_not_optimal(run: Any) -> None:
    given = ("@quickstart", "--solver", "highs-ipm", "--work-limit", "1")
    out = run("solve", *given).out
    assert "status       feasible  the work limit was reached" in out
    assert "one more is worth" not in out
    assert "Only an optimal solution has prices." in run("explain", *given).out


def test_names_cannot_write_on_the_terminal(run: Any, small: dict[str, Any], write: Write) -> None:
    small["name"] = "evil\x1b[31m\nname"
    small["jobs"][0]["id"] = "\x1b]0;title\x07[red]a\n" + "y" * 60
    small["jobs"][3]["id"] = "\x9b2J"
    path = write(small)
    for command in ("solve", "explain", "validate"):
        result = run(command, path)
        assert all(char.isprintable() or char == "\n" for char in result.out)
        result.check_width(100)
    assert "\\x1b]0;title\\x...yyyyyyyyy" in run("solve", path).out


def test_standard_output_in_ascii(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import io
    import sys

    from optsched.cli.main import main

    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    assert main(["solve", "@quickstart"]) == 0
    sys.stdout.flush()
    text = raw.getvalue().decode("ascii")
    assert "v100 |    8 |    8 |" in text
    assert "\\u" not in text


def test_colour_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    import io
    import sys

    from optsched.cli.main import main

    class Terminal(io.TextIOWrapper):
        def isatty(self) -> bool:
            return True

    def shown(**environment: str) -> str:
        raw = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", Terminal(raw, encoding="utf-8"))
        for name, value in {"TERM": "xterm-256color", "NO_COLOR": "", **environment}.items():
            monkeypatch.setenv(name, value)
        assert main(["solve", "@quickstart"]) == 0
        sys.stdout.flush()
        return raw.getvalue().decode()

    assert "\x1b[1;32moptimal\x1b[0m" in shown()
    assert "\x1b" not in shown(NO_COLOR="1")
    assert "\x1b" not in shown(TERM="dumb")


# --- explain -------------------------------------------------------------------------------------------------------


def test_explain_tells_prices_that_are_finite_differences(
    run: Any, document: dict[str, Any], write: Write
) -> None:
    told = run("explain", "@quickstart", "--json").json
    step = 1e-3
    base = optsched.solve("@quickstart").objective
    program = optsched.compile(optsched.load("@quickstart"))
    assert base is not None
    for row, (pool, price) in enumerate(told["prices"].items()):
        assert pool == program.resources.names[row]
        changed = optsched.compile(optsched.load("@quickstart"))
        changed.resources.capacity[row] += step
        more = optsched.solve(changed).objective
        assert more is not None
        assert (more - base) / step == pytest.approx(price, rel=1e-3)


def test_explain_tells_what_holds_the_level_down(run: Any) -> None:
    told = run("explain", "@quickstart", "--json").json
    assert sum(item["share"] for item in told["holding"]) == pytest.approx(1.0)
    shares = [item["share"] for item in told["holding"]]
    assert shares == sorted(shares, reverse=True)
    out = run("explain", "@quickstart").out
    assert "Jobs that hold the smallest normalised throughput per GPU and weight down\n" in out
    assert told["holding"][0]["job"] in out
    assert "Jobs that hold the makespan up\n" in run("explain", "@quickstart", "-f", "makespan").out


def test_explained_share_is_an_elasticity(run: Any, document: dict[str, Any], write: Write) -> None:
    """A makespan job with 1 % fewer steps is as good as one that runs 1 % faster."""
    told = run("explain", "@quickstart", "-f", "makespan", "--json").json
    item = told["holding"][0]
    job = next(job for job in document["jobs"] if job["id"] == item["job"])
    job["steps"] *= 1 - 1e-4
    less = run("solve", write(document), "-f", "makespan", "--json").json["objective"]
    assert (told["objective"] - less) / told["objective"] / 1e-4 == pytest.approx(
        item["share"], rel=1e-2
    )


def test_explained_share_is_that_of_a_whole_class(
    run: Any, small: dict[str, Any], write: Write
) -> None:
    """Three equal jobs and a long one: what 1 % fewer steps of all three would bring."""
    equal = [
        {"id": f"e{k}", "gpus": 2, "steps": 1000, "throughput": {"fast": 2.0, "slow": 1.0}}
        for k in range(3)
    ]
    small["jobs"] = [
        {"id": "z", "gpus": 1, "steps": 900, "throughput": {"fast": 1.0, "slow": 0.8}},
        *equal,
    ]
    told = run("explain", write(small), "-f", "makespan", "--json").json
    item = next(item for item in told["holding"] if item["job"] == "e0")
    assert item["jobs"] == 3
    assert 0 < item["share"] < 1
    for job in small["jobs"][1:]:
        job["steps"] *= 1 - 1e-4
    less = run("solve", write(small), "-f", "makespan", "--json").json["objective"]
    assert (told["objective"] - less) / told["objective"] / 1e-4 == pytest.approx(
        item["share"], rel=1e-2
    )


def test_explained_requirements_are_in_the_objective_s_unit(
    run: Any, document: dict[str, Any], write: Write
) -> None:
    """A deadline that costs makespan: seconds saved by 1 % fewer steps until then."""
    job = next(job for job in document["jobs"] if job["id"] == "bert-base-10")
    job["deadline"] = 7200 + 0.6 * (job["deadline"] - 7200)
    given = ("-f", "makespan", "-C", "deadlines")
    told = run("explain", write(document), *given, "--json").json
    (item,) = told["requirements"]
    assert item["requirement"].startswith("job bert-base-10 needs")
    job["deadline"] = 7200 + (job["deadline"] - 7200) / (
        1 - 1e-5
    )  # the pace asked for is 1e-5 less
    less = run("solve", write(document), *given, "--json").json["objective"]
    assert (told["objective"] - less) / 1e-5 * 0.01 == pytest.approx(item["worth"], rel=1e-2)


def test_explain_prices_requirements(run: Any, document: dict[str, Any], write: Write) -> None:
    told = run("explain", "@quickstart", "-C", "deadlines", "--json").json
    assert [item["constraint"] for item in told["requirements"]] == ["deadlines"]
    item = told["requirements"][0]
    assert item["requirement"].startswith("job vgg-16-5 needs ")
    job = next(job for job in document["jobs"] if job["id"] == "vgg-16-5")
    job["steps"] *= 1 - 1e-4
    more = run("solve", write(document), "-C", "deadlines", "--json").json["objective"]
    assert (more - told["objective"]) / 1e-4 * 0.01 == pytest.approx(item["worth"], rel=1e-2)
    assert (
        "Requirements that cost something:\n- job vgg-16-5 needs "
        in run("explain", "@quickstart", "-C", "deadlines").out
    )


def test_explain_infeasible(run: Any) -> None:
    result = run("explain", "@infeasible")
    assert result.code == 4
    assert (
        "from now on, these requirements cannot all hold:\n- pool a100 has 4 usable GPUs\n"
        in result.out
    )
    told = run("explain", "@infeasible", "--json")
    assert told.code == 4
    assert len(told.json["conflicts"]) == 3
    assert told.json["prices"] == {}


def test_explain_tells_that_more_would_not_help(
    run: Any, small: dict[str, Any], write: Write
) -> None:
    out = run("explain", write(small), "-f", "max-throughput").out
    assert "More of slow would not help.\n" in out
    del small["jobs"][1:]
    out = run("solve", write(small)).out
    assert (
        "All prices are 0: with all limits as they are, a larger cluster would not help.\n" in out
    )
    assert "one more is worth" not in out
    assert (
        "All prices are 0: with all limits as they are, a larger cluster would not help.\n"
        in run("explain", write(small)).out
    )
    rule = run("explain", "@quickstart", "-f", "isolated").out
    assert "An integer program or a rule has no prices.\n" in rule


def test_explain_quietly(run: Any) -> None:
    assert run("explain", "@quickstart", "-q").out == ""


def test_explain_refuses_what_is_not_certified(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    from optsched import api

    good = optsched.solve("@quickstart")
    bad = replace(
        good, certificate=replace(good.certificate, ok=False, problems=("a row is violated",))
    )
    monkeypatch.setattr(api, "solve", lambda *_, **__: bad)
    result = run("explain", "@quickstart", "--json")
    assert (result.code, result.out) == (6, "")
    assert "a row is violated" in result.err


# --- validate ------------------------------------------------------------------------------------------------------


def test_validate_counts(run: Any, small: dict[str, Any], write: Write) -> None:
    told = run("validate", write(small), "--json").json
    assert (told["jobs"], told["present"], told["kinds"], told["columns"]) == (4, 2, 3, 4)
    assert told["pools"] == {"fast": 2, "slow": 4}
    assert told["dropped"] == {"more GPUs than the pool has": 2}
    assert told["classes"] == dict.fromkeys(names("formulation"), 2) | {
        "lease": 0,
        "deadline-fluid": 0,
        "deadline-elastic": 0,
        "elasticflow": 0,
    }  # no job has a deadline
    assert [row["job"] for row in told["unplaced"]] == ["wide", "done"]
    assert told["sha256"] == optsched.load(write(small)).sha256


def test_validate_view(run: Any) -> None:
    out = run("validate", "@packing").out
    assert out.startswith(
        "packing: valid optsched-instance/1\n\njobs         24, of which 24 can run now, in 10 kinds\n"
    )
    told = run("validate", "@packing", "--json").json
    assert f"columns      {told['columns']}, {told['pairs']} of them pairs\n" in out
    assert "constraints  deadlines\n" in run("validate", "@infeasible").out
    assert run("validate", "@packing", "-q").out == ""


def test_validate_schema(run: Any, document: dict[str, Any]) -> None:
    import jsonschema

    schema = run("validate", "--schema").json
    jsonschema.validate(document, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document | {"jobs": 5}, schema)


def test_validate_without_an_instance(run: Any) -> None:
    result = run("validate")
    assert (result.code, result.err) == (2, "optsched: error: missing argument INSTANCE\n")


# --- catalogues ----------------------------------------------------------------------------------------------------


def test_formulations_lists_all(run: Any) -> None:
    told = run("formulations", "--json").json
    owners = sorted({load_formulation(name).name for name in names("formulation")})
    assert [item["name"] for item in told["formulations"]] == owners
    assert {alias for item in told["formulations"] for alias in item["aliases"]} | set(
        owners
    ) == set(names("formulation"))
    assert [item["name"] for item in told["constraints"]] == names("constraint")
    assert {name for item in told["rankings"] for name in (item["name"], *item["aliases"])} == set(
        names("ranking")
    )
    out = run("formulations").out
    kinds = ("formulation", "constraint", "ranking")
    assert all(name in " ".join(out.split()) for kind in kinds for name in names(kind))


def test_one_formulation_in_full(run: Any) -> None:
    out = run("formulations", "makespan").out
    assert out.startswith(
        "makespan, a formulation\n\nobjective  min  makespan, s\nreads      gang, steps_left\n"
    )
    assert "Minimise the time M in which every job can do its remaining steps" in out
    assert "Options (-O KEY=VALUE)\n" in out
    assert "\nreference_pool   text | null    null\n" in out
    assert out.endswith("\n  parts_seed  seed of this split\n")
    told = run("formulations", "makespan", "--json").json
    assert [option["name"] for option in told["options"]] == ["agnostic", "reference_pool"]
    shared = [option["name"] for option in told["shared_options"]]
    assert shared == ["quantile", "parts", "parts_seed"]
    assert told["options"][0]["default"] is False


def test_a_docstring_at_the_width_of_the_terminal(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines that were wrapped at 112 or more are put together, others stay; all are cut under their second column."""
    from optsched.cli.formulations import mathematics

    monkeypatch.setenv("COLUMNS", "60")
    text = "\n".join(
        [
            "word " * 21 + "12345 ``ends``",
            "here.",
            "Parameters",
            "    short     " + "text " * 18 + "12345678",
            "              continued",
            "    maximise  t",
            "              x <= 1",
        ]
    )
    told = [line for block in mathematics(text) for line in str(block).splitlines()]
    assert max(map(len, told)) <= 60
    assert told[1].endswith("12345 ends")
    assert told[2] == "here."
    assert told[told.index("Parameters") + 1].startswith("    short     text")
    assert told[told.index("Parameters") + 2].startswith("              text")
    assert any(line.endswith("12345678 continued") for line in told)
    assert told[-2:] == ["    maximise  t", "              x <= 1"]


def test_one_side_constraint_in_full(run: Any) -> None:
    out = run("formulations", "deadlines").out
    assert out.startswith(
        "deadlines, a side constraint\n\nEvery job with a deadline gets the throughput"
    )
    assert "Options (-C deadlines:KEY=VALUE)\n" in out


def test_one_ranking_in_full(run: Any) -> None:
    out = run("formulations", "srtf").out
    assert out.startswith("srtf, a ranking\n\naliases  shortest-remaining-time\n")
    assert "The job that ends soonest if it runs now" in out
    told = run("formulations", "srtf", "--json").json
    assert [option["name"] for option in told["options"]] == [
        "gpus",
        "moves",
        "service",
        "weighted",
    ]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("makespam", "makespan"),
        ("srft", "srtf"),
        ("deadline", "deadlines"),
        ("maxmin", "max-min-fairness"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest_of_all_kinds(
    run: Any, name: str, meant: str
) -> None:
    result = run("formulations", name)
    assert result.code == 2
    assert f"unknown formulation '{name}' (did you mean {meant}?)" in result.err


def test_solvers_tells_versions_and_what_is_missing(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    told = {item["name"]: item for item in run("solvers", "--json").json["solvers"]}
    assert (
        set(told)
        == set(solver_names())
        >= {*names("solver"), "pulp:HiGHS", "cvxpy:HIGHS", "cvxpy:CLARABEL"}
    )
    for name, item in told.items():
        assert bool(item["version"]) != bool(item["reason"])
        assert item["version"] or load_solver(name).optional, name
    assert "integer" in told["highs"]["capabilities"]
    assert "integer" not in told["clarabel"]["capabilities"]
    monkeypatch.setitem(sys.modules, "clarabel", None)
    told = {item["name"]: item for item in run("solvers", "--json").json["solvers"]}
    assert told["clarabel"]["version"] is None
    assert told["clarabel"]["reason"].startswith("solver clarabel cannot be loaded")
    assert "not available" in run("solvers").out
    result = run("solve", "@quickstart", "--solver", "clarabel")
    assert result.code == 7
    assert result.err.startswith("optsched: error: solver clarabel cannot be loaded")


def test_instances_lists_all_with_words(run: Any) -> None:
    told = run("instances", "--json").json["instances"]
    assert [item["name"] for item in told] == [f"@{name}" for name in shipped_names()]
    assert all(item["description"] for item in told)
    assert {item["name"]: item["jobs"] for item in told}["@large"] == 2000
    assert "@quickstart" in run("instances").out


def test_json_of_every_catalogue_is_json_alone(run: Any) -> None:
    for command in (["formulations"], ["formulations", "isolated"], ["solvers"], ["instances"]):
        assert json.dumps(run(*command, "--json").json)
