"""`blend plan`: run a small sample, build the prefix tree, write the schedule."""

from contextlib import nullcontext
from typing import Annotated

import typer

from blend.cli.api import (
    PlanOptions,
    RunContext,
    observations_of,
    plan_job,
    run_rows,
    sample_schedule,
)
from blend.cli.console import counted, duration, err, inert, percent
from blend.cli.engine import await_engine, opened_engine
from blend.cli.execute import died
from blend.cli.interrupt import Interrupt, drain_on_interrupt
from blend.cli.job_model import model_of, shape_of
from blend.cli.machine import this_hardware
from blend.cli.options import EngineOptions, JobArgument, SeedOption, takes_engine
from blend.cli.progress import RunProgress
from blend.cli.views.schedule import number
from blend.core.engines import Engine, EngineDiedError, StepReport
from blend.core.errors import RESUMABLE
from blend.core.plan import Plan
from blend.core.schedule import Policy, Schedule
from blend.core.tree import build_tree
from blend.store.job import Job

PolicyOption = Annotated[Policy, typer.Option(help="The order: the paper's, or a plain one.")]
NoSampleOption = Annotated[
    bool, typer.Option("--no-sample", help="Run nothing: guess lengths from max_tokens.")
]
SampleRateOption = Annotated[
    float, typer.Option(min=0, max=1, help="Share of the requests to run as the sample.")
]
SampleSecondsOption = Annotated[
    float, typer.Option(min=0, help="Cut the sample off after this many seconds.")
]
HardwareOption = Annotated[
    str | None,
    typer.Option(help="Plan for this device, such as h100; this machine's if absent."),
]


def plan_options(
    job: Job,
    options: EngineOptions,
    *,
    policy: Policy,
    hardware: str | None,
    sample_rate: float,
    sample_seconds: float,
    seed: int,
) -> PlanOptions:
    """Collect what a plan is made with, for the job's model on the device that will run it."""
    device = this_hardware(hardware)
    return PlanOptions(
        policy,
        device,
        shape_of(job, options.arguments, on_cpu=device.name == "cpu"),
        seed=seed,
        sample_rate=sample_rate,
        sample_s=sample_seconds,
    )


def make_plan(
    job: Job,
    engine: Engine | None,
    settings: PlanOptions,
    *,
    options: EngineOptions,
    interrupt: Interrupt,
) -> Plan | None:
    """Sample, plan, save and say what to expect; None when interrupted before there was a plan."""
    model_of(job)
    prompts = job.prompts()
    tree = build_tree(prompts)
    dropped: dict[int, int] = {}
    if engine is not None:
        sample = sample_schedule(job, prompts, tree, settings)
        if len(sample) and await_engine(engine, options.name, interrupt):
            dropped = _warm_up(job, engine, sample, settings, options=options, interrupt=interrupt)
    if interrupt.asked:
        return None
    plan = plan_job(job, prompts, tree, settings, observations_of(job, prompts, dropped))
    _print_plan(plan)
    return plan


def _warm_up(
    job: Job,
    engine: Engine,
    sample: Schedule,
    settings: PlanOptions,
    *,
    options: EngineOptions,
    interrupt: Interrupt,
) -> dict[int, int]:
    progress = RunProgress("sample", len(sample), float(len(sample)), engine.capacity.kv_tokens)
    with progress:

        def show(report: StepReport) -> None:
            progress.update(report, work=len(report.completions))

        dropped = run_rows(
            job,
            sample,
            engine,
            RunContext(
                "sample",
                options.name,
                dict(options.arguments),
                cut=lambda: interrupt.asked or progress.engine_s >= settings.sample_s,
                on_report=show,
            ),
        )
    cut = f", {counted(len(dropped))} cut off and given back" if dropped else ""
    err.print(
        f"sampled {counted(len(sample), 'requests')} in {duration(progress.elapsed_s)}: "
        f"{counted(progress.answered + progress.failed)} have results{cut}"
    )
    return dict(dropped)


def _print_plan(plan: Plan) -> None:
    expected = plan.prediction
    err.print(
        f"planned {counted(expected.rows, 'requests')} ({plan.schedule.policy}): "
        f"{counted(expected.prompt_tokens, 'prompt tokens')}, "
        f"{percent(expected.sharing)} shared of {percent(expected.best_sharing)} possible, "
        f"{counted(expected.output_tokens, 'output tokens')} expected, "
        f"density {number(expected.density)}"
    )
    if plan.split and plan.split.rows_moved:
        err.print(f"split {counted(plan.split.rows_moved, 'outliers')} off their prefixes")
    err.print(
        f"expected on {plan.settings.hardware.name}: {duration(expected.overlapped_s)} if compute "
        f"and memory overlap, {duration(expected.sequential_s)} if they do not"
    )


def _plan(job: Job, settings: PlanOptions, *, options: EngineOptions, seed: int) -> None:
    sampling = settings.sample_rate > 0
    opened = opened_engine(job, options, seed=seed) if sampling else nullcontext(None)
    with drain_on_interrupt() as interrupt, opened as engine:
        try:
            plan = make_plan(job, engine, settings, options=options, interrupt=interrupt)
        except EngineDiedError as error:
            raise died(error, job) from error
    name = inert(str(job.path))
    if plan is None:
        err.print(f"not planned; what the sample finished is kept: `blend plan {name}`")
        raise typer.Exit(RESUMABLE)
    err.print(f"next: `blend show {name} schedule`, `blend execute {name}`")


@takes_engine
def plan_command(
    job_path: JobArgument,
    *,
    options: EngineOptions,
    policy: PolicyOption = "paper",
    no_sample: NoSampleOption = False,
    sample_rate: SampleRateOption = 0.01,
    sample_seconds: SampleSecondsOption = 30.0,
    hardware: HardwareOption = None,
    seed: SeedOption = 0,
) -> None:
    """Run a small sample to learn output lengths, then put all requests in order."""
    with Job.open(job_path) as job, job.lock("plan"):
        settings = plan_options(
            job,
            options,
            policy=policy,
            hardware=hardware,
            sample_rate=0.0 if no_sample else sample_rate,
            sample_seconds=sample_seconds,
            seed=seed,
        )
        _plan(job, settings, options=options, seed=seed)
