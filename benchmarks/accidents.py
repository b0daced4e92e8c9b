"""What do blend and run-batch leave behind after the same three accidents, on a real vLLM?

A line that is no JSON among good ones; the engine's core killed in the middle; the command itself
killed in the middle. A command that was stopped by it is given again, undisturbed.

python -m benchmarks.accidents [--accident "bad line" ...]
"""

import argparse
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, get_args
from uuid import uuid4

from benchmarks.engine.processes import marked
from benchmarks.machine import conditions
from benchmarks.paper.markdown import table

ROOT = Path(__file__).parent.parent
RAW = ROOT / "benchmarks" / "results"
PUBLISHED = ROOT / "docs" / "results" / "accidents.md"

Accident = Literal["bad line", "engine killed", "command killed"]
Tool = Literal["run-batch", "blend run"]

REQUESTS = 40
OUTPUT_TOKENS = 200
MARK = "BLEND_ACCIDENT"
WORKS_S = 5.0
"""How long the engine works before it or its command is killed: less than half of a run."""
LEFT_AFTER_S = 10.0
TIMEOUT_S = 600.0
# Few slots, so that there is a middle.
ENGINE = (
    "--max-num-seqs=2",
    "--max-model-len=1024",
    "--kv-cache-memory-bytes=67108864",
)
RUN_BATCH = (
    *("--dtype=float32", "--block-size=32", "--enforce-eager", "--gpu-memory-utilization=0.1"),
    *ENGINE,
)
COMMANDS: dict[Tool, tuple[str, ...]] = {
    "run-batch": (sys.executable, "-m", "vllm.entrypoints.launchers.run_batch"),
    "blend run": (
        *(sys.executable, "-c", "import sys; from blend.cli.app import main; sys.exit(main())"),
        "run",
    ),
}


@dataclass(frozen=True, slots=True)
class Left:
    """What one command has left behind when it ended, or 10 s after it was killed.

    ``in_output``: answers in the output file; ``in_errors``: lines that say an error, in whichever
    file; ``saved``: answers on the disk in any form.
    """

    accident: Accident
    tool: Tool
    again: bool
    exit_code: int
    in_output: int
    in_errors: int
    saved: int
    processes: int
    seconds: float


class Trial:
    """One tool and one accident in a folder of their own."""

    def __init__(self, tool: Tool, accident: Accident, model: Path, folder: Path):
        self._tool = tool
        self._accident = accident
        self._output = folder / "out.jsonl"
        self._job = folder / "out.blend"
        self._log = folder / "log"
        self._mark = str(uuid4())
        requests = folder / "requests.jsonl"
        requests.write_text("".join(_lines(broken=accident == "bad line")), encoding="utf-8")
        files = ["-i", str(requests), "-o", str(self._output)]
        options = RUN_BATCH if tool == "run-batch" else ENGINE
        served = ["--model", str(model)]
        if tool == "run-batch":
            served += ["--served-model-name", "tiny"]
        self._command = [*COMMANDS[tool], *files, *served, *options]

    def run(self, *, again: bool) -> Left:
        """Run the command, the accident included unless it is run *again*."""
        started = time.monotonic()
        before = self._saved()
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={"VLLM_NO_USAGE_STATS": "1", "TORCH_COMPILE_DISABLE": "1"}
                | dict(os.environ)
                | {MARK: self._mark},
            )
        if not again and self._accident != "bad line":
            self._strike(process, before)
        code = process.wait(TIMEOUT_S)
        seconds = time.monotonic() - started
        left = self._left_running()
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return Left(
            self._accident,
            self._tool,
            again,
            code,
            _answers(self._output),
            _lines_of(self._output)
            - _answers(self._output)
            + _lines_of(self._output.with_suffix(".errors.jsonl")),
            self._saved(),
            len(left),
            seconds,
        )

    def _strike(self, process: "subprocess.Popen[bytes]", before: int) -> None:
        while process.poll() is None and not self._at_work(before):
            time.sleep(0.05)
        time.sleep(WORKS_S)
        if self._accident == "command killed":
            process.kill()
            return
        for pid in marked(MARK, self._mark):
            with suppress(OSError):
                if "EngineCor" in Path(f"/proc/{pid}/comm").read_text(encoding="utf-8"):
                    os.kill(pid, signal.SIGKILL)

    def _at_work(self, before: int) -> bool:
        if self._tool == "blend run":
            return self._saved() > before
        return b"Running batch" in self._log.read_bytes()

    def _saved(self) -> int:
        """Return how many results are on the disk, in whatever form."""
        if self._tool == "run-batch" or not self._job.exists():
            return _answers(self._output)
        query = "SELECT count(*) FROM results WHERE status_code = 200"
        try:
            with closing(sqlite3.connect(f"file:{self._job}?mode=ro", uri=True)) as sql:
                return int(sql.execute(query).fetchone()[0])
        except sqlite3.OperationalError:  # it has just been made, and has no tables yet
            return 0

    def _left_running(self) -> set[int]:
        deadline = time.monotonic() + LEFT_AFTER_S
        while (left := marked(MARK, self._mark)) and time.monotonic() < deadline:
            time.sleep(0.1)
        return left


def _lines(*, broken: bool) -> list[str]:
    lines = []
    for number in range(REQUESTS):
        body = {
            "model": "tiny",
            "messages": [{"role": "user", "content": f"Write about the number {number}."}],
            "max_tokens": OUTPUT_TOKENS,
            "temperature": 0,
            "ignore_eos": True,
        }
        lines.append(
            json.dumps(
                {
                    "custom_id": f"request-{number}",
                    "method": "POST",
                    "url": "/v1/chat/completions",
                    "body": body,
                }
            )
            + "\n"
        )
    if broken:
        lines.insert(REQUESTS // 2, lines[REQUESTS // 2][:-3] + "\n")
    return lines


def _lines_of(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines()) if path.exists() else 0


def _answers(path: Path) -> int:
    """Return the lines of a result file that hold an answer."""
    if not path.exists():
        return 0
    lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return sum((line["response"] or {}).get("status_code") == 200 for line in lines)


def report(found: Sequence[Left], measured_on: dict[str, object]) -> str:
    """Return what was found as Markdown."""
    versions = measured_on["versions"]
    assert isinstance(versions, dict)
    named = ", ".join(f"{name} {version}" for name, version in versions.items())
    header = ("accident", "command", "exit code", "answers in the output", "error lines",
              "answers kept", "computed by a next run", "processes left after 10 s")  # fmt: skip
    return (
        "# The same accidents, blend and run-batch\n\n"
        f"Written by `make accidents` on {measured_on['date']}; {named}. "
        f"{REQUESTS} chats of {OUTPUT_TOKENS} tokens each on a small model, two at a time; the bad "
        "line is a line more, without its last bracket. The engine's core and the command were "
        f"killed by SIGKILL after {WORKS_S:.0f} s of work. `again`: the same command once more, "
        "undisturbed. Answers kept: on the disk in any form, in the output file or in the job; "
        "error lines: in whichever file. "
        "Processes that were left were then killed by this benchmark.\n\n"
        + table(header, (_cells(one) for one in found))
    )


def _cells(one: Left) -> tuple[str, ...]:
    return (
        one.accident,
        f"`{one.tool}`" + (" again" if one.again else ""),
        str(one.exit_code),
        str(one.in_output),
        str(one.in_errors),
        str(one.saved),
        str(_to_do(one)),
        str(one.processes),
    )


def _to_do(one: Left) -> int:
    """Return how many requests the same command would compute: run-batch begins anew."""
    left = REQUESTS - one.saved
    return REQUESTS if left and one.tool == "run-batch" else left


def main(arguments: Sequence[str]) -> None:
    """Run all trials and write the lines and the report."""
    options = _parser().parse_args(arguments)
    measured_on = conditions()
    options.raw.mkdir(parents=True, exist_ok=True)
    found = []
    with tempfile.TemporaryDirectory(prefix="bench-accidents-") as scratch:
        from tests.tiny_model import tiny_model  # torch is slow to import

        model = tiny_model(Path(scratch) / "model")
        for accident in options.accident:
            for tool in options.tool:
                folder = Path(scratch) / f"{accident}-{tool}".replace(" ", "-")
                folder.mkdir()
                trial = Trial(tool, accident, model, folder)
                for left in _trials(trial):
                    print(left, file=sys.stderr, flush=True)
                    found.append(left)
    with (options.raw / "accidents.jsonl").open("a", encoding="utf-8") as file:
        for one in found:
            file.write(json.dumps(asdict(one) | {"conditions": measured_on}) + "\n")
    text = report(found, measured_on)
    options.report.write_text(text, encoding="utf-8")
    print(text)


def _trials(trial: Trial) -> Iterator[Left]:
    """Yield what the accident left and, where that was not everything, what the next run made."""
    first = trial.run(again=False)
    yield first
    if first.saved < REQUESTS and first.accident != "bad line":
        yield trial.run(again=True)


def _parser() -> argparse.ArgumentParser:
    accidents, tools = list(get_args(Accident)), list(get_args(Tool))
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accidents", description=__doc__)
    parser.add_argument("--accident", nargs="*", choices=accidents, default=accidents)
    parser.add_argument("--tool", nargs="*", choices=tools, default=tools)
    parser.add_argument("--raw", type=Path, default=RAW, help="folder of the lines")
    parser.add_argument("--report", type=Path, default=PUBLISHED)
    return parser


if __name__ == "__main__":
    main(sys.argv[1:])
