"""Models of pairs by name, loaded on demand."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from optsched.errors import InvalidInput
from optsched.instance.reading import show
from optsched.performance.learned.pairs import PairModel

_HERE = "optsched.performance.learned"
PAIR_MODELS = {
    "auto": f"{_HERE}.auto_pairs:AutoPairs",
    "boosted-pairs": f"{_HERE}.boosted_pairs:BoostedPairs",
    "completion": f"{_HERE}.completion:Completion",
    "conformal-pairs": f"{_HERE}.conformal_pairs:ConformalPairs",
    "gaussian-pairs": f"{_HERE}.gaussian_pairs:GaussianPairs",
    "row-column": f"{_HERE}.row_column:RowColumn",
    "utilisation": f"{_HERE}.utilisation:Utilisation",
}
"""Name -> "module:Class"."""


def pair_class(name: object, path: str = "performance.pairs.model") -> type[PairModel]:
    """The class of a pair model by name; raises `InvalidInput`."""
    if not isinstance(name, str) or name not in PAIR_MODELS:
        raise InvalidInput(path, show(name), f"one of {', '.join(PAIR_MODELS)}")
    module, _, attribute = PAIR_MODELS[name].partition(":")
    return getattr(import_module(module), attribute)  # type: ignore[no-any-return]


def make_pair_model(document: object, path: str = "performance.pairs") -> PairModel:
    """The pair model of a document with its ``model`` name; raises `InvalidInput` with paths below ``path``."""
    if not isinstance(document, Mapping):
        raise InvalidInput(path, show(document), "the document of a model of pairs")
    options = dict(document)
    return pair_class(options.pop("model", None), f"{path}.model").from_document(options, path)
