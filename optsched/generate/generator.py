"""What a generator is: options with ranges, a function that makes an instance,
and notes about the result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self, TypeVar

import numpy as np
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from optsched.arrays import FloatArray
from optsched.display import Displayed
from optsched.errors import InvalidArgument, WrongValue
from optsched.instance import Instance
from optsched.instance.documents import refused
from optsched.instance.reading import show, translate

# Jobs that are kept as arrays.
LargeCount = Annotated[int, Field(ge=1, le=10_000_000)]
# Jobs that bring a list of options each.
SmallCount = Annotated[int, Field(ge=1, le=100_000)]
Share = Annotated[float, Field(ge=0, le=1)]


Conditions = Mapping[str, tuple[str, Callable[[Any], bool]]]


class GeneratorOptions(BaseModel):
    """Base of all options; a field's description is its help on the command line."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True, allow_inf_nan=False)
    only_if: ClassVar[Conditions] = {}
    """Options that have an effect only under a condition: the condition as text, and a function
    that tests it.
    """

    @model_validator(mode="after")
    def _none_is_ignored(self) -> Self:
        for option, (condition, holds) in self.only_if.items():
            if option in self.model_fields_set and not holds(self):
                raise refused(show(getattr(self, option)), f"none unless {condition}", option)
        return self

    seed: int = Field(1, ge=0, lt=2**63, description="Same seed, same bytes.")
    name: str | None = Field(None, min_length=1, description="Of the instance.")

    def titled(self, default: str) -> str:
        """Name of the instance: the given one, else the default with the seed."""
        return f"{default}-s{self.seed}" if self.name is None else self.name

    def random(self) -> np.random.Generator:
        """A fresh stream of random numbers."""
        return np.random.default_rng(self.seed)


Options = TypeVar("Options", bound=GeneratorOptions)


@dataclass(frozen=True, repr=False)
class Generated(Displayed):
    """An instance fresh from its generator.

    Attributes
    ----------
    instance : Instance
    notes : callable
        Returns notes for users, such as how scarce capacity is. It is a function because it may
        solve a program.
    """

    instance: Instance
    notes: Callable[[], tuple[str, ...]] = tuple

    def _headline(self) -> str:
        return f"of {self.instance.name}"


@dataclass(frozen=True)
class Generator:
    """A kind of instances.

    Attributes
    ----------
    options : type of GeneratorOptions
    make : callable
        Options -> `Generated`; the same options give the same instance, bit by bit.
    words : str
        Description in one sentence.
    formulation : callable or None
        Options -> the formulation that its instances belong to; None: no particular one.
    """

    options: type[GeneratorOptions]
    make: Callable[[Any], Generated]
    words: str
    formulation: Callable[[Any], str] | None = None

    def __call__(self, given: Mapping[str, Any], named: Callable[[str], str] = str) -> Generated:
        """Check the options and make the instance.

        Parameters
        ----------
        named : function
            How messages call a field: ``jobs``, or ``--jobs`` on the command line.

        Raises
        ------
        InvalidArgument
            With the option's name as its path.
        """
        checked = self._checked(given, named)
        try:
            return self.make(checked)
        except InvalidArgument as wrong:  # an option that does not work with the others
            raise InvalidArgument(named(wrong.path), wrong.found, wrong.expected) from None

    def formulation_of(self, given: Mapping[str, Any]) -> str | None:
        """The formulation that an instance of these options belongs to; None: no particular one.

        Raises
        ------
        InvalidArgument
            With the option's name as its path.
        """
        return None if self.formulation is None else self.formulation(self._checked(given))

    def _checked(self, given: Mapping[str, Any], named: Callable[[str], str] = str) -> Any:
        try:
            return self.options.model_validate(dict(given))
        except ValidationError as error:
            wrong: WrongValue = translate(error, "", self.options)
            raise InvalidArgument(named(wrong.path), wrong.found, wrong.expected) from None


def split(count: int, what: str = "shares") -> BeforeValidator:
    """Numbers given as one text, such as ``0.1,0.15,0.05``, or as a sequence of that length."""

    def parts(value: object) -> object:
        found = value.split(",") if isinstance(value, str) else value
        if not isinstance(found, list | tuple) or len(found) != count:
            raise refused(show(value), f"{count} {what} with commas between them")
        return found

    return BeforeValidator(parts)


def _at_most_all(shares: tuple[float, ...]) -> tuple[float, ...]:
    if sum(shares) > 1 + 1e-9:
        raise refused(show(list(shares)), "shares that add up to at most 1")
    return shares


# Shares of one whole; what is left of it is the share of the rest.
PARTS = AfterValidator(_at_most_all)


def significant(values: FloatArray, digits: int) -> FloatArray:
    """Values rounded to so many significant digits; zeros stay.

    Rounding makes files short, and removes the last bits of exponentials, which differ between
    processors.
    """
    with np.errstate(divide="ignore"):
        exponent = np.where(values > 0, np.floor(np.log10(values)), 0.0)
    places = digits - 1 - exponent
    up = 10.0 ** np.maximum(places, 0)
    down = 10.0 ** np.maximum(-places, 0)
    return np.asarray(np.round(values * up / down) / up * down)
