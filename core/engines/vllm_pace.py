"""How is vLLM made to keep a pace? By the token budget of each step, set just before the step.

vLLM's scheduler lives in the process of its engine core and has one budget for all of a run. The
scheduler here is vLLM's own, with a budget for each step: its decodes plus the prompt tokens that
the parent asks for, through a file that both have mapped into memory.
The invariant: the budget never holds back a decode, and never stops an engine that has work.

A scheduler class is no public interface of vLLM. One that lacks what is needed here, and an engine
that cannot compute a prompt in parts, runs as it would without; the parent can see that.
"""

import logging
import mmap
import os
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)

PACE_VARIABLE = "BLEND_PACE"
"""Names the file that holds the pace, in the environment of the engine's processes."""

SCHEDULER = f"{__name__}.paced_scheduler"
"""What vLLM is given as its scheduler class."""

_OF_SCHEDULER = ("max_num_scheduled_tokens", "running", "waiting")
_OF_REQUEST = (
    "is_prefill_chunk",
    "max_tokens",
    "num_computed_tokens",
    "num_output_placeholders",
    "num_prompt_tokens",
    "num_tokens_with_spec",
)


class SharedPace:
    """A pace that one process sets and another keeps, each without waiting for the other."""

    def __init__(self, path: Path):
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 16)
        self._cells = memoryview(self._memory).cast("q")

    @classmethod
    def create(cls, path: Path) -> "SharedPace":
        """Make the file of a pace that has no limit and that nobody keeps yet."""
        path.write_bytes(bytes(16))
        return cls(path)

    def close(self) -> None:
        """Let go of the memory; nothing else may be called afterwards."""
        self._cells.release()
        self._memory.close()

    @property
    def prefill_tokens(self) -> int | None:
        """The prompt tokens that a step should compute at most; None for no limit."""
        return self._cells[0] or None

    @prefill_tokens.setter
    def prefill_tokens(self, limit: int | None) -> None:
        # A step that may compute no prompt would never begin with any.
        self._cells[0] = 0 if limit is None else max(limit, 1)

    @property
    def kept(self) -> bool:
        """Whether there is a scheduler that keeps the pace."""
        return bool(self._cells[1])

    def keep(self) -> None:
        """Say that the pace is kept from now on."""
        self._cells[1] = 1


def paced_scheduler(*, vllm_config: Any, **rest: Any) -> Any:
    """Build the scheduler that vLLM would build, made to keep a pace.

    Called by vLLM in the place of a scheduler class, in the process of its engine core.
    """
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler
    from vllm.v1.core.sched.scheduler import Scheduler

    stock: Any = AsyncScheduler if vllm_config.scheduler_config.async_scheduling else Scheduler
    return _paced(stock)(vllm_config=vllm_config, **rest)


def _obstacle(scheduler: Any) -> str | None:
    """Return why *scheduler* cannot keep a pace, None when it can."""
    from vllm.v1.request import Request

    known = {*dir(Request), *Request.__init__.__code__.co_names}
    missing = [name for name in _OF_SCHEDULER if not hasattr(scheduler, name)]
    missing += [name for name in _OF_REQUEST if name not in known]
    if missing:
        return f"this release has no {', '.join(missing)}"
    if not scheduler.scheduler_config.enable_chunked_prefill:
        return "it computes every prompt whole"
    if scheduler.parallel_config.pipeline_parallel_size > 1:
        return "a step of a pipeline leaves some decodes out"
    if getattr(scheduler, "need_mamba_block_aligned_split", False):
        return "it cuts the prompts of this model at whole blocks alone"
    return None


def _paced(stock: Any) -> Any:
    class PacedScheduler(stock):  # type: ignore[misc]  # a class known only at run time
        """Gives each step a budget of its own, where nothing stands in the way."""

        def __init__(self, **given: Any):
            super().__init__(**given)
            self._pace = SharedPace(Path(os.environ[PACE_VARIABLE]))
            if obstacle := _obstacle(self):
                logger.warning("vLLM computes its steps without a pace: %s", obstacle)
                return
            self._full_budget = self.max_num_scheduled_tokens
            self._stuck = False
            self._pace.keep()

        def schedule(self, *given: Any, **named: Any) -> Any:
            """Put a step together, within the budget that the pace leaves it."""
            if not self._pace.kept:
                return super().schedule(*given, **named)
            self.max_num_scheduled_tokens = self._budget()
            output = super().schedule(*given, **named)
            # By a prompt that is computed whole or not at all, such as an image.
            self._stuck = (
                not output.total_num_scheduled_tokens
                and bool(self.running or self.waiting)
                and all(request.is_prefill_chunk for request in self.running)
            )
            return output

        def _budget(self) -> int:
            limit = self._pace.prefill_tokens
            if limit is None or self._stuck:
                return int(self._full_budget)
            # The budget is spent in this order: a prompt ahead of a decode would take its share.
            self.running.sort(key=lambda request: request.is_prefill_chunk)
            decodes = sum(map(_decode_tokens, self.running))
            return int(min(decodes + limit, self._full_budget))

    return PacedScheduler


def _decode_tokens(request: Any) -> int:
    """Return what a step computes of a running request whose prompt is done; 0 for all others."""
    if request.is_prefill_chunk:
        return 0
    under_way = request.num_output_placeholders
    # vLLM's own test for an answer whose last token is on its way.
    ends = request.num_computed_tokens + 2 - under_way
    if under_way and ends >= request.num_prompt_tokens + request.max_tokens:
        return 0
    return int(request.num_tokens_with_spec + under_way - request.num_computed_tokens)
