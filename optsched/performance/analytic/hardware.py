"""GPU boards: figures of their datasheets, lookup by name, and their MIG slices.

The figures are from the manufacturers' documents that each row names, without sparsity.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

from optsched.errors import InvalidInput
from optsched.instance.cluster import Partition, Pool
from optsched.instance.reading import show

PRECISIONS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8")
FALLBACKS = {"tf32": "fp32", "fp16": "fp32", "bf16": "fp32", "fp8": "fp16"}
"""Precision that is used if a board has no units for another one; bf16 falls back to fp32, not to
fp16.
"""
BYTES = {"fp64": 8, "fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1}
"""Bytes of a number."""


@dataclass(frozen=True, slots=True)
class Board:
    """One GPU as the system reports it. For a board with two dies that are reported as two GPUs,
    the figures are per die.

    Attributes
    ----------
    name, architecture : str
    compute_capability : float or None
        None for vendors that do not have it.
    memory, bandwidth : float
        GB and GB/s.
    peaks : tuple of float or None
        Dense TFLOP/s (no sparsity), in the order of `PRECISIONS`; None if the board has no units
        for a precision. fp32 and fp64 are figures of vector units, the others of matrix units if
        there are any.
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
    mig : tuple of Partition
        MIG profiles; compute slices are of 7 (A30: 4), memory slices of 8 (4).
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
    mig: tuple[Partition, ...] = ()

    def peak(self, precision: str) -> float:
        """FLOP/s at a precision, or at the next one for which the board has units (`FALLBACKS`)."""
        while (value := self.peaks[PRECISIONS.index(precision)]) is None:
            precision = FALLBACKS[precision]
        return value * 1e12

    @property
    def preference(self) -> tuple[bool, float]:
        """Sort key of the boards of a family: built-in links first, then least memory."""
        return (self.bridge or self.nvlink is None, self.memory)


# --- MIG profiles ---------------------------------------------------------------------------------


def _seven(one: int, two: int, half: int, whole: int) -> tuple[Partition, ...]:
    """The usual six profiles of a board of 7 compute and 8 memory slices,
    by the GB in their names.
    """
    return (
        Partition(f"1g.{one}gb", 1, 1, (0, 1, 2, 3, 4, 5, 6)),
        Partition(f"1g.{two}gb", 1, 2, (0, 2, 4, 6)),
        Partition(f"2g.{two}gb", 2, 2, (0, 2, 4)),
        Partition(f"3g.{half}gb", 3, 4, (0, 4)),
        Partition(f"4g.{half}gb", 4, 4, (0,)),
        Partition(f"7g.{whole}gb", 7, 8, (0,)),
    )


PROFILES = {
    "A30": (
        Partition("1g.6gb", 1, 1, (0, 1, 2, 3)),
        Partition("2g.12gb", 2, 2, (0, 2)),
        Partition("4g.24gb", 4, 4, (0,)),
    ),
    "A100-40GB": _seven(5, 10, 20, 40),
    "80GB": _seven(10, 20, 40, 80),
    "H100-NVL": _seven(12, 24, 47, 94),
    "H200": _seven(18, 35, 71, 141),
    "B200": _seven(23, 45, 90, 180),
}
"""NVIDIA MIG user guide; NVIDIA/mig-parted, Apache-2.0.

Checked: all of A30, A100 and the 80 GB boards, 1g of the others. The starts of boards newer than the
H100 follow the same geometry and are not verified.
"""


# --- the table ------------------------------------------------------------------------------------

CLOCK = ("base_clock",)

# Oldest first: name, architecture, capability, GB, GB/s, TFLOP/s (fp64 ... fp8), SMs, MHz, NVLink,
# bridge, PCIe, W, source
BOARDS = (
    Board(
        "K80", "Kepler", 3.7, 12, 240, (1.46, 4.37, None, None, None, None), 13, 560, None, False, 3, 150,
        "NVIDIA Tesla K80 board specification, one of its two dies at boost clock", ("watts", "base_clock"),
    ),
    Board(
        "P100-PCIe-16GB", "Pascal", 6.0, 16, 732, (4.7, 9.3, None, 18.7, None, None), 56, 1126, None, False, 3, 250,
        "NVIDIA Tesla P100 datasheet",
    ),
    Board(
        "P100-SXM2-16GB", "Pascal", 6.0, 16, 732, (5.3, 10.6, None, 21.2, None, None), 56, 1328, 80, False, 3, 300,
        "NVIDIA Tesla P100 datasheet", ("nvlink", "watts", "base_clock"),
    ),
    Board(
        "V100-PCIe-16GB", "Volta", 7.0, 16, 900, (7.0, 14.0, None, 112, None, None), 80, 1245, None, False, 3, 250,
        "NVIDIA V100 datasheet", ("watts",),
    ),
    Board(
        "V100-SXM2-16GB", "Volta", 7.0, 16, 900, (7.8, 15.7, None, 125, None, None), 80, 1312, 150, False, 3, 300,
        "NVIDIA V100 datasheet",
    ),
    Board(
        "V100-SXM2-32GB", "Volta", 7.0, 32, 900, (7.8, 15.7, None, 125, None, None), 80, 1290, 150, False, 3, 300,
        "NVIDIA V100 datasheet", CLOCK,
    ),
    Board(
        "T4", "Turing", 7.5, 16, 320, (0.254, 8.1, None, 65, None, None), 40, 585, None, False, 3, 70,
        "NVIDIA T4 datasheet", ("fp64",),
    ),
    Board(
        "A10", "Ampere", 8.6, 24, 600, (0.976, 31.2, 62.5, 125, 125, None), 72, 885, None, False, 4, 150,
        "NVIDIA A10 datasheet", CLOCK,
    ),
    Board(
        "A100-PCIe-40GB", "Ampere", 8.0, 40, 1555, (9.7, 19.5, 156, 312, 312, None), 108, 765, 300, True, 4, 250,
        "NVIDIA A100 datasheet", (), PROFILES["A100-40GB"],
    ),
    Board(
        "A100-PCIe-80GB", "Ampere", 8.0, 80, 1935, (9.7, 19.5, 156, 312, 312, None), 108, 1065, 300, True, 4, 300,
        "NVIDIA A100 datasheet", CLOCK, PROFILES["80GB"],
    ),
    Board(
        "A100-SXM4-40GB", "Ampere", 8.0, 40, 1555, (9.7, 19.5, 156, 312, 312, None), 108, 1095, 300, False, 4, 400,
        "NVIDIA A100 datasheet", CLOCK, PROFILES["A100-40GB"],
    ),
    Board(
        "A100-SXM4-80GB", "Ampere", 8.0, 80, 2039, (9.7, 19.5, 156, 312, 312, None), 108, 1275, 300, False, 4, 400,
        "NVIDIA A100 datasheet", CLOCK, PROFILES["80GB"],
    ),
    Board(
        "A30-24GB", "Ampere", 8.0, 24, 933, (5.2, 10.3, 82, 165, 165, None), 56, 930, 100, True, 4, 165,
        "NVIDIA A30 datasheet", ("memory", "bandwidth", "fp64", "fp32", "tf32", "sms", "base_clock", "nvlink"),
        PROFILES["A30"],
    ),
    Board(
        "L4", "Ada", 8.9, 24, 300, (0.49, 30.3, 60, 121, 121, 242), 58, 795, None, False, 4, 72,
        "NVIDIA L4 datasheet", CLOCK,
    ),
    Board(
        "L40S", "Ada", 8.9, 48, 864, (1.43, 91.6, 183, 362, 362, 733), 142, 1110, None, False, 4, 350,
        "NVIDIA L40S datasheet", CLOCK,
    ),
    Board(
        "H100-PCIe-80GB", "Hopper", 9.0, 80, 2000, (25.6, 51.2, 378, 756, 756, 1513), 114, 1095, 300, True, 5, 350,
        "NVIDIA H100 PCIe product brief PB-11133", ("nvlink", "base_clock"), PROFILES["80GB"],
    ),
    Board(
        "H100-SXM5-80GB", "Hopper", 9.0, 80, 3350, (33.5, 66.9, 494.7, 989.4, 989.4, 1978.9), 132, 1590, 450, False, 5,
        700, "NVIDIA H100 datasheet", CLOCK, PROFILES["80GB"],
    ),
    Board(
        "H100-NVL-94GB", "Hopper", 9.0, 94, 3900, (30, 60, 417.5, 835, 835, 1671), 132, None, 300, True, 5, 400,
        "NVIDIA H100 datasheet", ("bandwidth", "fp64", "fp32", "tf32", "fp8", "sms", "nvlink", "watts"),
        PROFILES["H100-NVL"],
    ),
    Board(
        "H200-SXM5-141GB", "Hopper", 9.0, 141, 4800, (33.5, 66.9, 494.5, 989, 989, 1979), 132, 1590, 450, False, 5, 700,
        "NVIDIA H200 datasheet", CLOCK, PROFILES["H200"],
    ),
    Board(
        "B200-SXM-180GB", "Blackwell", 10.0, 180, 8000, (37, 75, 1125, 2250, 2250, 4500), 148, None, 900, False, 5,
        1000, "NVIDIA DGX B200 datasheet, per GPU", ("fp64", "tf32", "sms"), PROFILES["B200"],
    ),
    Board(
        "MI250X", "CDNA2", None, 64, 1638.5, (23.95, 23.95, None, 191.5, 191.5, None), 110, None, 400, False, 4, 280,
        "AMD Instinct MI250X datasheet, one of its two dies", ("nvlink", "watts"),
    ),
    Board(
        "MI300X", "CDNA3", None, 192, 5300, (81.7, 163.4, 653.7, 1307.4, 1307.4, 2614.9), 304, None, 448, False, 5, 750,
        "AMD Instinct MI300X datasheet", ("fp64", "fp32", "tf32"),
    ),
)  # fmt: skip


# --- boards by name -------------------------------------------------------------------------------

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
"""Words in names of devices that do not distinguish boards."""
MEMORY_SLACK = 0.12
"""Allowed relative difference between the memory that a pool states and that of its board; drivers
report a little less.
"""


def rows() -> tuple[Board, ...]:
    """All boards, oldest first."""
    return BOARDS


def find(name: str, memory: float | None = None, path: str = "gpu") -> Board:
    """The board that a name means.

    A name is the words of a board's name, in any order and case: ``V100-SXM2-16GB``, ``v100``,
    ``NVIDIA A100 80GB PCIe``. If it fits several boards of one family, those with about the stated
    memory are taken. Among several of these, built-in links come first, then the least memory,
    which is the safe choice: V100 means V100-SXM2-16GB.

    Parameters
    ----------
    name : str
    memory : float, optional
        GB per GPU, if it is known from elsewhere.
    path : str
        Path of the name in its document, for the message.

    Raises
    ------
    InvalidInput
        If the name fits no board, or boards of several families.
    """
    wanted = words(name)
    found = [
        board
        for board in BOARDS
        if wanted and all(fits(word, words(board.name)) for word in wanted)
    ]
    # The memory that the pool states distinguishes boards of one family.
    families = {family(board) for board in found}
    if len(families) == 1:
        near = [
            board
            for board in found
            if memory is not None and abs(memory - board.memory) <= MEMORY_SLACK * board.memory
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
    """The words of a name that distinguish boards."""
    return frozenset(re.findall(r"[a-z0-9]+", name.lower())) - NOISE


def fits(word: str, names: frozenset[str]) -> bool:
    """Whether a word is part of a board's name; a form factor matches without its generation."""
    return word in names or any(
        word == other.rstrip("0123456789") != other for other in names if other[:3] == "sxm"
    )


def family(board: Board) -> str:
    """Family of a board: the first word of its name."""
    return board.name.lower().split("-")[0]


def close(name: str) -> list[Board]:
    """Suggestions for an unknown name: boards with similar names, or else one board per
    architecture.
    """
    by_word = {
        key.lower(): board for board in reversed(BOARDS) for key in (family(board), board.name)
    }
    near = [
        by_word[key]
        for key in difflib.get_close_matches(
            " ".join(sorted(words(name))),
            by_word,
            n=4,
            cutoff=0.4,
        )
    ]
    return list(dict.fromkeys(near)) or list(
        {board.architecture: board for board in BOARDS}.values()
    )


def _listed(boards: list[Board]) -> str:
    return ", ".join(board.name for board in boards)


# --- MIG slices -----------------------------------------------------------------------------------


def partitions_of(pool: Pool, path: str = "gpu") -> tuple[Partition, ...]:
    """Profiles into which a GPU of a pool can be cut: those that the pool states, else those of the
    board that its GPU type names.

    Parameters
    ----------
    pool : Pool
    path : str
        Path of the GPU type in its document, for messages.

    Returns
    -------
    tuple of Partition
        Empty for a board without MIG.

    Raises
    ------
    InvalidInput
        If the pool states no profiles and its GPU type names no board.
    """
    return pool.partitions or find(pool.gpu, pool.gpu_memory, path).mig


def slice_of(board: Board, profile: object, path: str) -> tuple[float, float]:
    """Shares of compute and of memory (size and bandwidth) of a slice, to first order: c of 7
    compute slices, m of 8 memory slices.

    The A30 has 4 of both. Rates follow from the roofline with both shares
    (`optsched.performance.analytic.roofline`).

    Raises
    ------
    InvalidInput
        If the board has no such profile.
    """
    # The largest profile is the whole board: 7 compute and 8 memory slices, 4 and 4 of an A30.
    whole = max(board.mig, key=lambda mig: mig.compute_slices, default=None)
    for mig in board.mig:
        if mig.profile == profile and whole is not None:
            compute = mig.compute_slices / whole.compute_slices
            return compute, mig.memory_slices / whole.memory_slices
    names = ", ".join(mig.profile for mig in board.mig)
    raise InvalidInput(
        path, show(profile), f"a MIG profile of {board.name} ({names or 'it has none'})"
    )
