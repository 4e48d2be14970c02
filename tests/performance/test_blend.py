"""The blend of models of a step's time: weights, uncertainty, documents, errors."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from learned_cases import profiles_of
from refusals import refuses

from optsched.performance import Profiles, Source

# Private names: a model by its class, where the registry knows it by name
from optsched.performance.learned.combined import USUAL, Blend
from optsched.performance.parametric.pollux import Pollux
from optsched.performance.times import TimeModel, Times
from optsched.performance.ways import Ways

sklearn = pytest.mark.skipif(find_spec("sklearn") is None, reason="scikit-learn is not installed")
TWO: dict[str, Any] = {"models": [{"model": "pollux"}, {"model": "shared-link"}]}


class Says(TimeModel):
    """The same number everywhere; NaN for samples below a limit."""

    name = "says"

    def __init__(self, seconds: float, log_sd: float, source: int, least: float = 0.0) -> None:
        self.told = (seconds, log_sd, source, least)

    @classmethod
    def fit(cls, profiles: Profiles, options: Any) -> Says:
        raise NotImplementedError

    from_document = fit

    def document(self) -> dict[str, Any]:
        raise NotImplementedError

    def times(self, ways: Ways) -> Times:
        seconds, log_sd, source, least = self.told
        return Times.of(np.where(ways.samples >= least, seconds, np.nan), source, log_sd)


def test_models_are_weighed_by_how_sure_they_are() -> None:
    one, other = Says(2.0, 0.1, Source.PARAMETRIC), Says(8.0, 0.2, Source.LEARNED, least=10.0)
    ways = Profiles.of(
        workload=["a"] * 2, gpu=["g"] * 2, gpus=[1, 1], samples=[5.0, 20.0], seconds=[1.0, 1.0]
    ).ways
    said = Blend([one, other]).times(ways)
    mean = 0.8 * np.log(2.0) + 0.2 * np.log(8.0)
    spread = 0.8 * (np.log(2.0) - mean) ** 2 + 0.2 * (np.log(8.0) - mean) ** 2
    assert said.seconds == pytest.approx([2.0, np.exp(mean)])
    assert said.log_sd == pytest.approx([0.1, np.sqrt(0.8 * 0.1**2 + 0.2 * 0.2**2 + spread)])
    assert said.source.tolist() == [Source.PARAMETRIC, Source.LEARNED]
    unknown = Blend([other]).times(ways)
    assert np.isnan(unknown.seconds[0]) and unknown.seconds[1] == pytest.approx(8.0)


def test_a_model_that_is_far_from_the_others_counts_little_however_sure_it_is() -> None:
    models = [
        Says(1.0, 0.1, Source.LEARNED),
        Says(1.2, 0.1, Source.PARAMETRIC),
        Says(9.0, 0.02, Source.LEARNED),
    ]
    ways = Profiles.of(workload=["a"], gpu=["g"], gpus=[1], samples=[5.0], seconds=[1.0]).ways
    said = Blend(models).times(ways)
    logs, sure = np.log([1.0, 1.2, 9.0]), np.array([1e2, 1e2, 2.5e3])
    weight = sure / (1 + ((logs - logs[1]) / 0.1) ** 2)
    mean = (weight * logs).sum() / weight.sum()
    assert said.seconds == pytest.approx([np.exp(mean)])
    assert mean < 0.25 * (sure * logs).sum() / sure.sum()
    assert Blend(models[::-1]).times(ways).seconds == pytest.approx(said.seconds)
    # the median of those that speak: two, of which neither is nearer to it
    quiet = [*models[:2], Says(9.0, 0.02, Source.LEARNED, least=10.0)]
    assert Blend(quiet).times(ways).seconds == pytest.approx([np.sqrt(1.2)])


def test_a_blend_is_near_its_models() -> None:
    profiles = profiles_of(40)
    model = Blend.fit(profiles, TWO)
    alone = Pollux.fit(profiles, {}).times(profiles.ways).seconds
    assert 0 < np.abs(np.log(model.times(profiles.ways).seconds / alone)).mean() < 0.2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"models": []}, "performance.models: found []"),
        ({"models": [{"model": "table"}]}, 'performance.models[0].model: found "table"'),
        (
            {"models": [{"model": "pollux", "x": 1}]},
            "performance.models[0].x: found an unknown key",
        ),
        ({"models": 3}, "performance.models: found 3"),
        ({"x": 3}, "performance.x: found an unknown key"),
    ],
)
def test_what_cannot_be_blended_is_told(options: dict[str, Any], words: str) -> None:
    with refuses(f"{words}..."):
        Blend.fit(profiles_of(60), options)


@pytest.mark.property
@sklearn
def test_the_usual_blend_tells_new_steps_well() -> None:
    profiles, hidden = profiles_of(100, noise=0.02), profiles_of(100, seed=1)
    small = {"iterations": 20, "learning_rate": 0.1}
    few = [usual | (small if usual["model"] == "boosted" else {}) for usual in USUAL]
    said = Blend.fit(profiles, {"models": few}).times(hidden.ways)
    assert np.abs(np.log(said.seconds / hidden.seconds)).mean() < 0.08
