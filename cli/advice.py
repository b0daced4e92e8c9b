"""What was found in the prompts of a job, in words."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from blend.cli.job_run import planned_engine
from blend.cli.wording import counted, duration, percent
from blend.core.input.words import PromptSample
from blend.core.planning.prompt_lint import LateSharing, LooseLimits, PromptLint, lint_prompts
from blend.core.planning.tree import build_tree
from blend.store.job import PlanRecord

LEAST_S, LEAST_RUN_SHARE = 1.0, 0.01
"""What moving a part of prompts has to save to be advised, in seconds and of the whole run."""
LEAST_TOKENS = 10_000
"""The same where no device is known."""


def lint_document(found: PromptLint) -> dict[str, Any]:
    """Return what was found as JSON values."""
    return asdict(found)


def lint_from(document: Mapping[str, Any]) -> PromptLint:
    """Return what `lint_document` was given."""
    loose = document["loose_limits"]
    return PromptLint(
        tuple(LateSharing(**one) for one in document["late_sharing"]),
        document["duplicates"],
        document["nearly_full"],
        document["context_tokens"],
        loose and LooseLimits(**loose),
    )


def lint_sample(sample: PromptSample) -> PromptLint:
    """Return what the words of a sample show of all its requests."""
    prompts = sample.prompts()
    found = lint_prompts(prompts, build_tree(prompts))
    late = tuple(
        replace(
            one,
            rows=round(one.rows * sample.scale),
            saved_tokens=round(one.saved_tokens * sample.scale),
        )
        for one in found.late_sharing
    )
    return replace(found, late_sharing=late, duplicates=sample.repeated)


def advice(
    found: PromptLint, *, unit: str = "token", token_s: float | None = None, run_s: float = 0.0
) -> list[str]:
    """Return a paragraph for each finding that is worth one, of lines that fit a terminal.

    ``token_s``: seconds to compute one, where a device is known; ``run_s``: those of the whole job.
    """
    worth_tokens = max(LEAST_S, LEAST_RUN_SHARE * run_s) / token_s if token_s else LEAST_TOKENS
    paragraphs = [
        _late(one, unit, token_s) for one in found.late_sharing if one.saved_tokens >= worth_tokens
    ]
    if found.duplicates:
        paragraphs.append(f"{counted(found.duplicates, 'requests')} repeat an earlier one's prompt")
    if found.nearly_full:
        paragraphs.append(
            f"{counted(found.nearly_full, 'requests')} fill nine tenths of the context of "
            f"{counted(found.context_tokens or 0)} tokens:\nlittle is left for their answers"
        )
    if found.loose_limits:
        paragraphs.append(_loose(found.loose_limits))
    return paragraphs


def plan_advice(plan: PlanRecord) -> list[str]:
    """Return what a plan found in the prompts, a paragraph each; none where it is too old."""
    found = plan.predictions.get("lint")
    if not found:
        return []
    engine, run_s = planned_engine(plan), plan.predictions["sequential_s"]
    return advice(lint_from(found), token_s=engine.token_s, run_s=run_s)


def _late(one: LateSharing, unit: str, token_s: float | None) -> str:
    time = f", about {duration(one.saved_tokens * token_s)}" if token_s else ""
    return (
        f"{counted(one.rows, 'requests')} differ from {unit} {counted(one.common_tokens + 1)} on,\n"
        f"{counted(one.equal_tokens)} {unit}s are equal after it: "
        "moving the varying part to the end\n"
        f"would save {percent(one.saved_share)} of prefill{time}"
    )


def _loose(one: LooseLimits) -> str:
    return (
        f"max_tokens never binds for {counted(one.rows, 'requests')}: "
        f"it is {counted(one.least_limit)} or more,\n"
        f"the longest of {counted(one.sampled)} sampled answers has "
        f"{counted(one.longest_answer)} tokens"
    )
