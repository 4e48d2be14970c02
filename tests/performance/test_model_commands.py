"""``optsched model``, and ``--model FILE`` of the other commands."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from documents import instance_document
from refusals import refuses, reported, stated
from small_time_model import Linear, planted

import optsched
from optsched import performance, registry
from optsched.cli.main import main
from optsched.errors import SolverUnavailable, UsageError

# Private names: a model by its class, where the registry knows it by name
from optsched.performance.evaluation import evaluate
from optsched.performance.files import model_bytes, read_model
from optsched.study import fit_model, fits, predict_times

NAME = Linear.name
PROFILES = planted()
INSTANCE: dict[str, Any] = instance_document(
    [
        {
            "name": "new",
            "gpu": "A100",
            "nodes": 2,
            "gpus_per_node": 2,
            "cost_per_gpu_hour": 3.0,
        },
        {"name": "old", "gpu": "T4", "nodes": 2, "gpus_per_node": 2, "cost_per_gpu_hour": 0.5},
    ],
    [
        {"id": "a", "workload": "bert/32", "gpus": 2, "steps": 1000},
        {"id": "b", "workload": "vgg", "gpus": 1, "steps": 2000},
    ],
    name="fitted",
    workloads={
        "bert/32": {"parameters": {"profile": "bert", "batch": 32}},
        "vgg": {"parameters": {"batch_per_gpu": 16}, "throughput": {"old": {"1": 2.0}}},
    },
)


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str
    error: BaseException | None = None

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Result]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Run a command line with the small model in the catalogue."""
    monkeypatch.setitem(performance.CATALOGUE, NAME, f"{Linear.__module__}:Linear")
    monkeypatch.setenv("COLUMNS", "100")
    registry.catalogue.cache_clear()

    def run(*arguments: object) -> Result:
        capsys.readouterr()
        with reported() as errors:
            code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err, *errors)

    yield run
    registry.catalogue.cache_clear()


@pytest.fixture
def profiles(tmp_path: Path) -> Path:
    """A file of the planted profiles."""
    ways = PROFILES.ways
    path = tmp_path / "profiles.csv"
    lines = [
        f"{ways.workloads[w]},{ways.gpu_types[g]},{k},{n},{m!r},{t!r}"
        for w, g, k, n, m, t in zip(
            *(column.tolist() for column in (ways.workload, ways.gpu, ways.gpus, ways.nodes, ways.samples)),
            PROFILES.seconds.tolist(), strict=True,
        )
    ]  # fmt: skip
    path.write_text("workload,gpu,gpus,nodes,samples,seconds\n" + "\n".join(lines) + "\n")
    return path


@pytest.fixture
def fitted(run: Run, tmp_path: Path) -> Path:
    """A file of the fitted model."""
    path = tmp_path / "model.json"
    path.write_bytes(model_bytes(fit_model(PROFILES, NAME)))
    return path


@pytest.fixture
def instance(tmp_path: Path) -> Path:
    path = tmp_path / "instance.json"
    path.write_text(json.dumps(INSTANCE))
    return path


# --- list, fit -----------------------------------------------------------------------------------------------------


def test_the_catalogue_is_listed_in_one_line_each(run: Run) -> None:
    listed = run("model", "list")
    assert listed.code == 0 and "Stated rates only" in listed.out
    found = {item["name"]: item for item in run("model", "list", "--json").json["models"]}
    assert set(found) == set(registry.names("performance model"))
    assert found[NAME]["made_of"] == "profiles" and found["chain"]["made_of"] == "other models"
    assert all(item["summary"] for item in found.values())


@pytest.mark.parametrize(
    "name", [*registry.names("performance model"), "row-column", "auto", "conformal-pairs"]
)
def test_one_model_is_shown_with_its_mathematics(run: Run, name: str) -> None:
    shown, found = run("model", "list", name), run("model", "list", name, "--json").json
    assert shown.code == 0 and shown.out.startswith(f"{name}, a ")
    assert found["text"].split()[0] in shown.out and len(found["text"]) > 20
    command = {"profiles": "model fit PROFILES", "pairs": "model fit-pairs PAIRS"}.get(
        found["made_of"], '"performance"'
    )
    assert command in shown.out
    if name == "chain":
        assert '"models": ...' in shown.out
    if name.startswith("conformal"):
        assert "-O of=" in shown.out


def test_no_model_of_that_name_is_shown(run: Run) -> None:
    wrong = run("model", "list", "polux")
    assert wrong.code == 2 and "unknown performance model 'polux'" in wrong.err


def test_fit_writes_the_model_of_the_library(run: Run, profiles: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    result = run("model", "fit", profiles, "--model", NAME, "-o", path)
    assert (result.code, result.err) == (0, "")
    assert "84 measured steps" in result.out and result.out.endswith(f"model written to {path}\n")
    document = fit_model(PROFILES, NAME)
    assert path.read_bytes() == model_bytes(document)
    told = run("model", "fit", profiles, "-m", NAME, "-o", path, "--json").json
    error = np.abs(predict_times(document, PROFILES.ways).seconds / PROFILES.seconds - 1)
    assert (
        told["mape"] == pytest.approx(error.mean()) and told["known"] == told["measurements"] == 84
    )
    assert (
        json.loads(run("model", "fit", profiles, "-m", NAME, "-o", "-").out)["format"]
        == "optsched-model/1"
    )
    assert run("model", "fit", profiles, "-m", NAME, "-o", path, "-q").out == ""


def test_options_and_chains(run: Run, profiles: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    for given in (["-m", NAME, "-O", "floor=0.9"], ["-m", f"{NAME}:floor=0.9"]):
        assert run("model", "fit", profiles, *given, "-o", path).code == 0
        assert read_model(path)["log_sd"] == 0.9
    assert (
        run("model", "fit", profiles, "-m", NAME, "-m", f"{NAME}:floor=0.9", "-o", path).code == 0
    )
    assert read_model(path) == fit_model(PROFILES, [NAME, (NAME, {"floor": 0.9})])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["-m", "nothing"], "unknown performance model 'nothing'"),
        (["-m", "table"], "table is not fitted to profiles, expected one of"),
        (
            ["-m", NAME, "-m", NAME, "-O", "floor=1"],
            "-O beside several models: give each its options",
        ),
        (["-m", f"{NAME}:floor=1", "-O", "floor=1"], "found floor twice"),
        (["-m", NAME, "-O", "floor"], "-O: found 'floor', expected key=value"),
        (["-m", NAME, "--repeats", "last"], "repeats: found 'last', expected first or all"),
        (
            ["-m", NAME, "--gpus-per-node", "few"],
            "--gpus-per-node: found 'few', expected a whole number",
        ),
    ],
)
def test_wrong_words_of_fit(
    run: Run, profiles: Path, tmp_path: Path, given: list[str], words: str
) -> None:
    path = tmp_path / "model.json"
    result = run("model", "fit", profiles, *given, "-o", path)
    assert (result.code, result.out) == (2, "") and words in result.err
    assert "Traceback" not in result.err and not path.exists()


@pytest.mark.parametrize(
    ("given", "refusal"),
    [
        (
            ["-m", "conformal"],
            "performance.of: found nothing, expected its base model, such as -O...",
        ),
        (["-m", NAME, "-O", "roof=1"], "performance.roof: found an unknown option"),
    ],
)
def test_options_that_fit_refuses(
    run: Run, profiles: Path, tmp_path: Path, given: list[str], refusal: str
) -> None:
    path = tmp_path / "model.json"
    result = run("model", "fit", profiles, *given, "-o", path)
    assert stated(refusal).holds(result.error)
    assert (result.code, result.out) == (3, "") and not path.exists()


def test_wrong_profiles(run: Run, tmp_path: Path) -> None:
    head, target = "workload,gpu,gpus,nodes,samples,seconds\n", tmp_path / "model.json"
    for text, words in (
        ("", "bad.csv: found an empty file"),
        (
            head + "a,b,1,1,8,0\n",
            "bad.csv:2:seconds: found 0.0, expected a time in seconds above 0",
        ),
        (head + "a,b,1,1,8,0.1\na,b,1,1,8,100\n", "bad.csv:3:seconds: found 100 s, where..."),
        (head + "a,b,2,1,8,0.1\na,b,4,1,8,0.1\n", "profiles: found no row on 1 GPU..."),
    ):
        path = tmp_path / "bad.csv"
        path.write_text(text)
        result = run("model", "fit", path, "-m", NAME, "-o", target)
        assert result.code == 3 and stated(words).holds(result.error) and not target.exists(), text
    result = run(
        "model", "fit", tmp_path / "bad.csv", "-m", NAME, "-o", tmp_path / "no" / "model.json"
    )
    assert result.code == 2 and "there is no folder" in result.err


def test_an_extra_that_is_missing(
    run: Run, profiles: Path, fitted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: object) -> None:
        raise SolverUnavailable("scikit-learn is missing: pip install 'optsched[learn]'")

    monkeypatch.setattr(Linear, "fit", missing)
    for command in (["fit", "-o", tmp_path / "m.json"], ["evaluate"]):
        result = run("model", command[0], profiles, "-m", NAME, *command[1:])
        assert result.code == 7 and "pip install 'optsched[learn]'" in result.err


# --- predict -------------------------------------------------------------------------------------------------------


def test_predict_beside_what_was_measured(run: Run, profiles: Path, fitted: Path) -> None:
    found = run("model", "predict", fitted, profiles, "--json").json
    times = predict_times(read_model(fitted), PROFILES.ways)
    assert [row["seconds"] for row in found["rows"]] == times.seconds.tolist()
    assert [row["measured_seconds"] for row in found["rows"]] == PROFILES.seconds.tolist()
    row = found["rows"][3]
    assert (row["workload"], row["gpus"], row["nodes"], row["source"]) == (
        "bert",
        2,
        1,
        "parametric",
    )
    assert row["samples_per_second"] == pytest.approx(2 * 8 / row["seconds"])
    assert row["high"] / row["samples_per_second"] == pytest.approx(
        np.exp(1.6448536 * row["log_sd"])
    )
    shown = run("model", "predict", fitted, profiles)
    assert (
        shown.code == 0
        and "measured" in shown.out
        and "... and 24 more ways (use --json)" in shown.out
    )
    assert max(map(len, shown.out.splitlines())) <= 100


def test_predict_ways_of_options(run: Run, fitted: Path) -> None:
    given = ["--workload", "bert", "--gpu", "T4", "--gpus", "1,2,8"]
    rows = run(
        "model", "predict", fitted, *given, "--gpus-per-node", "4", "--batch", "64,128", "--json"
    ).json["rows"]
    assert [(row["gpus"], row["nodes"], row["samples"]) for row in rows] == [
        (1, 1, 64), (2, 1, 32), (8, 2, 8), (1, 1, 128), (2, 1, 64), (8, 2, 16)
    ]  # fmt: skip
    assert all("measured_seconds" not in row for row in rows)
    rows = run(
        "model", "predict", fitted, *given, "--nodes", "1,2,4", "--batch-per-gpu", "8", "--json"
    ).json["rows"]
    assert [(row["nodes"], row["samples"]) for row in rows] == [(1, 8), (2, 8), (4, 8)]
    unknown = run(
        "model",
        "predict",
        fitted,
        "--workload",
        "gpt",
        "--gpu",
        "T4",
        "--gpus",
        "1",
        "--batch",
        "8",
    )
    assert unknown.code == 0 and "unknown" in unknown.out


@pytest.mark.parametrize(
    ("workload", "gpu", "words"),
    [
        ("gpt", "T4", "unknown workload 'gpt', expected one of bert, vgg"),
        ("bert", "K80", "bert was not measured on 'K80', expected one of A100, T4"),
    ],
)
def test_predict_refuses_names_that_the_model_was_not_fitted_to(
    run: Run, profiles: Path, tmp_path: Path, workload: str, gpu: str, words: str
) -> None:
    model = tmp_path / "usl.json"
    assert run("model", "fit", profiles, "-m", "usl", "-o", model).code == 0
    given = ["--workload", workload, "--gpu", gpu, "--gpus", "1", "--batch", "8"]
    result = run("model", "predict", model, *given)
    assert (result.code, result.out) == (2, "") and words in result.err


def test_a_fitted_model_is_a_dict_that_shows_itself(profiles: Path) -> None:
    model = fit_model(optsched.read_profiles(profiles), ["pollux", "usl"])
    assert repr(model) == "<PerformanceObject pollux, then usl: 2 workloads on 2 GPU types>"
    assert "  bert  A100, T4" in model.summary() and "<dd>A100, T4</dd>" in model._repr_html_()
    assert model == json.loads(json.dumps(model))


@pytest.mark.parametrize(
    ("parameters", "options"),
    [({"batch": 100}, ["--batch", "100"]),
     ({"batch": 100, "max_batch_per_gpu": 12}, ["--batch", "100", "--max-batch-per-gpu", "12"]),
     ({"batch_per_gpu": 20, "max_batch_per_gpu": 8}, ["--batch-per-gpu", "20", "--max-batch-per-gpu", "8"])],
)  # fmt: skip
def test_predict_splits_batches_as_instances_do(
    run: Run, tmp_path: Path, parameters: dict[str, int], options: list[str]
) -> None:
    """Uneven batches too: 100 samples of 3 GPUs take as long as 34 of the fullest."""
    model, instance = tmp_path / "pollux.json", tmp_path / "instance.json"
    model.write_bytes(model_bytes(fit_model(PROFILES, "pollux")))
    instance.write_text(json.dumps({
        "format": "optsched-instance/1",
        "cluster": {"pools": [{"name": "p", "gpu": "T4", "nodes": 1, "gpus_per_node": 8}]},
        "workloads": {"bert": {"parameters": parameters}},
        "jobs": [{"id": f"j{k}", "workload": "bert", "gpus": k, "steps": 1} for k in (1, 3, 7)],
    }))  # fmt: skip
    given = ["--workload", "bert", "--gpu", "T4", "--gpus", "1,3,7", "--nodes", "1,1,1", *options]
    rows = run("model", "predict", model, *given, "--json").json["rows"]
    for k, row in zip((1, 3, 7), rows, strict=True):
        (column,) = run("explain", instance, "--model", model, "--job", f"j{k}", "--json").json[
            "columns"
        ]
        per_step = (
            parameters.get("batch") or parameters["batch_per_gpu"]
        )  # samples of a step of the instance
        assert row["samples_per_second"] == pytest.approx(column["rate"] * per_step)
    if parameters == {"batch": 100}:
        assert [row["samples"] for row in rows] == [100, 34, 15]
    else:
        assert max(row["samples"] for row in rows) <= parameters["max_batch_per_gpu"]
        assert rows[0]["passes"] > 1


def test_wrong_models_are_told_with_their_file(run: Run, instance: Path, tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    for document, words in (
        ({"model": "pollux"}, "bad.json: coefficients: found nothing, expected this key"),
        ({"model": "polux"}, 'bad.json: model: found "polux"'),
        (
            {"model": "chain", "models": [{"model": "pollux"}]},
            "bad.json: models[0].coefficients: found nothing",
        ),
    ):
        path.write_text(json.dumps({"format": "optsched-model/1", **document}))
        for command in ("solve", "validate", "compare", "explain"):
            result = run(command, instance, "--model", path)
            assert result.code == 3 and stated(words).holds(result.error), (command, result.err)
    wrong = json.loads(instance.read_text())
    wrong["workloads"]["vgg"]["parameters"]["batch_per_gpu"] = -1
    other = tmp_path / "wrong.json"
    other.write_text(json.dumps(wrong))
    path.write_text(json.dumps({"format": "optsched-model/1", "model": "prior"}))
    result = run("solve", other, "--model", path)
    assert stated("workloads.vgg.parameters.batch_per_gpu: found -1").holds(result.error)
    assert result.code == 3 and "bad.json" not in result.err


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([], "expected PROFILES, or --workload, --gpu, --gpus and --batch or --batch-per-gpu"),
        (["{profiles}", "--gpus", "2"], "expected PROFILES, or --workload"),
        (["--gpus", "2", "--batch", "8"], "--workload is missing beside the others"),
        (["--workload", "a", "--gpu", "b", "--batch", "8"], "--gpus is missing beside the others"),
        (["--workload", "a", "--gpu", "b", "--gpus", "1"], "expected --batch of the whole job or --batch-per-gpu"),
        (["--workload", "a", "--gpu", "b", "--gpus", "2", "--batch", "8"], "say over how many nodes with --nodes"),
        (["--workload", "a", "--gpu", "b", "--gpus", "2,4", "--nodes", "1", "--batch", "8"], "found 1 numbers"),
        (["--workload", "a", "--gpu", "b", "--gpus", "2", "--nodes", "3", "--batch", "8"], "found 3 nodes for"),
        (["--workload", "a", "--gpu", "b", "--gpus", "4", "--nodes", "1", "--batch", "2"], "found 2 samples for"),
        (["--workload", "a", "--gpu", "b", "--gpus", "1", "--batch", "8", "--max-batch-per-gpu", "1,2"],
         "--max-batch-per-gpu: found 2 numbers, expected one"),
        (["--workload", "a", "--gpu", "b", "--gpus", "0", "--batch", "8"], "--gpus: found 0, expected whole numbers"),
        (["--workload", "a", "--gpu", "b", "--gpus", "x", "--batch", "8"], "--gpus: found 'x', expected a"),
    ],
)  # fmt: skip
def test_wrong_words_of_predict(
    run: Run, profiles: Path, fitted: Path, given: list[str], words: str
) -> None:
    result = run("model", "predict", fitted, *(text.format(profiles=profiles) for text in given))
    assert (result.code, result.out) == (2, "") and words in result.err


def test_files_that_are_no_models(run: Run, profiles: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    for text, words in (
        ("{}", 'model.json: format: found null, expected "optsched-model/1"'),
        ('{"format": "optsched-model/1"}', "model.json: model: found nothing"),
        (
            '{"format": "optsched-model/1", "model": "x"}',
            'model.json: model: found "x", expected one of...',
        ),
        (
            f'{{"format": "optsched-model/1", "model": "{NAME}"}}',
            "model.json: per_sample: found nothing",
        ),
        ("no", "model.json: found text that is not JSON..."),
    ):
        path.write_text(text)
        result = run("model", "predict", path, profiles)
        assert result.code == 3 and stated(words).holds(result.error), result.err
    assert run("model", "predict", tmp_path / "none.json", profiles).code == 3


# --- evaluate ------------------------------------------------------------------------------------------------------


def test_evaluate_is_that_of_the_library(run: Run, profiles: Path) -> None:
    given = ["--split", "random:fraction=0.3", "--split", "more-gpus:most=2", "--seeds", "2"]
    found = run("model", "evaluate", profiles, "-m", NAME, *given, "--json").json
    expected = evaluate(
        PROFILES, fits([NAME]), [("random", {"fraction": 0.3}), ("more-gpus", {"most": 2})], seeds=2
    )  # fmt: skip
    assert found["rows"] == [asdict(row) for row in expected.rows]
    shown = run("model", "evaluate", profiles, "-m", NAME, *given, "--workloads")
    assert shown.code == 0 and "random:fraction=0.3" in shown.out and "vgg" in shown.out
    assert max(map(len, shown.out.splitlines())) <= 100


def test_all_splits_and_chains_by_default(run: Run, profiles: Path) -> None:
    rows = run("model", "evaluate", profiles, "-m", NAME, "--chain", "--seeds", "1", "--json").json[
        "rows"
    ]
    assert {row["split"] for row in rows} == {
        "random",
        "few-shot",
        "more-gpus",
        "workload-out",
        "gpu-out",
    }
    assert {row["model"] for row in rows} == {NAME, "chain"}
    shown = run("model", "evaluate", profiles, "-m", NAME, "--seeds", "1").out
    assert "workload-out" in shown and "84" in shown


def test_what_cannot_be_evaluated_is_told(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "profiles.csv"
    path.write_text(
        "workload,gpu,gpus,nodes,samples,seconds\na,b,2,1,8,0.1\na,b,4,1,8,0.1\na,b,4,1,9,0.1\n"
    )
    shown = run(
        "model", "evaluate", path, "-m", NAME, "--split", "random", "--split", "gpu-out"
    ).out
    with refuses("profiles: found no row on 1 GPU...") as refused:
        fit_model(optsched.read_profiles(path), NAME)
    assert f"- {NAME}: {refused.value}" in " ".join(shown.split())
    assert f"- {NAME}: nothing in these profiles can be left out" in shown


@pytest.mark.picture
@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_pictures(run: Run, profiles: Path, tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / f"errors.{suffix}"
    given = ["model", "evaluate", profiles, "-m", NAME, "--split", "random", "--plot", path]
    assert run(*given).out.endswith(f"picture written to {path}\n")
    first = path.read_bytes()
    assert run(*given, "-q").out == "" and path.read_bytes() == first
    nothing = run(
        "model", "evaluate", profiles, "-m", NAME, "--split", "workload-out", "--plot", path
    )
    assert nothing.code == 2 and "there are no errors to draw" in nothing.err


@pytest.mark.picture
def test_a_picture_shows_every_model_and_split() -> None:
    pytest.importorskip("matplotlib")
    from optsched.report import evaluation_picture

    fit = {
        "one": lambda train: Linear.fit(train, {}).times,
        "two": lambda train: Linear.fit(train, {}).times,
    }
    found = evaluate(PROFILES, fit, [("random", {}), ("gpu-out", {}), ("workload-out", {})])
    axes = evaluation_picture(found).get_figure().axes
    assert [(ax.get_title(loc="left"), ax.texts[0].get_text()) for ax in axes] == [
        (model, split) for model in ("one", "two") for split in ("random", "gpu-out")
    ]
    assert f"MAPE {100 * found.rows[0].mape:.1f} %" in axes[0].texts[1].get_text()
    assert (
        axes[0].get_xscale() == axes[0].get_yscale() == "log"
        and axes[0].get_xlim() == axes[3].get_ylim()
    )


def test_too_many_panels() -> None:
    pytest.importorskip("matplotlib")
    from optsched.report import evaluation_picture

    many = {str(number): lambda train: Linear.fit(train, {}).times for number in range(41)}
    with pytest.raises(UsageError, match="1 splits of 41 models are too many panels"):
        evaluation_picture(evaluate(PROFILES, many, [("gpu-out", {})]))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--split", "half"], "unknown split 'half', expected one of random"),
        (
            ["--split", "random:fraction=2"],
            "random: fraction: found 2, expected a number between 0 and 1",
        ),
        (["--seeds", "0"], "seeds: found 0, expected a number from 1 to 1000"),
        (["--seeds", "x"], "--seeds: found 'x', expected a"),
        (["--nominal", "1.5"], "nominal: found 1.5, expected a share between 0 and 1"),
        (["--plot", "errors.txt"], "expected a name that ends in .png, .svg or .pdf"),
    ],
)
def test_wrong_words_of_evaluate(run: Run, profiles: Path, given: list[str], words: str) -> None:
    result = run("model", "evaluate", profiles, "-m", NAME, *given)
    assert (result.code, result.out) == (2, "") and words in result.err


# --- --model FILE of the other commands ----------------------------------------------------------------------------


def test_a_solution_with_a_model_is_verified_with_it(
    run: Run, instance: Path, fitted: Path, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.json"
    without = run("solve", instance, "--json").json
    assert [row["job"] for row in without["unplaced"]] == ["a"]
    assert run("solve", instance, "--model", fitted, "-o", plan).code == 0
    solved = json.loads(plan.read_text())
    assert solved["unplaced"] == []
    seconds = read_model(fitted)["per_sample"]["bert"]["A100"] * 16
    assert (
        solved["instance"]["sha256"]
        == optsched.load(instance, fitted).sha256
        != without["instance"]["sha256"]
    )
    assert solved["throughput"]["a"] <= 1 / seconds * (1 + 1e-9)
    assert run("verify", instance, plan, "--model", fitted).code == 0
    refused = run("verify", instance, plan)
    assert refused.code == 6 and "or was made with --model FILE" in refused.err
    plain = tmp_path / "plain.json"
    assert run("solve", instance, "-o", plain).code == 0
    wrong = run("verify", instance, plain, "--model", fitted)
    assert wrong.code == 6 and "or was made without this model" in wrong.err


def test_the_model_is_taken_from_python_too(instance: Path, fitted: Path) -> None:
    document = read_model(fitted)
    by_file = optsched.solve(instance, performance=fitted)
    by_document = optsched.solve(optsched.load(instance), performance=document)
    assert (
        by_file.objective
        == by_document.objective
        == optsched.solve(optsched.load(instance, fitted)).objective
    )
    assert optsched.verify(instance, by_file.to_document(), performance=fitted).ok
    assert not optsched.verify(instance, by_file.to_document()).ok
    compared = optsched.compare(instance, ["makespan"], performance=fitted)
    assert compared.rows[0].solution is not None and compared.rows[0].solution.unplaced == ()
    with pytest.raises(UsageError, match="performance replaces the instance's own"):
        optsched.solve(optsched.compile(optsched.load(instance)), performance=fitted)


def test_every_command_takes_the_model(
    run: Run, instance: Path, fitted: Path, tmp_path: Path
) -> None:
    assert run("validate", instance, "--json").json["unplaced"] != []
    assert run("validate", instance, "--model", fitted, "--json").json["unplaced"] == []
    assert run("explain", instance, "--model", fitted, "--json").json["unplaced"] == []
    rows = run("compare", instance, "--model", fitted, "-f", "makespan", "--json").json["rows"]
    assert rows[0]["status"] == "optimal"
    found = run(
        "pareto",
        instance,
        "-f",
        "makespan",
        "-f",
        "cost",
        "--points",
        "3",
        "--model",
        fitted,
        "--json",
    )
    assert found.code == 0 and len(found.json["points"]) >= 2
    changed = run("whatif", instance, "--add", "new:2", "--model", fitted, "--json")
    assert changed.code == 0
    copied = tmp_path / "copy.json"
    assert run("export", instance, "--model", fitted, "-o", copied).code == 0
    assert json.loads(copied.read_text())["performance"] == read_model(fitted)
    assert run("solve", copied, "--json").json["unplaced"] == []
    program = tmp_path / "makespan.mps"
    assert run("export", instance, "-f", "makespan", "--model", fitted, "-o", program).code == 0
    assert (
        " a" in Path(f"{program}.names.json").read_text()
        or '"a"' in Path(f"{program}.names.json").read_text()
    )


def test_where_rates_come_from(run: Run, instance: Path, fitted: Path) -> None:
    log_sd = read_model(fitted)["log_sd"]
    told = run("validate", instance, "--model", fitted, "--json").json["sources"]
    assert (
        told["measured"] == {"columns": 1, "log_sd": 0.0} and told["parametric"]["log_sd"] == log_sd
    )
    spread = f"parametric ± {100 * np.expm1(log_sd):.2g} %"
    assert spread in run("validate", instance, "--model", fitted).out
    assert "rates from" not in run("validate", "@quickstart").out
    for way in run("explain", instance, "--model", fitted, "--job", "a", "--json").json["columns"]:
        assert (way["source"], way["log_sd"]) == ("parametric", log_sd)
    assert spread in run("explain", instance, "--model", fitted, "--job", "a").out
    ways = run("explain", instance, "--model", fitted, "--job", "b", "--json").json["columns"]
    assert {way["pool"]: way["source"] for way in ways} == {
        "new": "parametric",
        "old": "measured",
    }  # one is stated
    assert "parametric" not in run("explain", "@quickstart", "--job", "gpt-2-small-6").out


def test_a_byte_order_mark_does_not_count(
    run: Run, instance: Path, fitted: Path, tmp_path: Path
) -> None:
    path = tmp_path / "marked.json"
    path.write_bytes(b"\xef\xbb\xbf" + fitted.read_bytes())
    assert read_model(path) == read_model(fitted)


def test_wrong_model_files_of_other_commands(
    run: Run, instance: Path, fitted: Path, tmp_path: Path
) -> None:
    for command in (
        ["solve"],
        ["validate"],
        ["explain"],
        ["compare"],
        ["export", "-o", tmp_path / "x.json"],
    ):
        result = run(command[0], instance, *command[1:], "--model", instance)
        refusal = 'instance.json: format: found "optsched-instance/1", expected "optsched-model/1"'
        assert result.code == 3 and stated(refusal).holds(result.error), command
        missing = run(command[0], instance, *command[1:], "--model", tmp_path / "none.json")
        assert missing.code == 3 and stated("found no readable file at...").holds(missing.error)
        both = run(command[0], "-", *command[1:], "--model", "-")
        assert (
            both.code == 2
            and "the instance and --model cannot both come from standard input" in both.err
        )


def test_a_curve_that_is_not_concave_is_told(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "elastic.json"
    rates = {"new": {"1": 1.0, "2": 1.4, "4": 3.2}, "old": {"1": 1.0, "2": 1.5}}
    job = {"id": "a", "throughput": rates, "gpus": {"min": 1, "max": 4}, "steps": 10}
    path.write_text(json.dumps({**INSTANCE, "workloads": {}, "jobs": [job]}))
    told = run("explain", path, "-f", "max-throughput", "--job", "a")
    words = " ".join(told.out.split())
    assert told.code == 0 and "at most 19.2 % below a concave curve in new, concave in old" in words


@pytest.mark.picture
@pytest.mark.parametrize(
    ("limits", "labels"),
    [
        ((3.05, 6.9), ["4", "5", "6"]),
        ((0.3, 1.1), ["0.3", "0.4", "0.5", "0.6", "0.8", "1"]),
        ((0.002, 0.018), ["0.002", "0.003", "0.005", "0.007", "0.01", "0.015"]),
        ((0.02, 18.0), ["0.1", "1", "10"]),
    ],
)
def test_labels_of_narrow_axes_are_few(limits: tuple[float, float], labels: list[str]) -> None:
    pytest.importorskip("matplotlib")
    # Private names: the ticks of one panel
    from optsched.report.model_errors import _ticks
    from optsched.report.pictures import new_axes

    ax = new_axes(3.6, 3.6)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlim(limits)
    ax.set_ylim(limits)
    _ticks(ax, limits)
    assert [label.get_text() for label in ax.get_xticklabels(which="both")] == labels
    assert [label.get_text() for label in ax.get_yticklabels(which="both")] == labels
