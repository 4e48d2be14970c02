"""Options of jobs are kept once for all jobs that have the same ones."""

from __future__ import annotations

import pytest
from documents import instance_document
from pydantic_core import PydanticSerializationError

from optsched import Instance

# Private: how options are written while they are compared
from optsched.instance.documents import OptionDocument


def test_ctrl_c_while_options_are_read_is_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    """pydantic wraps what is raised while it writes JSON."""

    def interrupted(self: OptionDocument) -> str:
        raise PydanticSerializationError("Error serializing to JSON: KeyboardInterrupt")

    monkeypatch.setattr(OptionDocument, "model_dump_json", interrupted)
    document = instance_document(
        [{"name": "v100", "nodes": 1, "gpus_per_node": 2}],
        [{"id": "a", "options": [{"pool": "v100", "gpus": 1, "value": 1}]}],
    )
    with pytest.raises(KeyboardInterrupt):
        Instance.from_document(document)


def test_a_profile_that_is_read_beside_rates_by_count_is_kept_once() -> None:
    """Jobs are checked 4,096 at a time; one with rates by count has all of its time read as entries."""
    plain, counted = {"v100": 2.5}, {"v100": {"1": 3.0}}
    document = instance_document(
        [{"name": "v100", "nodes": 1, "gpus_per_node": 2}],
        [{"id": f"a{row}", "throughput": counted if row == 4096 else plain} for row in range(4098)],
    )
    instance = Instance.from_document(document)
    assert len(instance.rates) == 2
    assert instance.jobs["a0"].throughput == instance.jobs["a4097"].throughput == plain
    assert instance.jobs["a4096"].throughput == counted
