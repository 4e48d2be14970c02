"""Interners: equal throughput profiles and equal option lists of jobs are kept once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np
from pydantic_core import PydanticSerializationError

from optsched.arrays import condensed, constant, pointers
from optsched.errors import InvalidInput
from optsched.instance.cluster import Cluster
from optsched.instance.documents import OptionDocument, RateEntry
from optsched.instance.layouts import MIG
from optsched.instance.rates import ANY_SPREAD, LEVEL, OWN_GANG, RateTable
from optsched.instance.reading import first_places, key, listed, show
from optsched.instance.references import check_needs, pool_row
from optsched.instance.tables import OptionTable

Profile = tuple[tuple[str, ...], tuple[float | RateEntry, ...]]
"""The places of the entries in the order given, and the entries; a plain number is only steps/s."""


class RateInterner:
    """Collects throughput profiles; places must be pools or GPU types of the cluster."""

    def __init__(self, cluster: Cluster) -> None:
        names = dict.fromkeys(
            [*(pool.name for pool in cluster.pools), *(pool.gpu for pool in cluster.pools)]
        )
        self.places: tuple[str, ...] = tuple(names)
        self.levels = cluster.level_names
        self._place_rows = {name: row for row, name in enumerate(self.places)}
        self._profiles: dict[Profile, int] = {}
        self._checked: set[tuple[str, ...]] = set()

    def add(self, entries: tuple[RateEntry, ...], path: str) -> int:
        """Row of one profile; ``path`` names the field it came from."""
        return self.add_all([entries], lambda _: path)[0]

    def add_all(
        self,
        throughputs: Sequence[dict[str, float] | tuple[RateEntry, ...] | None],
        path: Callable[[int], str],
    ) -> list[int]:
        """Rows of profiles; new ones are checked first.

        Parameters
        ----------
        throughputs : sequence
            Plain numbers by place, or entries; None has the row -1.
        path : callable
            Position in ``throughputs`` -> name of the field, for messages.

        Raises
        ------
        InvalidInput
            A place or a level does not exist.
        """
        known = self._profiles
        # The same entries in another order are a different profile.
        profiles = _profiles_of(throughputs)
        places = {profile[0] for profile in profiles if profile is not None}
        if not places <= self._checked or tuple in map(type, throughputs):
            for profile, position in first_places(profiles).items():
                if profile is not None and profile not in known:
                    self._check(profile, path(position))
        return [
            -1 if profile is None else known.setdefault(profile, len(known)) for profile in profiles
        ]

    def _check(self, profile: Profile, path: str) -> None:
        """Raise `InvalidInput` for a place or level that does not exist."""
        for place, entry in zip(*profile, strict=True):
            if place not in self._place_rows:
                raise InvalidInput(
                    f"{path}.{key(place)}",
                    "no pool or GPU type of the cluster",
                    f"one of {listed(self.places)}",
                )
            if isinstance(entry, float):
                continue
            _, gpus, nodes, _ = entry
            if isinstance(nodes, str) and nodes not in self.levels:
                raise InvalidInput(
                    f"{path}.{key(place)}.{gpus}.{key(nodes)}",
                    "no level of the topology",
                    f"a number of nodes, or a level: {listed(self.levels)}"
                    if self.levels
                    else "a number of nodes, as cluster.levels states no level",
                )
        self._checked.add(profile[0])

    def table(self) -> RateTable:
        """The table of all profiles so far."""
        places, entries = zip(*self._profiles, strict=True) if self._profiles else ((), ())
        flat = list(chain.from_iterable(entries))
        count = len(flat)
        gpus, nodes = constant(OWN_GANG, count, np.int64), constant(ANY_SPREAD, count, np.int64)
        rate: list[Any] = flat
        if set(map(type, flat)) - {float}:
            level = {name: LEVEL + number for number, name in enumerate(self.levels, start=1)}
            whole = [("", 0, 0, entry) if isinstance(entry, float) else entry for entry in flat]
            gpus = np.array([entry[1] for entry in whole], np.int64)
            spreads = [entry[2] for entry in whole]
            nodes = np.array(
                [spread if isinstance(spread, int) else level[spread] for spread in spreads],
                np.int64,
            )
            rate = [entry[3] for entry in whole]
        names = chain.from_iterable(places)
        return RateTable(
            indptr=pointers(list(map(len, places))),
            place=np.fromiter(map(self._place_rows.__getitem__, names), np.int64, count),
            gpus=condensed(gpus),
            nodes=condensed(nodes),
            rate=np.array(rate, np.float64) + 0.0,  # turns -0.0 into 0.0
            places=self.places,
            levels=self.levels,
        )


def _profiles_of(
    throughputs: Sequence[dict[str, float] | tuple[RateEntry, ...] | None],
) -> list[Profile | None]:
    """The profile of each throughput."""
    if set(map(type, throughputs)) == {dict}:
        numbers: list[dict[str, float]] = throughputs  # type: ignore[assignment]
        return list(zip(map(tuple, numbers), map(tuple, map(dict.values, numbers)), strict=True))
    return [None if each is None else _profile_of(each) for each in throughputs]


def _profile_of(throughput: dict[str, float] | tuple[RateEntry, ...]) -> Profile:
    if isinstance(throughput, dict):
        return tuple(throughput), tuple(throughput.values())
    entries = [
        entry[3] if entry[1] == OWN_GANG and entry[2] == ANY_SPREAD else entry
        for entry in throughput
    ]
    return tuple([entry[0] for entry in throughput]), tuple(entries)


def _text(options: Sequence[OptionDocument]) -> str:
    """Text of a list of options; equal lists have equal texts."""
    try:
        return "\n".join(option.model_dump_json() for option in options)
    except PydanticSerializationError as error:
        # The fields are plain numbers and names, so only Ctrl-C can make this fail, which pydantic
        # wraps
        raise KeyboardInterrupt from error


class OptionInterner:
    """Collects lists of options; equal lists are kept once."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._lists: dict[str, int] = {}
        self._options: list[tuple[OptionDocument, ...]] = []

    def add(self, options: Sequence[OptionDocument], path: str) -> int:
        """Row of the list; a new one is checked first."""
        # Lists are compared as text, where 0.0 and -0.0 would differ.
        text = _text(options)
        if "-0.0" in text:
            options = [_without_signs(option) for option in options]
            text = _text(options)
        row = self._lists.get(text)
        if row is not None:
            return row
        for number, option in enumerate(options):
            where = f"{path}[{number}]"
            if option.pool is not None:
                pool_row(option.pool, self._cluster, f"{where}.pool")
                if option.gpus == 0 and option.throughput is None and option.duration is None:
                    raise InvalidInput(
                        f"{where}.gpus", "0 and neither throughput nor duration", "GPUs of the pool"
                    )
            elif option.gpus:
                raise InvalidInput(
                    f"{where}.gpus",
                    f"{option.gpus} without a pool",
                    "0 GPUs, or the pool they are of",
                )
            elif "cpu" in option.uses or "memory" in option.uses:
                raise InvalidInput(
                    f"{where}.uses", "cpu or memory without a pool", "resources of the cluster"
                )
            check_needs(option.uses, self._cluster, f"{where}.uses", option.pool)
            if option.nodes is not None and option.nodes > option.gpus:
                raise InvalidInput(
                    f"{where}.nodes", show(option.nodes), f"at most the option's {option.gpus} GPUs"
                )
            if option.limit is not None:
                _check_limit(option, option.limit, f"{where}.limit")
        row = self._lists[text] = len(self._options)
        self._options.append(tuple(options))
        return row

    def table(self) -> OptionTable:
        """The table of all lists so far."""
        flat = [option for options in self._options for option in options]
        pools = self._cluster.pool_index
        numbers = {
            # None becomes NaN.
            name: np.array([getattr(option, name) for option in flat], np.float64)
            for name in ("share", "throughput", "duration", "value", "cost")
        }
        return OptionTable(
            indptr=pointers([len(options) for options in self._options]),
            pool=np.array([pools.get(option.pool or "", -1) for option in flat], np.int64),
            gpus=np.array([option.gpus for option in flat], np.int64),
            nodes=np.array([option.nodes or ANY_SPREAD for option in flat], np.int64),
            limit=np.array([option.limit or option.share for option in flat], np.float64),
            **numbers,
            uses=tuple(option.uses for option in flat),
            attributes=tuple(option.attributes for option in flat),
        )


def _check_limit(option: OptionDocument, limit: float, path: str) -> None:
    if option.pool is None or option.gpus == 0:
        raise InvalidInput(path, f"{limit:g} without GPUs", "the GPUs that the job may use")
    if limit < option.share:
        raise InvalidInput(path, show(limit), f"at least the option's share of {option.share:g}")
    if MIG in option.attributes and limit > option.share:
        raise InvalidInput(path, f"{limit:g} of a slice", "no limit: a slice is all that a job has")


def _without_signs(option: OptionDocument) -> OptionDocument:
    """The option with 0.0 instead of -0.0."""
    changed: dict[str, object] = {
        "uses": {name: amount + 0.0 for name, amount in option.uses.items()}
    }
    for name in ("throughput", "value", "cost"):
        value = getattr(option, name)
        changed[name] = None if value is None else value + 0.0
    return option.model_copy(update=changed)
