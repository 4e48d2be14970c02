"""``optsched model list``."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

from optsched.cli.command import Argument
from optsched.cli.options import Json
from optsched.cli.shell import Shell

if TYPE_CHECKING:
    from rich.console import RenderableType

EXAMPLES = """
    optsched model list
    optsched model list pollux
    optsched model list row-column --json
"""

FITTED, COMPOSED, STATED, PAIRED = "profiles", "other models", "the instance", "pairs"


def list_models(
    shell: Shell,
    name: Annotated[
        str | None,
        Argument("NAME", "A model, of rates or of pairs: its mathematics and options."),
    ] = None,
    as_json: Json = False,
) -> int:
    """List the performance models, or show one in full."""
    if name is not None:
        document = described(name)
        shell.answer(as_json, lambda: document, _one(document))
        return 0
    found = catalogue()
    shell.answer(as_json, lambda: {"models": found}, _all(found))
    return 0


def _all(found: list[dict[str, Any]]) -> Iterator[RenderableType]:
    from optsched.cli.tables import table

    rows = [[item["name"], item["made_of"], item["summary"]] for item in found]
    yield table("name", "made of", "in words", rows=rows, left=3, title="Performance models")
    yield ""
    yield "Those made of profiles are fitted by `optsched model fit`."
    yield (
        "`optsched model list NAME` shows the mathematics and the options of one, also of a model of pairs."
    )


def catalogue() -> list[dict[str, Any]]:
    """Name, what it is made of, and the first line of the docstring of each model."""
    from optsched.registry import load_model, names

    found = []
    for name in names("performance model"):
        owner: Any = load_model(name)
        summary = " ".join(inspect.cleandoc(owner.__doc__ or "").split("\n\n")[0].split())
        found.append({"name": name, "made_of": _made_of(owner), "summary": summary.rstrip(".,:")})
    return found


def described(name: str) -> dict[str, Any]:
    """One model as plain data; ``text`` is its docstring, which says its options."""
    from optsched.performance.learned import PAIR_MODELS, pair_class
    from optsched.registry import load_model, names

    owner: Any = (
        pair_class(name) if name in PAIR_MODELS and name not in names("performance model") else None
    )
    made_of = PAIRED if owner is not None else None
    owner = load_model(name) if owner is None else owner
    text = inspect.cleandoc(owner.__doc__ or "")
    return {
        "name": name,
        "made_of": made_of or _made_of(owner),
        "module": owner.__module__,
        "text": text,
    }


def _made_of(owner: Any) -> str:
    from optsched.performance.composed import ComposedModel
    from optsched.performance.times import TimeModel

    if not isinstance(owner, type):
        return STATED
    return (
        FITTED
        if issubclass(owner, TimeModel)
        else COMPOSED
        if issubclass(owner, ComposedModel)
        else STATED
    )


# How a model is asked for, by what it is made of.
HOW = {
    FITTED: "optsched model fit PROFILES --model {name} [-O KEY=VALUE] -o MODEL.json",
    PAIRED: "optsched model fit-pairs PAIRS --model {name} [-O KEY=VALUE] -o MODEL.json",
    COMPOSED: '"performance": {{"model": "{name}", "{parts}": ..., KEY: VALUE}} in an instance',
    STATED: '"performance": {{"model": "{name}", KEY: VALUE}} in an instance',
}


def _one(document: dict[str, Any]) -> Iterator[RenderableType]:
    from optsched.cli.formulations import mathematics
    from optsched.cli.tables import facts, heading
    from optsched.registry import load_model

    name, made_of = document["name"], document["made_of"]
    parts = getattr(load_model(name), "made_of", "of") if made_of == COMPOSED else ""
    yield heading(f"{name}, a {'model of pairs' if made_of == PAIRED else 'performance model'}")
    yield ""
    yield facts(
        [
            ("made of", made_of),
            ("asked for by", HOW[made_of].format(name=name, parts=parts)),
            ("code", document["module"]),
        ]
    )
    yield ""
    yield from mathematics(document["text"])
    if "``of``" in document["text"] and made_of in (FITTED, PAIRED):
        inner = "row-column" if made_of == PAIRED else "pollux"
        yield ""
        yield f"""The model that it stands on is given as -O of='{{"model": "{inner}"}}'."""
    if "``models``" in document["text"] and made_of == FITTED:
        yield ""
        yield """The models that it is made of are given as -O models='[{"model": "pollux"}, {"model": "usl"}]'."""
