"""A job that vLLM has run on this machine, as far as its tables tell."""

from pathlib import Path

import numpy as np

from blend.core.planning.engine_model import StepCosts
from blend.store.job import Job
from tests.batch_files import ingested, mixed

COSTS = StepCosts(0.02, 2e-3, 2e-3, 2e-6, weights_s=0.0)


def job_that_ran(path: Path, model: Path, *, disturbance: float = 0.0) -> Path:
    """Make a job whose one run took as long as COSTS say, give or take the *disturbance*."""
    rng = np.random.default_rng(0)
    ingested(path, mixed(4), model=model)
    lines, seconds = [], 0.0
    for _ in range(40):
        prefill, decodes = int(rng.integers(0, 2000)), int(rng.integers(10, 300))
        took = 10 * COSTS.overhead_s + COSTS.token_s * (prefill + decodes)
        seconds += took * float(rng.lognormal(0.0, disturbance))
        lines.append((seconds, 10, 4, 0, 0, prefill, decodes, 0, 0, 0))
    with Job.open(path) as job:
        run = job.begin_run(purpose="execute", engine="vllm", settings={})
        job.add_steps(run, lines)
        job.end_run(run, "finished")
    return path
