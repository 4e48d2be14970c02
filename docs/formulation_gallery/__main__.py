"""Write the page and its pictures: ``python -m formulation_gallery [FOLDER]`` in the folder ``docs``."""

from __future__ import annotations

import sys
from pathlib import Path

from formulation_gallery import models
from formulation_gallery.figures import draw
from formulation_gallery.page import PAGE, PICTURES, catalogue, page


def main(folder: Path) -> None:
    """Make everything anew; pictures of entries that are gone are removed."""
    entries = catalogue()
    pictures = folder / PICTURES
    pictures.mkdir(parents=True, exist_ok=True)
    for path in pictures.glob("*.png"):
        if path.stem not in {entry.name for entry in entries if entry.picture is not None}:
            path.unlink()
    for entry in entries:
        if entry.shown is not None and entry.picture is not None:
            draw(entry.shown, folder / entry.picture)
    models.main(folder)
    (folder / PAGE).write_text(page(entries), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
