"""What all lines of the input files turn out to be, counted, before any is ingested."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from blend.cli.input_files import InputFile
from blend.cli.judging import Judged, Reading, judged_lines, unwatched
from blend.cli.rejections import RejectionTally, place
from blend.core.errors import SOME_FAILED, BlendError
from blend.core.input.draft import Draft, Note, Rejection
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

    ``lines`` of each file by its name; ``models`` counts the models that bodies name; only the
    first few names are kept.
    """

    accepted: int = 0
    rejected: RejectionTally = field(default_factory=RejectionTally)
    notes: Counter[Note] = field(default_factory=Counter)
    models: Counter[str] = field(default_factory=Counter)
    lines: Counter[str] = field(default_factory=Counter)


def survey(files: Sequence[InputFile], rules: SurveyRules, reading: Reading = unwatched) -> Survey:
    """Judge every line of the files in flat memory; raise BlendError for what the rules forbid."""
    found = Survey()
    with SeenIds() as ids:
        seen = None if rules.rename_duplicates else ids
        for file in files:
            for judged in judged_lines(
                file.path,
                file.name,
                max_line_bytes=rules.max_line_bytes,
                seen=seen,
                reading=reading,
            ):
                _take(judged, file, rules, found)
    return found


def _take(judged: Judged, file: InputFile, rules: SurveyRules, found: Survey) -> None:
    found.lines[file.name] += 1
    if isinstance(judged, Rejection):
        if rules.strict:
            raise refused_line(file.name, judged)
        found.rejected.add(file.name, judged)
    elif judged is not None:
        found.accepted += 1
        found.notes.update(judged.notes)
        _note_model(judged, file, rules, found)


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
