"""Where and with what a row was made: versions and machine."""

from __future__ import annotations

import os
import platform
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@cache
def cpu_model() -> str:
    """What the processor calls itself; its architecture where it does not say."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:  # no Linux
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return (names or [platform.processor()])[0] or platform.machine()


def here() -> dict[str, Any]:
    """Versions of optsched and Python, processor, cores: columns that every row ends with."""
    return {
        "optsched": version("optsched"),
        "python": platform.python_version(),
        "cpu": cpu_model(),
        "cores": cores(),
    }
