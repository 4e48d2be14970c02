"""What all pictures share: matplotlib on demand, and files whose bytes depend on the picture alone."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optsched.api import write_atomically
from optsched.errors import SolverUnavailable, UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

UNDATED: dict[str, dict[str, Any]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
"""Metadata of each file format without the time and the version that matplotlib would write by itself."""
RESOLUTION = 150
"""Dots per inch of bitmaps."""


def require_matplotlib() -> None:
    """Raise `SolverUnavailable` naming the extra where matplotlib cannot be loaded."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise SolverUnavailable(
            f"pictures need matplotlib, which cannot be loaded ({error}); install it with pip install 'optsched[plot]'"
        ) from None


def new_axes(width: float, height: float) -> Axes:
    """Axes on a figure of their own (inches), which no window and no global state of matplotlib holds on to."""
    require_matplotlib()
    from matplotlib.figure import Figure

    axes: Axes = Figure(figsize=(width, height), layout="constrained").add_subplot()
    return axes


def save_picture(ax: Axes, path: str | Path) -> None:
    """Write the figure of these axes as png, svg or pdf, atomically; equal pictures give equal bytes.

    Raises
    ------
    UsageError
        For another suffix, or where the file cannot be written.
    """
    require_matplotlib()
    from matplotlib import rc_context

    kind = Path(path).suffix.lower().removeprefix(".")
    if kind not in UNDATED:
        raise UsageError(f"{path}: expected a name that ends in .png, .svg or .pdf")
    figure = ax.get_figure(root=True)
    assert figure is not None
    buffer = io.BytesIO()
    with rc_context({"svg.hashsalt": "optsched"}):
        figure.savefig(buffer, format=kind, dpi=RESOLUTION, metadata=UNDATED[kind])
    write_atomically(path, buffer.getvalue())
