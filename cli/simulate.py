"""`blend simulate`: how long a job would take on a device, under each policy; runs nothing."""

import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from blend.cli.api import Batch
from blend.cli.comparing import SimulatedDevice
from blend.cli.completion import devices, policies
from blend.cli.console import err, inert, out, print_json
from blend.cli.machine import CALIBRATED
from blend.cli.options import MAX_SEED, JobArgument, JsonOption
from blend.cli.views.outlook import policies_table, unit_of
from blend.cli.wording import counted, percent, significant
from blend.core.command_line import command_line
from blend.core.errors import BlendError
from blend.core.planning.classes import Mode
from blend.core.planning.engine_model import EngineModel
from blend.core.schedule import POLICIES, Policy
from blend.store.job import Counts, Job

if TYPE_CHECKING:
    from blend.core.planning.outlook import Outlook

TELL_S = 30.0


def simulate_command(
    job_path: JobArgument,
    hardware: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            autocompletion=devices,
            help="The device, such as h200; `measured`: this machine as its runs were; "
            "`calibrated` or a file: as `blend calibrate` found it; the best known if absent.",
        ),
    ] = None,
    tensor_parallel_size: Annotated[
        int,
        typer.Option(
            "--tensor-parallel-size",
            "-tp",
            min=1,
            metavar="N",
            rich_help_panel="Engine",
            help="Devices that share it.",
        ),
    ] = 1,
    pipeline_parallel_size: Annotated[
        int,
        typer.Option(
            "--pipeline-parallel-size",
            "-pp",
            min=1,
            metavar="N",
            rich_help_panel="Engine",
            help="Devices that hold its layers in turn.",
        ),
    ] = 1,
    data_parallel_size: Annotated[
        int,
        typer.Option(
            "--data-parallel-size",
            "-dp",
            min=1,
            metavar="N",
            rich_help_panel="Engine",
            help="Replicas of the engine, each with its part of the job.",
        ),
    ] = 1,
    policy: Annotated[
        str,
        typer.Option(
            metavar="all|NAME,…", autocompletion=policies, help="The policies to simulate."
        ),
    ] = "all",
    mode: Annotated[
        Mode, typer.Option(help="Does the engine overlap compute with memory traffic?")
    ] = "sequential",
    draws: Annotated[
        int, typer.Option(min=1, metavar="N", help="How often to draw the lengths, for the range.")
    ] = 5,
    step_overhead_ms: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="MS",
            help="Time of a step beside its compute and memory; as calibrated, or 0.",
        ),
    ] = None,
    gpu_memory_utilization: Annotated[
        float,
        typer.Option(
            min=0,
            max=1,
            metavar="SHARE",
            rich_help_panel="Engine",
            help="Share of the GPU memory to use.",
        ),
    ] = 0.9,
    max_num_seqs: Annotated[
        int,
        typer.Option(
            min=1, metavar="N", rich_help_panel="Engine", help="Sequences in one step at most."
        ),
    ] = 1024,
    max_num_batched_tokens: Annotated[
        int,
        typer.Option(
            min=1, metavar="N", rich_help_panel="Engine", help="Tokens in one step at most."
        ),
    ] = 8192,
    dtype: Annotated[
        str | None,
        typer.Option(metavar="TYPE", rich_help_panel="Engine", help="Data type of the weights."),
    ] = None,
    kv_cache_dtype: Annotated[
        str | None,
        typer.Option(metavar="TYPE", rich_help_panel="Engine", help="Data type of the KV cache."),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(
            min=0, max=MAX_SEED, metavar="N", help="Seed of the draws and the random order."
        ),
    ] = 0,
    as_json: JsonOption = False,
) -> None:
    """Predict how long the job would take on a device under each policy; runs nothing."""
    device = SimulatedDevice(
        hardware,
        devices=tensor_parallel_size,
        stages=pipeline_parallel_size,
        mode=mode,
        step_overhead_s=None if step_overhead_ms is None else step_overhead_ms / 1000.0,
        memory_fraction=gpu_memory_utilization,
        max_sequences=max_num_seqs,
        step_tokens=max_num_batched_tokens,
        dtype=dtype,
        kv_cache_dtype=kv_cache_dtype,
        replicas=data_parallel_size,
    )
    found = Batch(job_path).simulate(
        device,
        policies=_policies(policy),
        draws=draws,
        seed=seed,
        on_run=_Watch(draws).tell,
    )
    with Job.open(job_path) as job:
        counts, planned = job.counts(), job.plan()
    several = _scaling(job_path, device, found, seed=seed) if data_parallel_size > 1 else None
    if as_json:
        json = document(found, counts, devices=device.parallel.devices, seed=seed)
        print_json(json | {"replicas": several})
    else:
        draw(found, counts)
        if several:
            out.print(f"\n{_in_words(several)}")
        best = found.candidates[0]
        if counts.unfinished and (planned is None or planned.policy != best.policy):
            err.print(
                f"next: `{inert(command_line('blend', 'plan', job_path, '--policy', best.policy))}`"
            )


def _scaling(
    job_path: Path, device: SimulatedDevice, found: "Outlook", *, seed: int
) -> dict[str, Any]:
    """Return how the best way on several replicas compares with the same way on one."""
    best = found.candidates[0]
    alone = Batch(job_path).simulate(
        replace(device, replicas=1), policies=(best.policy,), draws=found.draws, seed=seed
    )
    one = next(one for one in alone.candidates if one.name == best.name)
    return {
        "count": device.replicas,
        "one_s": one.seconds,
        "speedup": one.seconds / best.seconds,
        "sharing_lost": 1.0 - best.sharing / one.sharing if one.sharing else 0.0,
    }


def _in_words(several: Mapping[str, Any]) -> str:
    return (
        f"{counted(several['count'], 'replicas')}: {several['speedup']:.2f} times as fast as one, "
        f"{percent(max(several['sharing_lost'], 0.0))} of the sharing lost"
    )


class _Watch:
    """Says on stderr how far a long comparison is, every half minute."""

    def __init__(self, draws: int):
        self._draws, self._done, self._told_s = draws, 0, time.monotonic()

    def tell(self, runs: int) -> None:
        """Hear that another run begins, of so many in each draw."""
        if time.monotonic() - self._told_s >= TELL_S:
            self._told_s = time.monotonic()
            err.print(f"simulated {self._done} of {runs * self._draws} runs")
        self._done += 1


def _policies(asked: str) -> tuple[Policy, ...]:
    """Return the policies that a text names, parted by commas; BlendError for an unknown one."""
    names = {name.strip() for name in asked.split(",")}
    unknown = sorted(names - {"all", *POLICIES})
    if unknown:
        raise BlendError(
            f"unknown policy: {', '.join(unknown)}", hint=f"known: all, {', '.join(POLICIES)}"
        )
    return POLICIES if "all" in names else tuple(one for one in POLICIES if one in names)


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


def draw(found: "Outlook", counts: Counts) -> None:
    """Print what is simulated, the policies as a table, and what the figures assume."""
    engine = found.engine
    out.print(
        f"{counted(counts.total, 'requests')} for {inert(engine.model.name)}\n"
        f"on {engine.hardware.name}, {engine.mode}: "
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
        f"lengths: {counted(counts.answered)} answers are known, the others drawn from estimates"
        if counts.answered
        else "lengths: no answer is known; all are guessed from the limits: run `blend plan`",
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
