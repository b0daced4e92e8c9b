"""`LLM.generate`, vLLM's own offline interface, on the prompts and engine options of a job."""

import os
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.engine.measured import Measured
from benchmarks.engine.worker import Ask
from blend.core.engines import vllm_compat
from blend.core.engines.vllm_arguments import command_line
from blend.core.engines.vllm_messages import Start
from blend.store.job import Job

PREEMPTIONS, STEPS = "vllm:num_preemptions", "vllm:iteration_tokens_total"


def open_generate(job_path: Path, start: Start) -> Ask:
    """Start the engine, and return what answers the requests of the benchmark."""
    generate = Generate(job_path, start)
    return generate.ask


class Generate:
    """One LLM object, and the prompts of one job as text."""

    def __init__(self, job_path: Path, start: Start):
        # As blend's own host does: what is compiled lazily would cost the first run.
        os.environ.setdefault("TORCH_COMPILE_DISABLE", "1")
        started = time.monotonic()
        words = command_line(start, on_cpu=vllm_compat.on_cpu())
        vllm = import_module("vllm")
        settings = vars(vllm.EngineArgs.from_cli_args(vllm_compat.parse_command_line(words)))
        # blend's engine counts its steps too, but neither writes them down.
        counting = {"disable_log_stats": False, "enable_logging_iteration_details": False}
        self._llm: Any = vllm.LLM(**settings | counting)
        self.start_s = time.monotonic() - started
        self._before: dict[str, float] = {}
        with Job.open(job_path) as job:
            prompts = job.prompts()
        self._sampling = vllm.SamplingParams
        tokenizer = self._llm.get_tokenizer()
        self._texts = [tokenizer.decode(prompts[row]) for row in range(len(prompts))]
        self._outputs = prompts.max_tokens.tolist()
        self._orders = {
            "file": list(range(len(prompts))),
            "dfs": sorted(range(len(prompts)), key=lambda row: prompts[row].tolist()),
        }
        self._lengths = prompts.lengths
        self._check_lengths(tokenizer)

    def _check_lengths(self, tokenizer: Any) -> None:
        now = np.array([len(tokenizer(text)["input_ids"]) for text in self._texts])
        if (now != self._lengths).any():
            raise RuntimeError("the prompts as text have other lengths than in the job")

    def ask(self, what: str, which: str) -> Any:
        """Start-up time for ``start``, the run in the order *which*; ``forget``; ``close``."""
        if what == "start":
            return self.start_s
        if what == "forget":
            return self._llm.reset_prefix_cache()
        if what == "run":
            return self._run(self._orders[which])
        self._llm.llm_engine.engine_core.shutdown()
        return None

    def _run(self, order: Sequence[int]) -> Measured:
        texts = [self._texts[row] for row in order]
        sampling = [
            self._sampling(temperature=0, max_tokens=self._outputs[row], ignore_eos=True)
            for row in order
        ]
        started = time.monotonic()
        outputs = self._llm.generate(texts, sampling, use_tqdm=False)
        wall_s = time.monotonic() - started
        return Measured(
            wall_s,
            0.0,
            sum(len(one.prompt_token_ids) for one in outputs),
            sum(len(one.outputs[0].token_ids) for one in outputs),
            sum(one.num_cached_tokens for one in outputs),
            self._new(PREEMPTIONS),
            self._new(STEPS),
        )

    def _new(self, name: str) -> int:
        """Return by how much vLLM's metric grew since the last run; a histogram's by its count."""
        now = sum(
            getattr(metric, "value", getattr(metric, "count", 0))
            for metric in self._llm.get_metrics()
            if metric.name == name
        )
        new, self._before[name] = now - self._before.get(name, 0), now
        return int(new)
