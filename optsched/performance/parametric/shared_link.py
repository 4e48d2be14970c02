"""The ``shared-link`` model: all workloads share the links of a GPU type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Self

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.errors import InvalidInput
from optsched.instance.reading import join, listed, validate
from optsched.performance.parametric.affine import fit_affine
from optsched.performance.parametric.anchors import Anchors
from optsched.performance.parametric.cells import (
    CHUNK,
    Cells,
    by_names,
    chunks,
    columns,
    flat,
    gather,
    split,
)
from optsched.performance.parametric.fitting import check_compute, check_some
from optsched.performance.parametric.overlap import overlapped
from optsched.performance.parametric.shared_link_documents import (
    ComputeDocument,
    SharedLinkDocument,
    SharedLinkOptions,
)
from optsched.performance.parametric.shared_link_fit import fit_links, rows_of
from optsched.performance.parametric.shared_link_own import fit_own
from optsched.performance.parametric.shared_link_prior import (
    PARAMETERS_SD,
    PER_PARAMETER,
    STATED_SD,
    Parameters,
    Prior,
)
from optsched.performance.parametric.uncertainty import of_squares
from optsched.performance.profiles import Profiles
from optsched.performance.protocol import Source
from optsched.performance.times import TimeModel, Times
from optsched.performance.ways import Ways

OneGpu = Mapping[str, Sequence[float]]
"""Measured seconds of a pass on one GPU: ``samples``, ``seconds``."""
LEVELS = 3
"""One GPU, one node, several nodes."""
UNSEEN_LOG_SD, UNMEASURED_LOG_SD = 0.25, 0.4
"""Where a pair was never measured on a level, of links that were and that were not: errors of 20 and about 30 % in the
mean (Sia's profiles, a pair left out)."""
NAMES = ("inside", "across")


class SharedLink(TimeModel):
    """Seconds of a step of k GPUs with m samples each: compute of its own, communication over links that all share.

        T_1 = a + b m                                                     per workload and GPU type
        x   = T_1 (1 + c (1 - 1/k))                                       c per pair and level
        y   = f [ S 2 (k-1)/k / B + 2 (k-1) alpha ]                       S per workload; B, alpha per type and level
        t   = (passes - 1) x + (x^g + y^g)^(1/g)                          one g

    Levels are one node (inside) and several (across). S are the bytes of a gradient, y a ring all-reduce; f is how far
    a pair on a level is from that; c is what its GPUs slow each other down by there (input pipelines, stragglers): it
    grows with m and soon stops growing with k, which communication does not. Where a pair was never measured on a
    level, f is 1 and c that of the GPU type, 0 if nothing is stated. Where compute is long, y hides behind it by g > 1;
    with a gate h > 0 it counts as 0 wherever y <= h T_1, so that steps scale linearly unless links are slow enough.

    `fit`: a, b from steps on one GPU (non-negative least squares of relative errors); the shared ones (S, B, alpha, g)
    together from steps on several, soft_l1 of log t, with priors (`Prior`): S and B are tied up to one scale, which
    these fix. T_1 goes through what was measured on one GPU in this fit, as the errors of the line would be taken for
    communication. Then f, around 1, and c, around 0.05, with the shared ones held (maximum a posteriori, `fit_own`): a
    pair with few steps on several GPUs stays near what its links say. Links that were never measured are the average
    of the other types' on that level. A pair without a step on one GPU has a, b fitted with the shared ones.

    Options of `fit`: ``gradient_bytes`` (workload -> bytes, known), ``parameters`` (workload -> number of parameters, a
    weak hint: embeddings send few of theirs), ``links`` (GPU type -> ``inside``, ``across`` -> ``bandwidth`` in bytes/s
    and ``latency`` in s, known), ``prior`` (a document of this model: its links, gradients and overlap are what the
    measurements, perhaps few, start from), ``anchored`` (T_1 goes through what was measured, in logs straight between
    two m, instead of a line alone: exact where m was measured on one GPU, and told in about four times the time),
    ``own`` (whether pairs have an f and a c; without, all is as the links say), ``gate`` (h; 0 by default, as g > 1
    does its work on the measured clusters).

    The source is `PRIOR` over links that were never measured. log_sd is that of the log residuals of the pair on the
    level by their degrees of freedom (`optsched.performance.parametric.uncertainty`), else stated: 0.25 where the link
    was measured with other workloads, 0.4 where it was not.

    How much a pair with many measurements counts, and the widths of the priors of f, c and alpha, were chosen by
    leaving out pairs, or larger k, of Sia's profiles: on other clusters errors may well be larger than there.

    References
    ----------
    Ring: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication operations in MPICH", 2005;
    the overlap: A. Qiao et al. (Pollux), OSDI 2021; the rest is this project's own.
    """

    name = "shared-link"

    def __init__(self, given: SharedLinkDocument) -> None:
        self.given = given
        compute = flat(given.compute)
        self.cells = Cells(tuple(compute))
        self._table = columns(
            [row for pair in compute for row in _levels(given, pair, compute[pair])], 7, LEVELS
        )
        lines = [
            (told.a, told.b, told.one_gpu.model_dump() if told.one_gpu else None)
            for told in compute.values()
        ]
        self._anchors = (
            _anchors(lines) if any(measured for _, _, measured in lines) else None
        )  # None costs no time
        self._source = np.nan_to_num(self._table[-1], nan=float(Source.PRIOR)).astype(np.uint8)

    @classmethod
    def fit(cls, profiles: Profiles, options: Mapping[str, Any]) -> Self:
        """All workloads and GPU types at once."""
        chosen = validate(SharedLinkOptions, dict(options), "performance")
        check_some(profiles)
        for name in ("gradient_bytes", "parameters"):
            unknown = set(getattr(chosen, name)) - set(profiles.ways.workloads)
            if unknown:
                expected = f"a workload that was measured: {listed(profiles.ways.workloads)}"
                raise InvalidInput(
                    join("performance", [name, min(unknown)]), "an unknown workload", expected
                )
        return cls(_fit(profiles.sorted(), chosen))

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """The model of a document; each pair's workload needs its gradient bytes and its GPU type its links."""
        given = validate(SharedLinkDocument, dict(document), "performance")
        for workload, by_gpu in given.compute.items():
            if workload not in given.gradient_bytes:
                raise InvalidInput(
                    join("performance.gradient_bytes", [workload]),
                    "nothing",
                    "bytes, as it has compute",
                )
            for gpu, told in by_gpu.items():
                path = join("performance.compute", [workload, gpu])
                check_compute(path, {"a": told.a, "b": told.b})
                _check_one_gpu(path, told)
                if gpu not in given.gpus:
                    raise InvalidInput(
                        join("performance.gpus", [gpu]),
                        "nothing",
                        f"links, as {workload} has compute",
                    )
        return cls(given)

    def document(self) -> dict[str, Any]:
        """Links by GPU type, gradient bytes by workload, compute by both."""
        return {"model": self.name, **self.given.model_dump(mode="json")}

    def times(self, ways: Ways) -> Times:
        """The law of each way."""
        count = len(ways)
        (seconds, log_sd), source = (
            np.empty((2, count)),
            np.empty(count, np.uint8),
        )  # two at once: fewer new pages
        find = self.cells.finder(ways, LEVELS)
        work = np.empty((5, CHUNK))
        for rows in chunks(count):
            gpus = ways.gpus[rows]
            cell = find(rows) + np.add(gpus > 1, ways.nodes[rows] > 1, dtype=np.int64)
            a, b, c, ring, hop = (gather(self._table[row], cell, work[row]) for row in range(5))
            gather(self._table[5], cell, log_sd[rows])
            gather(self._source, cell, source[rows])
            k = gpus.astype(np.float64)
            apart = 1.0 - 1.0 / k
            x = np.multiply(b, ways.samples[rows], out=b)
            x += a
            if self._anchors is not None:
                x *= self._anchors.factor(cell // LEVELS, ways.samples[rows])
            y = np.multiply(ring, apart, out=ring)
            y += hop * (k - 1.0)
            if self.given.gate > 0:
                y[y <= self.given.gate * x] = 0.0
            x *= 1.0 + c * apart
            seconds[rows] = overlapped(x, y, self.given.g)
            several = ways.passes[rows] - 1
            if several.any():
                seconds[rows] += several * x
        return Times(seconds, log_sd, source)


def _anchors(lines: Sequence[tuple[float, float, OneGpu | None]]) -> Anchors:
    """What lines a + b m, given as a, b and measured seconds, are bent through."""
    samples = [np.array(measured["samples"] if measured else ()) for _, _, measured in lines]
    log_factor = [
        np.log(measured["seconds"]) - np.log(a + b * each) if measured else np.zeros(0)
        for (a, b, measured), each in zip(lines, samples, strict=True)
    ]
    return Anchors(samples, log_factor)


def _check_one_gpu(path: str, told: ComputeDocument) -> None:
    if told.one_gpu is None:
        return
    samples, seconds = told.one_gpu.samples, told.one_gpu.seconds
    if len(samples) != len(seconds):
        raise InvalidInput(
            f"{path}.one_gpu.seconds",
            f"{len(seconds)} numbers",
            f"{len(samples)}, as many as samples",
        )
    if any(more <= less for less, more in pairwise(samples)):
        found = ", ".join(f"{each:g}" for each in samples)
        raise InvalidInput(f"{path}.one_gpu.samples", found, "numbers in ascending order")


def _levels(
    given: SharedLinkDocument, pair: tuple[str, str], compute: ComputeDocument
) -> list[tuple[float, ...]]:
    """a, b, c, 2 f S / B, 2 f alpha, log_sd and source, of steps on one GPU, on one node, on several."""
    workload, gpu = pair
    rows: list[tuple[float, ...]] = [
        (compute.a, compute.b, 0.0, 0.0, 0.0, compute.log_sd[0], Source.PARAMETRIC)
    ]
    for level, name in enumerate(NAMES):
        link, factor = getattr(given.gpus[gpu], name), getattr(compute, name)
        slowdown = given.gpus[gpu].slowdown if compute.slowdown is None else compute.slowdown[level]
        ring, hop = (
            2 * factor * given.gradient_bytes[workload] / link.bandwidth,
            2 * factor * link.latency,
        )
        source = Source.PARAMETRIC if link.measured else Source.PRIOR
        rows.append((compute.a, compute.b, slowdown, ring, hop, compute.log_sd[level + 1], source))
    return rows


# --- the fit ----------------------------------------------------------------------------------------------------------


def _fit(profiles: Profiles, chosen: SharedLinkOptions) -> SharedLinkDocument:
    parts = split(profiles)
    cells = Cells(tuple(parts))
    earlier = None if chosen.prior is None else _earlier(chosen.prior)
    types = tuple(
        dict.fromkeys([*cells.gpu_types, *chosen.links, *(earlier.gpus if earlier else ())])
    )
    gpu_rows = {name: row for row, name in enumerate(types)}
    lines = {pair: _line(part) for pair, part in parts.items()}
    free = {
        pair: row for row, pair in enumerate(pair for pair, line in lines.items() if line is None)
    }
    parameters = Parameters(len(cells.workloads), len(types), len(free))
    prior = Prior(parameters, [_guess(parts[pair]) for pair in free])
    if earlier:
        _start_from(prior, parameters, earlier, cells, gpu_rows)
    prior.state_bytes(cells.workloads, chosen.parameters, PER_PARAMETER, PARAMETERS_SD)
    prior.state_bytes(cells.workloads, chosen.gradient_bytes, 1.0, STATED_SD)
    for gpu, stated in chosen.links.items():
        for level, name in enumerate(NAMES):
            link = getattr(stated, name)
            if link is not None:
                prior.state(
                    parameters.bandwidth + 2 * gpu_rows[gpu] + level, link.bandwidth, STATED_SD
                )
                if link.latency is not None:
                    prior.state(
                        parameters.latency + 2 * gpu_rows[gpu] + level, link.latency, STATED_SD
                    )

    ways = profiles.ways
    cell = cells.find(ways)
    table = columns([(np.nan, np.nan) if line is None else line for line in lines.values()], 2)
    base = np.array([free.get(pair, -1) for pair in cells.pairs], np.int64)
    measured = [_measured(part) for part in parts.values()]
    bends = _anchors(
        [(*line, each) for line, each in zip(table.T[: len(cells)].tolist(), measured, strict=True)]
    )
    one_gpu = (table[0][cell] + table[1][cell] * ways.samples) * bends.factor(cell, ways.samples)
    rows = rows_of(
        profiles,
        cell,
        one_gpu,
        base[cell],
        ways.workload_among(cells.workloads),
        ways.gpu_among(gpu_rows),
    )
    z = fit_links(rows, parameters, prior)
    blocks = 2 * len(cells)
    own = (
        fit_own(z, parameters, rows, blocks) if chosen.own else (np.ones(blocks), np.zeros(blocks))
    )
    kept = measured if chosen.anchored else [None] * len(cells)
    return _document(
        z, own, parameters, profiles, cells, cell, table, base, kept, gpu_rows, earlier, chosen.gate
    )


def _document(
    z: FloatArray, own: tuple[FloatArray, FloatArray], at: Parameters, profiles: Profiles, cells: Cells, cell: IntArray,
    table: FloatArray, base: IntArray, one_gpu: Sequence[OneGpu | None], gpu_rows: Mapping[str, int],
    earlier: SharedLinkDocument | None, gate: float,
) -> SharedLinkDocument:  # fmt: skip
    """What was fitted, by names; then its residuals, from its own times."""
    value = np.exp(z)
    several = profiles.ways.gpus > 1
    across = (profiles.ways.nodes > 1).astype(np.int64)
    links = (
        np.bincount(
            (2 * profiles.ways.gpu_among(gpu_rows) + across)[several], minlength=2 * at.gpu_types
        )
        > 0
    )
    gpus = {}
    for gpu, row in gpu_rows.items():
        before = earlier.gpus.get(gpu) if earlier else None
        gpus[gpu] = {
            name: {
                "bandwidth": float(value[at.bandwidth + 2 * row + level]),
                "latency": float(value[at.latency + 2 * row + level]),
                "measured": bool(links[2 * row + level])
                or (before is not None and getattr(before, name).measured),
            }
            for level, name in enumerate(NAMES)
        }
    compute = []
    for row in range(len(cells)):
        a, b = (
            table[:, row]
            if base[row] < 0
            else value[[at.base_constant + base[row], at.base_slope + base[row]]]
        )
        blocks = slice(2 * row, 2 * row + 2)
        told = {
            "a": float(a),
            "b": float(b),
            **dict(zip(NAMES, own[0][blocks].tolist(), strict=True)),
        }
        compute.append(told | {"slowdown": tuple(own[1][blocks].tolist())})
    document = {
        "g": float(1 + value[at.overlap]),
        "gradient_bytes": {
            name: float(value[at.bytes + row]) for name, row in cells.workloads.items()
        },
        "gpus": gpus,
        "compute": by_names(cells.pairs, compute),
        "gate": gate,
    }
    residual = np.log(
        SharedLink.from_document(document).times(profiles.ways).seconds / profiles.seconds
    )
    for told, measured in zip(compute, one_gpu, strict=True):
        told["one_gpu"] = measured
    bent = np.log(
        SharedLink.from_document(document).times(profiles.ways).seconds / profiles.seconds
    )
    residual[several] = bent[
        several
    ]  # on one GPU those of the line, as those of what goes through all tell nothing
    block = 3 * cell + several + across
    counts = np.bincount(block, minlength=3 * len(cells))
    squares = np.bincount(block, residual**2, minlength=3 * len(cells))
    free = _coefficients(profiles, cell, counts, base, links)
    for row, (pair, told) in enumerate(zip(cells.pairs, compute, strict=True)):
        told["log_sd"] = tuple(
            of_squares(float(squares[at]), int(counts[at]), float(free[at]))
            if counts[at]
            else _unseen(gpus[pair[1]], at - LEVELS * row)
            for at in range(LEVELS * row, LEVELS * (row + 1))
        )
    return SharedLinkDocument.model_validate(document)


def _coefficients(
    profiles: Profiles, cell: IntArray, counts: IntArray, base: IntArray, links: BoolArray
) -> FloatArray:
    """How many coefficients the steps of each pair on each level had to determine, shape (3 C,).

    One GPU: a and b, or one of them where only one m was measured. Several: f and c of its own (f moves the steps of a
    level as S and B do), an equal part of what all share (alpha of each link, c of each GPU type, g), and a and b where
    no step on one GPU tells them.
    """
    alone = np.flatnonzero(profiles.ways.gpus == 1)
    pairs_of_m = np.unique(np.stack([cell[alone], profiles.ways.samples[alone]]), axis=1)[0].astype(
        np.int64
    )
    different = np.bincount(pairs_of_m, minlength=len(base))
    levels = counts.reshape(-1, LEVELS) > 0
    shared = np.sum(links) + np.sum(links.reshape(-1, 2).any(axis=1)) + 1
    each = 2.0 + shared / max(int(levels[:, 1:].sum()), 1)
    free = np.full(levels.shape, each) + np.where(base >= 0, 2.0, 0.0)[:, np.newaxis]
    free[:, 0] = np.minimum(different, 2)
    return free.ravel()


def _unseen(gpu: Mapping[str, Any], level: int) -> float:
    return UNSEEN_LOG_SD if level == 0 or gpu[NAMES[level - 1]]["measured"] else UNMEASURED_LOG_SD


def _measured(part: Profiles) -> dict[str, list[float]] | None:
    """Seconds of a pass on one GPU by samples, the mean in logs of those measured; None without any."""
    alone = np.flatnonzero(part.ways.gpus == 1)
    samples, kind = np.unique(part.ways.samples[alone], return_inverse=True)
    if len(samples) == 0:
        return None
    logs = np.log(part.seconds[alone] / part.ways.passes[alone])
    seconds = np.exp(np.bincount(kind, logs) / np.bincount(kind))
    return {"samples": samples.tolist(), "seconds": seconds.tolist()}


def _line(part: Profiles) -> tuple[float, float] | None:
    """a and b of T_1 from the steps on one GPU, whose passes follow each other; None without any."""
    alone = np.flatnonzero(part.ways.gpus == 1)
    if len(alone) == 0:
        return None
    return fit_affine(part.ways.samples[alone], part.seconds[alone] / part.ways.passes[alone])


def _guess(part: Profiles) -> tuple[float, float]:
    """a and b of a pair that was never measured on one GPU: half of the shortest steps is compute."""
    seconds = float(np.min(part.seconds / part.ways.passes))
    return seconds / 4, seconds / 4 / float(np.median(part.ways.samples))


def _earlier(document: Mapping[str, Any]) -> SharedLinkDocument:
    return validate(
        SharedLinkDocument,
        {name: value for name, value in document.items() if name != "model"},
        "performance.prior",
    )


def _start_from(
    prior: Prior,
    at: Parameters,
    earlier: SharedLinkDocument,
    cells: Cells,
    gpu_rows: Mapping[str, int],
) -> None:
    """An earlier model is known about as well as what is stated."""
    prior.state_bytes(cells.workloads, earlier.gradient_bytes, 1.0, STATED_SD)
    prior.state(at.overlap, max(earlier.g - 1, 1e-3), STATED_SD)
    for gpu, told in earlier.gpus.items():
        for level, name in enumerate(NAMES):
            link = getattr(told, name)
            prior.state(at.bandwidth + 2 * gpu_rows[gpu] + level, link.bandwidth, STATED_SD)
            if link.latency > 0:
                prior.state(at.latency + 2 * gpu_rows[gpu] + level, link.latency, STATED_SD)
