"""vLLM's own server and its own batch runner, with the arguments that our engine gets."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from blend.core.engines.vllm_arguments import command_line
from blend.core.engines.vllm_messages import Start
from tests.tiny_engine import ARGUMENTS, CHAT, Body

# Dies with the test, whichever way that ends.
TIED = f"""
import runpy, sys
from blend.core.engines.lifeline import tie_to_parent
if __name__ == "__main__":
    tie_to_parent({os.getpid()})
    runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
"""
KEY = "sk-the-key-of-the-server"
SERVER = "vllm.entrypoints.openai.api_server"
BATCH_RUNNER = "vllm.entrypoints.launchers.run_batch"


@contextmanager
def vllm_serve(model: Path, log_path: Path) -> Iterator[tuple[str, int]]:
    """Start the server, which takes a minute to come up, and yield its address and its group."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    flags = ["--host=127.0.0.1", f"--port={port}", f"--api-key={KEY}"]
    # Its metrics say how large its cache is.
    words = [word for word in engine_flags(model) if word != "--disable-log-stats"]
    with log_path.open("wb") as output:
        server = _started(SERVER, [*words, *flags], output.fileno())
    try:
        yield f"http://127.0.0.1:{port}", server.pid
    finally:
        with suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def run_batch(model: Path, folder: Path, bodies: Sequence[Body]) -> list[tuple[int, Any]]:
    """Return status and body of each chat, as `run-batch` answers them."""
    source, output, log_path = (folder / name for name in ("in.jsonl", "out.jsonl", "log"))
    lines = [
        {"custom_id": str(row), "method": "POST", "url": CHAT, "body": body}
        for row, body in enumerate(bodies)
    ]
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    words = [*engine_flags(model), f"--input-file={source}", f"--output-file={output}"]
    with log_path.open("wb") as log:
        code = _started(BATCH_RUNNER, words, log.fileno()).wait(300)
    assert code == 0, log_path.read_text()[-2000:]
    answers = map(json.loads, output.read_text().splitlines())
    by_id = {answer["custom_id"]: answer for answer in answers}
    return [_answer(by_id[str(row)]) for row in range(len(bodies))]


def engine_flags(model: Path) -> list[str]:
    start = Start(str(model), "tiny", tuple(ARGUMENTS.items()), seed=0)
    return command_line(start, on_cpu=True)


def _answer(line: Mapping[str, Any]) -> tuple[int, Any]:
    return line["response"]["status_code"], line["error"] or line["response"]["body"]


def _started(module: str, words: Sequence[str], output: int) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-c", TIED, module, *words],
        stdout=output,
        stderr=output,
        env=os.environ | {"VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"},
        process_group=0,
    )
