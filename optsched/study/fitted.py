"""A fitted model in figures: its data, its range, and its errors on the same data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from optsched.performance import Profiles
from optsched.performance.files import PerformanceObject
from optsched.performance.learned import PairProfiles
from optsched.study.fitting import predict_times


def fit_summary(document: PerformanceObject, profiles: Profiles) -> dict[str, Any]:
    """The fitted model, its data, and its errors on the same data."""
    predicted = predict_times(document, profiles.ways).seconds
    known = np.isfinite(predicted)
    error = np.abs(predicted[known] / profiles.seconds[known] - 1)
    return {
        "models": document.names,
        "measurements": len(profiles),
        "workloads": list(profiles.ways.workloads),
        "gpu_types": list(profiles.ways.gpu_types),
        "whole_steps": list(profiles.whole_steps),
        "known": int(known.sum()),
        "mape": float(error.mean()) if len(error) else None,
        "median_ape": float(np.median(error)) if len(error) else None,
        "chosen": _chosen(document, profiles),
    }


def _chosen(document: Mapping[str, Any], profiles: Profiles) -> list[dict[str, Any]]:
    """The law of each workload on each GPU type, its measured range, and its error."""
    ways = profiles.ways
    rows = []
    for workload, by_gpu in document.get("chosen", {}).items():
        for gpu, choice in by_gpu.items():
            of_pair = (ways.workload == ways.workloads.index(workload)) & (
                ways.gpu == ways.gpu_types.index(gpu)
            )
            measured = {name: getattr(ways, name)[of_pair] for name in ("gpus", "nodes", "samples")}
            rows.append(
                {
                    "workload": workload,
                    "gpu": gpu,
                    "ways": choice["ways"],
                    **{name: [of.min().item(), of.max().item()] for name, of in measured.items()},
                    "law": choice["laws"][0],
                    "error": choice["error"],
                }
            )
    return rows


def pairs_summary(document: Mapping[str, Any], measured: PairProfiles) -> dict[str, Any]:
    """The fitted model, its data, and the share of all possible pairs that was measured."""
    pairs = measured.pairs
    known = measured.features
    low = np.minimum(pairs.first, pairs.second)
    high = np.maximum(pairs.first, pairs.second)
    workloads = len(known.workloads)
    fitted = document["pairs"]
    return {
        "model": fitted["model"],
        "chosen": fitted["chosen"]["model"] if fitted["model"] == "auto" else None,
        "because": fitted.get("because"),
        "of": document["of"]["model"],
        "pairs": len(np.unique((pairs.gpu * workloads + low) * workloads + high)),
        "possible": len(known.gpu_types) * workloads * (workloads + 1) // 2,
        "apart": len(measured) - len(measured.ran),
        "workloads": list(known.workloads),
        "gpu_types": list(known.gpu_types),
    }
