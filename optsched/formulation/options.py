"""Options of formulations and side constraints, from plain values."""

from __future__ import annotations

from collections.abc import Mapping
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic.fields import FieldInfo

from optsched.errors import InvalidArgument, InvalidInput, did_you_mean, unknown_name
from optsched.instance.reading import expected_by, show, translate


class ConstraintOptions(BaseModel):
    """Base of the options of side constraints.

    ``optsched formulations NAME`` and the documentation list them.

    As in instances, true is no number and "5" is text; from Python, numbers of numpy and tuples are
    taken as well.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)

    @field_validator("*", mode="before")
    @classmethod
    def _plain(cls, value: Any) -> Any:
        if isinstance(value, np.generic | np.ndarray):
            return value.tolist()
        return list(value) if isinstance(value, tuple) else value


class FormulationOptions(ConstraintOptions):
    """Base of the options of formulations: the options that all formulations share.

    A formulation without hard deadlines refuses ``quantile``, and one that cannot be split refuses
    ``parts``. `optsched.program.partition` describes the parts.
    """

    quantile: Annotated[float, Field(ge=0.5, lt=1)] | None = Field(
        None,
        description=(
            "hard deadlines use the throughput that is reached with this probability, "
            "not the median"
        ),
    )
    parts: Annotated[int, Field(ge=1)] = Field(
        1,
        description=(
            "POP: split jobs at random into this many parts, "
            "each with an equal share of all capacities"
        ),
    )
    parts_seed: Annotated[int, Field(ge=0)] = Field(0, description="seed of this split")

    def to_document(self) -> dict[str, Any]:
        """The options as files have them, which leave out those of all formulations that were not
        given.
        """
        left_out = {"quantile"} if self.quantile is None else set()
        return self.model_dump(
            exclude=left_out | ({"parts", "parts_seed"} if self.parts == 1 else set())
        )


def own_options(owner: type[Any]) -> dict[str, FieldInfo]:
    """Options that a formulation or side constraint states itself: without `shared_options`."""
    shared = shared_options(owner)
    return {name: field for name, field in owner.Options.model_fields.items() if name not in shared}


def shared_options(owner: type[Any]) -> dict[str, FieldInfo]:
    """Options that it takes like all formulations; a side constraint has none."""
    if not issubclass(owner.Options, FormulationOptions):
        return {}
    return dict(FormulationOptions.model_fields)


def options_from(owner: type[Any], given: Mapping[str, Any]) -> Any:
    """Options of a formulation or side constraint from plain values; raises `UsageError`."""
    label = getattr(owner, "name", None) or getattr(owner, "kind", "")
    unknown = next((name for name in given if name not in owner.Options.model_fields), None)
    if unknown is not None:
        known = [*own_options(owner), *shared_options(owner)] or ["none: it has no options"]
        hint = did_you_mean(unknown, owner.Options.model_fields)
        problem = f"{label} has no option {unknown!r}"
        raise unknown_name(f"option of {label}", unknown, known, problem, hint)
    try:
        return owner.Options.model_validate(dict(given))
    except ValidationError as error:
        wrong = _of_union(error, owner.Options) or translate(error, "", owner.Options)
        path = f": {wrong.path}" if wrong.path else ""
        # An option that has no default was left out: show how it is written.
        if wrong.found == "nothing" and wrong.path in owner.Options.model_fields:
            example = f"{wrong.path}={_metavar(owner.Options.model_fields[wrong.path].annotation)}"
            raise InvalidArgument(
                f"option of {label}{path}",
                wrong.found,
                example,
                sentence=f"{label} needs the option {wrong.path}: write {label}:{example} "
                f"(in Python {example})",
            ) from wrong
        raise InvalidArgument(f"option of {label}{path}", wrong.found, wrong.expected) from wrong


def _metavar(annotation: Any) -> str:
    """The placeholder for the values of an option: NUMBER, NAME, or a list of these."""
    if get_origin(annotation) is list:
        inner = _metavar(get_args(annotation)[0])
        return f"[{inner},{inner}]"
    if get_origin(annotation) is Annotated:
        return _metavar(get_args(annotation)[0])
    return "NUMBER" if annotation in (int, float) else "NAME"


def _of_union(error: ValidationError, options: type[BaseModel]) -> InvalidInput | None:
    """What is wrong with an option of several types;
    pydantic reports each type as a key below it.
    """
    first, *others = errors = error.errors(include_url=False)
    name, given = str(first["loc"][0]) if first["loc"] else "", first["input"]
    field = options.model_fields.get(name)
    union = field is not None and get_origin(field.annotation) in (Union, UnionType)
    # Errors inside of a list or an object go deeper, and say more than the types that were
    # expected.
    alike = all(item["input"] is given and len(item["loc"]) == 2 for item in errors)
    if not (union and alike and others):
        return None
    expected = dict.fromkeys(expected_by(item) for item in errors)
    return InvalidInput(name, show(given), " or ".join(expected))
