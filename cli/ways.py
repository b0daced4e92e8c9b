"""In which ways can the engine be run here, and in which has the plan chosen to run it?"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from blend.cli.engine_options import EngineOptions
from blend.core.engines import Capacity
from blend.core.engines.vllm_arguments import CPU_DEFAULTS, CPU_STEP_TOKENS, GPU_DEFAULTS
from blend.core.planning.engine_model import EngineModel, engine_model
from blend.core.planning.hardware import Hardware, ModelShape
from blend.core.planning.ways import (
    AS_IT_COMES,
    MAX_SEQUENCES,
    PREFILL_THRESHOLD,
    STEP_TOKENS,
    PacingName,
    Reach,
    Way,
    paced_ways,
)
from blend.core.schedule import PolicyChoice, Schedule
from blend.store.job import PlanRecord

# What a person says of the size of a step, under any of its names, goes before the plan.
_STEP_SIZES = {STEP_TOKENS, "max-num-batched-tokens"}


def reach_of(options: EngineOptions, capacity: Capacity | None, *, started: bool) -> Reach:
    """Return what a plan may choose, for an engine of *capacity* where one runs.

    ``started``: it goes on with that engine, whose options are settled.
    """
    pacings = _pacings(options, capacity, started=started)
    given = set(options.arguments)
    if _STEP_SIZES & given:
        given.add(STEP_TOKENS)
    return Reach(pacings, started or options.name == "openai", frozenset(given))


def _pacings(
    options: EngineOptions, capacity: Capacity | None, *, started: bool
) -> tuple[PacingName, ...]:
    if options.name == "openai" or options.pacing == "none":
        return ("none",)
    budgeted = capacity is not None and capacity.pacing == "step budget"
    if started:
        return ("step-budget", "none") if budgeted else ("gate", "none")
    if options.pacing == "gate":
        return ("gate", "none")
    if options.name == "sim":
        return ("step-budget", "gate", "none")
    # The budget of vLLM's steps is set by no public interface: it has to be asked for.
    asked = options.pacing == "step-budget" and capacity is None
    return ("step-budget", "gate", "none") if budgeted or asked else ("gate", "none")


def with_way(options: EngineOptions, plan: PlanRecord | None) -> EngineOptions:
    """Return *options* with what the plan has chosen, where a person has said nothing."""
    way = way_of(plan)
    if way is None or options.name == "openai":
        return options
    given = options.arguments
    chosen: dict[str, str | None] = {
        name: value
        for name, value in way.arguments.items()
        if not (name == STEP_TOKENS and _STEP_SIZES & given.keys())
    }
    pacing = options.pacing or way.pacing
    if pacing != way.pacing:
        # Without the gate that it is for, it would only cut prompts into small pieces.
        chosen.pop(PREFILL_THRESHOLD, None)
    return replace(options, arguments=chosen | dict(given), pacing=pacing)


def ready_to_gate(
    options: EngineOptions, policy: PolicyChoice, *, hardware: Hardware, model: ModelShape
) -> EngineOptions:
    """Return options with which an engine that starts before the plan can be paced by a gate."""
    able = options.name == "vllm" and options.pacing in (None, "gate") and hardware.name != "cpu"
    if not able or policy not in ("blend", "auto") or PREFILL_THRESHOLD in options.arguments:
        return options
    (way, *_) = paced_ways(engine_model(hardware, model), Reach(("gate",)))
    return replace(options, arguments=way.arguments | dict(options.arguments))


def paced_as_asked(schedule: Schedule, options: EngineOptions) -> Schedule:
    """Return the schedule, its scanner without a pace where there is to be none."""
    unpaced = options.pacing == "none" or options.name == "openai"
    if schedule.blending is None or not unpaced:
        return schedule
    return replace(schedule, blending=replace(schedule.blending, paced=False))


def way_of(plan: PlanRecord | None) -> Way | None:
    """Return how the plan wants the engine to be run; None where that is as it comes."""
    stored: Mapping[str, Any] | None = plan.settings.get("way") if plan else None
    way = Way(**stored) if stored else AS_IT_COMES
    return None if way == AS_IT_COMES else way


def way_in_words(way: Way) -> str:
    """Return what a way asks of an engine, for a person."""
    pacings = {
        "step-budget": "prefill paced by step budgets",
        "gate": "prefill paced by a gate",
        "none": "no pace",
    }
    options = [f"--{name} {value}" for name, value in way.arguments.items()]
    return ", ".join([pacings[way.pacing], *options])


def assumed_capacity(engine: EngineModel, options: EngineOptions, *, context: int) -> Capacity:
    """Return what vLLM will hold when it is started with *options*, as far as they say so."""
    on_cpu = engine.hardware.name == "cpu"
    flags = (CPU_DEFAULTS if on_cpu else GPU_DEFAULTS) | dict(options.arguments)
    held = _number(flags, "kv-cache-memory-bytes", 0) / engine.model.kv_bytes_per_token
    context = _number(flags, "max-model-len", context)
    batched = max(context, CPU_STEP_TOKENS) if on_cpu else engine.capacity.step_tokens
    step_tokens = _number(flags, "max-num-batched-tokens", batched)
    return replace(
        engine.capacity,
        kv_tokens=int(held) or engine.capacity.kv_tokens,
        max_sequences=_number(flags, MAX_SEQUENCES, engine.capacity.max_sequences),
        step_tokens=min(step_tokens, _number(flags, STEP_TOKENS, step_tokens)),
        prefill_threshold=_number(flags, PREFILL_THRESHOLD, engine.capacity.prefill_threshold),
        context_tokens=context,
        block_tokens=_number(flags, "block-size", engine.capacity.block_tokens),
    )


def _number(flags: Mapping[str, str | None], name: str, default: int) -> int:
    """Return the value of a flag where it is a plain number: vLLM knows other ways to say one."""
    value = flags.get(name) or ""
    return int(value) if value.isdecimal() else default
