"""vLLM's own batch runner, a process for each run, from its reading of the file to its output."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.engine.measured import Measured
from benchmarks.engine.processes import cpu_seconds

COMMAND = (sys.executable, "-m", "vllm.entrypoints.launchers.run_batch")
BEGINS = b"Running batch"
"""The head of its progress bar: the engine runs and the file is read."""
POLL_S = 0.05


@dataclass(slots=True)
class _Watched:
    """When the runner began to run its requests, and the CPU time that it had taken by then."""

    process: "subprocess.Popen[bytes]"
    log: Path
    began_at: float = 0.0
    cpu_s: float = 0.0

    def watch(self) -> None:
        """Copy the runner's output to the log until it ends."""
        assert self.process.stdout is not None
        seen = b""
        with self.log.open("ab") as log:
            while said := os.read(self.process.stdout.fileno(), 1 << 16):
                log.write(said)
                seen = seen[-len(BEGINS) :] + said
                if not self.began_at and BEGINS in seen:
                    self.began_at, self.cpu_s = time.time(), cpu_seconds(self.process.pid)


def run_batch(requests: Path, words: Sequence[str], *, log: Path) -> tuple[Measured, float]:
    """Run the batch, and return what it came to and the seconds that the engine's start took."""
    output = log.with_suffix(".out.jsonl")
    output.unlink(missing_ok=True)
    started = time.time()
    process = subprocess.Popen(
        [*COMMAND, "-i", requests, "-o", output, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={"VLLM_NO_USAGE_STATS": "1", "TORCH_COMPILE_DISABLE": "1"} | dict(os.environ),
    )
    watched = _Watched(process, log)
    thread = threading.Thread(target=watched.watch)
    thread.start()
    cpu_s = 0.0
    while process.poll() is None:
        if not output.exists():
            cpu_s = cpu_seconds(process.pid)
        time.sleep(POLL_S)
    thread.join()
    if process.returncode or not output.exists():
        raise RuntimeError(f"run-batch ended with {process.returncode}: see {log}")
    usages = [_usage(line) for line in output.read_text(encoding="utf-8").splitlines()]
    measured = Measured(
        output.stat().st_mtime - watched.began_at,
        cpu_s - watched.cpu_s,
        sum(usage["prompt_tokens"] for usage in usages),
        sum(usage["completion_tokens"] for usage in usages),
        sum(_cached_tokens(usage) for usage in usages),
    )
    return measured, watched.began_at - started


def _usage(line: str) -> dict[str, Any]:
    usage: dict[str, Any] = json.loads(line)["response"]["body"]["usage"]
    return usage


def _cached_tokens(usage: dict[str, Any]) -> int:
    return (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
