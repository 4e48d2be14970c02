"""`Prices`: what one more of each resource would improve the objective by."""

from __future__ import annotations

from collections.abc import Mapping

from optsched.display import DisplayedTable, TableColumns, amount, first_of
from optsched.display.picture import Picture
from optsched.instance import Instance
from optsched.lazy import convenience
from optsched.solution.allocation import Allocation


class Prices(DisplayedTable, dict[str, float]):
    """The prices of a solution: a dictionary from resources to numbers, which shows itself.

    A price is the improvement of the objective per unit of the resource, at the margin.

    Parameters
    ----------
    values : mapping of str to float
        The price of each resource; empty without duals.
    instance : Instance
    formulation : str
    sense : str
        ``max`` or ``min``: whether the objective rises or falls by the price.
    status : str
        `Status` of the solution. Prices describe the optimum, so only those of an optimal one are
        drawn.
    allocation : Allocation or None
        At which the prices hold.
    """

    def __init__(
        self,
        values: Mapping[str, float],
        *,
        instance: Instance,
        formulation: str,
        sense: str,
        status: str,
        allocation: Allocation | None,
    ) -> None:
        super().__init__(values)
        self.instance = instance
        self.formulation = formulation
        self.sense = sense
        self.status = status
        self.allocation = allocation

    @property
    def used(self) -> dict[str, float]:
        """Share of each resource's capacity in use."""
        return {} if self.allocation is None else self.allocation.utilisation

    def plot(self) -> Picture:
        """The prices as bars, the dearest on top.

        Raises
        ------
        UsageError
            If there are none: the solution is not optimal, or its program has no duals.
        """
        return Picture(convenience("Prices.plot")(self))

    def _headline(self) -> str:
        prices = [f"{name} {amount(price)}" for name, price in self.items()]
        return f"of {self.instance.name}: {first_of(prices) or 'none'}"

    def _facts(self) -> Mapping[str, str]:
        free = [name for name, price in self.items() if price == 0]
        return {
            "a price is": f"the improvement of the objective of {self.formulation} per unit"
            if self
            else "",
            "more would not help": first_of(free),
        }

    def to_columns(self, first: int | None = None) -> TableColumns:
        """The resources with their prices and the share of each that is in use."""
        names, used = list(self)[:first], self.used
        return {
            "resource": names,
            "price": [self[name] for name in names],
            "used": [used.get(name) for name in names],
        }
