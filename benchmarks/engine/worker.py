"""A process that keeps one engine for many runs: asked over a pipe, its output in a file."""

import contextlib
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.engine.measured import Measured
from benchmarks.engine.processes import cpu_seconds, cpu_seconds_around, tree

Ask = Callable[[str, str], Any]
Open = Callable[..., Ask]

LEAVE_S = 10.0
SETTLE_S = 1.5
"""An engine that has just run goes on looking for work for a second, at the cost of the next."""


class Worker:
    """Runs in a process of its own what *open_* returns, a function of two words."""

    def __init__(self, open_: Open, *arguments: object, log: Path):
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, log, open_, arguments))
        self._process.start()
        theirs.close()
        self._log = log

    def ask(self, what: str, which: str) -> Any:
        """Return the answer of the process; RuntimeError with its log's name when it fails."""
        try:
            self._pipe.send((what, which))
            answer = self._pipe.recv()
        except (EOFError, OSError) as error:
            raise RuntimeError(f"the worker ended: see {self._log}") from error
        match answer:
            case RuntimeError():
                raise RuntimeError(f"the worker failed: see {self._log}") from answer
            case _:
                return answer

    def measure(self, what: str, which: str) -> Measured:
        """Return what one run came to, with the CPU time of all processes of the worker.

        The engine forgets its prefixes before, and any other comes to rest, which is not counted.
        """
        assert self._process.pid is not None
        self.ask("forget", "")
        time.sleep(SETTLE_S)
        pid = self._process.pid
        before_s, around_s = cpu_seconds(pid), cpu_seconds_around(pid)
        measured: Measured = self.ask(what, which)
        return replace(
            measured,
            cpu_s=cpu_seconds(pid) - before_s,
            around_s=cpu_seconds_around(pid) - around_s,
        )

    def close(self) -> None:
        """End the process and its engine."""
        assert self._process.pid is not None
        started = tree(self._process.pid)
        self._pipe.close()
        self._process.join(LEAVE_S)
        self._process.kill()
        self._process.join()
        for pid in started:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _serve(pipe: Connection, log: Path, open_: Open, arguments: tuple[object, ...]) -> None:
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(output, sys.stdout.fileno())
    os.dup2(output, sys.stderr.fileno())
    ask = open_(*arguments)
    try:
        while True:
            try:
                pipe.send(ask(*pipe.recv()))
            except (EOFError, OSError):
                raise
            except Exception as error:  # noqa: BLE001 - whoever asked has to hear of it
                traceback.print_exc()
                pipe.send(RuntimeError(str(error)))
    except (EOFError, OSError):
        ask("close", "")
