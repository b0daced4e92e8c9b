"""Simulated runs of a whole job under each policy: what they come to, and what they assume."""

from dataclasses import asdict
from typing import TYPE_CHECKING

from blend.cli.console import inert, out
from blend.cli.machine import CALIBRATED
from blend.cli.views.outlook import policies_table, unit_of
from blend.cli.wording import counted, percent, significant
from blend.core.planning.engine_model import EngineModel
from blend.store.job import Counts

if TYPE_CHECKING:
    from blend.core.planning.outlook import Outlook


def document(found: "Outlook", counts: Counts, *, devices: int, seed: int) -> dict[str, object]:
    """Return the comparison as JSON values; docs/simulate.md says what each means."""
    engine = found.engine
    return {
        "hardware": asdict(engine.hardware) | {"devices": devices},
        "model": asdict(engine.model),
        "engine": asdict(engine.capacity)
        | {
            "mode": engine.mode,
            "interference": engine.interference,
            "step_overhead_s": engine.overhead_s,
            "network_token_s": engine.network_token_s,
            "network_step_s": engine.network_step_s,
            "measured": asdict(engine.measured) if engine.measured else None,
        },
        "requests": counts.total,
        "answered": counts.answered,
        "sequences": found.rows,
        "prompt_tokens": found.prompt_tokens,
        "output_tokens": found.output_tokens,
        "best_sharing": found.best_sharing,
        "cut_answers": found.cut_answers,
        "draws": found.draws,
        "seed": seed,
        "bound_s": found.bound_s,
        "practical_optimum_s": found.optimum_s,
        "policies": found.described(),
        "assumes": assumptions(found, counts),
    }


def draw(found: "Outlook", counts: Counts, *, replicas: int) -> None:
    """Print what is simulated, the policies as a table, and what the figures assume."""
    engine = found.engine
    several = f"{counted(replicas)} replicas, each on " if replicas > 1 else "on "
    out.print(
        f"{counted(counts.total, 'requests')} for {inert(engine.model.name)}\n"
        f"{several}{engine.hardware.name}, {engine.mode}: "
        f"a KV cache of {counted(engine.capacity.kv_tokens, 'tokens')}\n"
        f"{counted(found.prompt_tokens, 'prompt tokens')} "
        f"({percent(found.best_sharing)} shared at best), "
        f"about {counted(found.output_tokens, 'output tokens')}\n"
    )
    out.print(policies_table(found.described(), draws=found.draws))
    unit, unit_s = unit_of(found.candidates[0].seconds)
    bound, optimum = (significant(s / unit_s) for s in (found.bound_s, found.optimum_s))
    out.print(f"\nno order takes less than {bound} {unit}: bound is the share of that reached")
    if engine.mode == "overlapped":
        out.print(f"practical optimum, reading the weights left out: {optimum} {unit}")
    out.print("shared: of what can be shared; KV: its peak; behind: the fastest")
    for line in assumptions(found, counts):
        out.print(f"- {line}")


def _length_assumption(counts: Counts) -> str:
    if not counts.answered:
        return "lengths: no answer is known; all are guessed from the limits: run `blend plan`"
    if counts.answered == counts.total:
        return "lengths: all answers are known"
    return f"lengths: {counted(counts.answered)} answers are known, the others drawn from estimates"


def _device_assumption(engine: EngineModel) -> str:
    if engine.measured:
        return "device: steps cost what was measured of this model"
    if engine.hardware.source == CALIBRATED:
        return "device: as `blend calibrate` found it, with the layers of some model"
    return "device: peaks of its datasheet, never reached: trust ratios more than times"


def _devices_assumption(engine: EngineModel) -> list[str]:
    """Return what several devices take for granted, nothing of one."""
    hardware = engine.hardware
    if hardware.tensor * hardware.stages == 1:
        return []
    talk = "what they say to each other is in the measured steps"
    if not engine.measured:
        us, ms = 1e6 * engine.network_token_s, 1000 * engine.network_step_s
        talk = f"they talk for {ms:.2g} ms a step and {us:.2g} us a token"
    lines = [f"several devices: as one larger one; {talk}"]
    if hardware.stages > 1:
        lines.append(
            f"pipeline: a step is a round of {hardware.stages} batches, each with a part of the "
            "sequences, its own reads of the weights and its own overhead"
        )
    return lines


def assumptions(found: "Outlook", counts: Counts) -> list[str]:
    """Return what the figures take for granted, a line each."""
    engine = found.engine
    lines = [
        _length_assumption(counts),
        f"range: 10 % to 90 % of {counted(found.draws, 'draws')} of the sample and the lengths"
        if found.draws > 1
        else "one draw of the sample and the lengths: no range",
        _device_assumption(engine),
        f"a step costs {1000 * engine.overhead_s:.1f} ms beside compute and memory",
        "the whole job from its start, in one go; engine start and sample not counted",
    ]
    if any(one.policy == "blend" for one in found.candidates):
        lines.append("blend: by the budget of each step unless said otherwise; see `--pacing`")
    lines += _devices_assumption(engine)
    if engine.mode == "overlapped":
        lines.append(
            "overlap: a step takes the largest of compute, memory and communication "
            f"and {engine.interference} of the others"
            if engine.network_step_s
            else "overlap: a step takes the larger of compute and memory "
            f"and {engine.interference} of the lesser"
        )
    if found.cut_answers:
        lines.append(f"{counted(found.cut_answers)} answers end where the cache is full")
    return lines
