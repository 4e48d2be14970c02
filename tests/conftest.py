"""All tests: numpy and scikit-learn compute in one thread, here and in the processes that tests start.

Matrices are small and workers of pytest share the cores: threads would wait for each other most of the time. Ctrl-C
reaches the processes that tests start, also where the tests run behind a script, in which they would be deaf to it.
"""

from __future__ import annotations

import os
import signal

import pytest

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")  # read when numpy is loaded, which happens after this

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

LONGEST = ("test_docs.py", "test_configuration_generation.py", "test_cli_bench.py", "test_verify.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take longest come first: whole files are handed to workers, and none is to wait for the last one."""
    items.sort(key=lambda item: item.path.name not in LONGEST)
