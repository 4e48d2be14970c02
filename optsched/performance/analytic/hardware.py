"""GPU boards found by name."""

from __future__ import annotations

import difflib
import re

from optsched.errors import InvalidInput
from optsched.instance.reading import show
from optsched.performance.analytic.board import Board
from optsched.performance.analytic.boards import BOARDS

NOISE = frozenset(
    [
        "nvidia",
        "amd",
        "tesla",
        "instinct",
        "graphics",
        "gpu",
        "hbm2",
        "hbm2e",
        "hbm3",
        "hbm3e",
        "oam",
    ]
)
"""Words of a device's name that tell nothing apart."""
MEMORY_SLACK = 0.12
"""Relative difference between the memory that a pool states and that of its board; drivers show a little less."""


def rows() -> tuple[Board, ...]:
    """All boards, oldest first."""
    return BOARDS


def find(name: str, memory: float | None = None, path: str = "gpu") -> Board:
    """The board that a name means.

    A name is the words of a board's name, in any order and case: ``V100-SXM2-16GB``, ``v100``, ``NVIDIA A100 80GB
    PCIe``. Where it fits several boards of one family, those with about the stated memory are meant; among several of
    these the one with built-in links, then the one with the least memory, so that no memory is promised that may not be
    there: V100 is the V100-SXM2-16GB.

    Parameters
    ----------
    name : str
    memory : float, optional
        GB per GPU, where something else states it.
    path : str
        Of the name in its document, for the message.

    Raises
    ------
    InvalidInput
        If no board is called so, or boards of several families are.
    """
    wanted = words(name)
    found = [
        board
        for board in rows()
        if wanted and all(fits(word, words(board.name)) for word in wanted)
    ]
    families = {family(board) for board in found}
    if len(families) == 1:
        near = [
            b
            for b in found
            if memory is not None and abs(memory - b.memory) <= MEMORY_SLACK * b.memory
        ]
        return min(near or found, key=lambda board: board.preference)
    if found:
        raise InvalidInput(
            path, f"{show(name)}, which may be {_listed(found)}", "the name of one GPU board"
        )
    raise InvalidInput(
        path, show(name), f"the name of a known GPU board, such as {_listed(close(name))}"
    )


def words(name: str) -> frozenset[str]:
    """The words of a name that tell boards apart."""
    return frozenset(re.findall(r"[a-z0-9]+", name.lower())) - NOISE


def fits(word: str, names: frozenset[str]) -> bool:
    """Whether a word stands in a board's name; a form factor also does without its generation."""
    return word in names or any(
        word == other.rstrip("0123456789") != other for other in names if other[:3] == "sxm"
    )


def family(board: Board) -> str:
    """The first word of its name."""
    return board.name.lower().split("-")[0]


def close(name: str) -> list[Board]:
    """Boards with the names nearest to a name that none has, or one of each architecture if none is near."""
    by_word = {
        key.lower(): board for board in reversed(rows()) for key in (family(board), board.name)
    }
    near = [
        by_word[key]
        for key in difflib.get_close_matches(
            " ".join(sorted(words(name))), by_word, n=4, cutoff=0.4
        )
    ]
    return list(dict.fromkeys(near)) or list(
        {board.architecture: board for board in rows()}.values()
    )


def _listed(boards: list[Board]) -> str:
    return ", ".join(board.name for board in boards)
