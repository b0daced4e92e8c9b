"""What can happen to a job: one function each, which is given a round and sees it through."""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.chaos.commands import Command, engine_processes
from tests.chaos.rounds import Round
from tests.chaos.subject import IN_FLIGHT, Stage
from tests.tiny_engine import wait_until

Accident = Callable[[Round], None]

# Python ends by the signal itself when it comes before blend has begun; a shell says 130.
INTERRUPTED = {0, 4, 130, -2}


def kill(stage: Stage, round_: Round) -> None:
    """SIGKILL, up to three times in the same stage."""
    round_.begin(stage)
    for _ in range(round_.rng.randint(1, 3)):
        command = round_.start(stage)
        round_.at_random(command, stage)
        command.kill()
        round_.after(command)
    round_.finish(stage)


def interrupt(stage: Stage, round_: Round) -> None:
    """Ctrl-C, once or twice."""
    round_.begin(stage)
    command = round_.start(stage)
    round_.at_share(command, stage, round_.rng.random())
    for _ in range(round_.rng.randint(1, 2)):
        command.interrupt()
    code = round_.after(command)
    assert code in INTERRUPTED, f"exit code {code}: {command.said}"
    round_.finish(stage)


def torn_input(round_: Round) -> None:
    """The file ends in the middle of a line; the whole one is ingested later."""
    whole = round_.subject.requests.read_bytes()
    round_.requests = round_.folder / "requests.jsonl"
    round_.requests.write_bytes(whole[: round_.rng.randrange(len(whole))])
    code = round_.after(round_.start("ingest"))
    # An empty file is a mistake of usage.
    assert code in {0, 2, 3}, code
    round_.requests.write_bytes(whole)
    round_.finish("ingest")


def torn_output(round_: Round) -> None:
    """What an export of a killed process has left, and an output cut in half."""
    round_.begin("export")
    output = round_.job.with_name("out.jsonl")
    dead = subprocess.Popen(["true"])
    dead.wait()
    output.with_name(f"out.jsonl.partial-{dead.pid}").write_bytes(b'{"custom_id": "requ')
    output.write_bytes(b'{"custom_id": "request-0", "resp')
    command = round_.start("export")
    round_.at_random(command, "export")
    command.kill()
    round_.after(command)
    round_.finish("export")


def torn_journal(round_: Round) -> None:
    """A loss of power: the last bytes of the write-ahead log are not on the disk."""
    round_.begin("execute")
    command = round_.start("execute")
    round_.at_random(command, "execute")
    command.kill()
    round_.after(command)
    journal = round_.job.with_name(round_.job.name + "-wal")
    if journal.exists() and (size := journal.stat().st_size):
        os.truncate(journal, max(0, size - round_.rng.randint(1, 4096)))
        round_.forget_saved()
    round_.finish("execute")


def second_process(stage: Stage, round_: Round) -> None:
    """The same command twice at once: one works, the other ends at once or finds it done."""
    round_.begin(stage)
    first = round_.start(stage)
    round_.at_random(first, stage)
    second = round_.start(stage)
    codes = sorted(one.wait() for one in (first, second))
    assert codes in ([0, 0], [0, 5]), f"exit codes {codes}: {first.said}"
    round_.finish(stage)


def full_disk(stage: Stage, round_: Round) -> None:
    """The disk fills up in the middle; some space is freed, and the same command goes on."""
    subject = round_.subject
    before = subject.before.get(stage)
    least = before.stat().st_size if before else 0
    most = 2 * subject.bytes_["export"]
    size = least + round_.rng.randint(100 << 10, max(most - least, 200 << 10))
    with small_disk(round_.folder / "disk", size) as (disk, file_bytes):
        round_.job = disk / "job.blend"
        round_.begin(stage)
        round_.full = True
        command = round_.start(stage, file_bytes=file_bytes)
        code = round_.after(command)
        refused = {2, 4} if file_bytes else {4}
        assert code in {0} | refused, f"exit code {code}: {command.said}"
        if code:
            assert file_bytes or "free some space" in command.said, command.said
        if not file_bytes:
            subprocess.run(["mount", "-o", "remount,size=1g", disk], check=True)
        round_.full = False
        round_.finish(stage)


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[tuple[Path, int | None]]:
    """Mount a disk of *size* bytes; where that is not permitted, say how large files may grow."""
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "blend-chaos", folder],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        yield folder, size
        return
    try:
        yield folder, None
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def kill_engine(victim: str, stage: Stage, round_: Round) -> None:
    """SIGKILL to a process of a real engine, or to blend and the engine's host together."""
    round_.begin(stage)
    command = round_.start(stage)
    if round_.rng.random() < 0.3:
        wait_until(lambda: victim_of(round_, command, victim) or not command.running)
    else:
        round_.at_share(command, stage, round_.rng.random())
    _strike(round_, command, victim)
    code = round_.after(command)
    if code == 0 or round_.lost is None:
        return round_.finish("export" if stage != "run" else "run")
    return round_.finish(stage)


def victim_of(round_: Round, command: Command, victim: str) -> int | None:
    found = engine_processes(round_.mark, command)
    return found.get("host" if victim == "both" else victim)


def _strike(round_: Round, command: Command, victim: str) -> None:
    pid = victim_of(round_, command, victim)
    if victim in {"blend", "both"} and command.running:
        if victim == "both" and pid is not None:
            # Neither lives to see the other's end, and nobody is left to tidy up.
            os.kill(pid, signal.SIGSTOP)
            round_.tidy = False
        command.kill()
    if victim != "blend" and pid is not None:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        if victim != "both" and round_.lost is not None:
            # The command may start another engine by itself, and say nothing of what was lost.
            round_.lost += IN_FLIGHT["vllm"]


SIM: Mapping[str, Accident] = {
    **{f"kill {stage}": partial(kill, stage) for stage in ("ingest", "plan", "execute", "export")},
    "kill run": partial(kill, "run"),
    "interrupt execute": partial(interrupt, "execute"),
    "interrupt run": partial(interrupt, "run"),
    "torn input": torn_input,
    "torn output": torn_output,
    "torn journal": torn_journal,
    "second ingest": partial(second_process, "ingest"),
    "second execute": partial(second_process, "execute"),
    "second run": partial(second_process, "run"),
    **{f"full disk in {s}": partial(full_disk, s) for s in ("ingest", "plan", "execute", "export")},
}

VLLM: Mapping[str, Accident] = {
    "kill engine core": partial(kill_engine, "core", "execute"),
    "kill blend": partial(kill_engine, "blend", "execute"),
    "kill engine host": partial(kill_engine, "host", "execute"),
    "kill blend and host": partial(kill_engine, "both", "run"),
    "kill worker": partial(kill_engine, "worker", "execute"),
    "kill blend in run": partial(kill_engine, "blend", "run"),
}
