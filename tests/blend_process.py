"""The `blend` command in a process of its own: watched, interrupted and killed from outside."""

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

from blend.store.job import Counts, Job
from tests.tiny_engine import WAIT_S, engine_core, living, wait_until

Victims = Literal["blend", "host", "both"]

ARGV = [sys.executable, "-c", "import sys; from blend.cli.app import main; sys.exit(main())"]


class BlendProcess:
    """One command at work; stderr goes to a file, stdout is thrown away."""

    def __init__(self, argv: Sequence[str], stderr_path: Path):
        self.stderr_path = stderr_path
        self._group: int | None = None
        with stderr_path.open("wb") as stderr:
            self._process = subprocess.Popen(
                [*ARGV, *argv], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def stderr(self) -> str:
        return self.stderr_path.read_text()

    def host(self) -> int:
        """Wait for the process that leads the engine's process group."""
        assert wait_until(self._look_for_host), self.stderr
        assert self._group is not None
        return self._group

    def _look_for_host(self) -> bool:
        assert self._process.poll() is None, self.stderr
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text()
        for child in map(int, children.split()):
            # Before its exec, a child is still of the group of its parent; others end at once.
            with suppress(ProcessLookupError):
                if os.getpgid(child) == child:
                    self._group = child
        return self._group is not None

    def wait_for_results(self, job: Path, rows: int) -> None:
        """Wait until so many more rows have results than now, with the engine at work."""
        self.host()
        goal = rows + finished(job)

        def reached() -> bool:
            assert self._process.poll() is None, self.stderr
            return finished(job) >= goal

        assert wait_until(reached), self.stderr

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Let the process do nothing meanwhile; its engine can only finish what it has."""
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    @contextmanager
    def engine_stopped(self) -> Iterator[None]:
        """Let its engine compute nothing meanwhile, or until it is killed."""
        core = engine_core(self.host())
        os.kill(core, signal.SIGSTOP)
        try:
            yield
        finally:
            with suppress(ProcessLookupError):
                os.kill(core, signal.SIGCONT)

    def interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)

    def kill(self, victims: Victims) -> None:
        """Kill by SIGKILL; neither of both lives to see the other's end."""
        host = self.host()
        if victims == "both":
            os.kill(host, signal.SIGSTOP)
        if victims in ("blend", "both"):
            self._process.kill()
        if victims in ("host", "both"):
            os.kill(host, signal.SIGKILL)

    def exit_code(self) -> int:
        """Wait for the end of the command, and for that of all its engine's processes."""
        code = self._process.wait(WAIT_S)
        assert wait_until(lambda: not self._engine_processes())
        return code

    def _engine_processes(self) -> set[int]:
        return living(self._group) if self._group is not None else set()

    def clean_up(self) -> None:
        """Kill what a failed test leaves."""
        self._process.kill()
        self._process.wait()
        if self._engine_processes():
            assert self._group is not None
            os.killpg(self._group, signal.SIGKILL)


@contextmanager
def blend(argv: Sequence[object], stderr_path: Path) -> Iterator[BlendProcess]:
    process = BlendProcess([str(word) for word in argv], stderr_path)
    try:
        yield process
    finally:
        process.clean_up()


def blended(argv: Sequence[object], stderr_path: Path) -> int:
    """Run one command to its end and return its exit code."""
    with blend(argv, stderr_path) as process:
        return process.exit_code()


def counts(job: Path) -> Counts:
    with Job.open(job) as opened:
        return opened.counts()


def finished(job: Path) -> int:
    """The rows of a job that have results."""
    now = counts(job)
    return now.answered + now.failed


def attempts(job: Path) -> int:
    """How often rows of the job were given to an engine."""
    with Job.open(job) as opened:
        return sum(opened.attempts(row) for row in range(len(opened)))


def assert_sound(job: Path) -> None:
    connection = sqlite3.connect(job)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    connection.close()


def texts(line: Mapping[str, Any]) -> list[str]:
    """The answers of one line of a result file."""
    choices = line["response"]["body"]["choices"]
    return [choice.get("text") or choice["message"]["content"] for choice in choices]


def family(pid: int) -> dict[int, str]:
    """The processes that *pid* has started, they and theirs, with their names."""
    parents: dict[int, tuple[int, str]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
            name = (folder / "cmdline").read_bytes().split(b"\0")[0].decode()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if state != "Z":
            parents[int(folder.name)] = int(parent), name
    found: dict[int, str] = {}
    grown = {pid}
    while grown:
        grown = {one for one, (parent, _) in parents.items() if parent in grown}
        found |= {one: parents[one][1] for one in grown}
    return found


def alive(pids: set[int]) -> set[int]:
    found = set()
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if state != "Z":
            found.add(pid)
    return found
