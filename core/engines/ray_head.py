"""Does the head of a Ray cluster answer? Without it, all of the cluster ends.

Ray itself waits for its head for a minute, in calls that nothing interrupts, and then ends every
process of the cluster, ours too, without a word of what can be done. So the head is looked at
from outside, by a connection to its port: once it has been silent for SILENCE_S, the run ends by
an error, early enough to stop its engines and to say what is left. Whatever else would wait for
the head asks here first.
"""

import socket
import time

from blend.core.errors import RESUMABLE, BlendError

ANSWER_S = 5.0
"""A head that is there takes a connection sooner."""

LOOK_S = 2.0
"""After so long the head is looked at again."""

SILENCE_S = 20.0
"""So long a head may be silent, as while it starts again; Ray gives up after 60 seconds."""


class RayHead:
    """The head at an address, ``HOST:PORT``, which answers when this is made."""

    def __init__(self, address: str):
        self.address = address
        self._looked_s = time.monotonic()
        self._silent_since_s: float | None = None

    @property
    def answers(self) -> bool:
        """Whether it answered when it was last looked at."""
        return self._silent_since_s is None

    def look(self) -> None:
        """Look at it now and then; BlendError once it has been silent for long."""
        if time.monotonic() - self._looked_s >= LOOK_S:
            self._ask()

    def _ask(self) -> None:
        try:
            connect(self.address)
            self._silent_since_s = None
        except (OSError, OverflowError):
            self._silent_since_s = self._silent_since_s or time.monotonic()
        self._looked_s = time.monotonic()
        since_s = self._silent_since_s
        if since_s is not None and self._looked_s - since_s > SILENCE_S:
            raise BlendError(
                f"the head of the Ray cluster does not answer any more: {self.address}",
                hint="what has arrived is kept: once the cluster is there again, the same command "
                "goes on, `blend execute` with `--resume`",
                exit_code=RESUMABLE,
            )

    def wait(self) -> None:
        """Wait until it answers; BlendError once it has been silent for long."""
        self._ask()
        while not self.answers:
            time.sleep(LOOK_S / 4)
            self.look()


def connect(address: str) -> None:
    """Connect to ``HOST:PORT`` and leave again; OSError or OverflowError where nobody answers."""
    host, _, port = address.rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_S).close()
