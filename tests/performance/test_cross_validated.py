"""The default of ``optsched model fit``: which law it chooses, what it says of few ways, and outside of them."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from optsched.cli.main import main
from optsched.errors import InvalidInput
from optsched.performance import Profiles, Source

# Private names: a model by its class, where the registry knows it by name
from optsched.performance.files import model_bytes
from optsched.performance.learned.cross_validated import ChosenDocument, CrossValidated, _folds
from optsched.performance.ways import Ways
from optsched.study import fit_model, predict_times

pytestmark = pytest.mark.property

Law = Callable[[Any, Any, Any], Any]
"""Seconds of k GPUs on n nodes, m samples each."""


def usl(k: Any, n: Any, m: Any) -> Any:
    return k * m / 100 * (1 + 0.1 * (k - 1) + 0.01 * k * (k - 1)) / k


def pollux(k: Any, n: Any, m: Any) -> Any:
    return (
        0.05
        + 0.01 * m
        + np.where(k > 1, np.where(n > 1, 0.4 + 0.02 * (k - 2), 0.1 + 0.01 * (k - 2)), 0.0)
    )


def stepped(k: Any, n: Any, m: Any) -> Any:
    """A curve of no law: fast up to 8 GPUs, then hardly any faster, then fast again."""
    return m * k * np.interp(np.log2(k), [0, 3, 4, 6], [1.0, 1 / 8, 1 / 8, 1 / 30]) / 100


def profiles_of(law: Law, rows: list[tuple[int, int, float]], workload: str = "bert") -> Profiles:
    k, n, m = (np.array(column) for column in zip(*rows, strict=True))
    names = {"workload": [workload] * len(rows), "gpu": ["t4"] * len(rows)}
    return Profiles.of(
        **names, gpus=k, nodes=n, samples=m.astype(float), seconds=law(k, n, m.astype(float))
    )


STRONG = [(k, 1, 64 / k) for k in (1, 2, 4, 8, 16, 32, 64)]
WEAK = [(k, 1, 32) for k in (1, 2, 4, 8, 16)]
PLACED = [
    (k, n, m) for k, n in ((1, 1), (2, 1), (4, 1), (4, 2), (8, 2), (16, 4)) for m in (8, 32, 64)
]
CURVE = [(k, 1, 64 / k) for k in (1, 2, 4, 6, 8, 12, 16, 32, 64)]


def ways_of(rows: list[tuple[int, int, float]]) -> Ways:
    return profiles_of(pollux, rows).ways


def chosen(model: CrossValidated) -> ChosenDocument:
    (told,) = model.chosen.values()
    return told


@pytest.mark.parametrize(
    ("law", "rows", "name"),
    [(usl, STRONG, "usl"), (pollux, WEAK, "pollux"), (stepped, CURVE, "interpolation")],
)
def test_the_law_that_predicts_best_is_chosen(
    law: Law, rows: list[tuple[int, int, float]], name: str
) -> None:
    model = CrossValidated.fit(profiles_of(law, rows), {})
    told = chosen(model)
    assert told.laws[0] == name and told.ways == len(rows)
    assert told.error is not None and told.error < 0.5


def test_each_pair_has_a_law_of_its_own() -> None:
    few = [(k, 1, 64 / k) for k in (1, 2, 4, 8)]
    parts = [profiles_of(usl, few, "a"), profiles_of(pollux, WEAK, "b")]
    both = Profiles.of(
        workload=["a"] * len(few) + ["b"] * len(WEAK), gpu=["t4"] * (len(few) + len(WEAK)),
        **{name: np.concatenate([getattr(part.ways, name) for part in parts]) for name in ("gpus", "nodes", "samples")},
        seconds=np.concatenate([part.seconds for part in parts]),
    )  # fmt: skip
    model = CrossValidated.fit(both, {})
    assert [told.laws[0] for told in model.chosen.values()] == ["usl", "pollux"]


def test_what_was_measured_is_what_is_said() -> None:
    """A table of 5 workloads on 2 GPU types with 1, 2 and 4 GPUs, which no law follows exactly."""
    random = np.random.default_rng(0)
    rows = [(w, g, k) for w in "abcde" for g in ("A100", "V100") for k in (1, 2, 4)]
    workload, gpu, gpus = map(list, zip(*rows, strict=True))
    profiles = Profiles.of(
        workload=workload,
        gpu=gpu,
        gpus=gpus,
        samples=[32.0] * 30,
        seconds=random.uniform(0.5, 1.5, 30),
    )
    document = fit_model(profiles)
    assert (
        document["model"]
        == inspect.signature(fit_model).parameters["models"].default
        == "cross-validated"
    )
    said = predict_times(document, profiles.ways)
    assert said.seconds.tolist() == profiles.seconds.tolist() and set(said.source.tolist()) == {
        Source.MEASURED
    }
    assert all(told["error"] > 0 and told["ways"] == 3 for by_gpu in document["chosen"].values()
               for told in by_gpu.values())  # fmt: skip


@pytest.mark.unit
@pytest.mark.parametrize(
    ("rows", "law", "asked", "seconds"),
    [
        ([(1, 1, 64)], "usl", (4, 1, 16), 0.64 / 4),  # linear scaling
        ([(1, 1, 64), (2, 1, 32)], "usl", (4, 1, 16), 0.64 * (1 + 0.12 * 3) / 4),  # Amdahl's law
        ([(1, 1, 64), (1, 1, 64)], "usl", (2, 1, 32), 0.32),  # one way that was measured twice
    ],
)
def test_of_one_or_two_ways_the_simplest_law(
    rows: list[tuple[int, int, float]], law: str, asked: tuple[int, int, float], seconds: float
) -> None:
    model = CrossValidated.fit(profiles_of(usl, rows), {})
    assert chosen(model).laws[0] == law and chosen(model).error is None
    said = model.times(ways_of([asked]))
    assert (
        said.seconds[0] == pytest.approx(seconds, rel=1e-6)
        and said.source[0] == Source.EXTRAPOLATED
    )
    assert said.log_sd[0] >= 0.3


def test_of_two_batches_the_law_that_knows_batches() -> None:
    model = CrossValidated.fit(profiles_of(pollux, [(1, 1, 8), (1, 1, 32)]), {})
    assert chosen(model).laws[0] == "pollux" and chosen(model).error is None
    said = model.times(ways_of([(1, 1, 16)]))
    assert said.seconds[0] == pytest.approx(0.21, rel=1e-4) and said.source[0] == Source.PARAMETRIC


@pytest.mark.unit
def test_a_way_that_was_measured_twice_is_left_out_as_a_whole() -> None:
    ways = ways_of([(1, 1, 8), (1, 1, 8), (2, 1, 8), (4, 1, 8), (4, 1, 8)])
    fold = _folds(ways, {("bert", "t4"): np.arange(len(ways))})
    assert fold[0] == fold[1] and fold[3] == fold[4] and len(set(fold.tolist())) == 3


def test_ways_outside_of_the_measured_range_are_flagged() -> None:
    model = CrossValidated.fit(profiles_of(pollux, PLACED), {})
    inside = [(1, 1, 16), (3, 1, 20), (8, 4, 8), (16, 4, 64)]
    outside = [(32, 4, 8), (8, 8, 8), (4, 1, 100), (4, 1, 4)]
    said = model.times(ways_of(inside + outside))
    assert np.isfinite(said.seconds).all()
    assert (said.source == Source.EXTRAPOLATED).tolist() == [False] * 4 + [True] * 4
    assert (said.log_sd[4:] >= 0.3).all() and (said.log_sd[:4] < 0.3).all()
    several = ways_of([(4, 1, 8)]).with_batches(np.array([8.0]), np.array([2]))
    assert model.times(several).source.tolist() == [Source.EXTRAPOLATED]


def test_where_the_best_law_knows_nothing_the_next_one_answers() -> None:
    model = CrossValidated.fit(profiles_of(usl, STRONG), {})
    assert chosen(model).laws[0] == "usl" and "usl" in model.laws
    asked = ways_of([(2, 1, 16.0)])  # a batch that usl does not know
    assert np.isnan(model.laws["usl"].times(asked).seconds[0])
    said, next_one = model.times(asked).seconds[0], model.laws[chosen(model).laws[1]]
    assert said == next_one.times(asked).seconds[0]
    unknown = Profiles.of(workload=["x"], gpu=["t4"], gpus=[1], samples=[8.0], seconds=[1.0]).ways
    assert np.isnan(model.times(unknown).seconds[0])


def test_times_that_only_grow_with_gpus_are_no_reason_to_refuse() -> None:
    profiles = profiles_of(lambda k, n, m: (k - 1.0) ** 2, [(k, 1, 64 / k) for k in (2, 4, 8)])
    model = CrossValidated.fit(profiles, {})
    assert "usl" not in model.laws and chosen(model).laws[0] != "usl"
    document = model.document()
    again = CrossValidated.from_document(
        {name: value for name, value in document.items() if name != "model"}
    )
    assert again.document() == document
    assert np.isfinite(again.times(ways_of([(3, 1, 64 / 3)])).seconds).all()


def test_the_same_measurements_give_the_same_bytes_in_any_order() -> None:
    profiles = profiles_of(usl, [*STRONG[:3], *STRONG[:3], (2, 2, 8)])
    profiles.seconds[3:6] *= 1.01
    data = model_bytes(fit_model(profiles))
    assert model_bytes(fit_model(profiles.take(np.array([4, 0, 6, 2, 3, 1, 5])))) == data
    document = json.loads(data)
    del document["format"]
    assert model_bytes(document) == data
    said, again = (predict_times(told, ways_of(STRONG)) for told in (fit_model(profiles), document))
    assert (
        said.seconds.tobytes() == again.seconds.tobytes()
        and said.log_sd.tobytes() == again.log_sd.tobytes()
    )


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"chosen": {}}, "performance.chosen"),
        (
            {"chosen": {"bert": {"t4": {"laws": ["usl"], "ways": 3}}}},
            "performance.chosen.bert.t4.laws",
        ),
        (
            {"chosen": {"bert": {"t4": {"laws": ["usl", "x"], "ways": 3}}}},
            "performance.chosen.bert.t4.laws[1]",
        ),
        ({"laws": {}}, "performance.laws.pollux"),
        ({"more": 1}, "performance.more"),
    ],
)
def test_wrong_documents(change: dict[str, Any], path: str) -> None:
    document = CrossValidated.fit(profiles_of(usl, STRONG[:1]), {}).document()
    with pytest.raises(InvalidInput) as raised:
        CrossValidated.from_document(
            {name: value for name, value in document.items() if name != "model"} | change
        )
    assert raised.value.path == path


def test_the_commands_tell_the_law_its_error_and_what_is_extrapolated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, file = tmp_path / "profiles.csv", tmp_path / "model.json"
    rows = [
        f"{w},V100,{k},1,{32 / k:g},{t}"
        for w in ("bert", "vgg")
        for k, t in ((1, 0.5), (2, 0.3), (4, 0.2))
    ]
    table.write_text(
        "\n".join(["workload,gpu,gpus,nodes,samples,seconds", *rows[:3], rows[3]]) + "\n"
    )
    assert main(["model", "fit", str(table), "-o", str(file), "--json"]) == 0
    bert, vgg = json.loads(capsys.readouterr().out)["chosen"]
    assert bert["gpus"] == [1, 4] and bert["ways"] == 3
    assert bert["error"] == pytest.approx(0.0, abs=1e-9)  # the three are on one curve
    assert vgg == {"workload": "vgg", "gpu": "V100", "ways": 1, "gpus": [1, 1], "nodes": [1, 1], "samples": [32, 32],
                   "law": "usl", "error": None}  # fmt: skip
    assert main(["model", "fit", str(table), "-o", str(file)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "1 pair with one or two measured ways" in shown and f"bert V100 {bert['law']} " in shown
    asked = [
        "--workload",
        "bert",
        "--gpu",
        "V100",
        "--gpus",
        "1,3,8",
        "--nodes",
        "1,1,1",
        "--batch",
        "32",
    ]
    assert main(["model", "predict", str(file), *asked, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["rows"]
    assert [row["source"] == "extrapolated" for row in told] == [False, False, True]
    assert main(["model", "predict", str(file), *asked]) == 0
    assert "1 way outside of the range" in " ".join(capsys.readouterr().out.split())
