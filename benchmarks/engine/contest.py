"""All ways of running one case, interleaved: every repetition runs each of them once."""

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, Self

from benchmarks.engine import run_batch
from benchmarks.engine.cases import CONTEXT_TOKENS, Case, possible_cached_tokens
from benchmarks.engine.execute import open_execute
from benchmarks.engine.generate import open_generate
from benchmarks.engine.measured import Measured
from benchmarks.engine.worker import Worker
from blend.cli.engine_options import EngineOptions
from blend.cli.ingesting import IngestOptions, ingest
from blend.cli.job_model import ModelOptions
from blend.core.engines import vllm_compat
from blend.core.engines.vllm_arguments import command_line
from blend.core.engines.vllm_messages import Start
from blend.core.planning.hardware import ModelShape, model_shape
from blend.store.job import Job

Way = Literal["generate-file", "generate-dfs", "run-batch", "blend-paper", "blend-auto"]

WAYS: Mapping[Way, str] = {
    "generate-file": "`LLM.generate`, file order",
    "generate-dfs": "`LLM.generate`, depth-first order",
    "run-batch": "`run-batch`",
    "blend-paper": "`blend execute`, policy paper",
    "blend-auto": "`blend execute`",
}
BLOCK_TOKENS = 32


@dataclass(frozen=True, slots=True)
class Line:
    """One run of the contest, ready to be written down."""

    case: str
    way: Way
    repetition: int
    measured: Measured
    load: float


@dataclass(frozen=True, slots=True)
class Setting:
    """A case made ready: its files, and what its engines are started with."""

    case: Case
    requests: Path
    job: Path
    options: EngineOptions
    start: Start
    possible_tokens: int
    model: str


@contextmanager
def prepared(case: Case, model: Path) -> Iterator[Setting]:
    """Write and ingest a case in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        requests, job_path = Path(name) / "requests.jsonl", Path(name) / "job.blend"
        case.write(requests)
        named = ModelOptions(model=str(model), max_model_len=CONTEXT_TOKENS)
        ingest(job_path, [str(requests)], IngestOptions(named))
        arguments = {
            "block-size": str(BLOCK_TOKENS),
            # One block of a cache is never handed out.
            "kv-cache-memory-bytes": str(_cache_bytes(model, case.kv_tokens + BLOCK_TOKENS)),
            "max-num-seqs": str(case.max_sequences),
        }
        start = Start(
            str(model),
            "tiny",
            tuple({"max-model-len": str(CONTEXT_TOKENS), **arguments}.items()),
            seed=0,
            seeded=False,
        )
        with Job.open(job_path) as job:
            prompts = job.prompts()
        yield Setting(
            case,
            requests,
            job_path,
            EngineOptions("vllm", arguments, 0),
            start,
            possible_cached_tokens(prompts, block_tokens=BLOCK_TOKENS),
            _described(model),
        )


def _cache_bytes(model: Path, tokens: int) -> int:
    return int(tokens * _shape(model).kv_bytes_per_token)


def _described(model: Path) -> str:
    shape = _shape(model)
    return f"{shape.layers} layers and {shape.parameters / 1e6:,.1f}M parameters"


def _shape(model: Path) -> ModelShape:
    config = json.loads((model / "config.json").read_text())
    return model_shape(config, name=model.name, kv_dtype="float32")


class Contest:
    """The ways of running one case, each with its engine started; a context manager."""

    def __init__(self, setting: Setting, ways: Sequence[Way], *, logs: Path):
        self.start_s: dict[str, float] = {}
        self.plan_s: dict[str, float] = {}
        self._setting = setting
        self._ways = ways
        self._logs = logs
        self._workers: dict[str, Worker] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers.values():
            worker.close()

    def lines(self, repeat: int) -> Iterator[Line]:
        """Yield every run; before, each way on a kept engine ran once as a warm-up."""
        runners = {way: self._runner(way) for way in self._ways}
        for repetition in range(repeat):
            # Each way comes first in turn.
            shift = repetition % len(self._ways)
            for way in (*self._ways[shift:], *self._ways[:shift]):
                load = os.getloadavg()[0]
                yield Line(self._setting.case.name, way, repetition, runners[way](), load)

    def _runner(self, way: Way) -> Callable[[], Measured]:
        if way == "run-batch":
            return self._run_batch
        engine, _, which = way.partition("-")
        worker = self._worker(engine)
        if engine == "blend":
            worker.ask("plan", which)
        worker.ask("run", which)
        if engine == "blend":
            return partial(self._planned_anew, worker, which)
        return partial(worker.measure, "run", which)

    def _planned_anew(self, worker: Worker, which: str) -> Measured:
        # The last run has measured what steps cost: a machine is not as fast at all times.
        self.plan_s[which] = worker.ask("plan", which)
        return worker.measure("run", which)

    def _worker(self, engine: str) -> Worker:
        """Return the worker of an engine, which the ways on that engine share."""
        if engine not in self._workers:
            one, log = self._setting, self._log(engine)
            self._workers[engine] = worker = (
                Worker(open_execute, one.job, one.options, log=log)
                if engine == "blend"
                else Worker(open_generate, one.job, one.start, log=log)
            )
            self.start_s[engine] = worker.ask("start", "")
        return self._workers[engine]

    def _run_batch(self) -> Measured:
        words = command_line(self._setting.start, on_cpu=vllm_compat.on_cpu())
        requests, log = self._setting.requests, self._log("run-batch")
        measured, self.start_s["run-batch"] = run_batch.run_batch(requests, words, log=log)
        return measured

    def _log(self, name: str) -> Path:
        return self._logs / f"{self._setting.case.name}-{name}.log"
