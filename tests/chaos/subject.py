"""What is run in every round: a request file, and what an undisturbed run makes of it."""

import json
import random
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from blend.core.running.in_flight import WAITING_SEQUENCES
from blend.store.recorder import BATCH_ROWS
from tests.batch_files import chat, read_lines
from tests.chaos.commands import Command

Stage = Literal["ingest", "plan", "execute", "export", "run"]
STAGES: tuple[Stage, ...] = ("ingest", "plan", "execute", "export")

SLOTS = {"sim": 32, "vllm": 4}
IN_FLIGHT = {
    # A batch that is not saved yet counts, and what one more step finishes.
    engine: 2 * slots + max(WAITING_SEQUENCES, slots) + BATCH_ROWS
    for engine, slots in SLOTS.items()
}
FOREVER_S = 1e6


@dataclass(frozen=True, slots=True)
class Subject:
    """The input, how it is run, and what came of it when nobody disturbed.

    ``stage_s`` are the seconds of each stage; ``before`` the job as it was before each stage.
    """

    folder: Path
    requests: Path
    model: Path
    engine: str
    rows: int
    stage_s: dict[str, float] = field(default_factory=dict)
    before: dict[str, Path] = field(default_factory=dict)
    outcome: dict[str, str] = field(default_factory=dict)
    bytes_: dict[str, int] = field(default_factory=dict)

    def words(self, stage: Stage, job: Path, requests: Path | None = None) -> list[object]:
        """Return the command of a stage; each may be given again until the stage is done."""
        requests = requests or self.requests
        engine: list[object] = ["--engine", self.engine, "--max-num-seqs", SLOTS[self.engine]]
        if self.engine == "vllm":
            engine += ["--kv-cache-memory-bytes", 64 << 20]
        sample: list[object] = ["--sample-seconds", FOREVER_S]
        output = job.with_name("out.jsonl")
        again = ["--overwrite", *sample, *engine]
        return {
            "ingest": ["ingest", requests, "--job", job, "-m", self.model],
            "plan": ["plan", job, *sample, *engine],
            "execute": ["execute", job, "--resume", *engine],
            "export": ["export", job, "-o", output, "--overwrite"],
            "run": ["run", "-i", requests, "-o", output, "--job", job, "-m", self.model, *again],
        }[stage]

    def begin(self, stage: Stage, folder: Path) -> Path:
        """Put the job as it was before *stage* into *folder*, and return its path."""
        job = folder / "job.blend"
        if stage in self.before:
            shutil.copy(self.before[stage], job)
        return job


def by_process(folder: Path, argv: Sequence[object]) -> int:
    """Run a command in a process of its own, and return its exit code."""
    return Command(argv, mark="undisturbed", folder=folder).wait()


def prepare(
    folder: Path,
    model: Path,
    *,
    engine: str,
    rows: int,
    seed: int,
    run: Callable[[Path, Sequence[object]], int] = by_process,
) -> Subject:
    """Write the requests, and run them with nobody disturbing."""
    requests = folder / "requests.jsonl"
    requests.write_text("".join(f"{json.dumps(line)}\n" for line in _lines(rows, engine, seed)))
    subject = Subject(folder, requests, model, engine, rows)
    job = folder / "job.blend"
    for stage in STAGES:
        if job.exists():
            subject.before[stage] = folder / f"before-{stage}.blend"
            shutil.copy(job, subject.before[stage])
        started = time.monotonic()
        assert run(folder, subject.words(stage, job)) == 0, f"see {folder}"
        subject.stage_s[stage] = time.monotonic() - started
        subject.bytes_[stage] = job.stat().st_size
    subject.stage_s["run"] = sum(subject.stage_s.values())
    subject.outcome.update(outcome(job.with_name("out.jsonl")))
    assert len(subject.outcome) == rows
    return subject


def _lines(rows: int, engine: str, seed: int) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    longest = 64 if engine == "sim" else 160
    lines = [
        chat(
            f"request-{number}",
            f"group {number % 7} of those that begin alike: question {rng.randrange(10**9)}",
            temperature=0,
            max_tokens=rng.randrange(longest // 2, longest),
            **({} if engine == "sim" else {"ignore_eos": True}),
        )
        for number in range(rows)
    ]
    # Some ask the same as another: they get its answer.
    for number in rng.sample(range(1, rows), rows // 20):
        lines[number]["body"] = lines[rng.randrange(number)]["body"]
    return lines


def outcome(output: Path) -> dict[str, str]:
    """Return the body of each line of a result file by its custom_id, which stands there once."""
    lines = read_lines(output)
    found = {line["custom_id"]: _comparable(line) for line in lines}
    assert len(found) == len(lines), "a custom_id stands twice in the output"
    return found


def _comparable(line: Mapping[str, Any]) -> str:
    """Return a result without what differs from run to run: ids, times, hits of the cache."""
    response = dict(line["response"], request_id="")
    body = dict(response["body"], id="", created=0)
    body["usage"] = dict(body["usage"], prompt_tokens_details=None)
    return json.dumps([line["error"], dict(response, body=body)], sort_keys=True)
