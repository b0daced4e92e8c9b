"""`blend ingest`: validate request files, render and tokenise them, and keep them in a job."""

from functools import partial

import typer

from blend.cli.api import Batch
from blend.cli.check import InputsArgument, MaxLineBytesOption, StrictOption
from blend.cli.console import err, inert, print_json
from blend.cli.display import ProgressStyle, display_options
from blend.cli.ingest_counts import document, print_ingested
from blend.cli.ingest_options import (
    ChatTemplateOption,
    JobOption,
    ModelOption,
    OnDuplicateOption,
    RevisionOption,
    StrictModelOption,
    TrustRemoteCodeOption,
)
from blend.cli.ingesting import IngestOptions
from blend.cli.job_model import (
    ModelOptions,
    template_text,
)
from blend.cli.options import JsonOption, MaxModelLen, takes
from blend.cli.reading import reading_progress
from blend.core.command_line import command_line
from blend.core.errors import SOME_FAILED
from blend.core.input.lines import MAX_LINE_BYTES


@takes(progress=display_options)
def ingest_command(
    inputs: InputsArgument,
    job: JobOption,
    *,
    progress: ProgressStyle,
    model: ModelOption = None,
    revision: RevisionOption = None,
    max_model_len: MaxModelLen = None,
    chat_template: ChatTemplateOption = None,
    trust_remote_code: TrustRemoteCodeOption = False,
    on_duplicate: OnDuplicateOption = "reject",
    strict: StrictOption = False,
    strict_model: StrictModelOption = False,
    max_line_bytes: MaxLineBytesOption = MAX_LINE_BYTES,
    json: JsonOption = False,
) -> None:
    """Validate request files, tokenise them with the model's tokenizer, and keep them in a job."""
    options = IngestOptions(
        model=ModelOptions(
            model=model,
            revision=revision,
            chat_template=template_text(chat_template) if chat_template else None,
            trust_remote_code=trust_remote_code,
            max_model_len=max_model_len,
        ),
        on_duplicate=on_duplicate,
        strict=strict,
        strict_model=strict_model,
        max_line_bytes=max_line_bytes,
        reading=partial(reading_progress, style=progress),
    )
    counts = Batch(job).ingest_files(inputs, options)
    print_json(document(counts)) if json else print_ingested(counts)
    if counts.job_rows:
        err.print(f"next: `{inert(command_line('blend', 'plan', job))}`")
    else:
        err.print("no requests in the job: its rejected lines stay so, ingest into a new job")
    if counts.rejected or counts.rejected_before:
        raise typer.Exit(SOME_FAILED)
