"""Common functions of pictures: matplotlib on demand, and files whose bytes depend only on the
picture.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from optsched.api import write_atomically
from optsched.arrays import FloatArray
from optsched.errors import SolverUnavailable, wrong_ending
from optsched.instance.durations import DAY, HOUR
from optsched.report.palette import INK, LABEL, LINE, MUTED, SMALL, SUBTITLE, TITLE

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.collections import Collection
    from matplotlib.figure import Figure

# Metadata of each file format, without the time and the version that matplotlib writes by default.
UNDATED: dict[str, dict[str, Any]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
# Characters that no XML document can hold.
NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# Dots per inch of bitmaps.
RESOLUTION = 150
# Style of all legends.
LEGEND: dict[str, Any] = {"frameon": False, "fontsize": SMALL + 0.5}


# Name of an axis of time, and its unit.
SINCE_FIRST = "time since the first arrival, {}"


def require_matplotlib() -> None:
    """Raise `SolverUnavailable` where matplotlib cannot be loaded."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise SolverUnavailable(
            f"pictures need matplotlib, which cannot be loaded ({error}); "
            "install it with pip install matplotlib"
        ) from None


def new_axes(width: float, height: float) -> Axes:
    """Axes on a new figure (inches) that is not registered in any window or global state of
    matplotlib.
    """
    return new_figure(width, height).add_subplot()


def new_figure(width: float, height: float) -> Figure:
    """A new figure (inches) that is not registered in any window."""
    require_matplotlib()
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def new_panels(
    width: float, height: float, rows: int = 2, columns: int = 2, *, one_scale: bool = False
) -> tuple[Figure, np.ndarray]:
    """A figure (inches) with rows of axes;
    with ``one_scale`` the axes of a row share the vertical axis.
    """
    figure = new_figure(width, height)
    engine = figure.get_layout_engine()
    engine.set(h_pad=0.12, w_pad=0.12, hspace=0.05, wspace=0.04)  # type: ignore[union-attr, call-arg]
    return figure, figure.subplots(rows, columns, sharey="row" if one_scale else False)


def figure_of(ax: Axes) -> Figure:
    """The outermost figure of the axes."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    return figure


def picture_format(path: str | Path) -> str:
    """``png``, ``svg`` or ``pdf`` by the suffix of a file; raises `UsageError` for any other."""
    ending = Path(path).suffix.lower().removeprefix(".")
    if ending not in UNDATED:
        raise wrong_ending(path, ".png, .svg or .pdf")
    return ending


def save_picture(ax: Axes, path: str | Path) -> None:
    """Write the figure of these axes as png, svg or pdf, atomically;
    equal pictures give equal bytes.

    Parameters
    ----------
    ax : matplotlib axes
    path : str or Path
        Its suffix says which format.

    Raises
    ------
    UsageError
        For another suffix, or where the file cannot be written.
    """
    require_matplotlib()
    from matplotlib import rc_context

    ending = picture_format(path)
    figure = figure_of(ax)
    buffer = io.BytesIO()
    plain_text(figure)
    with rc_context({"svg.hashsalt": "optsched"}), quiet_glyphs():
        figure.savefig(buffer, format=ending, dpi=RESOLUTION, metadata=UNDATED[ending])
    data = buffer.getvalue()
    write_atomically(path, drawable(data.decode()).encode() if ending == "svg" else data)


@contextmanager
def quiet_glyphs() -> Iterator[None]:
    """Let matplotlib draw a box for a character that its font lacks, without a warning.

    Names of jobs may contain any character, such as an emoji, and a user cannot fix the font.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph \d+ .* missing from", UserWarning)
        yield


def drawable(text: str) -> str:
    """Remove control characters that XML cannot contain; names of jobs may have them."""
    return NOT_IN_XML.sub("\N{REPLACEMENT CHARACTER}", text)


def plain_text(figure: Figure) -> None:
    """Disable formulas in the texts of a figure, so that a dollar sign in a name is shown.

    Labels of logarithmic axes are excluded: matplotlib writes powers of ten as formulas.
    """
    from matplotlib.text import Text

    # Labels of ticks are created on access
    for ax in figure.axes:
        ax.get_xticklabels()
        ax.get_yticklabels()
    for text in figure.findobj(Text):
        if isinstance(text, Text) and "\\mathdefault" not in text.get_text():
            text.set_parse_math(False)
            text.set_text(drawable(text.get_text()))


def head(ax: Axes, title: str, subtitle: str, x: str = "", y: str = "") -> None:
    """Write the title and the smaller line below it, above the axes on the left;
    and the names of the axes.
    """
    ax.set_xlabel(x, fontsize=LABEL)
    ax.set_ylabel(y, fontsize=LABEL)
    ax.set_title(title, loc="left", fontsize=TITLE, pad=20, color=INK)
    text = ax.annotate(
        subtitle, (0, 1), (0, 6), "axes fraction", "offset points", fontsize=SUBTITLE, color=MUTED
    )
    # A long text must not make the picture smaller
    text.set_in_layout(False)


def width_of(text: str, size: float) -> float:
    """Approximate width in inches of a text of a size in points."""
    return 0.0083 * size * len(text)


def plain_frame(ax: Axes, *sides: str) -> None:
    """Keep a thin frame only on these sides (left, bottom ...), and ticks without marks."""
    for side, spine in ax.spines.items():
        spine.set_visible(side in sides)
        spine.set_color(LINE)
    ax.tick_params(which="both", length=0, labelsize=LABEL, labelcolor=INK)


def grid_below(
    ax: Axes, axis: Literal["both", "x", "y"] = "both", *, linewidth: float = 0.5, zorder: float = 0
) -> None:
    """Thin lines at the ticks, below everything else."""
    ax.grid(axis=axis, color=LINE, linewidth=linewidth, zorder=zorder)
    ax.set_axisbelow(True)


def fixed_ticks(
    ax: Axes, ticks: Sequence[float], labels: Sequence[str] = (), *, both: bool = False
) -> None:
    """These ticks on the horizontal axis, or on both axes, and no others,
    also where it is logarithmic.

    Without ``labels`` they are labelled by their numbers.
    """
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullFormatter, NullLocator

    labels = labels or [f"{tick:g}" for tick in ticks]
    for axis in (ax.xaxis, ax.yaxis) if both else (ax.xaxis,):
        axis.set_major_locator(FixedLocator(ticks))
        axis.set_major_formatter(FixedFormatter(labels))
        axis.set_minor_locator(NullLocator())
        axis.set_minor_formatter(NullFormatter())


def round_factors(low: float, high: float, factors: Sequence[float]) -> list[float]:
    """Round numbers from low to high: these factors of each power of ten."""
    decades = 10.0 ** np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
    every = [float(decade * factor) for decade in decades for factor in factors]
    return [value for value in every if low <= value <= high]


def add_rectangles(
    ax: Axes,
    left: FloatArray,
    top: FloatArray,
    right: FloatArray,
    bottom: FloatArray,
    **style: Any,
) -> Collection:
    """Draw rectangles as one collection, with properties of polygons."""
    from matplotlib.collections import PolyCollection

    corners = np.stack([left, top, right, top, right, bottom, left, bottom], axis=1)
    boxes = PolyCollection(list(corners.reshape(-1, 4, 2)), **style)
    ax.add_collection(boxes)
    return boxes


def legend_beside(
    ax: Axes, handles: Sequence[Artist] | None = None, handlelength: float | None = None
) -> None:
    """A legend to the right of the axes; without ``handles``, of all labelled artists."""
    ax.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=(1.01, 1.0),
        borderaxespad=0,
        **LEGEND,
        handlelength=handlelength,
        labelcolor=INK,
    )


def legend_below(ax: Axes, handles: Sequence[Artist], gap: float, columns: int = 4) -> None:
    """A legend ``gap`` inches below the lower edge of the axes."""
    from matplotlib.transforms import ScaledTranslation

    figure = figure_of(ax)
    if handles:
        ax.legend(
            handles=list(handles),
            loc="upper left",
            bbox_to_anchor=(0, 0),
            **LEGEND,
            bbox_transform=ax.transAxes + ScaledTranslation(0, -gap, figure.dpi_scale_trans),
            borderaxespad=0,
            ncol=columns,
            handlelength=1.1,
        )


def size_of(ax: Axes) -> tuple[float, float]:
    """Width and height of the axes in inches, once everything around them is drawn."""
    figure = figure_of(ax)
    plain_text(figure)
    engine = figure.get_layout_engine()
    if engine is not None:
        with quiet_glyphs():
            engine.execute(figure)
    width, height = figure.get_size_inches()
    place = ax.get_position()
    return float(width * place.width), float(height * place.height)


def short(text: str, most: int) -> str:
    """Shorten a text to at most ``most`` characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def time_unit(seconds: float) -> tuple[float, str]:
    """A suitable unit for a duration, and its name: ms, s, min, h, days."""
    for limit, unit, name in (
        (0.2, 1e-3, "ms"),
        (180.0, 1.0, "s"),
        (10_800.0, 60.0, "min"),
        (259_200.0, 3600.0, "h"),
    ):
        if seconds < limit:
            return unit, name
    return 86_400.0, "days"


def time_words(seconds: float) -> str:
    """A duration in its unit: ``2.5 h``."""
    unit, name = time_unit(abs(seconds))
    return f"{seconds / unit:.3g} {name}"


WIDTHS = (1, 10, 60, 300, 900, 1800, HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY)
"""Widths of windows in seconds; longer ones are whole days."""


def round_width(span: float, most: int, least: float) -> float:
    """The smallest of `WIDTHS`, or of whole days, that is not below ``least``
    and cuts a span into ``most`` windows or fewer.
    """
    for width in WIDTHS:
        if width >= least and span / width <= most:
            return float(width)
    return float(DAY * np.ceil(max(span / most, least) / DAY))


MOST_TIMES = 9
"""Most ticks of an axis of durations, so that labels do not overlap."""


def time_ticks(ax: Axes) -> None:
    """Round durations as ticks of a logarithmic axis of seconds."""
    low, high = ax.get_xlim()
    marks = {
        "1 s": 1.0,
        "3 s": 3.0,
        "10 s": 10.0,
        "30 s": 30.0,
        "1 min": 60.0,
        "3 min": 180.0,
        "10 min": 600.0,
        "30 min": 1800.0,
        "1 h": 3600.0,
        "2 h": 7200.0,
        "6 h": 21_600.0,
        "12 h": 43_200.0,
        "1 d": 86_400.0,
        "3 d": 259_200.0,
        "10 d": 864_000.0,
        "30 d": 2_592_000.0,
        "100 d": 8_640_000.0,
    }
    shown = [item for item in marks.items() if low <= item[1] <= high]
    shown = shown if len(shown) <= MOST_TIMES else shown[::2]
    fixed_ticks(ax, [value for _, value in shown], [words for words, _ in shown])
    ax.tick_params(axis="x", colors=MUTED)
    ax.tick_params(axis="both", length=0, labelsize=LABEL, labelcolor=INK)
