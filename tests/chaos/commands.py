"""The `blend` command started so that all of its processes and scratch files can be found."""

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from benchmarks.engine import processes
from tests.blend_process import ARGV

MARK = "BLEND_CHAOS_ROUND"
WAIT_S = 300.0


class Command:
    """One command at work in a round; what it says is added to the round's log."""

    def __init__(
        self, argv: Sequence[object], *, mark: str, folder: Path, file_bytes: int | None = None
    ):
        self.scratch = folder / "scratch"
        self.scratch.mkdir(exist_ok=True)
        self.log = folder / "log"
        start = ARGV if file_bytes is None else [*_LIMITED, str(file_bytes)]
        with self.log.open("a") as log:
            log.write(f"$ blend {' '.join(map(str, argv))}\n")
        self._said_before = self.log.stat().st_size
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*start, *map(str, argv)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                env=dict(os.environ) | {MARK: mark, "TMPDIR": str(self.scratch)},
            )

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    @property
    def said(self) -> str:
        """What the command, and others at work beside it, have written to stderr."""
        return self.log.read_bytes()[self._said_before :].decode(errors="replace")

    def wait(self) -> int:
        code = self.process.wait(WAIT_S)
        with self.log.open("a") as log:
            log.write(f"exit code {code}\n")
        return code

    def kill(self) -> None:
        self.process.kill()

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)


# A file that would grow beyond the limit is refused like one on a full disk.
_LIMITED = [
    ARGV[0],
    "-c",
    "import resource, sys; from blend.cli.app import main; size = int(sys.argv.pop(1)); "
    "resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)); sys.exit(main())",
]


def marked(mark: str) -> set[int]:
    """Return the living processes that were started in the round of this mark."""
    return processes.marked(MARK, mark)


def engine_processes(mark: str, command: Command) -> dict[str, int]:
    """Return the engine's processes by name: its ``host``, its ``core`` and its ``worker``."""
    found = {}
    for pid in marked(mark) - {command.process.pid}:
        try:
            name = Path(f"/proc/{pid}/comm").read_text()
            if os.getpgid(pid) == pid:
                found["host"] = pid
            elif "EngineCor" in name:
                found["core"] = pid
            elif "Worker" in name:
                found["worker"] = pid
        except OSError:
            continue
    return found
