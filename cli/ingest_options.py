"""The options of reading files into a job, which `ingest` and `run` share."""

from pathlib import Path
from typing import Annotated

import typer

from blend.cli.completion import jobs
from blend.cli.intake import OnDuplicate

_MODEL = "Model"
JobOption = Annotated[
    Path,
    typer.Option("--job", "-j", metavar="JOB", help="The job file.", autocompletion=jobs),
]
ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        metavar="MODEL",
        help="Model folder or hub name; that of the job where it exists.",
        rich_help_panel=_MODEL,
    ),
]
RevisionOption = Annotated[
    str | None,
    typer.Option(
        metavar="REV", help="Branch, tag or commit of the model on the hub.", rich_help_panel=_MODEL
    ),
]
ChatTemplateOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        exists=True,
        dir_okay=False,
        help="Chat template to use instead of the model's own.",
        rich_help_panel=_MODEL,
    ),
]
TrustRemoteCodeOption = Annotated[
    bool,
    typer.Option(
        "--trust-remote-code", help="Run code that comes with the model.", rich_help_panel=_MODEL
    ),
]
StrictModelOption = Annotated[
    bool, typer.Option("--strict-model", help="Stop when a body names a model that is not MODEL.")
]
OnDuplicateOption = Annotated[
    OnDuplicate, typer.Option(help="What becomes of a custom_id that was used before.")
]
