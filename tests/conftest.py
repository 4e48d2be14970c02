"""Settings of all tests, and the kind of each test: `make test` runs the unit tests, `make test-all` the other kinds.

A test file states its kind once, as ``pytestmark = pytest.mark.KIND``; a file that states none holds unit tests. A test
may state another kind than its file. Where neither says, tests with examples drawn by hypothesis are property tests.

Each module of the project has a unit test that runs it, except those that only run in a child process.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

KINDS = ("unit", "property", "oracle", "process", "picture", "documentation", "study", "clock")
"""All kinds; pyproject.toml describes each. Of several marks on one test the last in this list counts."""

# numpy reads these when it is loaded, which happens later. The matrices of tests are small, and the workers of pytest
# share the cores: several threads would mostly wait for each other.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

# For a cluster of one machine Ray would write a token to the home folder, and ask other clusters for it from then on.
os.environ.setdefault("RAY_AUTH_MODE", "disabled")

# A shell that starts the tests in the background ignores SIGINT, and child processes inherit that. Tests of Ctrl-C
# need the usual handler.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Hypothesis draws the same examples in every run, and measures no time.
settings.register_profile("reproducible", derandomize=True, deadline=None)
settings.load_profile("reproducible")

LONGEST = (
    "test_golden.py",
    "test_docs.py",
    "test_configuration_generation.py",
    "test_cli_bench.py",
    "test_verify.py",
)


@pytest.fixture(autouse=True)
def no_limit_of_threads_stays() -> Iterator[None]:
    """`optsched simulate` limits the threads of libraries in its process, which then forks its
    workers; later tests count on workers that are not forked."""
    yield
    os.environ.pop("VECLIB_MAXIMUM_THREADS", None)


def kind_of(item: pytest.Item) -> str:
    """The kind of a test, one of `KINDS`: what the test says itself, otherwise what its file says."""
    drawn = getattr(getattr(item, "function", None), "is_hypothesis_test", False)
    for node in reversed(item.listchain()):
        stated = [mark.name for mark in node.own_markers if mark.name in KINDS]
        if stated:
            return max(stated, key=KINDS.index)
    return "property" if drawn else "unit"


@pytest.hookimpl(tryfirst=True)  # before pytest deselects by marker
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave one marker of a kind on each test, so that ``-m`` selects by kind, and put the longest files first.

    pytest-xdist gives whole files to its workers. A long file that starts last would keep one worker busy alone.
    """
    kinds = {item: kind_of(item) for item in items}
    for item, kind in kinds.items():
        for node in item.listchain():
            node.own_markers = [mark for mark in node.own_markers if mark.name not in KINDS]
        item.add_marker(kind)
    items.sort(key=lambda item: item.path.name not in LONGEST)
