"""Which commands are there? A command's module is imported only when it is the one named.

So `blend --help` needs none of them, and `blend show` nothing of what runs an engine.
"""

from collections.abc import Callable, Collection
from importlib import import_module
from typing import NamedTuple

import typer


class Command(NamedTuple):
    """Where a command is, and what `blend --help` says of it."""

    module: str
    function: str
    panel: str
    help: str


COMMANDS = {
    "run": Command(
        "blend.cli.run",
        "run_command",
        "All in one",
        "Ingest, plan, execute and export in one; the same command again resumes.",
    ),
    "check": Command(
        "blend.cli.check",
        "check_command",
        "Stages",
        "Validate request files: which lines would be accepted, and why others would not.",
    ),
    "ingest": Command(
        "blend.cli.ingest",
        "ingest_command",
        "Stages",
        "Validate request files, tokenise them with the model's tokenizer, and keep them in a job.",
    ),
    "plan": Command(
        "blend.cli.plan",
        "plan_command",
        "Stages",
        "Run a small sample to learn output lengths, then put all requests in order.",
    ),
    "execute": Command(
        "blend.cli.execute",
        "execute_command",
        "Stages",
        "Run every request that has no result yet, in the order of the plan.",
    ),
    "export": Command(
        "blend.cli.export",
        "export_command",
        "Stages",
        "Write the results so far as OpenAI batch files, in input order.",
    ),
    "retry": Command(
        "blend.cli.retry",
        "retry_command",
        "Stages",
        "Take back results, those that failed or were cut, so that their requests run again.",
    ),
    "simulate": Command(
        "blend.cli.simulate",
        "simulate_command",
        "Looking in",
        "Predict how long the job would take on a device under each policy; runs nothing.",
    ),
    "calibrate": Command(
        "blend.cli.calibrate",
        "calibrate_command",
        "This machine",
        "Measure what this machine can do, for plans and simulations, or learn it from a job.",
    ),
    "doctor": Command(
        "blend.cli.doctor",
        "doctor_command",
        "This machine",
        "Say whether this machine can run jobs, and a job can go on, and what helps if not.",
    ),
    "show": Command(
        "blend.cli.show",
        "show_command",
        "Looking in",
        "Look at the job, its schedule, its prefix tree, or one request by its custom_id.",
    ),
    "report": Command(
        "blend.cli.report",
        "report_command",
        "Looking in",
        "Write what the job is, what its plan foresaw and how it went as one HTML file.",
    ),
    "status": Command(
        "blend.cli.status",
        "status_command",
        "Looking in",
        "Say how far a job is: rows answered, failed and left, rejected lines, failures by cause.",
    ),
}


def add_commands(app: typer.Typer, named: Collection[str]) -> None:
    """Give *app* every command; only those *named* can be called, the others just be listed."""
    for name, command in COMMANDS.items():
        function = command_function(command) if name in named else _listed
        app.command(name, help=command.help, rich_help_panel=command.panel)(function)


def command_function(command: Command) -> Callable[..., None]:
    """Import and return what a command calls."""
    function: Callable[..., None] = getattr(import_module(command.module), command.function)
    return function


def _listed() -> None:
    raise RuntimeError("this command was not named on the command line")
