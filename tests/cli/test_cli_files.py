"""``verify``, ``export`` and ``import``: files in and out."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from beside import SHARED, needs

import optsched

Write = Callable[..., Path]

# --- verify --------------------------------------------------------------------------------------------------------


@pytest.fixture
def solved(run: Any, tmp_path: Path) -> Path:
    path = tmp_path / "solution.json"
    assert run("solve", "@quickstart", "-o", path, "-q").code == 0
    return path


def test_verify_accepts_what_solve_wrote(run: Any, solved: Path) -> None:
    result = run("verify", "@quickstart", solved)
    assert (result.code, result.out, result.err) == (
        0,
        "the solution is right, its bound was recomputed\n",
        "",
    )
    assert run("verify", "@quickstart", solved, "--json").json == {
        "ok": True,
        "bound": "verified",
        "findings": [],
        "notes": [],
    }
    assert run("verify", "@quickstart", solved, "-q").out == ""
    assert run("verify", "@quickstart", solved, "--resolve").code == 0


def test_verify_can_solve_again(run: Any, solved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from optsched.verify import Verification

    asked = []

    def verify(*_: Any, resolve: bool, **__: Any) -> Verification:
        asked.append(resolve)
        return Verification((), "verified")

    monkeypatch.setattr(sys.modules["optsched.verify"], "verify", verify)
    run("verify", "@quickstart", solved)
    run("verify", "@quickstart", solved, "--resolve")
    assert asked == [False, True]


def test_verify_tells_what_a_bound_is_worth(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "integral.json"
    run("solve", "@quickstart", "-f", "max-throughput", "-O", "integral=true", "-o", path)
    assert (
        run("verify", "@quickstart", path).out
        == "the solution is right, its bound is a claim that nothing contradicts\n"
    )


def test_verify_names_the_option_that_writes_duals(
    run: Any, solved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from optsched.verify import Verification

    found = Verification((), "not verifiable")
    monkeypatch.setattr(sys.modules["optsched.verify"], "verify", lambda *_, **__: found)
    assert "(solve --duals writes all duals)" in run("verify", "@quickstart", solved).out


def test_verify_says_that_a_solution_has_no_bound(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "limit.json"
    run("solve", "@quickstart", "-f", "max-throughput", "-O", "integral=true", "-o", path)
    told = json.loads(path.read_text())
    told |= {"bound": None, "gap": None, "bound_source": "none", "status": "feasible"}
    told["termination"] = "work_limit"
    told["certificate"]["proof"] = "none"
    path.write_text(json.dumps(told))
    assert run("verify", "@quickstart", path).out == "the solution is right, it has no bound\n"


def test_verify_from_standard_input(run: Any, solved: Path, document: dict[str, Any]) -> None:
    assert run("verify", "@quickstart", "-", stdin=solved.read_bytes()).code == 0
    assert run("verify", "-", solved, stdin=json.dumps(document).encode()).code == 0
    result = run("verify", "-", "-")
    assert (result.code, result.err) == (
        2, "optsched: error: the instance and the solution cannot both come from standard input\n")  # fmt: skip


def test_verify_refuses_with_a_line_for_each_field(run: Any, solved: Path) -> None:
    told = json.loads(solved.read_text())
    told["objective"] *= 1.001
    solved.write_text(json.dumps(told))
    result = run("verify", "@quickstart", solved)
    assert (result.code, result.out) == (6, "")
    lines = result.err.splitlines()
    assert any(line.startswith("optsched: error: objective: ") for line in lines)
    assert all(line.startswith("optsched: error: ") for line in lines)
    asked = run("verify", "@quickstart", solved, "--json")
    assert asked.code == 6
    assert asked.json["ok"] is False
    assert "objective" in {finding["field"] for finding in asked.json["findings"]}


def test_verify_refuses_another_instance(run: Any, solved: Path) -> None:
    result = run("verify", "@packing", solved, "--json")
    assert result.code == 6
    assert "instance.sha256" in {finding["field"] for finding in result.json["findings"]}
    # The cause first, and few of the many lines that follow from it
    lines = result.err.splitlines()
    assert lines[0].startswith("optsched: error: instance.sha256: ")
    assert "another instance" in lines[0]
    assert len(lines) == 4 < len(result.json["findings"])
    assert lines[-1].endswith("as may follow from the other instance: --json lists them all")


@pytest.mark.parametrize("content", ["", "{", "[]x", "[1]", "{}", '{"format": "optsched-plan/1"}'])
def test_verify_a_file_that_is_no_solution(run: Any, tmp_path: Path, content: str) -> None:
    path = tmp_path / "broken.json"
    path.write_text(content)
    result = run("verify", "@quickstart", path)
    assert (result.code, result.out) == (3, "")
    assert result.err.count("\n") == 1


def test_verify_what_is_not_there(run: Any, tmp_path: Path, solved: Path) -> None:
    assert run("verify", "@quickstart", tmp_path / "none.json").code == 3
    assert run("verify", tmp_path / "none.json", solved).code == 3
    assert run("verify", "@none", solved).code == 2
    assert run("verify", "@quickstart").code == 2


# --- export --------------------------------------------------------------------------------------------------------


def optimum(path: Path) -> float:
    import highspy

    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    assert highs.readModel(str(path)) == highspy.HighsStatus.kOk
    highs.run()
    return float(highs.getInfo().objective_function_value)


@pytest.mark.parametrize("suffix", ["mps", "lp"])
def test_export_a_program(run: Any, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"program.{suffix}"
    result = run("export", "@quickstart", "-f", "max-min-fairness", "-o", path)
    assert (result.code, result.out) == (
        0,
        f"{path}: 27 rows, 45 columns; names in {path}.names.json\n",
    )
    assert optimum(path) == pytest.approx(0.9713535933787885, rel=1e-6)
    head = path.read_text().splitlines()[:5]
    sign = {"mps": "*", "lp": "\\"}[suffix]
    sha = optsched.load("@quickstart").sha256
    assert head[0] == f"{sign} optsched: max-min-fairness of quickstart, sha256 {sha}"
    assert f"{sign} names: program.{suffix}.names.json" in head


def test_export_names_lead_back(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "p.mps"
    run("export", "@quickstart", "-f", "max-min-fairness", "-C", "deadlines", "-o", path)
    names = json.loads((tmp_path / "p.mps.names.json").read_text())
    assert names["columns"]["x_0"] == {
        "block": "x", "number": 0, "job": "resnet-50-1", "jobs": 1, "pool": "v100", "gpus": 1, "nodes": 1}  # fmt: skip
    assert names["columns"]["t"] == {"block": "t", "number": 0}
    assert names["rows"]["capacity_v100"] == {
        "block": "capacity",
        "number": 0,
        "resource": "v100",
        "capacity": 8.0,
    }
    assert names["rows"]["time_0"]["job"] == "resnet-50-1"
    assert names["rows"]["deadlines_0"]["requirement"].startswith("job vgg-16-5 needs ")


def test_export_with_options_constraints_and_without_classes(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "p.lp"
    given = ("-f", "max-throughput", "-O", "integral=true", "--no-classes", "-o", path)
    result = run("export", "@packing", *given)
    assert "integer" in result.out
    assert optimum(path) == pytest.approx(587.94, rel=1e-6)
    names = json.loads((tmp_path / "p.lp.names.json").read_text())
    assert {column["jobs"] for column in names["columns"].values()} == {1}
    assert any("partner" in column for column in names["columns"].values())


def test_export_tells_how_its_objective_is_reported(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "m.mps"
    run("export", "@quickstart", "-f", "makespan", "-o", path)
    line = next(line for line in path.read_text().splitlines() if "is reported as" in line)
    scale = float(line.split("reported as ")[1].split()[0])
    assert scale / optimum(path) == pytest.approx(31344.5297, rel=1e-6)


def test_export_to_standard_output(run: Any) -> None:
    assert "\nENDATA" in run("export", "@quickstart", "-f", "makespan", "-o", "-").out
    assert run("export", "@quickstart", "-o", "-").json["name"] == "quickstart"


@pytest.mark.parametrize("suffix", ["json", "yaml", "yml", "npz"])
def test_export_an_instance(run: Any, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"i.{suffix}"
    result = run("export", "@quickstart", "-o", path)
    assert (result.code, result.out) == (0, f"{path}: 12 jobs, 3 pools\n")
    assert optsched.load(path).sha256 == optsched.load("@quickstart").sha256
    assert run("export", path, "-o", path, "-q").out == ""


@pytest.mark.parametrize(
    ("given", "code", "told"),
    [
        (["-o", "x.mps"], 2, "x.mps is a program: say of which formulation with -f NAME"),
        (["-o", "x.txt"], 2, "found x.txt, expected a name that ends in .json, .yaml, .yml, .npz"),
        (
            ["-f", "makespan", "-o", "x.json"],
            2,
            "found x.json, expected a name that ends in .mps or .lp for a program",
        ),
        (
            ["-f", "isolated", "-o", "x.mps"],
            2,
            "isolated is a rule: it has no program that could be exported",
        ),
        (["-f", "nothing", "-o", "x.mps"], 2, "formulation: found 'nothing'"),
        (
            ["-O", "agnostic=true", "-o", "x.json"],
            2,
            "-O, -C and --no-classes need a formulation: -f NAME",
        ),
        (["-o", "missing/x.json"], 2, "missing/x.json"),
    ],
)
def test_export_refuses(
    run: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    given: list[str],
    code: int,
    told: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("export", "@quickstart", *given).refused(told, code)
    assert list(tmp_path.iterdir()) == []


def test_export_of_what_cannot_be_solved(
    run: Any, write: Write, small: dict[str, Any], tmp_path: Path
) -> None:
    small["jobs"][2]["deadline"] = 100
    result = run(
        "export", write(small), "-f", "makespan", "-C", "deadlines", "-o", tmp_path / "x.mps"
    )
    assert result.code == 4
    assert result.err.startswith(
        "optsched: error: infeasible: job wide has a deadline, 100 s, but can run nowhere"
    )
    small["jobs"] = small["jobs"][3:]
    result = run("export", write(small), "-f", "makespan", "-o", tmp_path / "x.mps")
    assert (result.code, "no job of this instance is in the program" in result.err) == (2, True)
    assert not list(tmp_path.glob("x.*"))


# --- import --------------------------------------------------------------------------------------------------------


def gavel_key(job_type: str) -> str:
    return str((job_type, 1))


@pytest.fixture
def gavel(tmp_path: Path) -> tuple[str, ...]:
    """Options that name a small table and a trace of four jobs."""
    a, b = gavel_key("A"), gavel_key("B")
    table = {
        "v100": {a: {"null": 4.0, b: [3.0, 7.0]}, b: {"null": 8.0, a: [7.0, 3.0]}},
        "k80": {a: {"null": 1.0}, b: {"null": 2.0}},
    }
    lines = [
        "\t".join(map(str, (kind, "cmd", "dir", "-n", 1, 1000 * (row + 1), 1, 1, slo, 3600 * row)))
        for row, (kind, slo) in enumerate((("A", -1), ("B", 2), ("A", -1), ("B", -1)))
    ]
    (tmp_path / "t.json").write_text(json.dumps(table))
    (tmp_path / "t.trace").write_text("\n".join(lines) + "\n")
    return ("--throughputs", str(tmp_path / "t.json"), "--trace", str(tmp_path / "t.trace"))


@pytest.mark.parametrize("suffix", ["json", "yaml", "npz"])
def test_import_writes_an_instance(
    run: Any, gavel: tuple[str, ...], tmp_path: Path, suffix: str
) -> None:
    path = tmp_path / f"i.{suffix}"
    result = run(
        "import",
        "gavel",
        *gavel,
        "--pools",
        "v100:2,k80:3",
        "--active",
        "3",
        "-o",
        path,
        "--name",
        "mine",
    )
    assert (result.code, result.out) == (0, f"{path}: 3 jobs, 2 pools\n")
    instance = optsched.load(path)
    assert (instance.name, len(instance.jobs), instance.now) == ("mine", 3, 7200.0)
    assert instance.cluster.gpus(instance.now).tolist() == [2, 3]
    assert run("solve", path).code == 0


def test_import_options(run: Any, gavel: tuple[str, ...]) -> None:
    def told(*given: str) -> Any:
        return run("import", "gavel", *gavel, "--pools", "v100:4", "-o", "-", *given).json

    assert len(told()["jobs"]) == 4
    at = told("--at", "1h")
    assert (len(at["jobs"]), at["now"]) == (2, 3600.0)
    assert at["jobs"][1]["deadline"] == 3600 + 2 * 2000 / 8
    assert told("--reference", "k80")["jobs"][1]["deadline"] == 3600 + 2 * 2000 / 2
    assert "colocation" not in told() or told()["colocation"] == []
    assert told("--pairs")["colocation"][0]["throughput"] == [3.0, 7.0]
    assert told("--gpus-per-node", "2")["cluster"]["pools"][0]["gpus_per_node"] == 2


def test_import_can_be_piped_to_solve(run: Any, gavel: tuple[str, ...]) -> None:
    made = run("import", "gavel", *gavel, "--pools", "v100:1,k80:1", "--active", "4", "-o", "-")
    assert run("solve", "-", "--json", stdin=made.out.encode()).json["status"] == "optimal"


@pytest.mark.parametrize(
    ("given", "code", "told"),
    [
        (
            ["--pools", "v100"],
            2,
            "--pools: found 'v100', expected pool:gpus, such as v100:8,p100:16",
        ),
        (["--pools", "v100:x"], 2, "--pools: found 'v100:x'"),
        (["--pools", "v100:2,v100:3"], 2, "--pools: found v100 twice"),
        (["--pools", "v100:2,"], 2, "--pools: found ''"),
        (
            ["--pools", "h100:2"],
            3,
            '--pools: found "h100"',
        ),
        (
            ["--pools", "v100:2", "--active", "9"],
            2,
            "--active: found 9, expected at most 4...",
        ),
        (
            ["--pools", "v100:2", "--active", "2", "--at", "1h"],
            2,
            "active and at exclude each other",
        ),
        (["--pools", "v100:2", "--active", "x"], 2, "--active: found 'x', expected a whole number"),
        (["--pools", "v100:2", "--at", "soon"], 2, "--at: found 'soon'"),
        (["--pools", "v100:2", "--gpus-per-node", "0"], 2, "--gpus-per-node: found 0"),
        (["--pools", "v100:2", "--reference", "tpu"], 3, '--reference: found "tpu"'),
        (["--pools", "v100:2", "--trace", "nowhere"], 3, "found no readable file at nowhere..."),
    ],
)
def test_import_refuses(
    run: Any, gavel: tuple[str, ...], tmp_path: Path, given: list[str], code: int, told: str
) -> None:
    assert run("import", "gavel", *gavel, *given, "-o", tmp_path / "i.json").refused(told, code)
    assert not (tmp_path / "i.json").exists()


def test_import_into_a_format_that_is_none(
    run: Any, gavel: tuple[str, ...], tmp_path: Path
) -> None:
    assert run("import", "gavel", *gavel, "--pools", "v100:1", "-o", tmp_path / "i.txt").refused(
        "found i.txt"
    )


DATA = SHARED / "data" / "gavel"


@needs(DATA)
@pytest.mark.parametrize("trace", ["max_min_fairness", "minimize_makespan"])
def test_the_physical_traces_through_the_shell(run: Any, tmp_path: Path, trace: str) -> None:
    path = tmp_path / "i.npz"
    given = ("--throughputs", DATA / "physical_cluster_throughputs.json")
    given += ("--trace", DATA / "traces" / "physical_cluster" / f"{trace}.trace")
    made = run(
        "import",
        "gavel",
        *given,
        "--pools",
        "v100:8,p100:16,k80:24",
        "--active",
        "40",
        "--pairs",
        "-o",
        path,
    )
    assert made.code == 0
    for formulation in ("max-min-fairness", "makespan", "max-throughput", "isolated"):
        result = run("solve", path, "-f", formulation, "-o", tmp_path / "s.json")
        assert result.code == 0
        assert "certificate  ok: " in result.out
        assert max(map(len, result.out.splitlines())) <= 100
        assert run("verify", path, tmp_path / "s.json").code == 0


@pytest.mark.parametrize("name", ["plan.csv", "plan.xlsx"])
def test_a_solution_is_not_written_to_a_file_of_another_kind(
    run: Any, tmp_path: Path, name: str
) -> None:
    assert run("solve", "@quickstart", "-o", tmp_path / name).code == 2
    assert list(tmp_path.iterdir()) == []
