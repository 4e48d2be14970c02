"""``generate``: every option does what it says and refuses what makes no sense, in one sentence."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

# Private names: parts of a command are checked without a command line
from optsched.cli.generate import EXAMPLES
from optsched.generate import GENERATORS, generate
from optsched.instance import instance_bytes, read_instance

SMALL: dict[str, list[str]] = {
    "cluster": ["--jobs", "40", "--gangs", "0.2,0.1,0"],
    "unrelated": ["--jobs", "5", "--machines", "2"],
    "gap": ["--jobs", "5", "--agents", "2"],
    "knapsack": ["--jobs", "5"],
    "leases": ["--jobs", "5"],
    "trace": ["--jobs", "5"],
}
WRONG = [
    ("cluster", "--jobs", "0", 'found "0", expected a number of at least 1'),
    ("cluster", "--jobs", "1.5", 'found "1.5", expected a whole number'),
    ("cluster", "--jobs", "1e6", 'found "1e6", expected a whole number'),
    ("cluster", "--jobs", "99999999", 'found "99999999", expected a number of at most 10000000'),
    ("cluster", "--pools", "17", 'found "17", expected a number of at most 16'),
    ("cluster", "--load", "0", 'found "0", expected a number of at least 0.01'),
    ("cluster", "--load", "nan", 'found "nan", expected a finite number'),
    (
        "cluster",
        "--load",
        "100",
        "found 100, but 4 pools of a node each are too many GPUs for 40 jobs",
    ),
    ("cluster", "--rows", "some", "found \"some\", expected one of 'distinct' or 'repeated'"),
    ("cluster", "--kinds", "none", 'found "none", expected a whole number'),
    (
        "cluster",
        "--durations",
        "normal",
        "found \"normal\", expected one of 'lognormal' or 'pareto'",
    ),
    ("cluster", "--median", "0", 'found "0", expected a number above 0'),
    ("cluster", "--sigma", "-1", 'found "-1", expected a number of at least 0'),
    ("cluster", "--shape", "0.2", 'found "0.2", expected a number above 0.2'),
    ("cluster", "--gangs", "0.1", 'found "0.1", expected 3 shares with commas between them'),
    (
        "cluster",
        "--gangs",
        "0.5,0.4,0.3",
        "found [0.5, 0.4, 0.3], expected shares that add up to at most 1",
    ),
    ("cluster", "--elastic", "1.1", 'found "1.1", expected a number of at most 1'),
    ("cluster", "--weights", "1,1", "found [1.0, 1.0], expected shares that add up to at most 1"),
    ("cluster", "--deadlines", "x", 'found "x", expected a number'),
    ("cluster", "--slack", "0", 'found "0", expected a number of at least 0.1'),
    ("cluster", "--tenants", "-1", 'found "-1", expected a number of at least 0'),
    (
        "cluster",
        "--topology",
        "ring",
        "found \"ring\", expected one of 'none', 'tree', 'racks' or 'mixed-nodes'",
    ),
    ("cluster", "--unavailable", "0.6", 'found "0.6", expected a number of at most 0.5'),
    ("cluster", "--colocation", "2", 'found "2", expected a number of at most 1'),
    ("cluster", "--seed", "-1", 'found "-1", expected a number of at least 0'),
    ("cluster", "--name", "", 'found "", expected a non-empty text'),
    ("unrelated", "--jobs", "0", 'found "0", expected a number of at least 1'),
    ("unrelated", "--machines", "0", 'found "0", expected a number of at least 1'),
    ("unrelated", "--low", "200", None),
    ("unrelated", "--high", "5", "found 5, expected at least low, 10"),
    (
        "unrelated",
        "--correlation",
        "yes",
        "found \"yes\", expected one of 'none', 'jobs' or 'machines'",
    ),
    ("unrelated", "--noise", "0", 'found "0", expected a number of at least 1'),
    ("unrelated", "--seed", "x", 'found "x", expected a whole number'),
    ("unrelated", "--name", "", 'found "", expected a non-empty text'),
    ("gap", "--jobs", "0", 'found "0", expected a number of at least 1'),
    ("gap", "--agents", "0", 'found "0", expected a number of at least 1'),
    ("gap", "--type", "f", "found \"f\", expected one of 'a', 'b', 'c', 'd' or 'e'"),
    ("gap", "--objective", "profit", "found \"profit\", expected one of 'cost' or 'value'"),
    ("gap", "--seed", "1.5", 'found "1.5", expected a whole number'),
    ("gap", "--name", "", 'found "", expected a non-empty text'),
    ("knapsack", "--jobs", "0", 'found "0", expected a number of at least 1'),
    ("knapsack", "--resources", "0", 'found "0", expected a number of at least 1'),
    ("knapsack", "--tightness", "0", 'found "0", expected a number above 0'),
    ("knapsack", "--choices", "101", 'found "101", expected a number of at most 100'),
    ("knapsack", "--seed", "", 'found "", expected a whole number'),
    ("knapsack", "--name", "", 'found "", expected a non-empty text'),
    ("leases", "--jobs", "0", 'found "0", expected a number of at least 1'),
    ("leases", "--nodes", "0", 'found "0", expected a number of at least 1'),
    ("leases", "--gpus-per-node", "65", 'found "65", expected a number of at most 64'),
    ("leases", "--lease", "0", 'found "0", expected a number of at least 1'),
    ("leases", "--longest", "0", 'found "0", expected a number of at least 1'),
    ("leases", "--tightness", "inf", 'found "inf", expected a finite number'),
    (
        "leases",
        "--seed",
        "9223372036854775808",
        'found "9223372036854775808", expected a number below...',
    ),
    ("leases", "--name", "", 'found "", expected a non-empty text'),
    ("trace", "--jobs", "0", 'found "0", expected a number of at least 1'),
    ("trace", "--pools", "8", 'found "8", expected a number of at most 7'),
    ("trace", "--nodes", "0", 'found "0", expected a number of at least 1'),
    ("trace", "--gpus-per-node", "65", 'found "65", expected a number of at most 64'),
    (
        "trace",
        "--arrivals",
        "bursts",
        "found \"bursts\", expected one of 'poisson', 'diurnal' or 'even'",
    ),
    ("trace", "--load", "0", 'found "0", expected a number of at least 0.001'),
    ("trace", "--rate", "0", 'found "0", expected a number above 0'),
    ("trace", "--amplitude", "0.5", "found 0.5, expected none unless arrivals is diurnal"),
    ("trace", "--peak", "25", 'found "25", expected a number of at most 24'),
    (
        "trace",
        "--durations",
        "normal",
        "found \"normal\", expected one of 'lognormal', 'pareto' or 'gavel'",
    ),
    ("trace", "--median", "0", 'found "0", expected a number above 0'),
    ("trace", "--sigma", "-1", 'found "-1", expected a number of at least 0'),
    ("trace", "--shape", "2", "found 2.0, expected none unless durations is pareto"),
    (
        "trace",
        "--gangs",
        "0.5,0.4,0.3",
        "found [0.5, 0.4, 0.3], expected shares that add up to at most 1",
    ),
    ("trace", "--deadlines", "x", 'found "x", expected a number'),
    ("trace", "--slack", "3", 'found "3", expected 2 numbers with commas between them'),
    ("trace", "--tenants", "-1", 'found "-1", expected a number of at least 0'),
    ("trace", "--seed", "-1", 'found "-1", expected a number of at least 0'),
    ("trace", "--name", "", 'found "", expected a non-empty text'),
]


@pytest.mark.parametrize(("kind", "option", "text", "message"), WRONG)
def test_a_wrong_option(
    run: Any, tmp_path: Path, kind: str, option: str, text: str, message: str | None
) -> None:
    path = tmp_path / "instance.json"
    result = run("generate", kind, *SMALL[kind], option, text, "-o", path)
    assert result.refused(
        f"{option}: {message}" if message else "--high: found 100, expected at least low, 200"
    )
    assert not path.exists()


def test_every_option_was_given_wrongly() -> None:
    told = {(kind, option) for kind, option, *_ in WRONG}
    fields = {
        (k, f"--{f.replace('_', '-')}")
        for k, g in GENERATORS.items()
        for f in g.options.model_fields
    }
    assert told == fields


@pytest.mark.parametrize("kind", GENERATORS)
def test_every_option_is_in_the_help(run: Any, kind: str) -> None:
    text = " ".join(run("generate", kind, "--help").out.split())
    for name, field in GENERATORS[kind].options.model_fields.items():
        assert f" --{name.replace('_', '-')} " in text
        assert field.description in text
    assert "Same seed, same bytes. [default: 1]" in text
    assert "generate" in EXAMPLES[kind]


@pytest.mark.parametrize("suffix", ["json", "yaml", "npz"])
@pytest.mark.parametrize("kind", GENERATORS)
def test_files(run: Any, tmp_path: Path, kind: str, suffix: str) -> None:
    path = tmp_path / f"instance.{suffix}"
    given = SMALL[kind]
    result = run("generate", kind, *given, "--seed", "7", "--name", "mine", "-o", path)
    assert result.code == 0
    assert re.fullmatch(rf"{re.escape(str(path))}: \d+ jobs, \d+ pools?\n", result.out)
    options = {name[2:]: text for name, text in zip(given[::2], given[1::2], strict=True)}
    made = generate(kind, **options, seed=7, name="mine").instance
    assert path.read_bytes() == instance_bytes(made, suffix)
    assert read_instance(path).sha256 == made.sha256


@pytest.mark.parametrize("kind", GENERATORS)
def test_standard_output(run: Any, kind: str) -> None:
    result = run("generate", kind, *SMALL[kind], "-o", "-")
    assert result.code == 0
    document = json.loads(result.out)
    assert document["format"] == "optsched-instance/1"
    assert len(document["jobs"]) == int(SMALL[kind][1])


def test_notes_go_to_standard_error(run: Any, tmp_path: Path) -> None:
    result = run("generate", "cluster", "--jobs", "60", "-o", "-")
    assert re.fullmatch(
        r"optsched: max-min fairness: t\*/tmax 0\.\d{3} \(solved; at most 0\.\d{3} by .*\)\n",
        result.err,
    )
    path = tmp_path / "leases.json"
    result = run("generate", "leases", "-o", path)
    assert result.err == "optsched: a plan that keeps all deadlines exists, by construction\n"
    result = run("generate", "leases", "--tightness", "2", "-o", path, "-q")
    assert (result.out, result.err) == ("", "")
    assert run("generate", "unrelated", "-o", path).err == ""


def test_what_is_made_can_be_solved(run: Any) -> None:
    made = run(
        "generate",
        "cluster",
        "--jobs",
        "40",
        "--rows",
        "repeated",
        "--kinds",
        "8",
        "--elastic",
        "0.3",
        "-o",
        "-",
    )
    assert run("solve", "-", "-f", "makespan", stdin=made.out.encode()).code == 0


def test_usage(run: Any, tmp_path: Path) -> None:
    assert run("generate").code == 2
    assert "no such command 'clustre'" in run("generate", "clustre").err
    assert "no such option: --job" in run("generate", "gap", "--job", "3", "-o", "-").err.lower()
    assert run("generate", "gap").code == 2  # without -o
    result = run("generate", "gap", "-o", tmp_path / "x.txt")
    assert (result.code, result.err.count("\n")) == (2, 1)
    assert run("generate", "gap", "-o", tmp_path / "none" / "x.json").code == 2
