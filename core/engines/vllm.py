"""vLLM as an engine: its own OpenAI serving layer, in a process of its own.

The engine starts while the caller does something else, and everything it started ends with the
caller, whichever way that ends. This side imports neither torch nor vLLM.
"""

import contextlib
import getpass
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, Pipe
from pathlib import Path

from blend.core.engines import (
    Aborted,
    Capacity,
    EngineDiedError,
    Pacing,
    StepReport,
    silence,
    total,
)
from blend.core.engines.outbox import Inbox, Outbox
from blend.core.engines.processors import Processors, confine
from blend.core.engines.scratch import end_processes, make_scratch
from blend.core.engines.vllm_log import EngineLog
from blend.core.engines.vllm_messages import (
    Abort,
    Ages,
    Ask,
    Close,
    Died,
    Dropped,
    Moved,
    Ready,
    Refused,
    Start,
    Work,
)
from blend.core.engines.vllm_pace import PACE_VARIABLE, SharedPace
from blend.core.errors import RESUMABLE, BlendError
from blend.core.request import Request

SILENT_S = 1.0
"""After so long without a word of the engine, a step reports that there was none."""
PACE_FILE = "pace"
MOST_FOLDED = 256
"""Reports that a step sums up at most: one that fell behind must not wait for the last."""

_LEAVE_S = 2.0
_GROUP_LEAVE_S = 0.5


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """What to start.

    ``arguments`` are in vLLM's own flag names (``max-model-len``, ``kv_cache_memory_bytes``), None
    for a flag without value; what is not named has blend's defaults, then vLLM's. The output of
    vLLM is appended to ``log_path``. With requests inside that nothing comes of for ``stall_s``
    seconds, it counts as hung; a first step may compile for minutes. The engine keeps a pace when
    ``pacing`` asks for it and it can; ``seeded`` says whether any request may have a seed of its
    own, which on a CPU it cannot.
    """

    model: str
    served_model_name: str
    log_path: Path
    arguments: Mapping[str, str | None] = field(default_factory=dict)
    seed: int | None = None
    stall_s: float = 600.0
    pacing: Pacing = "none"
    seeded: bool = True


class VllmEngine:
    """An Engine of one vLLM instance; starts at once, in the background."""

    def __init__(
        self,
        host: subprocess.Popen[bytes],
        pipe: Connection,
        log: EngineLog,
        scratch: Path,
        pace: SharedPace,
        *,
        stall_s: float,
    ):
        self._host = host
        self._inbox = Inbox(pipe)
        # That nobody reads is noticed by the silence, for which the stall limit is.
        self._outbox = Outbox(pipe, on_broken=lambda: None)
        self._log = log
        self._scratch = scratch
        self._pace = pace
        self._ready: Ready | None = None
        self._stall_s = stall_s
        self._submitted = 0
        self._inside = 0
        self._moved_s = time.monotonic()
        self._last: Moved | None = None
        self._unheard: list[Moved] = []
        self._ended = False
        self._death: EngineDiedError | None = None
        self._moved_from: tuple[int, Processors] | None = None

    @classmethod
    def start(cls, settings: EngineSettings) -> "VllmEngine":
        """Start the engine's process and return without waiting for it."""
        settings.log_path.parent.mkdir(parents=True, exist_ok=True)
        log = EngineLog.after(settings.log_path)
        ours, theirs = Pipe()
        with contextlib.ExitStack() as undo:
            undo.callback(ours.close)
            scratch = make_scratch()
            undo.callback(shutil.rmtree, scratch, ignore_errors=True)
            pace = SharedPace.create(scratch / PACE_FILE)
            undo.callback(pace.close)
            with theirs, settings.log_path.open("ab") as output:
                host = subprocess.Popen(
                    _host_command(theirs.fileno(), scratch),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env=_environment(settings, scratch, os.environ),
                    pass_fds=[theirs.fileno()],
                    # The host leads a process group, to be killed as one, out of Ctrl-C's reach.
                    # Not a session: Linux shares the processors among sessions, and one as busy as
                    # an engine on a CPU keeps another waiting for tenths of a second.
                    process_group=0,
                )
            undo.pop_all()
        engine = cls(host, ours, log, scratch, pace, stall_s=settings.stall_s)
        engine._outbox.put(
            Start(
                settings.model,
                settings.served_model_name,
                tuple(settings.arguments.items()),
                settings.seed,
                settings.pacing,
                settings.seeded,
            )
        )
        return engine

    def wait_ready(self, timeout_s: float | None = None) -> bool:
        """Wait until the engine runs, but no longer than *timeout_s*; say whether it does.

        Raises BlendError when vLLM refuses to start, EngineDiedError when it died while starting.
        """
        if self._ready is None and self._inbox.poll(timeout_s):
            self._ready = self._first_message()
            self._keep_off_workers(self._ready.processors)
        return self._ready is not None

    @property
    def capacity(self) -> Capacity:
        """What the engine can hold; waits until it runs."""
        return self._running().capacity

    @property
    def version(self) -> str:
        """The version of vLLM; waits until the engine runs."""
        return self._running().vllm_version

    @property
    def pid(self) -> int:
        """The process that leads the engine's process group."""
        return self._host.pid

    def submit(self, request: Request) -> None:
        """Queue one request behind those submitted before it."""
        if not self._inside:
            self._moved_s = time.monotonic()
        self._inside += 1
        self._submitted += request.sequences
        # Of a chat alone: nothing else is rendered.
        known = request.endpoint == "/v1/chat/completions"
        prompt = request.prompt.astype("<u4", copy=False).tobytes() if known else b""
        work = Work(request.row, request.endpoint, request.body, request.sequences, prompt)
        self._outbox.put(work)

    def pace(self, prefill_tokens: int | None) -> None:
        """Compute at most so many prompt tokens a step, if the capacity names that pacing."""
        self._pace.prefill_tokens = prefill_tokens

    def step(self) -> StepReport:
        """Wait until something moved, for a second at most, and say what.

        Raises EngineDiedError when the engine is gone, or hangs.
        """
        self._running()
        if self._death is not None:
            raise self._death
        moved = self._arrived()
        self._last = moved[-1] if moved else self._last
        # What is still in the pipe waits too.
        waiting = self._submitted - (self._last.received if self._last else 0)
        waiting += self._last.report.waiting if self._last else 0
        reports = [m.report for m in moved] or [silence(self._last.report if self._last else None)]
        report = replace(total(reports), waiting=waiting)
        self._inside -= len(report.completions)
        self._watch(report)
        return report

    def ages(self) -> Mapping[int, int]:
        """Return the output tokens that each row inside has, over all its sequences.

        Raises EngineDiedError when the engine is gone, or hangs.
        """
        self._running()
        self._outbox.put(Ask())
        while isinstance(message := self._message_in_time(), Moved):
            self._unheard.append(message)
        if isinstance(message, Ages):
            return message.tokens
        raise self._died(message.reason if isinstance(message, Died) else "unexpected message")

    def abort(self) -> Aborted:
        """Drop every request inside and say what came of them; the engine can be used on."""
        self._running()
        self._outbox.put(Abort())
        moved, self._unheard = self._unheard, []
        while isinstance(message := self._message_in_time(), Moved):
            moved.append(message)
        if isinstance(message, Dropped):
            self._inside = 0
            # The host has reported just before.
            self._last = moved[-1]
            report = replace(total([m.report for m in moved]), waiting=0)
            return Aborted(report, message.tokens)
        raise self._died(message.reason if isinstance(message, Died) else "unexpected message")

    def close(self) -> None:
        """Stop the engine and every process of it; requests in flight are dropped."""
        self._outbox.put(Close())
        self._end()
        self._outbox.close()
        self._pace.close()

    def _running(self) -> Ready:
        self.wait_ready()
        assert self._ready is not None
        return self._ready

    def _keep_off_workers(self, processors: Processors) -> None:
        """Let the thread that drives the engine run where it holds up no worker, until the end."""
        if not processors:
            return
        thread = threading.get_native_id()
        before = frozenset(os.sched_getaffinity(thread))
        # Another engine of this process may have moved it already.
        if processors < before:
            self._moved_from = thread, before
            confine([thread], processors)

    def _first_message(self) -> Ready:
        message = self._message()
        if isinstance(message, Ready):
            return message
        self._end()
        if isinstance(message, Refused) and message.by_arguments:
            raise BlendError(
                f"vLLM does not accept its arguments: {message.reason}",
                hint="`vllm serve --help=all` lists them; they go through `--engine-arg`",
            )
        reason = message.reason if isinstance(message, Refused) else "it ended"
        raise BlendError(
            f"vLLM did not start: {self._log.cause() or reason}",
            hint=f"its output is in `{self._log.path}`",
            exit_code=RESUMABLE,
        )

    def _arrived(self) -> list[Moved]:
        """Return what has come within a second, but no more than a step can sum up."""
        moved, self._unheard = self._unheard, []
        if not moved:
            if not self._inbox.poll(SILENT_S):
                return []
            moved = [self._receive()]
        try:
            while len(moved) < MOST_FOLDED and self._inbox.poll():
                moved.append(self._receive())
        except EngineDiedError as death:
            # The answers that came before it count; the next step says it.
            self._death = death
        return moved

    def _watch(self, report: StepReport) -> None:
        """Raise EngineDiedError when nothing has come of what is inside for too long."""
        now = time.monotonic()
        # An engine may go on with steps that compute nothing.
        if report.completions or report.prefill_tokens or report.decode_tokens:
            self._moved_s = now
        elif self._inside and now - self._moved_s >= self._stall_s:
            raise self._hung()

    def _message_in_time(self) -> object:
        if not self._inbox.poll(self._stall_s):
            raise self._hung()
        return self._message()

    def _hung(self) -> EngineDiedError:
        # The leader alone: its tracker then removes what it shared, before it leaves too.
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._host.pid, signal.SIGKILL)
        return self._died(f"it hangs: nothing came of its requests for {self._stall_s:.0f} s")

    def _receive(self) -> Moved:
        message = self._message()
        if isinstance(message, Moved):
            return message
        raise self._died(message.reason if isinstance(message, Died) else "unexpected message")

    def _message(self) -> object:
        try:
            return self._inbox.take()
        except (EOFError, OSError) as error:
            raise self._died("its process is gone") from error

    def _died(self, reason: str) -> EngineDiedError:
        self._end()
        cause = self._log.cause(of_engine=True)
        return EngineDiedError(
            f"vLLM died: {reason}" + (f": {cause}" if cause else ""), log=self._log.tail()
        )

    def _end(self) -> None:
        """See to it that no process of the engine is left."""
        if self._ended:
            return
        self._ended = True
        if self._moved_from is not None:
            confine([self._moved_from[0]], self._moved_from[1])
        # What leaves by itself takes its shared memory with it.
        if self._ready is None or not self._left_by_itself():
            # First by their environment: it tells which memory they shared.
            end_processes(self._scratch)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._host.pid, signal.SIGKILL)
            self._host.wait()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _left_by_itself(self) -> bool:
        try:
            self._host.wait(_LEAVE_S)
        except subprocess.TimeoutExpired:
            return False
        deadline = time.monotonic() + _GROUP_LEAVE_S
        with contextlib.suppress(ProcessLookupError):
            while time.monotonic() < deadline:
                os.killpg(self._host.pid, 0)
                time.sleep(0.01)
            return False
        return True


def _host_command(pipe_number: int, scratch: Path) -> list[str]:
    module = "blend.core.engines.vllm_host"
    return [sys.executable, "-P", "-m", module, str(pipe_number), str(os.getpid()), str(scratch)]


def kept_compiled() -> dict[str, str]:
    """Return where torch keeps by default what it compiles, out of an engine's own folder.

    It serves the next start too.
    """
    return {
        "TORCHINDUCTOR_CACHE_DIR": str(Path(tempfile.gettempdir()) / f"torchinductor_{_user()}")
    }


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no name for it, as in a container
        return str(os.getuid())


def _environment(
    settings: EngineSettings, scratch: Path, inherited: Mapping[str, str]
) -> dict[str, str]:
    """Return the host's environment; what the user has set stays."""
    defaults = {"VLLM_NO_USAGE_STATS": "1", **kept_compiled()}
    if Path(settings.model).is_dir():
        defaults["HF_HUB_OFFLINE"] = "1"
    # A killed engine cannot remove its sockets and rendezvous files.
    ours = {"TMPDIR": str(scratch), PACE_VARIABLE: str(scratch / PACE_FILE)}
    return defaults | dict(inherited) | ours
