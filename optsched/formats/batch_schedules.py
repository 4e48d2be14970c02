"""Changes of the batch size of jobs in Shockwave's traces (Zheng et al., NSDI 2023):
Accordion and gradient noise scale.

Facts of the published simulator, uw-mad-dash/shockwave: sizes of data sets and of the largest
batches, and the epochs at which the batch changes (``scheduler/scheduler.py``: for a simulated job;
``scheduler/utils.py``: as the planner expects). Epochs count from 0, and batches are those of one
GPU.

static
    Nothing changes.
accordion
    A job runs in its first batch while it is in a *critical regime*, in the largest batch of its
    model otherwise.
gns
    The batch doubles at given epochs, which depend on the model, its first batch and its GPUs.

The batch of a Transformer, a CycleGAN or an A3C never changes, nor that of a job that starts with
the largest batch, nor (under gns) that of a job without given epochs.
"""

from __future__ import annotations

import numpy as np

from optsched.arrays import BoolArray, IntArray

MODES = ("static", "accordion", "gns")
# Samples per epoch, by model.
SAMPLES = {
    "ResNet-18": 50_000, "ResNet-50": 100_000, "Transformer": 10_000, "LM": 59_675, "Recommendation": 117_907,
    "CycleGAN": 6_287, "A3C": 4,
}  # fmt: skip
# Largest batch of the models whose batch changes.
LARGEST = {"ResNet-18": 256, "ResNet-50": 128, "LM": 80, "Recommendation": 8_192}
# Epochs at which the batch doubles under gns, by model, first batch and GPUs.
DOUBLES = {
    ("ResNet-18", 16, 1): (31, 41, 51, 71), ("ResNet-18", 32, 1): (21, 31, 51), ("ResNet-18", 64, 1): (11, 31),
    ("ResNet-18", 128, 1): (11,), ("ResNet-18", 16, 2): (21, 31, 91, 111), ("ResNet-18", 32, 2): (11, 21, 41),
    ("ResNet-18", 64, 2): (21, 41), ("ResNet-18", 128, 2): (41,), ("ResNet-18", 16, 4): (11, 21, 81, 91),
    ("ResNet-18", 32, 4): (21, 31, 61), ("ResNet-18", 64, 4): (11, 61), ("ResNet-18", 128, 4): (11,),
    ("ResNet-50", 64, 1): (101,), ("ResNet-50", 32, 2): (101, 111), ("ResNet-50", 64, 2): (81,),
    ("ResNet-50", 32, 4): (131, 221), ("ResNet-50", 64, 4): (191,),
    ("LM", 5, 1): (31, 41, 61, 71), ("LM", 10, 1): (11, 21, 41), ("LM", 20, 1): (11, 41), ("LM", 40, 1): (11,),
    ("LM", 5, 2): (31, 51, 61, 71), ("LM", 10, 2): (11, 31, 41), ("LM", 20, 2): (31, 41), ("LM", 40, 2): (11,),
    ("LM", 5, 4): (11, 31, 71, 91), ("LM", 10, 4): (11, 31, 61), ("LM", 20, 4): (11, 61), ("LM", 40, 4): (61,),
    ("Recommendation", 512, 1): (21, 41, 71, 91), ("Recommendation", 1_024, 1): (21, 51, 91),
    ("Recommendation", 2_048, 1): (21, 41), ("Recommendation", 4_096, 1): (41,),
}  # fmt: skip
# Share of its epochs in which the planner expects a job under Accordion to keep its first batch.
HELD = 0.3


def steps_of_epoch(model: str, batch: int) -> int:
    """Steps of one epoch; the last one may have fewer samples."""
    return -(-SAMPLES[model] // batch)


def batch_changes(
    mode: str,
    model: str,
    batch: int,
    gpus: int,
    epochs: int,
    *,
    planned: bool = False,
) -> list[tuple[int, int]]:
    """Changes of the batch of a job after its first batch.

    Parameters
    ----------
    mode : str
        One of `MODES`.
    batch, gpus, epochs : int
        First batch of one GPU, GPUs, and epochs of the job.
    planned : bool
        Changes as Shockwave's planner expects them, not as in a simulated job: under Accordion the
        first 30 % of the epochs are critical too, and a Recommendation has further critical regimes
        (epochs 60-69 and 80-89).

    Returns
    -------
    list of (int, int)
        Epoch, and samples of one GPU from then on; ascending, each batch different from the
        previous one.
    """
    if mode == "static" or batch >= LARGEST.get(model, 0):
        return []
    if mode == "gns":
        times = [epoch for epoch in DOUBLES.get((model, batch, gpus), ()) if epoch < epochs]
        return [
            (epoch, min(batch << count, LARGEST[model])) for count, epoch in enumerate(times, 1)
        ]
    epoch = np.arange(epochs, dtype=np.int64)
    first = _critical(model, batch, epoch, planned)
    if planned:
        first |= epoch <= HELD * epochs
    turns = np.flatnonzero(first[1:] != first[:-1]) + 1
    return [(turn, batch if first[turn] else LARGEST[model]) for turn in turns.tolist()]


def _critical(model: str, batch: int, epoch: IntArray, planned: bool) -> BoolArray:
    """Epochs in a critical regime."""
    if model == "ResNet-50":
        return epoch % 30 < 10
    if model == "Recommendation":
        head = {512: 30, 1_024: 30, 2_048: 40}.get(batch, 10)
        more = ((60, 70), (80, 90)) if planned else ()
    else:
        head = 10
        more = ((150, 160), (250, 260)) if model == "ResNet-18" else ()
    critical = epoch < head
    for start, stop in more:
        critical |= (start <= epoch) & (epoch < stop)
    return np.asarray(critical)
