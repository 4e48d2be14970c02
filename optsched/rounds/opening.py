"""States of rounds from what callers have: states, instances, documents and files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from optsched.assembly import load
from optsched.errors import InvalidArgument
from optsched.instance import Instance
from optsched.instance.files import read_file
from optsched.rounds.policy import RoundPolicy, policy_of
from optsched.rounds.state import RoundState
from optsched.rounds.state_document import read_state_document

StateSource = RoundState | Instance | Mapping[str, Any] | str | Path
"""A state, or the instance of a first round: as it is, as a document, or what `optsched.load` takes."""


def state_of(
    source: StateSource, policy: RoundPolicy | Mapping[str, Any] | None = None
) -> RoundState:
    """The state of a round.

    Parameters
    ----------
    source : RoundState, Instance, mapping, str or Path
        A state; or an instance, of which this is the first round. As files and documents both are told apart by their
        ``format``.
    policy : RoundPolicy or mapping, optional
        In the place of the state's own.

    Raises
    ------
    UsageError, InvalidInput
    """
    policy = None if policy is None else policy_of(policy)
    if isinstance(source, str | Path):
        source = _read(source)
    if isinstance(source, Mapping):
        source = _of_document(source)
    if isinstance(source, Instance):
        return RoundState.first(source, policy)
    if not isinstance(source, RoundState):
        raise InvalidArgument(
            "", f"a {type(source).__name__}", "a RoundState, an Instance or a file of one"
        )
    return source if policy is None else replace(source, policy=policy)


def _read(source: str | Path) -> RoundState | Instance:
    if isinstance(source, str) and source.startswith("@"):
        return load(source)
    return read_file(source, "state", _of_document)


def _of_document(document: Any) -> RoundState | Instance:
    """An instance, unless the document says that it is the state of a round."""
    if isinstance(document, Mapping) and str(document.get("format", "")).startswith(
        "optsched-round"
    ):
        return read_state_document(document)
    return Instance.from_document(document)
