"""How fast are results written, and does the memory of `blend execute` stay flat as a job grows?

The simulated engine answers short prompts with one token each, so that what is measured is blend:
reading requests, admitting them, saving results. Jobs are filled through the store, as ingest does;
each is then planned and executed by the command itself, in a process of its own.

python -m benchmarks.scale [--rows 1000 10000 100000 400000]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import conditions
from benchmarks.paper.markdown import number, table
from blend.core.planning import hardware
from blend.store.job import Job, NewRow

ROOT = Path(__file__).parent.parent
RAW = ROOT / "benchmarks" / "results"
PUBLISHED = ROOT / "docs" / "results" / "scale.md"
ROWS = (1_000, 10_000, 100_000, 400_000)
MODEL = "llama-3-8b"
BATCH_ROWS = 1024
ANSWER_TOKENS = 1
LEAST_ROWS_S = 10_000
MOST_GROWTH_MB = 100
ARGV = (sys.executable, "-c", "import sys; from blend.cli.app import main; sys.exit(main())")


@dataclass(frozen=True, slots=True)
class Executed:
    """One execution; ``run_s`` is without the start of the process."""

    rows: int
    run_s: float
    wall_s: float
    cpu_s: float
    peak_mb: float
    job_mb: float

    @property
    def rows_per_s(self) -> float:
        """Results saved in a second."""
        return self.rows / self.run_s


def fill(path: Path, rows: int) -> None:
    """Make a job of *rows* short chats."""
    models = Path(hardware.__file__).parent / "data" / "models.json"
    config = json.loads(models.read_text(encoding="utf-8"))[MODEL]["config"]
    with Job.open(path, create=True) as job:
        job.set_meta(model=MODEL, model_config=config, context_tokens=8192, fingerprint={})
        source = job.open_source("requests.jsonl", size=rows, digest="made up")
        for batch in _batches(rows):
            end = batch[-1].line
            job.append(source, batch, [], offset=end, line=end, complete=end == rows)


def _batches(rows: int) -> Iterator[list[NewRow]]:
    rng = np.random.default_rng(0)
    for lo in range(0, rows, BATCH_ROWS):
        yield [_row(number, rng) for number in range(lo, min(lo + BATCH_ROWS, rows))]


def _row(number: int, rng: np.random.Generator) -> NewRow:
    text = f"What is the number {number}?"
    body = {"model": "m", "messages": [{"role": "user", "content": text}], "max_tokens": 1}
    return NewRow(
        f"request-{number}",
        number + 1,
        "/v1/chat/completions",
        json.dumps(body).encode(),
        rng.integers(0, 2**17, 16).astype(np.uint32),
        ANSWER_TOKENS,
    )


def execute(path: Path, rows: int) -> Executed:
    """Plan the job in file order, execute it, and return what that took."""
    _run("plan", path, "--no-sample", "--policy", "fcfs")
    used = _run("execute", path, "--engine", "sim")
    with Job.open(path) as job:
        run, counts = job.runs()[-1], job.counts()
    if counts.answered != rows or run.finished is None:
        raise RuntimeError(f"not every request was answered: {counts}")
    return Executed(
        rows,
        run.finished - run.started,
        used.wall_s,
        used.cpu_s,
        used.peak_mb,
        path.stat().st_size / 1e6,
    )


@dataclass(frozen=True, slots=True)
class _Used:
    wall_s: float
    cpu_s: float
    peak_mb: float


def _run(*words: str | Path) -> _Used:
    started = os.times().elapsed
    command = [*ARGV, *words]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=pipe, text=True) as process:
        assert process.stderr is not None
        said = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(said)
    wall_s = os.times().elapsed - started
    return _Used(wall_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 / 1e6)


def report(found: Sequence[Executed], measured_on: dict[str, Any]) -> str:
    """Return what was found as Markdown."""
    growth_mb = found[-1].peak_mb - found[0].peak_mb
    fastest = max(one.rows_per_s for one in found)
    lines = (
        (
            f"{one.rows:,}",
            number(one.run_s, 1),
            number(one.rows_per_s, 0),
            number(one.cpu_s, 1),
            number(one.peak_mb, 0),
            number(one.job_mb, 0),
        )
        for one in found
    )
    header = (
        "requests",
        "seconds",
        "results a second",
        "CPU seconds",
        "peak memory, MB",
        "job, MB",
    )
    grown = f"{found[0].rows:,} to {found[-1].rows:,} requests"
    return (
        "# Speed and memory of an execution\n\n"
        f"Written by `python -m benchmarks.scale` on {measured_on['date']}: {measured_on['cpu']}, "
        f"{measured_on['cores']} cores, load {measured_on['load']:.1f} before; Python "
        f"{measured_on['versions']['python']}. `blend execute` on the simulated engine: prompts of "
        "16 tokens, answers of one, every result saved. Seconds are of the run, CPU seconds and "
        "memory of the whole process.\n\n"
        + table(header, lines)
        + f"\nAsked for: {LEAST_ROWS_S:,} results a second; the best here: {fastest:,.0f}. "
        f"Asked for: memory that grows by at most {MOST_GROWTH_MB} MB from {grown}; it grew by "
        f"{growth_mb:,.0f} MB.\n"
    )


def main(arguments: Sequence[str]) -> None:
    """Measure each size and write the lines and the report."""
    options = _parser().parse_args(arguments)
    measured_on = conditions()
    found = []
    RAW.mkdir(parents=True, exist_ok=True)
    for rows in options.rows:
        with tempfile.TemporaryDirectory(prefix="blend-scale-") as folder:
            path = Path(folder) / "job.blend"
            fill(path, rows)
            found.append(execute(path, rows))
        print(
            f"{rows:,} requests: {found[-1].rows_per_s:,.0f} results/s, "
            f"peak {found[-1].peak_mb:,.0f} MB",
            file=sys.stderr,
        )
        with (options.raw / "scale.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(found[-1]) | {"conditions": measured_on}) + "\n")
    options.report.write_text(report(found, measured_on), encoding="utf-8")
    print(report(found, measured_on))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--rows", type=int, nargs="*", default=list(ROWS))
    parser.add_argument("--raw", type=Path, default=RAW, help="folder of the lines")
    parser.add_argument("--report", type=Path, default=PUBLISHED)
    return parser


if __name__ == "__main__":
    main(sys.argv[1:])
