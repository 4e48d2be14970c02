"""Colours and type sizes of all pictures.

The twelve colours of jobs were chosen among published colour-blind safe palettes (Okabe and Ito
2008; Tol 2021) by the smallest distance between any two of them as seen with full colour vision,
protanopia, deuteranopia and tritanopia. No picture relies on colour alone: where there is room,
numbers or names stand beside it, and states are hatched.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

# Colours of jobs; with more jobs, they repeat.
JOBS = (
    "#0072b2",
    "#e69f00",
    "#b5d99c",
    "#8c510a",
    "#99ddff",
    "#cc79a7",
    "#882255",
    "#2f6b3a",
    "#56b4e9",
    "#009e73",
    "#ffaabb",
    "#ddcc77",
)
# Text: on light ground, on dark ground, of lesser weight.
INK, PALE_INK, MUTED = "#1a1a1a", "#ffffff", "#555555"
# Thin lines, ground of a group, ground of the picture.
LINE, PANEL, PAPER = "#c9c5be", "#f4f2ee", "#ffffff"
# Unusable places, and zero values.
IDLE = "#e4e0da"
# The two lines of a diagram, and errors.
MAIN, SECOND, WARNING = "#1c61a5", "#d55e00", "#b2182b"
# Sizes in points.
TITLE, SUBTITLE, LABEL, SMALL = 12.0, 8.5, 9.0, 7.5
# Colours that are dark enough for lines.
LINES = tuple(JOBS[place] for place in (0, 1, 3, 9, 5, 6, 7, 8))
STYLES = ("-", "--", "-.", ":")


def line_style(place: int) -> tuple[str, str]:
    """Colour and style of the n-th line of a diagram; lines differ in more than colour."""
    style = STYLES[(place // len(LINES) + place) % len(STYLES)]
    return LINES[place % len(LINES)], style


def job_colours(
    jobs: Iterable[int], beside: Mapping[int, AbstractSet[int]] | None = None
) -> Mapping[int, str]:
    """A colour for each job (row of the job table), if possible the same in every picture.

    Job r gets colour r (modulo the number of colours), or the next free one, so up to twelve jobs
    all differ. With more jobs colours repeat; then a job that is ``beside`` others of the same
    colour takes the next colour that none of them has.
    """
    rows = sorted(set(jobs))
    count = len(JOBS)
    chosen: dict[int, int] = {}
    for row in rows:
        others = chosen if len(rows) <= count else (beside or {}).get(row, ())
        taken = {chosen[other] for other in others if other in chosen}
        wishes = [place % count for place in range(row % count, row % count + count)]
        chosen[row] = next((place for place in wishes if place not in taken), row % count)
    return {row: JOBS[place] for row, place in chosen.items()}


def ink_on(colour: str) -> str:
    """The text colour, dark or light, with more contrast on a background (relative luminance)."""
    channels = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
    linear = [
        value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4
        for value in channels
    ]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return PALE_INK if luminance < 0.2 else INK
