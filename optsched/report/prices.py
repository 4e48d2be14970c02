"""Prices as a picture: what one more of each resource is worth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from optsched.arrays import FloatArray
from optsched.display import count
from optsched.errors import UsageError
from optsched.registry import objective_words
from optsched.report.answers import Answer, headline
from optsched.report.palette import IDLE, INK, MAIN, MUTED, SMALL
from optsched.report.pictures import (
    grid_below,
    head,
    new_axes,
    plain_frame,
    short,
    width_of,
)
from optsched.solution import Prices, Status

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Most resources that are shown, the most expensive first.
MOST_RESOURCES = 50


@dataclass(frozen=True)
class PriceBars:
    """The data of the picture of prices.

    Attributes
    ----------
    names : tuple of str
        Resources, the most expensive first; those with equal prices in their usual order.
    price, used : FloatArray, shape (R,)
        Improvement of the objective per unit; share of the capacity in use (NaN if unknown).
    hidden : int
        Number of cheaper resources that are not shown.
    title, subtitle, axis : str
    """

    names: tuple[str, ...]
    price: FloatArray
    used: FloatArray
    hidden: int
    title: str
    subtitle: str
    axis: str

    @classmethod
    def of(cls, answer: Answer | Prices) -> PriceBars:
        """The prices of a solution or of a solution file.

        Raises
        ------
        UsageError
            If there are none: the solution is not optimal, or its program has no duals.
        """
        if answer.status != Status.OPTIMAL:
            raise UsageError(
                f"the solution is {answer.status}: only an optimal solution has prices"
            )
        prices = answer if isinstance(answer, Prices) else answer.prices
        if not prices:
            raise UsageError(
                f"the solution of {answer.formulation} has no prices: "
                "integer programs and rules have none"
            )
        names = tuple(prices)
        price = np.array(list(prices.values()), np.float64)
        share = answer.used if isinstance(answer, Prices) else answer.metrics.get("utilisation", {})
        used = np.array([share.get(name, np.nan) for name in names], np.float64)
        order = np.argsort(-price, kind="stable")[:MOST_RESOURCES]
        words, unit = objective_words(answer.formulation)
        change = "fall" if answer.sense == "min" else "rise"
        pools = answer.instance.cluster.pool_index
        one_more = (
            "one more GPU"
            if all(name in pools for name in names)
            else "one more GPU, or unit of a resource"
        )
        free = int((price == 0).sum())
        note = f"more of {free} of {count(len(names), 'resource')} would not help" if free else ""
        return cls(
            tuple(names[row] for row in order.tolist()),
            price[order],
            used[order],
            len(names) - len(order),
            f"{answer.instance.name}: what {one_more} is worth",
            headline(answer, note),
            f"{change} of the {words}{f', {unit},' if unit else ''} for {one_more}",
        )


def price_bars(answer: Answer | Prices, ax: Axes | None = None) -> Axes:
    """Draw the prices of a solution as horizontal bars, the highest on top; prices of 0 are grey.

    A price is the improvement of the objective per unit of the resource, at the margin.

    Parameters
    ----------
    answer : Solution, SolutionFile or Prices
        Of an optimal solution, of a program with duals.
    ax : matplotlib axes, optional
        Where to draw; by default on a new figure of a size that fits.

    Returns
    -------
    Axes

    Raises
    ------
    UsageError
        If there are no prices.
    SolverUnavailable
        If matplotlib is not installed.
    """
    bars = PriceBars.of(answer)
    ax = ax or new_axes(8.0, 1.35 + 0.27 * max(len(bars.names), 2))
    _draw(ax, bars)
    return ax


def _draw(ax: Axes, bars: PriceBars) -> None:
    plain_frame(ax, "left")
    rows = np.arange(len(bars.names))
    worth = bars.price != 0
    ax.barh(rows, bars.price, height=0.68, color=MAIN, zorder=2)
    low = min(float(bars.price.min()), 0.0)
    high = max(float(bars.price.max()), 0.0)
    span = high - low or 1.0
    room = 0.04 + max(width_of(_words(price), SMALL) for price in bars.price.tolist()) / 5.5
    ax.set_xlim(low - (room * span if low < 0 else 0.0), high + room * span)
    for row, price in zip(rows.tolist(), bars.price.tolist(), strict=True):
        side = -1 if price < 0 else 1
        ax.annotate(
            _words(price),
            (price, row),
            (4 * side, 0),
            textcoords="offset points",
            va="center_baseline",
            color=INK if price else MUTED,
            fontsize=SMALL,
            ha="right" if side < 0 else "left",
        )
    labels = [
        short(name, 32) + ("" if np.isnan(used) else f"  ({100 * used:.3g} % used)")
        for name, used in zip(bars.names, bars.used.tolist(), strict=True)
    ]
    ax.set_yticks(rows, labels)
    for label, dear in zip(ax.get_yticklabels(), worth.tolist(), strict=True):
        label.set_color(INK if dear else MUTED)
    # Invert the axis, so that the highest price is on top
    ax.set_ylim(len(rows) - 0.4, -0.6)
    if not worth.all():
        ax.axhspan(
            int(rows[~worth][0]) - 0.5,
            int(rows[~worth][-1]) + 0.5,
            color=IDLE,
            alpha=0.35,
            linewidth=0,
            zorder=0,
        )
    grid_below(ax, "x")
    if not worth.any():
        ax.set_xticks([0.0])
    more = (
        f"\nand {count(bars.hidden, 'more resource')}, none of them dearer" if bars.hidden else ""
    )
    head(ax, bars.title, bars.subtitle, bars.axis + more)


def _words(price: float) -> str:
    return f"{price:,.4g}" if price else "0"
