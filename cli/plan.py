"""`blend plan`: run a small sample, build the prefix tree, write the schedule."""

from typing import Annotated

import typer

from blend.cli.api import Batch
from blend.cli.completion import devices
from blend.cli.console import err, inert
from blend.cli.display import ProgressStyle, display_options, shown
from blend.cli.engine_options import EngineOptions
from blend.cli.interrupt import drain_on_interrupt
from blend.cli.machine import this_hardware
from blend.cli.next_steps import next_command
from blend.cli.options import JobArgument, engine_options, takes
from blend.cli.sampled_plan import PlanChoices
from blend.core.command_line import command_line
from blend.core.errors import RESUMABLE
from blend.core.schedule import PolicyChoice
from blend.store.job import Job

_PLAN = "Plan"

CHOICES = PlanChoices()


def plan_choices(
    policy: Annotated[
        PolicyChoice,
        typer.Option(
            help="How to order and admit; auto simulates several and keeps the fastest.",
            rich_help_panel=_PLAN,
        ),
    ] = CHOICES.policy,
    no_sample: Annotated[
        bool,
        typer.Option(
            "--no-sample", help="Run nothing: guess lengths from max_tokens.", rich_help_panel=_PLAN
        ),
    ] = False,
    sample_rate: Annotated[
        float,
        typer.Option(
            min=0,
            max=1,
            metavar="SHARE",
            help="Share of the requests to run as the sample.",
            rich_help_panel=_PLAN,
        ),
    ] = CHOICES.sample_rate,
    sample_seconds: Annotated[
        float,
        typer.Option(
            min=0,
            metavar="SECONDS",
            help="Make the plan when the sample has run so long; `blend run` lets it go on, "
            "`blend plan` cuts it off.",
            rich_help_panel=_PLAN,
        ),
    ] = CHOICES.sample_s,
    hardware: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            autocompletion=devices,
            help="Plan for this device, such as h100, `calibrated` or a file of `blend calibrate`; "
            "if absent this machine, as far as it is known.",
            rich_help_panel=_PLAN,
        ),
    ] = None,
    plan_time: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="SECONDS",
            help="Seconds to plan in; 5 % of the predicted run if absent. The policy auto takes "
            "five at least, and a minute or two the first time, to compile the simulator.",
            rich_help_panel=_PLAN,
        ),
    ] = None,
    no_fan_out: Annotated[
        bool,
        typer.Option(
            "--no-fan-out",
            help="Run every request, also those that are identical and sampled with temperature 0 "
            "or a seed; of these one runs otherwise, for all.",
            rich_help_panel=_PLAN,
        ),
    ] = False,
) -> PlanChoices:
    """Collect what a person says about planning; BlendError for a device that nobody knows."""
    if hardware is not None:
        this_hardware(hardware)
    rate = 0.0 if no_sample else sample_rate
    return PlanChoices(policy, rate, sample_seconds, hardware, plan_time, not no_fan_out)


@takes(choices=plan_choices, options=engine_options, progress=display_options)
def plan_command(
    job_path: JobArgument,
    *,
    choices: PlanChoices,
    options: EngineOptions,
    progress: ProgressStyle,
) -> None:
    """Run a small sample to learn output lengths, then put all requests in order."""
    plan = Batch(job_path).plan(
        options, choices, watch=shown(progress), interrupt=drain_on_interrupt()
    )
    if plan is None:
        again = inert(command_line("blend", "plan", job_path))
        err.print(f"not planned; what the sample finished is kept: `{again}`")
        raise typer.Exit(RESUMABLE)
    look = inert(command_line("blend", "show", job_path, "schedule"))
    with Job.open(job_path) as job:
        err.print(f"next: `{look}`, `{inert(next_command(job, job.counts()))}`")
