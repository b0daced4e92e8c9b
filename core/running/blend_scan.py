"""The blending scanner as an object around its kernel; the rules are in `kernels.blend`."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from blend.core.engines import Capacity, StepReport
from blend.core.kernels import blend as kernel
from blend.core.kernels.flight import new_flight
from blend.core.kernels.gate import let_out, new_gate
from blend.core.planning.beliefs import beliefs_of
from blend.core.planning.classes import Blending
from blend.core.schedule import RIGHT, Schedule


def new_state(
    schedule: Schedule,
    *,
    prompt_tokens: npt.NDArray[np.integer],
    sequences: npt.NDArray[np.integer],
    capacity: Capacity,
) -> Any:
    """Return the kernel's state before the first row is admitted."""
    blending = schedule.blending
    if blending is None:
        raise ValueError(f"a {schedule.policy} schedule knows nothing of classes")
    flight = new_flight(
        sequences,
        kv_tokens=capacity.kv_tokens,
        max_sequences=capacity.max_sequences,
        step_tokens=capacity.step_tokens,
    )
    border = _border(schedule)
    gate = new_gate(
        prompt_tokens,
        _shared_tokens(schedule, prompt_tokens, border=border),
        border=border,
        threshold=capacity.prefill_threshold,
        lag=capacity.report_lag,
        block=capacity.block_tokens,
    )
    return kernel.new_blend(
        flight,
        gate,
        beliefs_of(blending.classes),
        _speed(blending),
        order=schedule.order,
        uncached=np.maximum(schedule.uncached_tokens, 1),
        prompt=prompt_tokens,
        copies=sequences,
        gated=blending.paced and capacity.pacing == "none",
    )


def dealt_state(state: Any, schedule: Schedule, *, prompt_tokens: npt.NDArray[np.integer]) -> Any:
    """Return the kernel's state with the rows of *schedule* in the place of those not admitted."""
    border = _border(schedule)
    return kernel.dealt_blended(
        state,
        order=schedule.order,
        uncached=np.maximum(schedule.uncached_tokens, 1),
        shared=_shared_tokens(schedule, prompt_tokens, border=border),
        border=border,
    )


def _border(schedule: Schedule) -> int:
    right = np.flatnonzero(schedule.side == RIGHT)
    return int(right[0]) if len(right) else len(schedule)


def _shared_tokens(
    schedule: Schedule, prompt_tokens: npt.NDArray[np.integer], *, border: int
) -> npt.NDArray[np.int64]:
    """Return the prompt tokens that each row shares with the one before it, by position."""
    shared = (prompt_tokens[schedule.order] - schedule.uncached_tokens).astype(np.int64)
    # What is taken from its end shares with the row behind.
    shared[border + 1 :] = shared[border:-1]
    shared[border : border + 1] = 0
    return shared


def _speed(blending: Blending) -> kernel.Speed:
    return kernel.Speed(
        blending.token_s,
        blending.read_s,
        blending.weights_s,
        blending.mode == "overlapped",
        blending.movable,
        blending.caution,
        blending.reserved,
        blending.paced,
        blending.calibrated,
    )


class BlendScanner:
    """Admits memory-bound rows by forecast and compute-bound ones at a pace, from both ends."""

    def __init__(
        self,
        schedule: Schedule,
        *,
        prompt_tokens: npt.NDArray[np.integer],
        sequences: npt.NDArray[np.integer],
        capacity: Capacity,
    ):
        self._prompt_tokens = prompt_tokens
        self._state = new_state(
            schedule, prompt_tokens=prompt_tokens, sequences=sequences, capacity=capacity
        )
        self._admitted = np.empty(len(schedule) + 1, np.int64)

    @property
    def state(self) -> Any:
        """The kernel's state, as `new_state` returns it."""
        return self._state

    @property
    def done(self) -> bool:
        """Whether the pointers have passed each other."""
        state = self._state.state[0]
        return bool(state["left"] > state["right"])

    @property
    def pace(self) -> int | None:
        """The prompt tokens that the next step should compute at most; None for no limit."""
        state = self._state.state[0]
        pace = int(state["pace"])
        return None if state["gated"] or pace >= kernel.UNPACED else pace

    def admit(self) -> list[int]:
        """Return the rows that forecast, reserve and pace allow."""
        count = kernel.admit_blended(self._state, self._admitted)
        rows: list[int] = self._admitted[:count].tolist()
        return rows

    def deal(self, schedule: Schedule) -> None:
        """Put the rows of *schedule* in the place of those not admitted."""
        self._state = dealt_state(self._state, schedule, prompt_tokens=self._prompt_tokens)
        self._admitted = np.empty(len(schedule) + 1, np.int64)

    def withdraw(self, rows: Sequence[int]) -> None:
        """Take rows back that were admitted last and not submitted."""
        for row in rows:
            kernel.withdraw_blended(self._state, row)

    def carry(self, ages: Mapping[int, float]) -> None:
        """Count rows at the ends of the schedule that are inside already, by row their ages."""
        age = np.full(len(self._prompt_tokens), np.nan)
        age[list(ages)] = list(ages.values())
        kernel.carry_blended(self._state, age)

    def observe(self, report: StepReport) -> None:
        """Learn from the answers that have ended, and free what they held."""
        flight = self._state.flight
        ended = [one for one in report.completions if flight.mark[one.row]]
        for completion in ended:
            if completion.failed:
                # The end of its prompt is never reported.
                let_out(self._state.gate, completion.row)
        kernel.hear_blended(
            self._state,
            np.array([one.row for one in ended], np.int64),
            np.array([one.completion_tokens for one in ended], np.int64),
            report.running,
            report.waiting,
            report.kv_tokens,
            report.steps,
            report.prefill_tokens,
            report.decode_tokens,
            report.prefilled,
        )
