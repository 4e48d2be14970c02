"""`optsched.arrays.values`: the same as in the standard library."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

import pytest

from optsched.arrays.values import cached_property, replace


@dataclass(frozen=True)
class Interval:
    """A value with a property that is computed once."""

    begin: int
    end: int = 5
    notes: tuple[str, ...] = ()

    @cached_property
    def length(self) -> int:
        """How long it is."""
        return self.end - self.begin


@dataclass
class Counted:
    """A value that computes a field when it is made."""

    names: tuple[str, ...]
    count: int = field(init=False)

    def __post_init__(self) -> None:
        self.count = len(self.names)


@dataclass(frozen=True, slots=True)
class Pair:
    """A value without a dictionary."""

    first: int
    second: int


def test_a_copy_has_the_other_values_and_computes_its_properties_again() -> None:
    first = Interval(1, notes=("a",))
    assert first.length == 4
    second = replace(first, end=9)
    assert second == dataclasses.replace(first, end=9)
    assert second.length == 8
    assert (first.end, first.length) == (5, 4)


def test_a_property_is_computed_once() -> None:
    made = []

    class Value:
        """Counts how often its property is computed."""

        @cached_property
        def list(self) -> list[int]:
            """A new list."""
            made.append(self)
            return []

    value = Value()
    assert value.list is value.list
    assert made == [value]
    assert isinstance(Value.list, cached_property)


def test_fields_that_a_class_computes_are_computed_for_the_copy() -> None:
    assert replace(Counted(("a",)), names=("b", "c")).count == 2


def test_values_with_slots_are_copied() -> None:
    assert replace(Pair(1, 2), second=3) == Pair(1, 3)


def test_unknown_fields_are_refused() -> None:
    with pytest.raises(TypeError):
        replace(Interval(1), middle=3)  # type: ignore[call-arg]
