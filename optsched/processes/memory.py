"""Memory of processes: how much one has in use, how much it may take, how much the machine has."""

from __future__ import annotations

import os
import re
import resource
import sys
from contextlib import suppress
from pathlib import Path


def half_of_memory() -> int | None:
    """Half of the machine's memory in bytes, or of what its control group leaves to it;
    None where none can be limited.

    Enough for any program that can be solved here at all, and too little to take the machine down.
    """
    if not sys.platform.startswith("linux"):
        return None
    most = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):  # no such group, or "max": no limit
            most = min(most, int(Path(path).read_text()))
    return most // 2


NO_MEMORY = re.compile(r"bad_alloc|MemoryError|out of memory|cannot allocate", re.IGNORECASE)
"""What libraries say that can get no memory, in their own errors."""


def tells_of_memory(words: str) -> bool:
    """Whether the words of an error say that there was no memory."""
    return NO_MEMORY.search(words) is not None


def limit_memory(more: int | None) -> None:
    """Have the kernel refuse this process more than so many bytes
    of address space beyond what it has taken by now.

    None lifts a limit that was set so before. A limit that the process was started with (the hard
    one) stays.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = hard
    if more is not None:
        # Address space, as the kernel limits no memory in use (RLIMIT_RSS has no effect on Linux).
        taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        # RLIM_INFINITY is -1, which `min` would take for the smallest limit of all.
        most = taken + more if hard == resource.RLIM_INFINITY else min(taken + more, hard)
    if most != soft:
        resource.setrlimit(resource.RLIMIT_AS, (most, hard))


def memory_in_use(pid: int) -> int:
    """Bytes of memory in use by a process and all
    that it has started (Linux); 0 of one that is gone.
    """
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        threads = list(Path(f"/proc/{pid}/task").iterdir())
        # The kernel lists a child with the thread that started it.
        children = " ".join((thread / "children").read_text() for thread in threads)
    except (OSError, IndexError):
        return 0
    own = pages * resource.getpagesize()
    return own + sum(memory_in_use(int(child)) for child in children.split())


def peak_memory(pid: int) -> int | None:
    """The most memory that a process had in use, in bytes (Linux);
    None where the system does not say.
    """
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return None
    found = [line.split()[1] for line in lines if line.startswith("VmHWM:")]
    return int(found[0]) * 1024 if found else None


def size_text(size: float) -> str:
    """A size of memory, for people."""
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"
