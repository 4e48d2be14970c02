"""Bars of prices: values, order, words; when there are none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import optsched
from optsched.errors import UsageError
from optsched.report import PriceBars, SolutionFile, price_bars
from optsched.report.palette import INK, MUTED

# Private names: what a picture or a page is made of, before it is drawn
from optsched.report.prices import MOST_RESOURCES
from optsched.solution import Solution

pytestmark = pytest.mark.picture

mpl = pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def forty() -> Solution:
    random = np.random.default_rng(0)
    pools = {f"pool-{row}": int(random.integers(2, 90)) for row in range(40)}
    instance = optsched.Instance.from_arrays(
        pools=pools, throughput=random.uniform(1, 3, (700, 40))
    )
    return optsched.solve(instance, "max-throughput")


def labels(ax: Any) -> list[str]:
    return [label.get_text() for label in ax.get_yticklabels()]


def test_bars_are_the_prices_the_dearest_on_top(quickstart: Solution) -> None:
    ax = price_bars(quickstart)
    widths = [bar.get_width() for bar in ax.patches if isinstance(bar, mpl.patches.Rectangle)]
    assert widths[:3] == sorted(quickstart.prices.values(), reverse=True)
    assert labels(ax) == ["v100  (100 % used)", "p100  (100 % used)", "k80  (100 % used)"]
    assert ax.yaxis_inverted()
    assert ax.get_title(loc="left") == "quickstart: what one more GPU is worth"
    assert (
        ax.get_xlabel()
        == "rise of the smallest normalised throughput per GPU and weight for one more GPU"
    )


def test_the_unit_and_the_sense_are_those_of_the_formulation() -> None:
    bars = PriceBars.of(optsched.solve("@quickstart", "makespan"))
    assert bars.axis == "fall of the makespan, s, for one more GPU"
    bars = PriceBars.of(optsched.solve("@quickstart", "max-throughput"))
    assert bars.axis == "rise of the total throughput, steps/s, for one more GPU"


def test_other_resources_have_other_words() -> None:
    document = {
        "format": "optsched-instance/1",
        "cluster": {"pools": [{"name": "a", "nodes": 2, "gpus_per_node": 1}],
                    "resources": [{"name": "licences", "capacity": 1}]},
        "jobs": [{"id": f"j{row}", "options": [{"pool": "a", "gpus": 1, "throughput": 2.0, "uses": {"licences": 1}}]}
                 for row in range(3)],
    }  # fmt: skip
    bars = PriceBars.of(optsched.solve(optsched.Instance.from_document(document), "max-throughput"))
    assert dict(zip(bars.names, bars.price.tolist(), strict=True)) == pytest.approx(
        {"licences": 2.0, "a": 0.0}
    )
    assert bars.axis.endswith("for one more GPU, or unit of a resource")
    assert bars.title.endswith(": what one more GPU, or unit of a resource is worth")


def test_prices_of_nothing_are_grey(forty: Solution) -> None:
    ax = price_bars(forty)
    bars = PriceBars.of(forty)
    worth = int((bars.price > 0).sum())
    assert 0 < worth < 40
    assert [label.get_color() for label in ax.get_yticklabels()] == [INK] * worth + [MUTED] * (
        40 - worth
    )
    assert [text.get_text() for text in ax.texts].count("0") == 40 - worth
    assert f"more of {40 - worth} of 40 resources would not help" in bars.subtitle
    ground = ax.patches[-1]
    assert (ground.get_y(), ground.get_y() + ground.get_height()) == (worth - 0.5, 39.5)


def test_all_prices_may_be_nothing() -> None:
    idle = optsched.Instance.from_arrays(pools={"a": 100, "b": 4}, throughput=[[1.0, 2.0]] * 3)
    ax = price_bars(optsched.solve(idle, "max-throughput"))
    assert ax.get_xticks().tolist() == [0.0]
    assert [label.get_color() for label in ax.get_yticklabels()] == [MUTED, MUTED]


def test_numbers_fit_beside_their_bars(forty: Solution) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    ax = price_bars(forty)
    canvas = FigureCanvasAgg(ax.figure)
    canvas.draw()
    right = ax.get_window_extent(canvas.get_renderer()).x1
    assert all(
        text.get_window_extent(canvas.get_renderer()).x1 <= right + 1 for text in ax.texts[:40]
    )


def test_very_many_resources_are_cut_and_counted(quickstart: Solution) -> None:
    prices = {f"r{row}": float(row % 97) for row in range(1000)}
    bars = PriceBars.of(replace(quickstart, prices=prices))
    assert len(bars.names) == MOST_RESOURCES
    assert bars.hidden == 1000 - MOST_RESOURCES
    assert bars.price.tolist() == sorted(prices.values(), reverse=True)[:MOST_RESOURCES]
    assert bars.names[:2] == ("r96", "r193")
    assert np.isnan(bars.used).all()
    ax = price_bars(replace(quickstart, prices=prices))
    assert ax.get_xlabel().endswith(
        f"\nand {1000 - MOST_RESOURCES} more resources, none of them dearer"
    )
    assert labels(ax)[0] == "r96"


def test_a_file_and_its_solution_give_the_same_bars(quickstart: Solution) -> None:
    one = PriceBars.of(quickstart)
    other = PriceBars.of(SolutionFile.read(quickstart.instance, quickstart.to_document()))
    assert (one.names, one.subtitle, one.axis) == (other.names, other.subtitle, other.axis)
    np.testing.assert_array_equal(one.price, other.price)
    np.testing.assert_array_equal(one.used, other.used)


def test_without_prices_there_is_no_picture() -> None:
    whole = optsched.solve("@quickstart", "max-throughput", integral=True)
    with pytest.raises(
        UsageError, match="max-throughput has no prices: integer programs and rules have none"
    ):
        price_bars(whole)
    with pytest.raises(UsageError, match="isolated has no prices"):
        price_bars(optsched.solve("@quickstart", "isolated"))
    with pytest.raises(
        UsageError, match="the solution is infeasible: only an optimal solution has prices"
    ):
        price_bars(optsched.solve("@infeasible", "max-throughput"))
