"""Profiles from files: measured times of steps in CSV, as AdaptDL and ElasticFlow write them, and Gavel's tables."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from optsched.errors import InvalidArgument, InvalidInput, UsageError
from optsched.formats.gavel_profiles import gavel_measurements
from optsched.formats.measurements import Measurement, profiles_of, without_repeats
from optsched.formats.profile_tables import GRADIENTS, Missing, read_profile_table
from optsched.instance.reading import named, read_bytes
from optsched.performance.profiles import Profiles

log = logging.getLogger("optsched")

Repeats = Literal["first", "all"]


def read_profiles(
    sources: str | Path | Sequence[str | Path],
    *,
    workload: str | None = None,
    gpu: str | None = None,
    gpus_per_node: int | None = None,
    repeats: Repeats | None = None,
) -> Profiles:
    """Read measured steps.

    A CSV file has a line for each: ``workload``, ``gpu`` (type), ``gpus``, ``nodes`` (or ``placement``, a digit for
    each node), ``samples`` of one GPU in a pass, ``seconds``, perhaps ``passes`` and ``sync`` (the seconds in which
    gradients were exchanged); the names that AdaptDL has for them will do. ``throughput``, in steps/s, may stand in the
    place of ``seconds``; samples may be left out then, and a step counts as one. A CSV file that begins with
    ``global_batch_size`` is one of ElasticFlow, a JSON file one of Gavel. Of a folder every CSV file in it and below is
    read, in the order of their paths, but for AdaptDL's ``validation-*.csv``.

    Parameters
    ----------
    sources : path, or sequence of paths
        Files and folders.
    workload, gpu : str, optional
        Where a table does not name them; by default its path is asked: ``bert/placements-t4.csv`` and
        ``bert/scalability-t4.csv`` are BERT on T4, ``throughputs_T4/bert.csv`` too.
    gpus_per_node : int, optional
        Of tables that do not tell nodes: their GPUs are on as few as possible. Without it, the GPUs of a row in a
        table of rates are taken to be on one node, and a warning is logged.
    repeats : "first" or "all", optional
        Of several measurements of one way to run keep the first, or all. By default all, but of AdaptDL's files the
        first, as AdaptDL itself does.

    Returns
    -------
    Profiles
        Never empty.

    Raises
    ------
    InvalidInput
        With file, line and column, what was found and what was expected; also for times in different units.
    UsageError
        ``repeats`` or ``gpus_per_node`` that there cannot be, or no files.
    """
    if repeats not in (None, "first", "all"):
        raise InvalidArgument("repeats", repr(repeats), "first or all")
    if gpus_per_node is not None and gpus_per_node < 1:
        raise InvalidArgument("gpus_per_node", str(gpus_per_node), "a whole number of at least 1")
    paths = [Path(source) for source in ([sources] if isinstance(sources, str | Path) else sources)]
    if not paths:
        raise UsageError("no profiles: expected files or folders")
    missing = Missing(workload, gpu, gpus_per_node)
    rows = [row for path in paths for file in _files(path) for row in _measurements(file, missing)]
    if not rows:
        raise InvalidInput(
            "", f"no measurement in {', '.join(map(str, paths))}", "at least one step that has run"
        )
    kept = without_repeats(rows, repeats)
    if len(kept) < len(rows):
        log.info("%d repeated measurements left out of %d", len(rows) - len(kept), len(rows))
    return profiles_of(kept)


def _files(path: Path) -> Iterable[Path]:
    if not path.is_dir():
        return [path]
    found = [file for file in sorted(path.rglob("*.csv")) if not GRADIENTS.fullmatch(file.name)]
    if not found:
        raise InvalidInput("", f"no CSV file in the folder {path}", "profiles")
    return found


def _measurements(path: Path, missing: Missing) -> Iterator[Measurement]:
    data = read_bytes(path)
    if path.suffix.lower() == ".json" or data.lstrip()[:1] == b"{":
        with named(path):
            yield from gavel_measurements(data, path, missing)
    else:
        yield from read_profile_table(data, path, missing)
