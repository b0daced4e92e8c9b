"""`blend doctor`: is this machine fit to run jobs, and is a job fit to go on?"""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from blend.cli.completion import jobs
from blend.cli.console import err, inert, out, print_json
from blend.cli.health import Check, State, disk_check
from blend.cli.job_health import job_checks
from blend.cli.machine_health import SCARCE_BYTES, machine_checks
from blend.cli.options import JsonOption
from blend.cli.wording import counted
from blend.core.errors import USAGE

_MARKS: dict[State, str] = {
    "ok": "[green]ok  [/]",
    "warn": "[bold yellow]warn[/]",
    "fail": "[bold red]fail[/]",
}


def doctor_command(
    job: Annotated[
        Path | None,
        typer.Argument(metavar="JOB", help="Look at this job, too.", autocompletion=jobs),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say whether this machine can run jobs, and a job can go on, and what helps if not."""
    checks = list(machine_checks())
    if job is None:
        here = Path.cwd()
        checks.append(disk_check("disk, here", here, needed_bytes=0, scarce_bytes=SCARCE_BYTES))
    else:
        checks += job_checks(job)
    if as_json:
        print_json(document(checks))
    else:
        draw(checks)
    raise typer.Exit(USAGE if any(check.state == "fail" for check in checks) else 0)


def draw(checks: Sequence[Check]) -> None:
    """Print a line for each check, and below it what helps where it is not ok."""
    width = max(len(check.name) for check in checks)
    for check in checks:
        out.print(f"{_MARKS[check.state]}  {check.name:<{width}}  {inert(check.found)}")
        if check.remedy:
            out.print(f"{'':{width + 8}}→ {inert(check.remedy)}")
    states = [check.state for check in checks]
    err.print(
        f"{counted(len(checks), 'checks')}: {counted(states.count('ok'))} ok, "
        f"{counted(states.count('warn'))} to be aware of, {counted(states.count('fail'))} to mend"
    )


def document(checks: Sequence[Check]) -> dict[str, object]:
    """Return the checks as JSON values; docs/json.md says what each means."""
    states = [check.state for check in checks]
    worst = next((state for state in ("fail", "warn") if state in states), "ok")
    return {"state": worst, "checks": [asdict(check) for check in checks]}
