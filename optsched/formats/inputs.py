"""Common arguments of importers: files, the pools of the cluster, and former names of keywords."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import Any, ParamSpec, TypeAlias, TypeVar

from optsched.errors import InvalidArgument, UsageError, checks_keywords
from optsched.instance.reading import listed, read_bytes

Given = ParamSpec("Given")
Result = TypeVar("Result")

# `optsched import` chooses the parser of an option by the name of its type here
# (`optsched.cli.imports`). A file: its path, or its contents
Source: TypeAlias = str | Path | bytes
Folder: TypeAlias = str | Path
# By pool
Folders: TypeAlias = Mapping[str, Folder]
Names: TypeAlias = Collection[str]
# Nodes and GPUs of a node, by pool; or the pools as in an instance document
Pools: TypeAlias = Mapping[str, tuple[int, int]] | Sequence[Mapping[str, Any]]
# GPUs by pool
PoolSizes: TypeAlias = Mapping[str, int]
# How many times as fast as recorded jobs run, by pool
Speeds: TypeAlias = Mapping[str, float]
# Standard names of columns, by their names in a table
Columns: TypeAlias = Mapping[str, str]
Seconds: TypeAlias = float

# Former names of keywords, which are still accepted
FORMER_NAMES = {"log": "jobs", "paces": "applications", "speed": "speeds"}


def importer(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """Decorator of importers: accept former names of keywords, and suggest the closest name for
    unknown ones.
    """
    checked = checks_keywords(function)
    former = {
        old: new for old, new in FORMER_NAMES.items() if new in signature(function).parameters
    }

    @wraps(function)
    def renamed(*positional: Given.args, **given: Given.kwargs) -> Result:
        for old, new in former.items():
            if old in given:
                if new in given:
                    raise UsageError(f"{old} is the former name of {new}: give one of them")
                given[new] = given.pop(old)
        return checked(*positional, **given)

    return renamed


def contents(source: Source) -> bytes:
    """The bytes of a file; raises `InvalidInput` for one that cannot be read."""
    return source if isinstance(source, bytes) else read_bytes(Path(source))


def called(source: Source, otherwise: str) -> str:
    """Name of a file in messages: its path, or ``otherwise`` if only its contents are known."""
    return otherwise if isinstance(source, bytes) else str(source)


def pool_documents(pools: Pools) -> list[dict[str, Any]]:
    """Pools as an instance document has them;
    for pools given by numbers, the GPU type is the name of the pool.
    """
    if not pools:
        raise InvalidArgument("", "no pool", "at least one")
    if not isinstance(pools, Mapping):
        return [dict(pool) for pool in pools]
    return [
        {"name": pool, "gpu": pool, "nodes": nodes, "gpus_per_node": gpus}
        for pool, (nodes, gpus) in pools.items()
    ]


def one_cluster(
    pools: Pools | None,
    file: object,
    what: str,
    read: Callable[[Any], list[dict[str, Any]]],
) -> list[dict[str, Any]]:
    """The pools, given directly or by a file; ``what`` is the name of the file in messages."""
    if (pools is None) == (file is None):
        found = f"no pools and no {what}" if pools is None else f"pools and {what}"
        raise InvalidArgument("pools", found, "one of them: it is the cluster")
    return read(file) if pools is None else pool_documents(pools)


def speeds_of(pools: Iterable[str], speeds: Speeds | None) -> dict[str, float]:
    """The factor of every pool, 1 where none is given; raises `UsageError`."""
    known = tuple(pools)
    for pool, speed in (speeds or {}).items():
        if pool not in known:
            raise InvalidArgument("speeds", f"pool {pool!r}", f"one of {listed(known)}")
        if not 0 < speed < math.inf:
            raise InvalidArgument("speeds", f"{speed!r} for pool {pool!r}", "a factor above 0")
    return {pool: float((speeds or {}).get(pool, 1.0)) for pool in known}
