"""A child process: answers, deadlines, and how it ends."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from optsched.processes import (
    Child,
    Closed,
    Garbled,
    Reply,
    TimedOut,
    Timeout,
    Wire,
    exit_text,
    limit_memory,
    memory_in_use,
    peak_memory,
    size_text,
)

pytestmark = pytest.mark.process


def serve(wire: Wire, greeting: str) -> None:
    """Do what is asked, in the child."""
    wire.send(Reply(0, "ready", greeting))
    while True:
        asked: dict[str, Any] = wire.receive()
        match asked["do"]:
            case "answer":
                wire.send(Reply(asked["number"] - 1, "log", "of a request before"))
                wire.send(Reply(asked["number"], "answer", os.getpid()))
            case "hang":
                time.sleep(60)
            case "end":
                # Not `sys.stderr`: a child that is forked has that of pytest.
                os.write(2, b"the last words\n\n")
                os._exit(3)
            case "another object":
                wire.send({"no": "reply"})
            case "hang up":
                wire.connection.close()
                time.sleep(60)


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch) -> Iterator[Child]:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    child = Child("tests", "test_child:serve", ["hello"], threads=1, keep_errors=True)
    yield child
    child.kill()


def ask(child: Child, what: str, number: int = 7) -> None:
    child.send({"do": what, "number": number}, Timeout(20.0))


def test_a_reply_to_a_request_is_found_among_others(child: Child) -> None:
    assert child.receive(Timeout(20.0)) == Reply(0, "ready", "hello") and child.ready
    ask(child, "answer")
    assert child.busy
    assert child.receive(Timeout(20.0), 7) == Reply(7, "answer", child.pid)
    assert child.usable and not child.busy and not child.has_spoken()


def test_a_child_that_hangs_is_killed(child: Child) -> None:
    ask(child, "hang")
    with pytest.raises(TimedOut):
        child.receive(Timeout(0.05), 7)
    pid = child.pid
    child.kill()
    assert not child.usable and not Path(f"/proc/{pid}").exists()


def test_how_it_ended(child: Child) -> None:
    ask(child, "end")
    with pytest.raises(Closed):
        child.receive(Timeout(20.0), 7)
    assert exit_text(child.wait_or_kill()) == "ended with exit code 3"
    assert child.last_words() == "the last words"


def test_a_child_that_hangs_up_is_killed(child: Child, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optsched.processes.child.DYING", 0.1)
    ask(child, "hang up")
    with pytest.raises(Closed):
        child.receive(Timeout(20.0), 7)
    assert exit_text(child.wait_or_kill()) == "closed its connection and was killed"


def test_what_is_no_reply(child: Child) -> None:
    ask(child, "another object")
    with pytest.raises(Garbled, match="an object of type dict"):
        child.receive(Timeout(20.0), 7)


@pytest.mark.unit
def test_ends_and_sizes_as_text() -> None:
    assert exit_text(-signal.SIGSEGV) == "was ended by SIGSEGV"
    assert exit_text(-99) == "was ended by signal 99"
    assert (size_text(4e8), size_text(2_500_000)) == ("0.4 GB", "2.5 MB")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is limited on Linux only")
def test_memory() -> None:
    own, peak = memory_in_use(os.getpid()), peak_memory(os.getpid())
    assert peak is not None and 10e6 < own <= 1.1 * peak
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            limit_memory(100_000_000)
            try:
                bytearray(1_000_000_000)
            except MemoryError:
                limit_memory(None)
                bytearray(1_000_000_000)
                code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert memory_in_use(pid) == 0 and peak_memory(pid) is None
