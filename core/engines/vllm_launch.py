"""How does the process of a vLLM engine start, and how does it end with all that it started?

It leads a process group, to be killed as one. Whatever it and its like leave behind lies in a
folder of the engine's own. This side imports neither torch nor vLLM.
"""

import contextlib
import getpass
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe
from pathlib import Path

from blend.core.engines import Pacing
from blend.core.engines.scratch import end_processes, make_scratch
from blend.core.engines.vllm_log import EngineLog
from blend.core.engines.vllm_pace import PACE_VARIABLE, SharedPace

PACE_FILE = "pace"

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


@dataclass(frozen=True, slots=True)
class HostProcess:
    """The process in which one engine lives, and what it shares with whoever started it.

    ``pipe``: our end of the way to it; ``log``: its output, from its start on.
    """

    leader: subprocess.Popen[bytes]
    pipe: Connection
    log: EngineLog
    scratch: Path
    pace: SharedPace

    @classmethod
    def start(cls, settings: EngineSettings) -> "HostProcess":
        """Start the process and return without waiting for it."""
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
                leader = subprocess.Popen(
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
        return cls(leader, ours, log, scratch, pace)

    def kill_leader(self) -> None:
        """Kill the process alone: its tracker then removes what it shared, before it leaves too."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.leader.pid, signal.SIGKILL)

    def end(self, *, leaving: bool) -> None:
        """See to it that no process of the engine is left, nor its folder.

        One that is *leaving* is given a moment: it takes its shared memory with it.
        """
        if not leaving or not self._left_by_itself():
            # First by their environment: it tells which memory they shared.
            end_processes(self.scratch)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.leader.pid, signal.SIGKILL)
            self.leader.wait()
        shutil.rmtree(self.scratch, ignore_errors=True)

    def _left_by_itself(self) -> bool:
        try:
            self.leader.wait(_LEAVE_S)
        except subprocess.TimeoutExpired:
            return False
        deadline = time.monotonic() + _GROUP_LEAVE_S
        with contextlib.suppress(ProcessLookupError):
            while time.monotonic() < deadline:
                os.killpg(self.leader.pid, 0)
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
