"""Parse YAML 1.1 to plain data. It refuses documents that are small on disk but huge or endless in
memory.
"""

from __future__ import annotations

from typing import Any

import yaml

from optsched.errors import InvalidInput
from optsched.instance.reading import first_repeated, repeated_key

MAX_DEPTH = 200
"""Most levels of nesting, with aliases followed. The C composer would overflow its stack on deeper
documents.
"""
MAX_VALUES = 10_000_000
"""Most values with every alias expanded; a longer file may have more."""

_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):  # type: ignore[misc]
    """PyYAML's safe loader (plain data only) with a limit on nesting."""

    depth = 0

    def descend_resolver(self, current_node: object, current_index: object) -> None:
        """The composer calls it when it enters a value."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise yaml.YAMLError(f"more than {MAX_DEPTH} levels of nesting")

    def ascend_resolver(self) -> None:
        """The composer calls it when it leaves a value."""
        self.depth -= 1


def parse_yaml(text: bytes | str, what: str) -> Any:
    """Parse YAML 1.1; a repeated key in an object is refused, as in JSON."""
    document = None
    try:
        loader = _Loader(text)
        try:
            root = loader.get_single_node()
            if root is not None:
                _Measure(max(MAX_VALUES, len(text))).measure(root)
                _refuse_repeated_keys(root)
                document = loader.construct_document(root)
        finally:
            loader.dispose()
    except InvalidInput:
        raise
    except Exception as error:
        # PyYAML's constructors let KeyError, AttributeError ... through, e.g. on !!bool 3.
        words = " ".join(str(error).split()) or type(error).__name__
        if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
            mark = error.problem_mark
            said = ", ".join(filter(None, (error.context, error.problem)))
            words = f"{said}, line {mark.line + 1}, column {mark.column + 1}"
        words = words if len(words) <= 120 else f"{words[:117]}..."
        raise InvalidInput("", f"text that is not YAML ({words})", "a YAML document") from None
    if document is None:
        raise InvalidInput("", f"an empty {what}", "a YAML document")
    return document


def _refuse_repeated_keys(root: yaml.Node) -> None:
    """Raise `InvalidInput` for the first repeated key; the target of an alias is checked once."""
    places: list[tuple[tuple[int | str, ...], yaml.Node]] = [((), root)]
    known = set()
    while places:
        path, node = places.pop()
        if not isinstance(node, yaml.CollectionNode) or id(node) in known:
            continue
        known.add(id(node))
        if isinstance(node, yaml.MappingNode):
            keys = [
                (name.tag, name.value)
                for name, _ in node.value
                if isinstance(name, yaml.ScalarNode)
            ]
            if len(set(keys)) < len(keys):
                raise repeated_key([*path, first_repeated(keys)[1]])
            places += [((*path, str(name.value)), item) for name, item in reversed(node.value)]
        else:
            places += [((*path, row), item) for row, item in reversed(list(enumerate(node.value)))]


class _Measure:
    """Counts the values under a node as if aliases were expanded; each node is visited once."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._known: dict[int, tuple[int, int] | None] = {}

    def measure(self, node: yaml.Node) -> tuple[int, int]:
        """(Values, levels of nesting) of a node;
        refuses one that is too large, too deep, or contains itself.
        """
        if id(node) in self._known:
            known = self._known[id(node)]
            if known is None:
                raise yaml.YAMLError("an alias inside its own value")
            return known
        # None while the node is being measured; meeting it again then means that it contains
        # itself.
        self._known[id(node)] = None
        values, depth = 1, 0
        if isinstance(node, yaml.CollectionNode):
            for child in node.value:
                for part in child if isinstance(child, tuple) else (child,):
                    more, below = self.measure(part)
                    values, depth = values + more, max(depth, below)
        if values > self._limit or depth >= MAX_DEPTH:
            raise yaml.YAMLError("aliases that make the document too large or too deep")
        self._known[id(node)] = values, depth + 1
        return values, depth + 1
