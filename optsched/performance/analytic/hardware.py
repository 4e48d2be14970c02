"""GPU boards by name: what datasheets say of them."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

from optsched.errors import InvalidInput
from optsched.instance.reading import show

PRECISIONS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8")
FALLBACKS = {"tf32": "fp32", "fp16": "fp32", "bf16": "fp32", "fp8": "fp16"}
"""What a board computes in where it has no units for a precision; bf16 without units is done in fp32, not in fp16."""
BYTES = {"fp64": 8, "fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1}
"""Bytes of a number."""


@dataclass(frozen=True, slots=True)
class MigProfile:
    """A MIG profile of a board: compute slices of 7 (4), memory slices of 8 (4), and most instances of it."""

    name: str
    compute_slices: int
    memory_slices: int
    count: int


@dataclass(frozen=True, slots=True)
class Board:
    """One GPU as the system shows it: a board of two dies that are shown as two GPUs is given by the die.

    Attributes
    ----------
    name, architecture : str
    compute_capability : float or None
        None where the vendor has none.
    memory, bandwidth : float
        GB and GB/s.
    peaks : tuple of float or None
        Dense TFLOP/s (no sparsity), in the order of `PRECISIONS`; None where the board has no units for it. fp32 and
        fp64 are the vector figures, the others those of matrix units where there are any.
    sms : int
        Streaming multiprocessors or compute units.
    base_clock : float or None
        MHz.
    nvlink : float or None
        GB/s per direction over all links (of AMD: Infinity Fabric).
    bridge : bool
        Whether these links are an optional bridge between two boards.
    pcie : int
        Generation, 16 lanes.
    watts : float
        Thermal design power.
    source : str
        The manufacturer's document that states the figures.
    unverified : tuple of str
        Fields that were not compared with a second source.
    mig : tuple of MigProfile
    """

    name: str
    architecture: str
    compute_capability: float | None
    memory: float
    bandwidth: float
    peaks: tuple[float | None, ...]
    sms: int
    base_clock: float | None
    nvlink: float | None
    bridge: bool
    pcie: int
    watts: float
    source: str
    unverified: tuple[str, ...] = ()
    mig: tuple[MigProfile, ...] = ()

    def peak(self, precision: str) -> float:
        """FLOP/s at a precision, of the next one that the board has units for (`FALLBACKS`) where it has none."""
        while (value := self.peaks[PRECISIONS.index(precision)]) is None:
            precision = FALLBACKS[precision]
        return value * 1e12

    @property
    def preference(self) -> tuple[bool, float]:
        """Sorts the boards of a family: those with built-in links first, then those with the least memory."""
        return (self.bridge or self.nvlink is None, self.memory)


NOISE = frozenset(
    {
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
    }
)
"""Words of a device's name that tell nothing apart."""
MEMORY_SLACK = 0.12
"""Relative difference between the memory that a pool states and that of its board; drivers show a little less."""


def rows() -> tuple[Board, ...]:
    """All boards, oldest first."""
    from optsched.performance.analytic.boards import BOARDS

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
