"""Events and plans in the log: one line of text each for people, or of JSON for programs."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from optsched.instance.reading import listed
from optsched.rounds.policy import RoundPolicy

log = logging.getLogger("optsched.rounds")
"""An entry at INFO for each accepted event and each applied plan, with the journal's ``record``."""


def listening() -> bool:
    """Whether the log is on at INFO, so that events and plans are written."""
    return log.isEnabledFor(logging.INFO)


def log_record(record: Mapping[str, Any]) -> None:
    """Log an event or a plan, given as the record of a journal."""
    if listening():
        log.info("%s", words(record), extra={"record": record})


class JsonLines(logging.Formatter):
    """Log lines as JSON objects: ``time`` (s since 1970), ``level``, ``message``, and the keys of
    events and plans.
    """

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": record.created,
            "level": record.levelname,
            "message": record.getMessage(),
        }
        if record.exc_info is not None and record.exc_info[1] is not None:
            entry["error"] = f"{type(record.exc_info[1]).__name__}: {record.exc_info[1]}"
        about = getattr(record, "record", None) or {}
        return json.dumps({**entry, **about}, default=str)


def words(record: Mapping[str, Any]) -> str:
    """A record of a journal as one line of text."""
    kind = record.get("event")
    return WORDS[kind](record) if kind in WORDS else str(kind)


def _submit(record: Mapping[str, Any]) -> str:
    return f"submit {_jobs([str(job.get('id')) for job in record['jobs']])}"


def _of_jobs(record: Mapping[str, Any]) -> str:
    return f"{record['event']} {_jobs(list(record['jobs']))}"


def _nodes(record: Mapping[str, Any]) -> str:
    by_state: dict[str, list[str]] = {}
    for node, state in record["states"].items():
        by_state.setdefault(state, []).append(node)
    return "; ".join(f"{_many('node', nodes)} {state}" for state, nodes in by_state.items())


def _reserve(record: Mapping[str, Any]) -> str:
    when = f"from {record['start']:g} s to {record['end']:g} s"
    return f"reserve {_many('node', record['nodes'])} {when}: {record['name']}"


def _resize(record: Mapping[str, Any]) -> str:
    return f"resize {', '.join(f'{name} {amount:+g}' for name, amount in record['add'].items())}"


def _update(record: Mapping[str, Any]) -> str:
    changed = [
        f"{name} {value}"
        for name, value in record.items()
        if name not in ("event", "now", "job", "n", "crc")
    ]
    return f"update {record['job']}: {', '.join(changed)}"


def _policy(record: Mapping[str, Any]) -> str:
    policy = dict(record["policy"])
    ranking, formulation = policy.pop("ranking", None), policy.pop("formulation", "")
    options = policy.pop("options", {})
    followed = ranking or formulation or RoundPolicy().formulation
    stated = [f"{name} {value}" for name, value in (options | policy).items()]
    return f"policy {', '.join([followed, *stated])}"


def _constraints(record: Mapping[str, Any]) -> str:
    kinds = [item["kind"] for item in record["constraints"]]
    return f"constraints {listed(kinds) if kinds else 'none'}"


def _named(record: Mapping[str, Any]) -> str:
    """Tenants or workloads that are added or changed, and those that are removed."""
    kind = record["event"]
    names = [item["name"] for item in record[kind]] if kind == "tenants" else list(record[kind])
    parts = [listed(names)] if names else []
    parts += [f"without {listed(record['remove'])}"] if record.get("remove") else []
    return f"{kind} {', '.join(parts)}"


def plan_words(record: Mapping[str, Any]) -> str:
    """``round 12: 3 start, 5 run on, 4 wait``; and the cause of a fallback."""
    text = f"round {record['round']:,}: {verdict_words(record['jobs'])}"
    return text if record["fallback"] is None else f"{text}; falls back: {record['fallback']}"


WORDS: dict[Any, Callable[[Mapping[str, Any]], str]] = {
    "plan": plan_words,
    "submit": _submit,
    **dict.fromkeys(("observe", "complete", "cancel", "stopped"), _of_jobs),
    "nodes": _nodes,
    "reserve": _reserve,
    "policy": _policy,
    "constraints": _constraints,
    "tenants": _named,
    "workloads": _named,
    "resize": _resize,
    "update": _update,
    "release": lambda record: f"release {record['name']}",
}

VERDICTS = (
    ("start", "start"),
    ("keep", "run on"),
    ("move", "move"),
    ("preempt", "stop"),
    ("hold", "wait"),
)


def verdict_words(jobs: Mapping[str, int]) -> str:
    """``3 start, 5 run on, 1 move, 2 stop, 4 wait``."""
    text = [f"{jobs[key]:,} {meant}" for key, meant in VERDICTS if jobs[key]]
    return ", ".join(text) if text else "there are no jobs"


def _jobs(names: list[str]) -> str:
    return f"{len(names):,} jobs: {listed(names)}" if len(names) > 1 else listed(names)


def _many(what: str, names: Sequence[str]) -> str:
    return f"{what if len(names) == 1 else what + 's'} {listed(names)}"
