"""In which order do requests enter an asynchronous engine? In the order they were submitted.

Requests are rendered concurrently, so a short one overtakes a long one on its way to the engine.
Each draws a ticket when it is submitted and waits for its turn just before it enters. A ticket
that leaves without entering (its request was refused) holds nobody up.
"""

import asyncio
from collections import deque


class Ticket:
    """The place of one request in the queue; it may enter several times, once a prompt."""

    def __init__(self, turnstile: "Turnstile", sequences: int):
        self.sequences = sequences
        self._turnstile = turnstile
        self._turn = asyncio.Event()
        self._announced = 0
        self._entered = 0
        self._left = False

    @property
    def through(self) -> bool:
        """Whether the next ticket may go: everything announced has entered, or this one left."""
        return self._left or 0 < self._announced <= self._entered

    @property
    def inside(self) -> bool:
        """Whether the request has reached the engine."""
        return self._entered > 0

    def announce(self) -> None:
        """Say that one more prompt of this request will enter."""
        self._announced += 1

    async def turn(self) -> None:
        """Wait until every earlier ticket is through."""
        await self._turn.wait()

    def enter(self) -> None:
        """Record that one announced prompt has entered."""
        self._entered += 1
        self._turnstile.advance()

    def leave(self) -> None:
        """Give up the place, whether or not anything entered."""
        self._left = True
        self._turnstile.advance()

    def call(self) -> None:
        """Let it pass: it is first in the queue."""
        self._turn.set()


class Turnstile:
    """Lets tickets through in the order in which they were drawn."""

    def __init__(self) -> None:
        self._queue: deque[Ticket] = deque()

    def draw(self, sequences: int) -> Ticket:
        """Return a ticket behind all others, for a request of so many *sequences*."""
        ticket = Ticket(self, sequences)
        self._queue.append(ticket)
        self.advance()
        return ticket

    def advance(self) -> None:
        """Drop the tickets that are through and call the first of the rest."""
        while self._queue and self._queue[0].through:
            self._queue.popleft()
        if self._queue:
            self._queue[0].call()

    @property
    def outside(self) -> int:
        """Sequences whose request has not reached the engine."""
        return sum(ticket.sequences for ticket in self._queue if not ticket.inside)
