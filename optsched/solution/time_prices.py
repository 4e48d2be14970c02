"""`TimePrices`: what resources cost while pieces of time last, which bounds what plans keep."""

from __future__ import annotations

from typing import Any, NamedTuple

from optsched.arrays import FloatArray


class TimePrices(NamedTuple):
    """Prices of renewable resources over time.

    Whatever they are, they bound the value that plans keep; good ones bound it well.

    Attributes
    ----------
    resources : tuple of str
        Names of the resources.
    ends : FloatArray, shape (P,)
        Seconds from now at which pieces of time end, ascending; the first begins now. What comes
        after the last costs nothing.
    price : FloatArray, shape (R, P)
        Of a unit of each resource for a second, 0 or more, in the unit of the objective.
    """

    resources: tuple[str, ...]
    ends: FloatArray
    price: FloatArray

    def to_record(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return {
            "ends": self.ends.tolist(),
            "prices": dict(zip(self.resources, self.price.tolist(), strict=True)),
        }
