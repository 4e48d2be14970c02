"""Every model that is fitted to times of steps: its document is the model, and it needs measurements."""

from __future__ import annotations

import json
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from learned_cases import profiles_of
from refusals import refuses
from time_cases import random_ways

from optsched.lazy import imported
from optsched.performance import CATALOGUE

# Private names: a model by its class, where the registry knows it by name
from optsched.performance.times import TimeModel

FITS: list[tuple[str, dict[str, Any]]] = [
    ("amdahl", {}),
    ("blend", {"models": [{"model": "pollux"}, {"model": "usl"}]}),
    ("boosted", {"iterations": 3}),
    ("boosted", {"iterations": 3, "of": {"model": "pollux"}}),
    ("conformal", {"of": {"model": "pollux"}, "level": 0.8}),
    ("cross-validated", {}),
    ("interpolation", {}),
    ("pollux", {}),
    ("prior", {}),
    ("shared-link", {"gradient_bytes": {"bert": 4.4e8}}),
    ("shared-link", {"anchored": True}),
    ("usl", {}),
]


def class_of(name: str) -> type[TimeModel]:
    if name == "boosted" and find_spec("sklearn") is None:
        pytest.skip("scikit-learn is not installed")
    owner = imported(CATALOGUE[name])
    assert issubclass(owner, TimeModel)
    return owner


def test_the_list_of_models_is_complete() -> None:
    fitted = {name for name, target in CATALOGUE.items() if issubclass(imported(target), TimeModel)}
    assert {name for name, _ in FITS} == fitted


@pytest.mark.parametrize(("name", "options"), FITS)
def test_a_document_is_the_model(name: str, options: dict[str, Any]) -> None:
    owner = class_of(name)
    profiles = profiles_of(40, noise=0.1, workloads=("bert",))
    model = owner.fit(profiles, options)
    assert owner.fit(profiles, options).document() == model.document()
    document = json.loads(json.dumps(model.document()))
    assert document.pop("model") == name
    again = owner.from_document(document)
    assert again.document() == model.document()
    for ways in (profiles.ways, random_ways(300, 1, ("bert", "gpt", "x"), ("a100", "t4"))):
        said, expected = again.times(ways), model.times(ways)
        assert np.isfinite(expected.seconds).any()
        for one, other in zip(said.arrays, expected.arrays, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", sorted({name for name, _ in FITS} - {"prior"}))
def test_a_fit_to_nothing_is_refused(name: str) -> None:
    nothing = profiles_of(8).take(np.zeros(0, np.int64))
    with refuses("profiles: found no measurements"):
        class_of(name).fit(nothing, dict(FITS)[name])
