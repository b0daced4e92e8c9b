"""How far a run was from its plan, in words and as JSON values."""

from typing import Any

from blend.cli.console import inert
from blend.cli.wording import counted, duration, percent, shortened, significant
from blend.core.planning.judgement import Against, Judgement, SubtreeJudgement
from blend.store.job import Job

FAR_S = 1.0
"""Misjudged seconds below which no subtree is worth a name."""


def judgement_document(judged: Judgement | None) -> dict[str, Any] | None:
    """Return the judgement as JSON values, without its subtrees; None for none."""
    if judged is None:
        return None
    return {
        "rows": judged.rows,
        "seconds": _against(judged.seconds),
        "output_tokens": _against(judged.output_tokens),
        "sharing": _against(judged.sharing),
        "length_factor": judged.factor,
        "worst_node": judged.worst,
        "worst_misjudged_s": None
        if judged.worst is None
        else judged.subtrees[judged.worst].misjudged_s,
    }


def _against(figure: Against | None) -> dict[str, float | None] | None:
    if figure is None:
        return None
    return {"predicted": figure.predicted, "actual": figure.actual, "ratio": figure.ratio}


def judgement_lines(job: Job, judged: Judgement) -> list[str]:
    """Return the judgement in words, a line each, inert."""
    tokens, sharing = judged.output_tokens, judged.sharing
    lines = []
    if judged.seconds is not None:
        took, foreseen = judged.seconds.actual, judged.seconds.predicted
        lines.append(f"{duration(took)}, {duration(foreseen)} predicted{_times(judged.seconds)}")
    lines.append(
        f"{counted(tokens.actual)} output tokens, {counted(tokens.predicted)} predicted"
        f"{_times(tokens)}"
    )
    lines.append(f"an answer is typically off by a factor of {significant(judged.factor)}")
    lines.append(
        f"{percent(sharing.actual)} of the prompt tokens cached, "
        f"{percent(sharing.predicted)} predicted"
    )
    if judged.worst is not None:
        lines += _worst_lines(job, judged, judged.worst)
    return lines


def _times(figure: Against) -> str:
    return "" if figure.ratio is None else f": {significant(figure.ratio)} times"


def _worst_lines(job: Job, judged: Judgement, worst: int) -> list[str]:
    found, plan = judged.subtrees[worst], job.plan()
    if plan is None or abs(found.misjudged_s) < FAR_S:
        return []
    (example,) = job.custom_ids([plan.outline[worst]["example_row"]])
    more = "more" if found.misjudged_s > 0 else "less"
    return [
        f"misjudged most, by {duration(abs(found.misjudged_s))} {more} work: node {worst}",
        f"node {worst}: {counted(found.rows, 'rows')} like {inert(shortened(example, 16))}, "
        f"{lengths_in_words(found)}",
    ]


def lengths_in_words(found: SubtreeJudgement) -> str:
    """Return the mean length of a subtree's answers beside the one predicted."""
    mean, expected = counted(found.output_tokens), counted(found.expected_tokens)
    if mean != expected:
        return f"{mean} tokens, {expected} predicted"
    # A long answer costs more than its length: of the same mean, what is further apart is more.
    apart = "further apart" if found.misjudged_s > 0 else "closer together"
    return f"{mean} tokens as predicted, but {apart}"
