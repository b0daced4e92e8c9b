"""Send messages through a pipe without waiting for whoever reads them.

A pipe takes some hundred kilobytes; what is sent to a process that is busy, stopped or stuck then
blocks. A thread sends instead, and whoever puts messages goes on and can notice the silence.
"""

import os
import queue
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection

_FLUSH_S = 1.0


class Outbox:
    """Sends messages in order, from a thread; *on_broken* is called once nobody can read them."""

    def __init__(self, pipe: Connection, *, on_broken: Callable[[], None]):
        self._pipe = pipe
        self._on_broken = on_broken
        self._messages: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._send, daemon=True)
        self._thread.start()

    def put(self, message: object) -> None:
        """Send *message* behind those before it."""
        self._messages.put(message)

    def flush(self) -> None:
        """Wait a moment for everything to be sent; nothing may be put afterwards."""
        self._messages.put(None)
        self._thread.join(_FLUSH_S)

    def close(self) -> None:
        """Close the pipe, which must be one for both ways; what is not sent by now is not."""
        if self._pipe.closed:
            return
        # Closed alone, it would leave the thread in a write that nobody ends.
        with suppress(OSError), socket.socket(fileno=os.dup(self._pipe.fileno())) as both_ways:
            both_ways.shutdown(socket.SHUT_RDWR)
        self.flush()
        self._pipe.close()

    def _send(self) -> None:
        while (message := self._messages.get()) is not None:
            try:
                self._pipe.send(message)
            except OSError:
                self._on_broken()
                return
