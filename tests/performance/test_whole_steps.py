"""Rates of whole steps, measured without samples: their models know no batch."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from documents import instance_document
from refusals import refuses

import optsched
from optsched.cli.main import main
from optsched.study import fit_model, predict_times

RATES = {1: 18.2, 2: 34.1, 4: 60.3, 8: 95.0}
TABLE = "workload,gpu,gpus,nodes,throughput\n" + "".join(
    f"net,V100,{gpus},{-(-gpus // 4)},{rate}\n" for gpus, rate in RATES.items()
)
LAWS = ["cross-validated", "interpolation", "usl", "amdahl", "pollux", "prior"]


@pytest.fixture(scope="module")
def rates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rates") / "rates.csv"
    path.write_text(TABLE)
    return path


@pytest.fixture(scope="module")
def fitted(rates: Path) -> Callable[[str], Any]:
    """Each law is fitted once."""
    return cache(partial(fit_model, optsched.read_profiles(rates)))


def document(**parameters: Any) -> dict[str, Any]:
    return instance_document(
        [{"name": "v", "gpu": "V100", "nodes": 2, "gpus_per_node": 4}],
        [{"id": "a", "workload": "net", "gpus": {"min": 1, "max": 8}}],
        workloads={"net": {"parameters": parameters}},
    )


def steps_per_second(model: Any, **parameters: Any) -> dict[int, float]:
    instance = optsched.load(document(**parameters), performance=model)
    columns = optsched.compile(instance).columns
    return dict(zip(columns.gpus.tolist(), columns.rate.tolist(), strict=True))


@pytest.mark.property
@pytest.mark.parametrize("parameters", [{}, {"batch": 1}])
@pytest.mark.parametrize("law", LAWS)
def test_no_way_is_dropped_for_want_of_samples(
    rates: Path, fitted: Callable[[str], Any], law: str, parameters: dict[str, Any]
) -> None:
    assert optsched.read_profiles(rates).whole_steps == ("net",)
    found = steps_per_second(fitted(law), **parameters)
    exact = law in ("cross-validated", "interpolation", "prior")
    for gpus, rate in RATES.items():
        assert found[gpus] == pytest.approx(rate, rel=1e-12 if exact else 0.3)
    # Interpolation alone knows nothing between the measured counts of different numbers of nodes.
    assert set(found) >= set(range(1, 5)) and (law == "interpolation" or len(found) == 8)


@pytest.mark.parametrize(
    "parameters", [{"batch": 64}, {"batch_per_gpu": 16, "max_batch_per_gpu": 4}]
)
def test_another_batch_rescales_nothing_and_is_noted(
    fitted: Callable[[str], Any], parameters: dict[str, Any]
) -> None:
    model = fitted("cross-validated")
    for _ in range(2):  # each answer says it
        solution = optsched.solve(document(**parameters), "max-throughput", performance=model)
        assert any("the batch of net is not used" in note for note in solution.notes)
    assert steps_per_second(model, **parameters) == steps_per_second(model)
    for usual in ({}, {"batch": 1}):
        solution = optsched.solve(document(**usual), "max-throughput", performance=model)
        assert solution.notes == ()


def test_chains_and_predictions_know_whole_steps_too(
    rates: Path, fitted: Callable[[str], Any]
) -> None:
    profiles = optsched.read_profiles(rates)
    chain = fit_model(profiles, ["interpolation", "usl"])
    assert steps_per_second(chain)[8] == pytest.approx(95.0)
    for model in (chain, fitted("cross-validated")):
        seconds = predict_times(model, profiles.ways).seconds
        np.testing.assert_allclose(seconds, profiles.seconds, rtol=1e-12)


def test_a_chosen_batch_and_mixed_tables_are_refused(
    rates: Path, fitted: Callable[[str], Any], tmp_path: Path
) -> None:
    model = fitted("cross-validated")
    noise = {"sqr": 1.0, "var": 1.0, "batch": 64}
    with refuses("workloads.net.parameters.gradient_noise"):
        steps_per_second(model, gradient_noise=noise)
    other = tmp_path / "samples.csv"
    other.write_text("workload,gpu,gpus,batch,throughput\nnet,V100,1,64,18\n")
    with refuses('samples.csv:2:throughput: found "net" with samples, elsewhere without'):
        optsched.read_profiles([rates, other])


@pytest.mark.process
def test_the_command_line(rates: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(tmp_path / "model.json")
    assert main(["model", "fit", str(rates), "-o", model]) == 0
    assert "whole steps" in capsys.readouterr().out
    assert main(["model", "predict", model, str(rates)]) == 0
    predicted = capsys.readouterr().out
    assert "steps/s" in predicted and "whole steps" in predicted and "0.125" not in predicted
    instance = tmp_path / "instance.json"
    instance.write_text(json.dumps(document()))
    capsys.readouterr()
    solve = ["solve", str(instance), "--model", model, "-f", "max-throughput", "--json"]
    assert main(solve) == 0
    assert json.loads(capsys.readouterr().out)["objective"] == pytest.approx(95.0)
    ask = ["model", "predict", model, "--workload", "net", "--gpu", "V100", "--gpus", "2,8"]
    ask += ["--gpus-per-node", "4"]
    for batch in ([], ["--batch", "1"]):
        assert main([*ask, *batch, "--json"]) == 0
        rows = json.loads(capsys.readouterr().out)["rows"]
        assert [row["samples_per_second"] for row in rows] == pytest.approx([34.1, 95.0])
    assert main([*ask, "--batch", "64"]) == 2
    assert "in whole steps, without samples" in capsys.readouterr().err


def test_real_samples_keep_their_rule_and_say_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "samples.csv"
    table.write_text(
        "workload,gpu,gpus,nodes,batch,throughput\nnet,V100,1,1,64,18\nnet,V100,2,1,64,33\n"
    )
    profiles = optsched.read_profiles(table)
    assert profiles.whole_steps == ()
    wanted = document(batch=1) | {"performance": fit_model(profiles, "pollux")}
    wanted["jobs"] = [{"id": "a", "workload": "net", "gpus": 3}]
    path = tmp_path / "instance.json"
    path.write_text(json.dumps(wanted))
    main(["validate", str(path)])
    told = " ".join(capsys.readouterr().out.split())
    assert "more GPUs (3) than samples per step (1)" in told
