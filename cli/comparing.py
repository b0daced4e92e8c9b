"""How long would an open job take under each policy? Simulated; nothing in the job changes."""

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from blend.cli.job_model import require_rows
from blend.cli.observing import find_followers, known_lengths
from blend.core.errors import BlendError
from blend.core.planning.engine_model import EngineModel
from blend.core.planning.lengths import Observations
from blend.core.planning.tree import build_tree
from blend.core.prompts import Prompts
from blend.core.schedule import POLICIES, Policy
from blend.store.job import Job

if TYPE_CHECKING:
    from blend.core.planning.outlook import Outlook

SIMULATE_S = 120.0
"""The time after which a comparison draws no more."""


def _ignore_run(_runs: int) -> None:
    pass


def compare_policies(
    job: Job,
    engine: EngineModel,
    *,
    policies: Sequence[Policy] = POLICIES,
    draws: int = 5,
    seed: int = 0,
    on_run: Callable[[int], None] = _ignore_run,
) -> "Outlook":
    """Simulate the whole job from its start under each policy; nothing in the job changes.

    After two minutes no further draw is made. ``on_run`` is told before each simulated run how many
    a draw has. Raises BlendError for a job without rows, and where
    the engine's cache cannot hold a prompt.
    """
    from blend.core.planning.compare import compare  # numba is slow to import

    require_rows(job)
    plan = job.plan()
    followers = find_followers(job, fan_out=plan is None or plan.settings.get("fan_out", True))
    prompts = job.prompts(followers.others(len(job)))
    _require_room(prompts, engine)
    observed = known_lengths(job, prompts)
    each, row = prompts.by_sequence()
    started_s = time.monotonic()
    return compare(
        each,
        build_tree(each),
        engine,
        policies=policies,
        observations=Observations(observed.tokens[row], observed.finished[row]),
        draws=draws,
        seed=seed,
        wanted=lambda: time.monotonic() - started_s < SIMULATE_S,
        on_run=on_run,
    )


def _require_room(prompts: Prompts, engine: EngineModel) -> None:
    held, hardware, model = engine.capacity.kv_tokens, engine.hardware, engine.model
    longest = int(prompts.lengths.max())
    # A block is not shared by what a prompt and its answer end with.
    if held >= longest + engine.capacity.block_tokens:
        return
    raise BlendError(
        f"{hardware.name} cannot run {model.name}: the KV cache beside its weights "
        f"({model.weight_bytes / 1e9:,.1f} GB) holds {held:,} tokens, "
        f"the longest prompt has {longest:,}",
        hint="more devices with `--tensor-parallel-size`, or another with `--hardware`",
    )
