"""Send messages through a pipe without waiting for whoever reads them.

A pipe takes some hundred kilobytes; what is sent to a process that is busy, stopped or stuck then
blocks. A thread sends instead, and whoever puts messages goes on and can notice the silence. What
has been put by the time that it sends goes together, as a list.
"""

import os
import queue
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator
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
        last = False
        while not last:
            messages = [self._messages.get(), *self._more()]
            last = None in messages
            try:
                if told := [one for one in messages if one is not None]:
                    self._pipe.send(told)
            except OSError:
                self._on_broken()
                return

    def _more(self) -> Iterator[object]:
        """Yield what else has been put by now."""
        with suppress(queue.Empty):
            while True:
                yield self._messages.get_nowait()


class Inbox:
    """Takes what an Outbox has sent, message by message."""

    def __init__(self, pipe: Connection):
        self._pipe = pipe
        self._messages: deque[object] = deque()

    def poll(self, timeout_s: float | None = 0.0) -> bool:
        """Wait until there is a message, or the other end is gone; say whether so in time."""
        return bool(self._messages) or self._pipe.poll(timeout_s)

    def take(self) -> object:
        """Return the next message; raise EOFError or OSError when the other end is gone."""
        if not self._messages:
            self._messages.extend(self._pipe.recv())
        return self._messages.popleft()
