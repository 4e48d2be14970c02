"""The decisions of a plan, as arrays of differences from the state for which it was made.

The journal stores them with each plan, so that recovery applies plans like events: nothing is
solved, compiled or seated again. Most of 100,000 jobs keep running or waiting, so a round takes a
few hundred kilobytes, nearly all of it for the fractions of the new allocation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from optsched.arrays import EMPTY, AnyArray, BoolArray, IntArray, find_rows, gathered
from optsched.arrays.npz import text_array, text_in
from optsched.instance.running import RunningJobs
from optsched.rounds.admission import Admissions
from optsched.rounds.allocation import Refused
from optsched.rounds.ledger import Ledger
from optsched.rounds.order import Order
from optsched.rounds.plan import Plan, Verdict
from optsched.rounds.state import RoundState, basis_of, basis_parts
from optsched.solving.warm_start import WarmStart

ONE_IN = 4
"""An array is written as a whole if more than one entry in ``ONE_IN`` differs."""

Packed = Mapping[str, AnyArray]


def decisions_of(plan: Plan, state: RoundState) -> dict[str, AnyArray]:
    """A plan without its solution and its timings, as arrays by name."""
    service = state.service
    arrays = {
        **differences("verdict", _as_before(state), plan.verdict),
        **differences("speed", service.speed, plan.speed),
        **_ledger_arrays(state.ledger, plan.ledger),
        **_place_arrays(plan, state),
        **_warm_arrays(state.warm, plan.warm),
        **_text_arrays(plan),
    }
    if plan.isolated is not None:
        arrays["isolated"] = np.ones(1, bool)
        arrays |= differences("isolated", service.isolated, plan.isolated)
    if plan.admissions is not None:
        arrays |= _admission_arrays(service.standing, plan.admissions)
    return arrays


def plan_of(
    state: RoundState,
    arrays: Packed,
    *,
    fallback: str | None = None,
    stands: bool = False,
    refused: Refused = (),
) -> Plan:
    """The plan of which `decisions_of` made these arrays, to the last bit.

    Parameters
    ----------
    state : RoundState
        The state for which it was made.
    arrays : mapping of str to array
    fallback, stands, refused
        Those of the plan: they are not in the arrays, because a journal shows them as text.

    Raises
    ------
    ValueError, LookupError, TypeError
        The arrays belong to another state.
    """
    verdict = combined("verdict", _as_before(state), arrays)
    isolated = None
    if "isolated" in arrays:
        isolated = combined("isolated", state.service.isolated, arrays)
    texts = json.loads(text_in(arrays["texts"]))
    return Plan(
        round=state.round,
        instance=state.instance,
        verdict=verdict,
        running=_places(state, verdict, arrays),
        speed=combined("speed", state.service.speed, arrays),
        reasons=_by_job("reason", texts["reasons"], arrays),
        ledger=_ledger(state.ledger, arrays),
        warm=_warm(state.warm, arrays),
        solution=None,
        fallback=fallback,
        stops=state.stops,
        notices=tuple(texts["notices"]),
        stands=stands,
        started_from=texts["started_from"],
        order=_order(texts["order"], arrays),
        isolated=isolated,
        refused=refused,
        admissions=_admissions(state.service.standing, arrays),
    )


def _as_before(state: RoundState) -> IntArray:
    """The verdicts of a plan in which all jobs keep running, or waiting."""
    verdict = np.full(len(state.instance.jobs_table), Verdict.HOLD, np.int64)
    verdict[state.instance.jobs_table.places.job] = Verdict.KEEP
    return verdict


# --- differences of arrays -------------------------------------------------------------------


def differences(name: str, before: AnyArray, after: AnyArray) -> dict[str, AnyArray]:
    """Positions at which an array differs from an earlier one, and its entries there; the whole
    array if many differ, nothing if none does.
    """
    if before.shape != after.shape:
        return {f"{name}.all": after}
    old, new = before.ravel(), after.ravel()
    # Bits are compared: -0.0 and 0.0 have different digests.
    differ = old.view(np.int64) != new.view(np.int64) if old.dtype == np.float64 else old != new
    at = np.flatnonzero(differ)
    if ONE_IN * len(at) > len(new):
        return {f"{name}.all": after}
    return {f"{name}.at": np.diff(at, prepend=0), f"{name}.to": new[at]} if len(at) else {}


def combined(name: str, before: AnyArray, arrays: Packed) -> AnyArray:
    """The array of which `differences` made these arrays."""
    if f"{name}.all" in arrays:
        return arrays[f"{name}.all"]
    if f"{name}.at" not in arrays:
        return before
    after = before.flatten()
    after[np.cumsum(arrays[f"{name}.at"])] = arrays[f"{name}.to"]
    return after.reshape(before.shape)


# --- the ledger ------------------------------------------------------------------------------

COLUMNS = tuple(item.name for item in fields(Ledger) if item.name not in ("key", "carried"))


def _ledger_arrays(before: Ledger, after: Ledger) -> dict[str, AnyArray]:
    row = find_rows(before.key, after.key)
    # Most rows keep their order, so most steps are 1 and are not stored.
    step = np.diff(row, prepend=-1)
    arrays = {
        "ledger.rows": np.array([len(row)]),
        **differences("ledger.step", np.ones(len(row), np.int64), step),
        "ledger.new": after.key[row < 0].T,
        **differences("ledger.carried", before.carried, after.carried),
    }
    for name in COLUMNS:
        arrays |= differences(f"ledger.{name}", _at(before, name, row), getattr(after, name))
    return arrays


def _ledger(before: Ledger, arrays: Packed) -> Ledger:
    step = combined("ledger.step", np.ones(int(arrays["ledger.rows"][0]), np.int64), arrays)
    row = step.cumsum() - 1
    key = np.empty((before.key.shape[1], len(row)), np.int64).T
    known = row >= 0
    key[known] = before.key[row[known]]
    key[~known] = arrays["ledger.new"].T
    columns = {name: combined(f"ledger.{name}", _at(before, name, row), arrays) for name in COLUMNS}
    carried = combined("ledger.carried", before.carried, arrays)
    return Ledger(key=key, carried=carried, **columns)


def _at(ledger: Ledger, name: str, row: IntArray) -> AnyArray:
    """A column of some rows of a ledger; 0 for new rows (-1)."""
    return gathered(getattr(ledger, name), row, 0)


# --- GPUs of running jobs --------------------------------------------------------------------


def _place_arrays(plan: Plan, state: RoundState) -> dict[str, AnyArray]:
    """GPUs of jobs that start or move, and of jobs whose start time was unknown before."""
    places = RunningJobs.of(plan.running)
    before = state.instance.jobs_table.places
    changed = np.flatnonzero(~_stay(before, plan.verdict)[places.job])
    return {
        "held.job": np.diff(places.job[changed], prepend=0),
        "held.pool": places.pool[changed],
        "held.length": places.length[changed],
        "held.gpu": places.numbers_of(changed, state.instance.cluster.numbering),
        "held.since": places.since[changed],
    }


def _places(state: RoundState, verdict: IntArray, arrays: Packed) -> RunningJobs:
    before = state.instance.jobs_table.places
    stay = np.flatnonzero(_stay(before, verdict)[before.job])
    numbering = state.instance.cluster.numbering
    changed = RunningJobs(
        np.cumsum(arrays["held.job"]),
        arrays["held.pool"],
        arrays["held.length"],
        arrays["held.since"],
        numbers=(numbering, arrays["held.gpu"]),
    )
    return before.take(stay, before.job[stay]).and_also(changed)


def _stay(before: RunningJobs, verdict: IntArray) -> BoolArray:
    """Mask of the jobs that keep their GPUs and have a known start time; shape (jobs,)."""
    dated = np.zeros(len(verdict), bool)
    dated[before.job] = before.dated
    return np.asarray(dated & (verdict == Verdict.KEEP))


# --- the basis -------------------------------------------------------------------------------


def _warm_arrays(before: WarmStart | None, after: WarmStart | None) -> dict[str, AnyArray]:
    if after is None:
        return {}
    header, parts = basis_parts(after)
    known = {} if before is None else basis_parts(before)[1]
    arrays = {"warm": text_array(json.dumps(header))}
    for name, part in parts.items():
        arrays |= differences(f"warm.{name}", known.get(name, EMPTY), part)
    return arrays


def _warm(before: WarmStart | None, arrays: Packed) -> WarmStart | None:
    if "warm" not in arrays:
        return None
    header = json.loads(text_in(arrays["warm"]))
    known = {} if before is None else basis_parts(before)[1]
    names = [
        "of_job",
        "column",
        *(f"{kind}.{at}" for kind in ("columns", "rows") for at in range(len(header[kind]))),
    ]
    parts = {name: combined(f"warm.{name}", known.get(name, EMPTY), arrays) for name in names}
    return basis_of(header, parts)


# --- admissions ------------------------------------------------------------------------------


def _admission_arrays(before: IntArray, after: Admissions) -> dict[str, AnyArray]:
    texts, arrays = _texts_of_jobs("declined", after.declined)
    return {
        "declined": text_array(json.dumps([texts, after.notices])),
        **arrays,
        **differences("standing", before, after.standing),
    }


def _admissions(before: IntArray, arrays: Packed) -> Admissions | None:
    if "declined" not in arrays:
        return None
    texts, notices = json.loads(text_in(arrays["declined"]))
    standing = combined("standing", before, arrays)
    return Admissions(standing, _by_job("declined", texts, arrays), tuple(notices))


# --- texts -----------------------------------------------------------------------------------


def _texts_of_jobs(name: str, texts: Mapping[int, str]) -> tuple[list[str], dict[str, AnyArray]]:
    """Texts by the row of a job: each text once, and arrays with the jobs and their texts."""
    # Thousands of jobs have the same reason.
    number: dict[str, int] = {}
    text = [number.setdefault(why, len(number)) for why in texts.values()]
    job = np.fromiter(texts, np.int64, len(text))
    return list(number), {f"{name}.job": job, f"{name}.text": np.array(text, np.int64)}


def _by_job(name: str, texts: Sequence[str], arrays: Packed) -> dict[int, str]:
    """The texts of which `_texts_of_jobs` made these arrays."""
    chosen = [texts[number] for number in arrays[f"{name}.text"].tolist()]
    return dict(zip(arrays[f"{name}.job"].tolist(), chosen, strict=True))


def _text_arrays(plan: Plan) -> dict[str, AnyArray]:
    """Notices, reasons, and the order of a ranking."""
    reasons, of_jobs = _texts_of_jobs("reason", plan.reasons)
    order = plan.order
    texts = {
        "reasons": reasons,
        "notices": plan.notices,
        "started_from": plan.started_from,
        "order": None if order is None else [order.ranking, order.strict, order.fallback],
    }
    arrays = {
        "texts": text_array(json.dumps(texts)),
        **of_jobs,
    }
    if order is not None:
        arrays |= {"order.position": order.position, "order.renewed": order.renewed}
    return arrays


def _order(given: Sequence[Any] | None, arrays: Packed) -> Order | None:
    if given is None:
        return None
    # Older records have more entries after these three.
    ranking, strict, fallback, *_ = given
    position, renewed = arrays["order.position"], arrays["order.renewed"]
    return Order(ranking, position, renewed, strict, fallback)
