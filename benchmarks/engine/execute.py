"""`blend execute` on one engine that lives from run to run.

Everything is what the command does but for the start of the engine: a copy of the planned job is
opened, its schedule run, every result saved.
"""

import json
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.engine.measured import Measured
from benchmarks.engine.worker import Ask
from blend.cli.engine_options import EngineOptions
from blend.cli.executing import execute
from blend.cli.job_plan import fitting_schedule
from blend.cli.job_run import judgement
from blend.cli.plan import plan_choices
from blend.cli.planning import PlanOptions
from blend.cli.sampled_plan import plan_options, sample_and_plan
from blend.cli.session import Session, opened_session
from blend.core.engines import Engine
from blend.core.request import Request
from blend.core.schedule import PolicyChoice
from blend.store.job import Job


def open_execute(job_path: Path, options: EngineOptions) -> Ask:
    """Start the engine, and return what answers the requests of the benchmark."""
    return Execute(job_path, options).ask


class Execute:
    """One engine, and a planned copy of the job for each policy."""

    def __init__(self, job_path: Path, options: EngineOptions):
        self._job_path = job_path
        self._options = options
        started = time.monotonic()
        self._job = Job.open(job_path)
        self._opened = opened_session(self._job, options)
        self._kept = self._opened.__enter__()
        self._kept.engine.wait_ready()
        self.start_s = time.monotonic() - started

    def ask(self, what: str, which: str) -> Any:
        """``start``: its time; ``plan``, ``run``: with a policy; ``forget`` prefixes; ``close``."""
        if what == "start":
            return self.start_s
        if what == "plan":
            return self._plan(which)
        if what == "forget":
            return forget_prefixes(self._kept.engine)
        if what == "run":
            return self._run(which)
        self._opened.__exit__(None, None, None)
        return self._job.close()

    def _planned(self, policy: str) -> Path:
        return self._job_path.with_name(f"{self._job_path.stem}-{policy}.blend")

    def _plan(self, policy: str) -> float:
        """Plan without a sample, whose results would be taken out of the comparison."""
        path = self._planned(policy)
        shutil.copy(self._job_path, path)
        choices = replace(plan_choices(no_sample=True), policy=_policy(policy))
        started = time.monotonic()
        with Job.open(path) as job:
            # The engine lives on with the options that all ways have.
            settings: PlanOptions = plan_options(job, self._options, choices, started=True)
            sample_and_plan(job, self._session(job), settings)
        return time.monotonic() - started

    def _session(self, job: Job) -> Session:
        return replace(self._kept, job=job)

    def _run(self, policy: str) -> Measured:
        path = self._planned(policy).with_suffix(".run")
        shutil.copy(self._planned(policy), path)
        with Job.open(path) as job, job.lock("execute"):
            started = time.monotonic()
            execute(self._session(job), fitting_schedule(job))
            wall_s = time.monotonic() - started
            return _measured(job, wall_s)


def _policy(name: str) -> PolicyChoice:
    choice: PolicyChoice = name  # type: ignore[assignment]  # one of the program's own list
    return choice


def _measured(job: Job, wall_s: float) -> Measured:
    counts, plan, run = job.counts(), job.plan(), job.runs()[-1]
    if counts.unfinished or counts.failed or plan is None:
        raise RuntimeError(f"the run did not bring every answer: {counts}")
    steps, judged = job.steps(run.id), judgement(job)
    time = judged.seconds if judged else None
    return Measured(
        wall_s,
        0.0,
        counts.prompt_tokens,
        counts.output_tokens,
        counts.cached_tokens,
        sum(step.preemptions for step in steps),
        sum(step.steps for step in steps),
        time.predicted if time else None,
        time.ratio if time else None,
        plan.policy,
    )


def forget_prefixes(engine: Engine) -> None:
    """Fill the whole KV cache with prompts that nothing shares, so that none of a run is left."""
    held = engine.capacity
    length = held.context_tokens - 1
    # One more than fits: the block that was free first may hold a part of the last.
    count = -(-held.kv_tokens // length) + 1
    rng = np.random.default_rng()
    for row in range(count):
        prompt = rng.integers(3, 250, length).astype(np.uint32)
        body = json.dumps({"prompt": prompt.tolist(), "max_tokens": 1}).encode()
        engine.submit(Request(row, f"filler-{row}", "/v1/completions", body, prompt, 1))
    answered = 0
    while answered < count:
        answered += len(engine.step().completions)
