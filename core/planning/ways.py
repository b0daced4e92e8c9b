"""In which ways can an engine run a job? What paces its prefill, and the options it starts with.

    step-budget   the engine computes so many prompt tokens a step as it is told
    gate          the scanner submits so much as brings each step to its pace; prompts in pieces
    none          the engine computes what it is given, at most its own steps; these may be small

All three are options of the simulated engine, so that what is simulated is what can be executed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from blend.core.engines import Capacity
from blend.core.planning.classes import Blending
from blend.core.planning.engine_model import EngineModel

PacingName = Literal["step-budget", "gate", "none"]

STEP_TOKENS = "max-num-scheduled-tokens"
PREFILL_THRESHOLD = "long-prefill-token-threshold"
MAX_SEQUENCES = "max-num-seqs"

LEAST_FREE_TOKENS = 64
"""Prompt tokens that must ride free on a step before a pace is worth anything."""

PIECES = 4
"""Prompts in pieces that together fill what rides free on a step."""

LARGE_STEP_TOKENS = 1024
MORE_SEQUENCES = 4


@dataclass(frozen=True, slots=True)
class Way:
    """What paces prefill, and the engine's options for it; 0 where the engine keeps its own."""

    pacing: PacingName = "none"
    step_tokens: int = 0
    prefill_threshold: int = 0
    max_sequences: int = 0

    def capacity(self, capacity: Capacity) -> Capacity:
        """Return what an engine of this capacity can do when it is run in this way."""
        return replace(
            capacity,
            step_tokens=self.step_tokens or capacity.step_tokens,
            prefill_threshold=self.prefill_threshold or capacity.prefill_threshold,
            max_sequences=self.max_sequences or capacity.max_sequences,
            pacing="step budget" if self.pacing == "step-budget" else "none",
        )

    def engine(self, engine: EngineModel) -> EngineModel:
        """Return *engine* as it is when run in this way."""
        return replace(engine, capacity=self.capacity(engine.capacity))

    @property
    def arguments(self) -> dict[str, str]:
        """Return the options that the engine is started with, under vLLM's names."""
        options = {
            STEP_TOKENS: self.step_tokens,
            PREFILL_THRESHOLD: self.prefill_threshold,
            MAX_SEQUENCES: self.max_sequences,
        }
        return {name: str(value) for name, value in options.items() if value}


AS_IT_COMES = Way()


@dataclass(frozen=True, slots=True)
class Reach:
    """What can still be chosen: ``pacings``, the best first, and options unless it has started.

    ``given``: the names of options that a person has set, which stay as they are.
    """

    pacings: tuple[PacingName, ...] = ("step-budget", "gate", "none")
    started: bool = False
    given: frozenset[str] = frozenset()

    def may_set(self, option: str) -> bool:
        """Tell whether the engine can be given an *option* of the plan's choice."""
        return not self.started and option not in self.given


ANY = Reach()


def paced_ways(engine: EngineModel, reach: Reach) -> Sequence[Way]:
    """Return the ways in which the blending scanner can pace *engine*, the best first."""
    pieces = _piece_tokens(engine) if reach.may_set(PREFILL_THRESHOLD) else 0
    of = {"step-budget": Way("step-budget"), "gate": Way("gate", prefill_threshold=pieces)}
    return [of[pacing] for pacing in reach.pacings if pacing != "none"]


def small_step_ways(engine: EngineModel, reach: Reach) -> Sequence[Way]:
    """Return the ways that limit all steps alike: to what rides free, and to a good part more."""
    free = free_tokens(engine)
    if not free or not reach.may_set(STEP_TOKENS):
        return ()
    sizes = (-(-free // 64) * 64, LARGE_STEP_TOKENS)
    return [Way(step_tokens=size) for size in sizes if size < engine.capacity.step_tokens]


def more_sequences(way: Way, engine: EngineModel) -> Way:
    """Return *way* with room for more sequences in a step."""
    return replace(way, max_sequences=MORE_SEQUENCES * engine.capacity.max_sequences)


def told_of(blending: Blending, engine: EngineModel) -> Blending:
    """Return what the scanner is told, with the seconds of *engine*."""
    return replace(
        blending,
        token_s=engine.token_s,
        read_s=engine.read_s,
        weights_s=engine.weights_s,
        calibrated=engine.measured is not None,
    )


def free_tokens(engine: EngineModel) -> int:
    """Return the tokens that are computed while a step reads the weights, 0 for a few."""
    free = int(engine.weights_s / engine.token_s) if engine.token_s > 0.0 else 0
    return free if free >= LEAST_FREE_TOKENS else 0


def _piece_tokens(engine: EngineModel) -> int:
    free = free_tokens(engine)
    return max(free // PIECES // 16, 1) * 16 if free else 0
