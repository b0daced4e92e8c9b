"""One engine and its scanner at work in virtual time, on rows that may be dealt anew meanwhile.

    world = world_of(tree, output_tokens=…, engine=…)
    run = Run(world, schedule, line_steps=1)
    run.advance(until_s=60.0)

What runs is machine code; a run is the state of it between two calls. The invariant: however often
a run is stopped and goes on, its steps are those of one that was not.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from blend.core.planning.engine_model import EngineModel
from blend.core.planning.simulate import Simulated, Timeline, block_keys, blocks_of_use
from blend.core.planning.tree import Floats, Ints, Tree
from blend.core.schedule import Schedule

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class World:
    """What runs have in common: an engine, and the rows with the answers that they will get.

    By row (n,): ``prompts``, prompt tokens; ``outputs``, answer tokens; ``fits``, whether the cache
    can ever hold it; ``finished_s``, NaN until it has ended. ``keys`` and ``key_starts`` number the
    prefixes.
    """

    engine: EngineModel
    prompts: Ints
    outputs: Ints
    fits: Flags
    keys: npt.NDArray[np.int32]
    key_starts: Ints
    finished_s: Floats


def world_of(tree: Tree, *, output_tokens: npt.NDArray[np.integer], engine: EngineModel) -> World:
    """Return the world of all rows of *tree*; an answer is at least one token long."""
    outputs = np.maximum(np.asarray(output_tokens, np.int64), 1)
    prompts = np.empty(len(tree), np.int64)
    prompts[tree.rows] = tree.lengths
    size = engine.capacity.block_tokens
    fits = prompts + outputs <= engine.capacity.kv_tokens // size * size
    keys, starts = block_keys(tree, block_tokens=size)
    return World(engine, prompts, outputs, fits, keys, starts, np.full(len(tree), np.nan))


class Run:
    """One engine on the rows of one schedule; its policy decides how they are scanned."""

    def __init__(self, world: World, schedule: Schedule, *, line_steps: int):
        from blend.core.kernels import loop  # numba is slow to import

        self._world = world
        self._line_steps = line_steps
        self._total = np.zeros(1, loop.TOTAL)
        self._lines = np.zeros(_line_count(world, schedule, line_steps), loop.LINE)
        self._state = _engine_state(world)
        self._unheard = loop.new_unheard(self._state.limits)
        self._scan: _InOrder | _Dual | _Blended
        if schedule.blending is not None:
            self._scan = _Blended(world, schedule)
        elif schedule.policy == "paper":
            self._scan = _Dual(world, schedule)
        else:
            self._scan = _InOrder(world, schedule)

    @property
    def seconds(self) -> float:
        """The time that the engine's last step ended."""
        return float(self._total[0]["seconds"])

    @property
    def steps(self) -> int:
        """How many steps the engine has taken."""
        return int(self._total[0]["steps"])

    @property
    def left(self) -> Ints:
        """The rows that have not been admitted, in the order of the schedule."""
        return self._scan.left

    @property
    def admitted(self) -> Ints:
        """The rows that have been admitted, in the order of their admission."""
        flight = self._scan.flight
        rows: Ints = flight.queue[: int(flight.counts[0]["behind"])].astype(np.int64)
        return rows

    def finished_s(self, rows: Ints) -> Floats:
        """Return when each of *rows* ended, NaN for one that has not."""
        ended: Floats = self._world.finished_s[rows]
        return ended

    def advance(self, until_s: float = np.inf) -> None:
        """Run on until a time, or until nothing is left to run."""
        book = (self._world.finished_s, self._total, self._lines, self._line_steps)
        clock = _clock(self._world.engine)
        self._scan.run(self._state, self._unheard, clock, float(until_s), *book)

    def deal(self, schedule: Schedule, *, at_s: float) -> None:
        """Put the rows of *schedule* in the place of those not admitted, at a time not before."""
        if not len(self._scan.left) and not self._inside:
            self._total["seconds"] = max(self.seconds, at_s)
        self._scan.deal(schedule)

    def go_on(self, schedule: Schedule) -> None:
        """Let a blending *schedule* go on with its rows that have not ended.

        Its scanner finds inside what has been admitted, as that of an execution does which carries
        what its warm-up has begun.
        """
        from blend.core.planning.handover import handed_over

        world = self._world
        left = schedule.only(np.isnan(world.finished_s) & world.fits)
        # What has been reported and not heard is in the engine's state.
        self._unheard.ring[:] = 0
        self._scan = _Blended(world, left, handed_over(left, world, self._state))

    @property
    def ages(self) -> dict[int, int]:
        """The output tokens of each row inside."""
        from blend.core.planning.handover import ages_of

        return ages_of(self._state)

    def simulated(self, *, refused: int = 0) -> Simulated:
        """Return what has come of it."""
        total = self._total[0]
        used = self._lines[: int(total["lines"])]
        sums = {name: total[name].item() for name in _names(total) if name != "lines"}
        columns = {name: np.ascontiguousarray(used[name]) for name in _names(used)}
        timeline = Timeline(self._line_steps, **columns)
        finished_s = self._world.finished_s
        return Simulated(**sums, refused=refused, finished_s=finished_s, timeline=timeline)

    @property
    def _inside(self) -> int:
        return int(self._scan.flight.counts[0]["inside"])


class _InOrder:
    def __init__(self, world: World, schedule: Schedule):
        self.flight = _flight_state(world)
        self._cursor = np.zeros(1, np.int64)
        self.deal(schedule)

    def run(self, state: Any, unheard: Any, clock: Any, until_s: float, *book: Any) -> None:
        from blend.core.kernels import loop

        rows = (self._order, self._uncached, self._cursor)
        loop.run_in_order(state, self.flight, unheard, clock, *rows, until_s, *book)

    @property
    def left(self) -> Ints:
        return self._order[int(self._cursor[0]) :]

    def deal(self, schedule: Schedule) -> None:
        self._order = schedule.order.astype(np.int64)
        self._uncached = schedule.uncached_tokens.astype(np.int64)
        self._cursor[0] = 0


class _Dual:
    def __init__(self, world: World, schedule: Schedule):
        from blend.core.kernels.dual import new_dual

        self.flight = _flight_state(world)
        self._dual = new_dual(self.flight, schedule, prompt=world.prompts)

    def run(self, state: Any, unheard: Any, clock: Any, until_s: float, *book: Any) -> None:
        from blend.core.kernels import loop

        loop.run_dual(state, self._dual, unheard, clock, until_s, *book)

    @property
    def left(self) -> Ints:
        at = self._dual.state[0]
        rows: Ints = self._dual.order[int(at["left"]) : int(at["right"]) + 1]
        return rows

    def deal(self, schedule: Schedule) -> None:
        from blend.core.kernels.dual import dealt_dual

        self._dual = dealt_dual(self._dual, schedule)


class _Blended:
    def __init__(self, world: World, schedule: Schedule, state: Any = None):
        from blend.core.running.blend_scan import new_state

        self._prompts = world.prompts
        self._blend = state or new_state(
            schedule,
            prompt_tokens=world.prompts,
            sequences=np.ones(len(world.prompts), np.int64),
            capacity=world.engine.capacity,
        )
        self.flight = self._blend.flight

    def run(self, state: Any, unheard: Any, clock: Any, until_s: float, *book: Any) -> None:
        from blend.core.kernels import loop

        loop.run_blended(state, self._blend, unheard, clock, until_s, *book)

    @property
    def left(self) -> Ints:
        from blend.core.kernels.blend import left_blended

        rows: Ints = left_blended(self._blend)
        return rows

    def deal(self, schedule: Schedule) -> None:
        from blend.core.running.blend_scan import dealt_state

        self._blend = dealt_state(self._blend, schedule, prompt_tokens=self._prompts)


def _names(columns: Any) -> tuple[str, ...]:
    names: tuple[str, ...] = columns.dtype.names
    return names


def _engine_state(world: World) -> Any:
    from blend.core.kernels.engine import Limits, new_engine

    capacity = world.engine.capacity
    limits = Limits(
        blocks_of_use(capacity, world.prompts + world.outputs),
        capacity.block_tokens,
        capacity.max_sequences,
        capacity.step_tokens,
        capacity.prefill_threshold,
        capacity.report_lag,
    )
    return new_engine(
        limits,
        prompt_tokens=world.prompts,
        output_tokens=world.outputs,
        keys=world.keys,
        key_starts=world.key_starts,
    )


def _flight_state(world: World) -> Any:
    from blend.core.kernels.flight import new_flight

    capacity = world.engine.capacity
    return new_flight(
        np.ones(len(world.prompts), np.int64),
        kv_tokens=capacity.kv_tokens,
        max_sequences=capacity.max_sequences,
        step_tokens=capacity.step_tokens,
    )


def _clock(engine: EngineModel) -> Any:
    from blend.core.kernels.clock import Clock

    return Clock(
        engine.token_s,
        engine.decode_s,
        engine.pair_s,
        engine.read_s,
        engine.weights_s,
        engine.overhead_s,
        engine.network_token_s,
        engine.network_step_s,
        engine.interference.coefficients,
        engine.mode == "overlapped",
        engine.shared_bandwidth,
    )


def _line_count(world: World, schedule: Schedule, line_steps: int) -> int:
    # No run takes more steps than its tokens; most take far fewer.
    most = int(world.outputs[schedule.order].sum()) + len(schedule)
    return min(most // line_steps + 1, 1 << 16)
