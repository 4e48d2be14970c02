"""Pipeline schedules: how long a step of M micro-batches takes on p stages, and what has to be kept meanwhile.

Every device holds 1/p of the model; f and b are the seconds of a micro-batch forward and backward on one device, u =
min(f, b) and w = max(f, b). Sending between stages counts to f and b.

    gpipe         (M + p - 1) (f + b)                                          keeps M
    1f1b          (M + p - 1) (f + b)                                          keeps min(p, M)
    interleaved   M (f + b) + (p - 1) (f + b) / v                              keeps min(M v, v p + p - 1) / v
    chimera       M <= p:  p u + (M' + p - 2) w      M' = M rounded up to even
                  M = K p: p u + (2p - 2) w + (K - 1) (2 u + (2p - 2) w)       keeps min(p, M)
    pipemare      M (f + b)                                                    keeps min(p, M)

What is kept is counted in activations of one micro-batch on one device, on the device with most. The interleaved
schedule with v chunks of the model on every device wants M to be a multiple of p; Chimera wants p even and M <= p or a
multiple of p, and keeps the weights of two stages; other cases are NaN. PipeMare never drains the pipeline and works
with stale weights instead: its step time is that of the steady state.

The bubble is the idle share beyond the ideal M (f + b): (p - 1)/M of gpipe and 1f1b, (p - 1)/(M v) interleaved. The
form (p - 2)/(2M + p - 2) of the step that is often given for Chimera holds if and only if f = b and p divides M; with
b = 2f one unit of p micro-batches takes p f + (2p - 2) b, as in the paper's figure, and units that follow each other in
the order of equal slots take longer than that form. All lines are compared with an event simulation in the tests.

References
----------
Y. Huang et al., "GPipe", NeurIPS 2019. S. Fan et al., "DAPPLE", PPoPP 2021 (1f1b). D. Narayanan et al., "Efficient
large-scale language model training on GPU clusters using Megatron-LM", SC 2021 (interleaved). S. Li, T. Hoefler,
"Chimera: efficiently training large-scale neural networks with bidirectional pipelines", SC 2021. B. Yang et al.,
"PipeMare: asynchronous pipeline parallel DNN training", MLSys 2021.
"""

from __future__ import annotations

import numpy as np

from optsched.arrays import FloatArray
from optsched.errors import unknown_name
from optsched.performance.analytic.collectives import Numbers

SCHEDULES = ("1f1b", "chimera", "gpipe", "interleaved", "pipemare")


def step_seconds(
    schedule: str,
    stages: Numbers,
    micro_batches: Numbers,
    forward: Numbers,
    backward: Numbers,
    chunks: Numbers = 1,
) -> FloatArray:
    """Seconds of a step; arrays that broadcast together. NaN where the schedule does not allow p, M."""
    p, M, f, b, v = _numbers(stages, micro_batches, forward, backward, chunks)
    match schedule:
        case "gpipe" | "1f1b":
            return (M + p - 1) * (f + b)
        case "interleaved":
            return _allowed(M % p == 0, M * (f + b) + (p - 1) * (f + b) / v)
        case "chimera":
            u, w = np.minimum(f, b), np.maximum(f, b)
            # A unit of p micro-batches in two directions; an odd one takes as long as the next even one.
            unit = p * u + (np.minimum(np.ceil(M / 2) * 2, p) + p - 2) * w
            # Units follow each other in the order of equal slots: the bubble is not closed where f != b.
            more = np.maximum(np.ceil(M / p) - 1, 0) * (2 * u + (2 * p - 2) * w)
            return _allowed((p % 2 == 0) & ((p >= M) | (M % p == 0)), unit + more)
        case "pipemare":
            return M * (f + b)
    raise unknown_name("schedule", schedule, SCHEDULES, f"unknown pipeline schedule {schedule!r}")


def in_flight(
    schedule: str, stages: Numbers, micro_batches: Numbers, chunks: Numbers = 1
) -> FloatArray:
    """Most activations that a device keeps at a time, in those of one micro-batch on the whole device."""
    p, M, v = _numbers(stages, micro_batches, chunks)
    match schedule:
        case "gpipe":
            return M * np.ones_like(p)
        case "1f1b" | "pipemare":
            return np.minimum(p, M)
        case "interleaved":
            return _allowed(M % p == 0, np.minimum(M * v, v * p + p - 1) / v)
        case "chimera":
            return _allowed((p % 2 == 0) & ((p >= M) | (M % p == 0)), np.minimum(p, M))
    raise unknown_name("schedule", schedule, SCHEDULES, f"unknown pipeline schedule {schedule!r}")


def _numbers(*given: Numbers) -> tuple[FloatArray, ...]:
    return tuple(np.asarray(one, np.float64) for one in given)


def _allowed(condition: FloatArray, seconds: FloatArray) -> FloatArray:
    answer: FloatArray = np.where(condition, seconds, np.nan)
    return answer
