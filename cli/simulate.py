"""`blend simulate`: how long a job would take on a device, under each policy; runs nothing."""

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from blend.cli.api import Batch
from blend.cli.comparing import SimulatedDevice
from blend.cli.completion import devices, policies
from blend.cli.console import err, inert, out, print_json
from blend.cli.options import (
    DATA_PARALLEL,
    DTYPE,
    GPU_MEMORY,
    MAX_SEED,
    MAX_SEQUENCES,
    PIPELINE_PARALLEL,
    STEP_TOKENS,
    TENSOR_PARALLEL,
    JobArgument,
    JsonOption,
)
from blend.cli.views.simulation import document, draw
from blend.cli.wording import counted, percent
from blend.core.command_line import command_line
from blend.core.errors import BlendError
from blend.core.planning.classes import Mode
from blend.core.schedule import POLICIES, Policy
from blend.store.job import Job

if TYPE_CHECKING:
    from blend.core.planning.outlook import Outlook

TELL_S = 30.0


def simulate_command(
    job_path: JobArgument,
    hardware: Annotated[
        str | None,
        typer.Option(
            "--hardware",
            "--gpu",
            metavar="NAME",
            autocompletion=devices,
            help="The device, such as h200; `measured`: this machine as its runs were; "
            "`calibrated` or a file: as `blend calibrate` found it; the best known if absent.",
        ),
    ] = None,
    tensor_parallel_size: Annotated[int, TENSOR_PARALLEL] = 1,
    pipeline_parallel_size: Annotated[int, PIPELINE_PARALLEL] = 1,
    data_parallel_size: Annotated[int, DATA_PARALLEL] = 1,
    policy: Annotated[
        str,
        typer.Option(
            metavar="all|NAME,…", autocompletion=policies, help="The policies to simulate."
        ),
    ] = "all",
    mode: Annotated[
        Mode,
        typer.Option(
            "--mode",
            "--engine-model",
            help="Does the engine overlap compute with memory traffic?",
        ),
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
    gpu_memory_utilization: Annotated[float, GPU_MEMORY] = 0.9,
    max_num_seqs: Annotated[int, MAX_SEQUENCES] = 1024,
    max_num_batched_tokens: Annotated[int, STEP_TOKENS] = 8192,
    dtype: Annotated[str | None, DTYPE] = None,
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
        draw(found, counts, replicas=data_parallel_size)
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
