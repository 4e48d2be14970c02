"""Options of a simulation: what would be ignored is refused."""

from __future__ import annotations

from typing import Any

import pytest
from refusals import refuses

from optsched.simulation import SimulationOptions, simulate

# Private names: single rules and figures, without a whole simulation
from optsched.simulation.options import MODES_OF, simulation_options
from optsched.simulation.simulate import OF_ROUNDS


@pytest.mark.parametrize(
    ("mode", "options", "words"),
    [
        (
            "fluid",
            {"observe": True},
            "options.observe: found true, expected nothing in mode fluid: it is of rounds",
        ),
        ("fluid", {"round": 60.0}, "options.round: found 60.0, expected nothing in mode fluid..."),
        (
            "gavel",
            {"failures": 9.0},
            "options.failures: found 9.0, expected nothing in mode gavel: it is of rounds and...",
        ),
        (
            "rounds",
            {"pool_order": "random"},
            'options.pool_order: found "random", expected nothing in mode rounds...',
        ),
        ("rounds", {"repair": 2.0}, "options.repair: found 2.0, expected failures beside it..."),
    ],
)
def test_what_would_be_ignored_is_refused(mode: str, options: dict[str, Any], words: str) -> None:
    with refuses(words):
        simulate("@quickstart", mode=mode, **options)


@pytest.mark.parametrize("mode", ["fluid", "gavel"])
@pytest.mark.parametrize("name", OF_ROUNDS)
def test_what_only_rounds_heed_is_refused_elsewhere(mode: str, name: str) -> None:
    value = {"fill": True, "progress": True, "patience": 3}.get(name, 1)
    with refuses(f"policy.{name}: found ..., expected nothing in mode {mode}..."):
        simulate("@quickstart", {"formulation": "max-min-fairness", name: value}, mode=mode)


def test_what_is_of_a_mode_is_an_option() -> None:
    assert MODES_OF.keys() <= SimulationOptions.model_fields.keys()
    assert (
        simulation_options({"mode": "fluid", "failures": 3.0, "repair": 2.0, "round": None}).repair
        == 2.0
    )
