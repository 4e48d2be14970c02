"""Models that are fitted in other processes: the same document as in this one."""

from __future__ import annotations

from pathlib import Path

import pytest

import optsched
from optsched.errors import InvalidInput
from optsched.performance import Profiles

pytestmark = pytest.mark.process

EXECUTORS = ["processes", "ray"]


@pytest.fixture
def profiles(tmp_path: Path) -> Profiles:
    """Two workloads, each in five ways."""
    rows = [
        f"{name},a100,{gpus},1,{batch},{0.02 + slope * batch / gpus + 0.003 * gpus}"
        for name, slope in (("bert", 0.004), ("gpt", 0.007))
        for gpus, batch in ((1, 16), (2, 16), (4, 16), (8, 32), (8, 64))
    ]
    file = tmp_path / "profiles.csv"
    file.write_text("\n".join(["workload,gpu,gpus,nodes,batch,seconds", *rows]))
    return optsched.read_profiles(file)


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("models", ["cross-validated", ["interpolation", "usl"]])
def test_a_fit_is_the_same(models: str | list[str], executor: str, profiles: Profiles) -> None:
    if executor == "ray":
        pytest.importorskip("ray", reason="the extra ray is not installed")
    here = optsched.fit_model(profiles, models)
    there = optsched.fit_model(profiles, models, processes=2, executor=executor)
    assert here == there
    assert len(here.names) == (1 if isinstance(models, str) else 2)


def test_what_cannot_be_fitted_is_refused_there_too(profiles: Profiles) -> None:
    wanted = ["interpolation", ("usl", {"speed": 1})]
    with pytest.raises(InvalidInput) as here:
        optsched.fit_model(profiles, wanted)
    with pytest.raises(InvalidInput) as there:
        optsched.fit_model(profiles, wanted, processes=2)
    assert str(here.value) == str(there.value)
