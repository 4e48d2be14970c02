"""Frames between a program and its child: what passes, and what is refused."""

from __future__ import annotations

import socket
import threading

import numpy as np
import pytest

from optsched.processes import Closed, Garbled, Wire

# Private names: bytes that are no frame begin as one does
from optsched.processes.wire import MAGIC


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"Academic license", "bytes that are no frame"),
        (MAGIC + b"\x00\x00\x00\x00", "bytes that are no frame"),
        (MAGIC + b"\xff\xff\xff\xff", "bytes that are no frame"),
        (MAGIC + b"\x01\x00\x00\x00" + b"\xff" * 8, "a frame of 18446744073709551615 bytes"),
        (
            MAGIC + b"\x01\x00\x00\x00" + b"\xff" * 7 + b"\x0f",
            "a frame of 1152921504606846975 bytes",
        ),
        (
            MAGIC + b"\x01\x00\x00\x00\x03" + b"\x00" * 7 + b"abc",
            "a frame that cannot be read (UnpicklingError",
        ),
        (MAGIC + b"\x01\x00\x00\x00\x00" + b"\x00" * 7, "a frame that cannot be read (EOFError"),
    ],
)
def test_frames_that_are_none(data: bytes, words: str) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(data)
        with pytest.raises(Garbled) as caught:
            Wire(ours).receive()
        assert str(caught.value).startswith(words)


def test_half_a_frame_is_an_end() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        theirs.sendall(MAGIC + b"\x01")
        theirs.close()
        with pytest.raises(Closed):
            Wire(ours).receive()


def test_many_arrays_pass() -> None:
    """More than the kernel takes at once, empty ones among them, and more than its buffer holds."""
    ours, theirs = socket.socketpair()
    message = [np.arange(number * 17 % 5000, dtype=np.float64) for number in range(300)]
    with ours, theirs:
        sender = threading.Thread(target=Wire(theirs).send, args=(message,))
        sender.start()
        found = Wire(ours).receive()
        sender.join()
    assert all(np.array_equal(one, other) for one, other in zip(message, found, strict=True))
    assert all(array.flags.writeable and array.flags.aligned for array in found)
