"""The lines of one file become rows of the job: batch by batch, each one transaction.

A batch is saved together with the offset it ends at. Whatever kills the process, the next ingest
goes on at that offset, so a row is never taken for a duplicate of itself.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from blend.cli.input_files import InputFile
from blend.cli.survey import refused_line
from blend.core.input.draft import Draft, Rejection
from blend.core.input.known import known_tokens
from blend.core.input.lines import RawLine
from blend.core.input.request_file import opened_lines
from blend.core.input.validate import duplicate, output_tokens, parse_line, too_long
from blend.core.rendering.tokenizer import Tokenizer
from blend.core.rendering.tokens import Rendered, render
from blend.store.job import Job, NewRow, Source

OnDuplicate = Literal["reject", "rename"]

BATCH_LINES = 1024
BATCH_BYTES = 2 << 20


@dataclass(frozen=True, slots=True)
class IntakeRules:
    """How lines are judged on their way into the job; *surveyed* files had their first look."""

    max_line_bytes: int
    surveyed: frozenset[str]
    on_duplicate: OnDuplicate = "reject"
    strict: bool = False


@dataclass(frozen=True, slots=True)
class Taken:
    """What one batch brought: the prompts of its rows, and the lines that became none.

    ``late`` are the rejections that no survey could know of, without the job and the model.
    """

    line: int
    prompts: tuple[npt.NDArray[np.uint32], ...]
    early: tuple[Rejection, ...]
    late: tuple[Rejection, ...]
    renamed: int


@dataclass(frozen=True, slots=True)
class _Identified:
    drafts: list[Draft]
    known: list[Rejection]
    late: list[Rejection]
    renamed: list[str]


def take_file(
    job: Job, file: InputFile, source: Source, *, tokenizer: Tokenizer, rules: IntakeRules
) -> Iterator[Taken]:
    """Add the lines of *file* beyond *source*'s offset to the job; yield what each batch brought.

    With strict rules the first rejected line raises BlendError; batches before its own stay.
    """
    offset, line = source.offset, source.line
    with opened_lines(
        file.path, start_offset=offset, start_line=line, max_line_bytes=rules.max_line_bytes
    ) as lines:
        for batch in batches(lines):
            offset, line = batch[-1].end_offset, batch[-1].number
            yield _take_batch(job, batch, source, tokenizer=tokenizer, rules=rules)
    file.refuse_change()
    job.append(source, (), (), offset=offset, line=line, complete=True)


def batches(lines: Iterable[RawLine]) -> Iterator[list[RawLine]]:
    """Yield runs of lines of at most BATCH_LINES lines and about BATCH_BYTES bytes."""
    batch: list[RawLine] = []
    size = 0
    for line in lines:
        if batch and (len(batch) == BATCH_LINES or size + len(line.data or b"") > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(line)
        size += len(line.data or b"")
    if batch:
        yield batch


def _take_batch(
    job: Job, batch: list[RawLine], source: Source, *, tokenizer: Tokenizer, rules: IntakeRules
) -> Taken:
    judged = [parse_line(line) for line in batch]
    early = [one for one in judged if isinstance(one, Rejection)]
    drafts = [one for one in judged if isinstance(one, Draft)]
    named = _identified(job, drafts, source, rules)
    rows, misfits = _rows(tokenizer, named.drafts)
    early += named.known
    late = named.late + misfits
    rejected = sorted(early + late, key=lambda rejection: rejection.line)
    if rules.strict and rejected:
        raise refused_line(source.path, rejected[0])
    last = batch[-1]
    job.append(source, rows, rejected, offset=last.end_offset, line=last.number)
    return Taken(
        last.number,
        tuple(row.tokens for row in rows),
        tuple(early),
        tuple(late),
        len(named.renamed),
    )


def _identified(
    job: Job, drafts: Sequence[Draft], source: Source, rules: IntakeRules
) -> _Identified:
    """Give every draft a custom_id that the job has not got, or reject it as a duplicate."""
    taken = job.find_ids([draft.custom_id for draft in drafts])
    result = _Identified([], [], [], [])
    for draft in drafts:
        kept = draft
        if first := taken.get(draft.custom_id):
            if not draft.id_made_up and rules.on_duplicate == "reject":
                found = result.known if first[0] in rules.surveyed else result.late
                found.append(duplicate(draft, f"{first[0]}:{first[1]}"))
                continue
            kept = replace(draft, custom_id=_free_id(job, draft, taken, source))
            if not draft.id_made_up:
                result.renamed.append(draft.custom_id)
        taken[kept.custom_id] = source.path, kept.line
        result.drafts.append(kept)
    return result


def _free_id(job: Job, draft: Draft, taken: dict[str, tuple[str, int]], source: Source) -> str:
    """Return a custom_id that nothing has: the draft's own with its file and line."""
    name = f"{draft.custom_id}-{Path(source.path).stem}-{draft.line}"
    candidates = (name if n == 1 else f"{name}-{n}" for n in count(1))
    return next(c for c in candidates if c not in taken and job.find(c) is None)


def _rows(tokenizer: Tokenizer, drafts: Sequence[Draft]) -> tuple[list[NewRow], list[Rejection]]:
    rows: list[NewRow] = []
    misfits: list[Rejection] = []
    for draft, rendered in zip(drafts, render(tokenizer, drafts), strict=True):
        judged = _row(tokenizer, draft, rendered) if isinstance(rendered, Rendered) else rendered
        if isinstance(judged, NewRow):
            rows.append(judged)
        else:
            misfits.append(judged)
    return rows, misfits


def _row(tokenizer: Tokenizer, draft: Draft, rendered: Rendered) -> NewRow | Rejection:
    context = tokenizer.context_tokens
    misfit = too_long(draft, prompt_tokens=rendered.longest, context_tokens=context)
    if misfit is not None:
        return misfit
    if draft.max_tokens is None:
        draft = replace(draft, max_tokens=tokenizer.default_max_tokens)
    max_tokens = output_tokens(draft, prompt_tokens=min(rendered.lengths), context_tokens=context)
    return NewRow(
        custom_id=draft.custom_id,
        line=draft.line,
        endpoint=draft.endpoint,
        body=draft.body,
        tokens=rendered.tokens,
        max_tokens=max_tokens,
        sequences=draft.sequences,
        known_tokens=known_tokens(draft.fields, max_tokens=max_tokens),
    )
