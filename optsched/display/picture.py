"""`Picture`: a drawing that a notebook shows and that can be saved."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

from optsched.display import Displayed
from optsched.lazy import convenience

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Picture(Displayed):
    """A drawing, made by the ``plot`` of a result.

    Attributes
    ----------
    axes : matplotlib axes
        With the figure ``axes.figure``, to change what matplotlib can change.
    """

    def __init__(self, axes: Axes) -> None:
        self.axes = axes

    def save(self, path: str | Path) -> None:
        """Write it as png, svg or pdf; equal pictures give equal bytes.

        Parameters
        ----------
        path : str or Path
            Its suffix says which format.

        Raises
        ------
        UsageError
            For another suffix, or where the file cannot be written.
        """
        convenience("Picture.save")(self.axes, path)

    def _headline(self) -> str:
        return self.axes.get_title("left") or self.axes.get_title() or "without a title"

    def _repr_html_(self) -> str:
        return cast("str", convenience("Picture.to_svg")(self.axes, self._headline()))
