"""What a benchmark is run on:
instances and programs from files, those that ship, and generated ones.
"""

from __future__ import annotations

import glob
import hashlib
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from optsched.api import DEFAULT_FORMULATION
from optsched.benchmarking.task import canonical
from optsched.display import Displayed
from optsched.errors import InvalidArgument, InvalidInput, UsageError, unknown_name
from optsched.formats.mps import is_program
from optsched.instance.files import SUFFIXES as INSTANCE_SUFFIXES
from optsched.instance.reading import first_repeated, read_bytes
from optsched.instance.shipped import shipped_path
from optsched.libraries import (
    file_and_problem,
    formulation_of_file,
    may_be_library_file,
    problems_in,
)

SPAN = re.compile(r"\s*(\d{1,18})\s*\.\.\s*(\d{1,18})\s*", re.ASCII)
MOST_SEEDS = 100_000


@dataclass(frozen=True, repr=False)
class ProblemSource(Displayed):
    """An instance or a program, not read yet.

    Attributes
    ----------
    name : str
        As a user gives it: a path, ``@name``, or ``generate:NAME:option=value,...``.
    content : mapping
        Plain JSON that identifies it: where it is and the hash of its bytes, or the
        generator's options.
    program : bool
        Whether it is a program (.mps, .lp), which needs no formulation.
    formulation : str
        The formulation that solves it if no other is asked for.
    best_known : float or None
        The best objective that the file of a benchmark library states.
    """

    name: str
    content: Mapping[str, Any]
    program: bool = False
    formulation: str = DEFAULT_FORMULATION
    best_known: float | None = None

    def _headline(self) -> str:
        return self.name


def from_names(names: Iterable[str], folder: Path | None = None) -> list[ProblemSource]:
    """Sources from names of files, folders, patterns and shipped instances, each once.

    Parameters
    ----------
    names : iterable of str
        A file, of a benchmark library all its problems, or one as ``FILE#2``; a folder, for the
        instances and programs in it; a pattern (``*``, ``?``, ``[...]``, ``**`` for all folders
        below); ``@name`` of an instance that ships.
    folder : Path, optional
        What relative paths are relative to (default: the current folder).

    Raises
    ------
    UsageError
        For a pattern or folder without files, and a name that does not ship.
    InvalidInput
        For a file that cannot be read.
    """
    found: dict[str, ProblemSource] = {}
    for name in names:
        for source in _expanded(name, folder):
            found.setdefault(source.name, source)
    return list(found.values())


def _expanded(name: str, folder: Path | None) -> list[ProblemSource]:
    if name.startswith("@"):
        return [
            ProblemSource(name, {"shipped": name[1:], "sha256": _digest(shipped_path(name[1:]))})
        ]
    path = Path(name) if folder is None else folder / name
    if path.is_dir():
        inside = sorted(file for file in path.iterdir() if file.is_file() and _readable(file))
        if not inside:
            raise UsageError(f"{path}: no instance or program is in this folder")
        return [source for file in inside for source in _of_file(file)]
    if not path.exists() and glob.has_magic(str(path)):
        matches = sorted(
            match for match in glob.glob(str(path), recursive=True) if Path(match).is_file()
        )
        if not matches:
            raise UsageError(f"{name}: no file matches")
        return [source for match in matches for source in _of_file(Path(match))]
    return _of_file(path)


def _readable(path: Path) -> bool:
    """Whether a file of a folder ends like an instance or a program, or is of a library."""
    visible = not path.name.startswith(".")
    if path.suffix.lower() in INSTANCE_SUFFIXES or (visible and is_program(path)):
        return True
    if not (visible and may_be_library_file(path)):
        return False
    try:
        formulation_of_file(path)
    except InvalidInput:  # the other files of a folder, such as a README
        return False
    return True


def _of_file(path: Path) -> list[ProblemSource]:
    """The problems of a file: several of some library files, else one."""
    name, sha256 = path.as_posix(), _digest(file_and_problem(path)[0])
    if may_be_library_file(path):
        with suppress(InvalidInput):  # the row of its task says what is wrong with it
            return [
                ProblemSource(
                    each.source,
                    {"file": each.source, "sha256": sha256},
                    formulation=each.formulation,
                    best_known=each.best_known,
                )
                for each in problems_in(name)
            ]
    return [ProblemSource(name, {"file": name, "sha256": sha256}, is_program(path))]


def _digest(path: Path) -> str:
    return hashlib.sha256(read_bytes(path)).hexdigest()


def generated(kind: str, options: Mapping[str, Any], seeds: Any = None) -> list[ProblemSource]:
    """Instances of a generator, one for each seed.

    Parameters
    ----------
    kind : str
        Name of the generator.
    options : mapping
        Of the generator; its ``seed`` is used where no ``seeds`` are given.
    seeds : int, str or sequence, optional
        So many, from 1 on; ``"3..7"``; or a list.

    Raises
    ------
    UsageError
        Naming what is wrong.
    """
    from optsched.generate.catalogue import GENERATORS  # loads every generator

    if kind not in GENERATORS:
        raise unknown_name("generator", kind, GENERATORS, f"no generator {kind!r}")
    if seeds is not None and "seed" in options:
        raise UsageError(f"generate {kind}: give seed or seeds, not both")
    chosen = [options.get("seed", 1)]
    if seeds is not None:
        chosen = seeds_of(seeds, 1, f"generate {kind}: seeds")
    found = []
    for seed in chosen:
        settings = {key: value for key, value in options.items() if key != "seed"} | {"seed": seed}
        words = ",".join(
            f"{key}={value if isinstance(value, str) else canonical(value)}"
            for key, value in settings.items()
        )
        formulation = DEFAULT_FORMULATION
        with suppress(InvalidArgument):  # the row of its task says what is wrong with the options
            formulation = GENERATORS[kind].formulation_of(settings) or formulation
        content = {"generate": kind, "options": settings}
        name = f"generate:{kind}:{words}"
        found.append(ProblemSource(name, content, formulation=formulation))
    return found


def seeds_of(given: Any, first: int, where: str) -> list[int]:
    """Seeds from a number of them (counted from ``first``),
    a span ``"3..7"`` or a list; raises `UsageError`.
    """
    seeds = []
    span = SPAN.fullmatch(given) if isinstance(given, str) else None
    if span and int(span[2]) - int(span[1]) < MOST_SEEDS:
        seeds = list(range(int(span[1]), int(span[2]) + 1))
    elif isinstance(given, int) and not isinstance(given, bool) and 0 < given <= MOST_SEEDS:
        seeds = list(range(first, first + given))
    elif isinstance(given, list | tuple):
        seeds = list(given)
    # True and False are whole numbers to Python.
    whole = [isinstance(seed, int) and not isinstance(seed, bool) for seed in seeds]
    if not seeds or not all(whole) or min(seeds) < 0:
        raise InvalidArgument(
            where, repr(given), "a number of seeds above 0, a span such as 3..7, or a list"
        )
    if (twice := first_repeated(seeds)) is not None:
        raise InvalidArgument(where, f"seed {twice} twice", "each seed once")
    return seeds
