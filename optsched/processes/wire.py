"""Frames over a socket, between a program and a process that it has started.

A frame is a magic word, the number and sizes of its parts, and the parts: a pickle (protocol 5) and
the arrays that it refers to, out of band. An LP of 4,003 rows, 6,000 columns and 15,000
coefficients (0.5 MB) passes so in 0.25 ms; with the arrays inside of the pickle it takes 0.55 ms.

Unpickling runs code. That is accepted here, and only here: the socket is one of a pair that was
made for this one child, which this program has started itself and which may do what this program
may. Never read frames from elsewhere.
"""

from __future__ import annotations

import pickle
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

MAGIC = b"optsched"
HEAD = struct.Struct("<8sI")
MOST_PARTS = 1 << 20
AT_ONCE = 64
"""Parts handed to the kernel in one call; it takes a limited number."""


@dataclass(frozen=True)
class Reply:
    """A message of the child.

    Attributes
    ----------
    number : int
        That of the request; 0 for what it was asked when it was started.
    kind : str
        ``ready`` (it has imported what it needs), ``progress`` or ``log`` (it is at work), or one
        that ends a request: ``answer`` or ``failed``.
    content : object
    """

    number: int
    kind: str
    content: Any = None


class Closed(Exception):
    """The other end of the wire is closed."""


class Garbled(Exception):
    """What came over the wire is no frame, or none of a message."""


class Unsendable(Exception):
    """A message that cannot be pickled; nothing of it has passed."""


Wait = Callable[[bool], None]
"""Waits until the wire can be read (False) or written (True), or raises."""


def _never(writing: bool) -> None:
    raise AssertionError("a blocking socket does not ask to wait")


class Wire:
    """One end of a socket pair, frame by frame; several threads may send."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.mid_message = False
        """Whether part of a frame has passed:
        after an error nothing can be read or written any more.
        """
        # The callbacks of a solver may send from its own threads.
        self._sending = threading.Lock()

    def send(self, message: object, wait: Wait = _never) -> None:
        """Send a message; raises `Closed` and `Unsendable`."""
        parts = encoded(message)
        with self._sending:
            self.mid_message = True
            self._write(parts, wait)
            self.mid_message = False

    def receive(self, wait: Wait = _never) -> Any:
        """The next message; raises `Closed` and `Garbled`."""
        magic, count = HEAD.unpack(self._read(HEAD.size, wait))
        if magic != MAGIC or not 1 <= count <= MOST_PARTS:
            raise Garbled("bytes that are no frame")
        sizes = struct.unpack(f"<{count}Q", self._read(8 * count, wait))
        try:
            message, *arrays = (self._read(size, wait) for size in sizes)
        except (MemoryError, OverflowError):
            raise Garbled(f"a frame of {sum(sizes)} bytes") from None
        self.mid_message = False
        try:
            return pickle.loads(message, buffers=arrays)
        except Exception as error:  # unpickling garbage can raise anything
            raise Garbled(
                f"a frame that cannot be read ({type(error).__name__}: {error})"
            ) from None

    def _read(self, size: int, wait: Wait) -> bytearray:
        # A bytearray, so that the arrays unpickled from it are writeable.
        data = bytearray(size)
        left = memoryview(data)
        while left:
            try:
                count = self.connection.recv_into(left)
            except BlockingIOError:
                wait(False)
                continue
            except OSError as error:
                # Reset by a peer that died with data unread, or closed by another thread.
                raise Closed from error
            if count == 0:
                raise Closed
            self.mid_message = True
            left = left[count:]
        return data

    def _write(self, parts: list[memoryview], wait: Wait) -> None:
        while parts:
            try:
                count = self.connection.sendmsg(parts[:AT_ONCE])
            except BlockingIOError:
                wait(True)
                continue
            except OSError as error:
                raise Closed from error
            while parts and count >= len(parts[0]):
                count -= len(parts.pop(0))
            if count:
                parts[0] = parts[0][count:]


def encoded(message: object) -> list[memoryview]:
    """The parts of the frame of a message; raises `Unsendable`."""
    arrays: list[pickle.PickleBuffer] = []
    try:
        body = pickle.dumps(message, 5, buffer_callback=arrays.append)
    except MemoryError:
        raise
    except Exception as error:  # an object may raise anything when it is pickled
        raise Unsendable(f"{type(error).__name__}: {error}") from None
    parts = [memoryview(body), *(array.raw() for array in arrays)]
    head = HEAD.pack(MAGIC, len(parts)) + struct.pack(f"<{len(parts)}Q", *map(len, parts))
    # An empty part would end no call of `sendmsg`, and its size in the head says all of it.
    return [memoryview(head), *(part for part in parts if len(part))]
