"""Which commands are there? A command's module is imported only when it is the one named.

So `blend --help` needs none of them, and `blend show` nothing of what runs an engine.
"""

from collections.abc import Callable, Collection
from importlib import import_module
from typing import NamedTuple

import typer

from blend.cli.settings import SettingsCommand


class Command(NamedTuple):
    """Where a command is, what `blend --help` says of it, and a command line as an example."""

    module: str
    function: str
    panel: str
    help: str
    example: str = ""


COMMANDS = {
    "run": Command(
        "blend.cli.run",
        "run_command",
        "All in one",
        "Ingest, plan, execute and export in one; the same command again resumes.",
        "blend run -i requests.jsonl -o results.jsonl -m Qwen/Qwen2.5-7B-Instruct",
    ),
    "check": Command(
        "blend.cli.check",
        "check_command",
        "Stages",
        "Validate request files: which lines would be accepted, and why others would not.",
        "blend check requests.jsonl more/*.jsonl.gz",
    ),
    "ingest": Command(
        "blend.cli.ingest",
        "ingest_command",
        "Stages",
        "Validate request files, tokenise them with the model's tokenizer, and keep them in a job.",
        "blend ingest requests.jsonl --job batch.blend --model Qwen/Qwen2.5-7B-Instruct",
    ),
    "plan": Command(
        "blend.cli.plan",
        "plan_command",
        "Stages",
        "Run a small sample to learn output lengths, then put all requests in order.",
        "blend plan batch.blend --hardware h200",
    ),
    "execute": Command(
        "blend.cli.execute",
        "execute_command",
        "Stages",
        "Run every request that has no result yet, in the order of the plan.",
        "blend execute batch.blend --resume --max-time 8h",
    ),
    "export": Command(
        "blend.cli.export",
        "export_command",
        "Stages",
        "Write the results so far, in input order: as OpenAI batch files, or as tables.",
        "blend export batch.blend -o results.jsonl",
    ),
    "retry": Command(
        "blend.cli.retry",
        "retry_command",
        "Stages",
        "Take back results, those that failed or were cut, so that their requests run again.",
        "blend retry batch.blend --reason 'timed out'",
    ),
    "simulate": Command(
        "blend.cli.simulate",
        "simulate_command",
        "Looking in",
        "Predict how long the job would take on a device under each policy; runs nothing.",
        "blend simulate batch.blend --hardware h200 -tp 2",
    ),
    "calibrate": Command(
        "blend.cli.calibrate",
        "calibrate_command",
        "This machine",
        "Measure what this machine can do, for plans and simulations, or learn it from a job.",
        "blend calibrate --model qwen-2.5-7b",
    ),
    "doctor": Command(
        "blend.cli.doctor",
        "doctor_command",
        "This machine",
        "Say whether this machine can run jobs, and a job can go on, and what helps if not.",
        "blend doctor batch.blend",
    ),
    "show": Command(
        "blend.cli.show",
        "show_command",
        "Looking in",
        "Look at the job, its schedule, its prefix tree, or one request by its custom_id.",
        "blend show batch.blend tree --depth 2",
    ),
    "report": Command(
        "blend.cli.report",
        "report_command",
        "Looking in",
        "Write what the job is, what its plan foresaw and how it went as one HTML file.",
        "blend report batch.blend -o report.html",
    ),
    "status": Command(
        "blend.cli.status",
        "status_command",
        "Looking in",
        "Say how far a job is: rows answered, failed and left, rejected lines, failures by cause.",
        "blend status batch.blend",
    ),
    "config": Command(
        "blend.cli.config",
        "config_command",
        "Looking in",
        "Show the settings in force, and the file, variable or default that each comes from.",
        "blend config plan",
    ),
}


def add_commands(app: typer.Typer, named: Collection[str]) -> None:
    """Give *app* every command; only those *named* can be called, the others just be listed."""
    for name, command in COMMANDS.items():
        function = command_function(command) if name in named else _listed
        app.command(
            name,
            cls=SettingsCommand,
            help=command.help,
            epilog=f"Example: {command.example}" if command.example else None,
            rich_help_panel=command.panel,
        )(function)


def command_function(command: Command) -> Callable[..., None]:
    """Import and return what a command calls."""
    function: Callable[..., None] = getattr(import_module(command.module), command.function)
    return function


def _listed() -> None:
    raise RuntimeError("this command was not named on the command line")
