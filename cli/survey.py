"""The first look at input files: what can be rejected before any model is loaded."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from blend.cli.input_files import InputFile
from blend.cli.reading import reading_progress
from blend.cli.rejections import RejectionTally, place
from blend.core.errors import SOME_FAILED, BlendError
from blend.core.input.decompress import decompressed
from blend.core.input.draft import Draft, Note, Rejection
from blend.core.input.lines import open_lines
from blend.core.input.validate import duplicate, parse_line
from blend.store.seen_ids import SeenIds

_MODELS_KEPT = 20


@dataclass(frozen=True, slots=True)
class SurveyRules:
    """What a survey lets pass, and what stops it."""

    max_line_bytes: int
    rename_duplicates: bool = False
    strict: bool = False
    only_model: str | None = None


@dataclass(slots=True)
class Survey:
    """What the lines of some files turned out to be.

    ``models`` counts the models that bodies name; only the first few names are kept.
    """

    accepted: int = 0
    rejected: RejectionTally = field(default_factory=RejectionTally)
    notes: Counter[Note] = field(default_factory=Counter)
    models: Counter[str] = field(default_factory=Counter)


def survey(files: Sequence[InputFile], rules: SurveyRules) -> Survey:
    """Judge every line of the files in flat memory; raise BlendError for what the rules forbid."""
    found = Survey()
    with SeenIds() as seen:
        for file in files:
            _survey_file(file, rules, found, seen)
    return found


def _survey_file(file: InputFile, rules: SurveyRules, found: Survey, seen: SeenIds) -> None:
    with decompressed(file.path) as stream, reading_progress(file.name) as show:
        for line in open_lines(stream, max_line_bytes=rules.max_line_bytes):
            show(line.number)
            judged = parse_line(line)
            if isinstance(judged, Draft) and not rules.rename_duplicates:
                judged = _first_use(judged, file, seen)
            if isinstance(judged, Rejection):
                if rules.strict:
                    raise refused_line(file.name, judged)
                found.rejected.add(file.name, judged)
            elif judged is not None:
                found.accepted += 1
                found.notes.update(judged.notes)
                _note_model(judged, file, rules, found)


def _first_use(draft: Draft, file: InputFile, seen: SeenIds) -> Draft | Rejection:
    """Return the draft, or its rejection when its custom_id was used before.

    An id that was made up for a line without one is made unique later and never a duplicate.
    """
    if draft.id_made_up:
        return draft
    first = seen.add(draft.custom_id, source=file.name, line=draft.line)
    return draft if first is None else duplicate(draft, f"{first[0]}:{first[1]}")


def _note_model(draft: Draft, file: InputFile, rules: SurveyRules, found: Survey) -> None:
    if draft.model is None:
        return
    if rules.only_model is not None and draft.model != rules.only_model:
        raise BlendError(
            f"{file.name}:{draft.line}: the body asks for the model {draft.model}, "
            f"`--model` is {rules.only_model}",
            hint="leave out `--strict-model` to run every request on `--model`",
        )
    if draft.model in found.models or len(found.models) < _MODELS_KEPT:
        found.models[draft.model] += 1


def refused_line(source: str, rejection: Rejection) -> BlendError:
    """Return the error that ends a strict command at a rejected line."""
    return BlendError(
        f"{place(source, rejection)}: {rejection.reason}: {rejection.message}",
        hint="leave out `--strict` to reject such lines and go on",
        exit_code=SOME_FAILED,
    )
