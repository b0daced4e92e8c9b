"""What a report shows of a job: small JSON values, whatever the size of the job."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from blend.cli.advice import plan_advice
from blend.cli.job_run import foreseen, judgement, measured
from blend.cli.judged_run import judgement_lines
from blend.cli.status import rows_line, state, tokens_line
from blend.cli.wording import percent, plain, significant
from blend.core.planning.bins import LENGTH_STARTS, length_counts, schedule_bins
from blend.core.planning.judgement import Judgement
from blend.core.planning.outline import top_subtrees
from blend.core.planning.timeline import BUCKETS, TimelineBuckets, resampled
from blend.core.planning.tree import Floats
from blend.store.job import Answered, Job, PlanRecord

BINS = 300
LEAST_SHARE = 0.001
"""Of the seconds of the job: smaller subtrees are drawn as one."""

NODES = 400
LONG = 1e4
"""From here on a number is told without its fraction."""

GROUPS = 50

Values = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Content:
    """The sections of a report; None or empty where the job has nothing to say."""

    title: str
    facts: list[tuple[str, str]]
    judged: list[str]
    advice: list[str]
    schedule: Values | None
    tree: list[Values]
    timeline: Values | None
    policies: list[Values]
    lengths: Values | None
    failures: list[Values]
    rejections: list[Values]
    runs: list[Values]
    settings: list[tuple[str, str]]


def content_of(job: Job) -> Content:
    """Return what a report shows of *job*; user text in it acts on no terminal."""
    plan, judged, answered = job.plan(), judgement(job), job.answered()
    simulated = (plan.predictions.get("simulated") if plan else None) or {}
    return Content(
        title=plain(job.path.name),
        facts=_facts(job, plan),
        judged=[_unmarked(line) for line in judgement_lines(job, judged)] if judged else [],
        advice=[one.replace("\n", " ") for one in plan_advice(plan)] if plan else [],
        schedule=_schedule(job, plan, answered) if plan else None,
        tree=_tree(job, plan, judged) if plan else [],
        timeline=_timeline(job, plan),
        policies=list(simulated.get("policies", [])),
        lengths=_lengths(job, plan, answered) if plan else None,
        failures=[_inert(one._asdict()) for one in job.failures()[:GROUPS]],
        rejections=[_inert(one._asdict()) for one in job.rejections_by_reason()[:GROUPS]],
        runs=[_run(asdict(one)) for one in job.runs()[-GROUPS:]],
        settings=_flat(plan.settings) if plan else [],
    )


def _unmarked(line: str) -> str:
    """Return a line that was made for rich without the escapes of its markup."""
    from rich.text import Text

    return Text.from_markup(line).plain


def _inert(values: Values) -> Values:
    return {name: plain(one) if isinstance(one, str) else one for name, one in values.items()}


def _facts(job: Job, plan: PlanRecord | None) -> list[tuple[str, str]]:
    counts = job.counts()
    facts = [
        ("state", state(job, counts)),
        ("model", plain(str(job.meta("model")))),
        ("requests", rows_line(counts)),
        ("prompt tokens", f"{counts.total_prompt_tokens:,}"),
    ]
    if counts.prompt_tokens:
        facts.append(("results", tokens_line(counts)))
    if plan:
        expected = plan.predictions
        facts += [
            ("policy", plan.policy),
            ("device planned for", plain(plan.settings["hardware"]["name"])),
            ("density", significant(expected["density"])),
            (
                "sharing",
                f"{percent(expected['sharing'])}, {percent(expected['best_sharing'])} possible",
            ),
            ("output expected", f"{expected['output_tokens']:,.0f} tokens"),
        ]
    return facts


def _schedule(job: Job, plan: PlanRecord, answered: Answered) -> Values | None:
    schedule, subtree = job.schedule(), job.subtrees()
    if schedule is None or not len(schedule):
        return None
    sizes = job.sizes()
    actual = np.full(len(sizes.sequences), np.nan)
    actual[answered.rows] = answered.output_tokens / sizes.sequences[answered.rows]
    top = np.array(top_subtrees([node["parent"] for node in plan.outline]))
    bins = schedule_bins(
        schedule,
        prompt_tokens=sizes.prompt_tokens,
        bins=BINS,
        actual_tokens=actual if len(answered.rows) else None,
        subtree=None if subtree is None else top[subtree],
    )
    return {
        "rows": len(schedule),
        "root_density": schedule.root_density,
        "bins": {name: _rounded(column) for name, column in asdict(bins).items()},
    }


def _tree(job: Job, plan: PlanRecord, judged: Judgement | None) -> list[Values]:
    """Return the subtrees that matter, parents first, each with its number and an example."""
    outline = plan.outline
    if not outline:
        return []
    least = LEAST_SHARE * _work_s(outline[0])
    shown = [one for one, node in enumerate(outline) if not one or _work_s(node) >= least]
    shown = sorted(sorted(shown, key=lambda one: -_work_s(outline[one]))[:NODES])
    # What is drawn hangs from what is drawn.
    kept: set[int] = set()
    for one in shown:
        if not one or outline[one]["parent"] in kept:
            kept.add(one)
    numbers = sorted(kept)
    examples = job.custom_ids(outline[one]["example_row"] for one in numbers)
    return [
        _node(one, outline[one], plain(example), judged)
        for one, example in zip(numbers, examples, strict=True)
    ]


def _work_s(node: Values) -> float:
    return float(node["comp_s"] + node["mem_s"])


def _node(number: int, node: Values, example: str, judged: Judgement | None) -> Values:
    found = judged.subtrees[number] if judged else None
    return {
        "node": number,
        "parent": node["parent"],
        "level": node["level"],
        "rows": node["rows"],
        "prefix_tokens": node["prefix_tokens"],
        "prompt_tokens": node["prompt_tokens"],
        "sharing": round(node["sharing"], 4),
        "work_s": _work_s(node),
        "density": node["density"],
        "expected_tokens": round(node["expected_tokens"], 1),
        "actual_tokens": round(found.output_tokens, 1) if found and found.rows else None,
        "misjudged_s": found.misjudged_s if found else None,
        "example": example,
    }


def _timeline(job: Job, plan: PlanRecord | None) -> Values | None:
    predicted, actual = foreseen(plan), measured(job, plan)
    if predicted is None and actual is None:
        return None
    # On one axis, so that both are told of one moment.
    total_s = max(float(one.seconds[-1]) for one in (predicted, actual) if one is not None)
    ends = np.linspace(0.0, total_s, BUCKETS + 1)[1:]
    return {"predicted": _buckets(predicted, ends), "actual": _buckets(actual, ends)}


def _buckets(timeline: TimelineBuckets | None, ends: Floats) -> Values | None:
    if timeline is None:
        return None
    bucket_s = float(ends[0])
    found = resampled(timeline, ends[ends < timeline.seconds[-1] + bucket_s])
    return {
        "seconds": _rounded(found.seconds),
        "compute": _rounded(found.compute_s / bucket_s),
        "memory": _rounded(found.memory_s / bucket_s),
        "kv_tokens": found.kv_tokens.tolist(),
        "running": found.running.tolist(),
        "answered": found.answered.tolist(),
    }


def _lengths(job: Job, plan: PlanRecord, answered: Answered) -> Values:
    """Return the shares of answers in each bin of lengths: sampled, expected, and real."""
    sequences, expected = job.sequences(), job.expected_tokens()
    real = answered.output_tokens / sequences[answered.rows]
    columns = {
        "sampled": plan.sample_tokens[plan.sample_finished],
        "expected": expected[~np.isnan(expected)],
        "real": real,
    }
    counts = {name: length_counts(tokens) for name, tokens in columns.items()}
    used = np.flatnonzero(sum(counts.values()))
    last = int(used[-1]) + 1 if len(used) else 0
    return {
        "from_tokens": LENGTH_STARTS[:last].tolist(),
        "answers": {name: int(one.sum()) for name, one in counts.items()},
        "shares": {
            name: _rounded(one[:last] / max(int(one.sum()), 1)) for name, one in counts.items()
        },
    }


def _run(run: Values) -> Values:
    ended = run["finished"] or run["heartbeat"]
    return {
        "purpose": run["purpose"],
        "engine": plain(run["engine"]),
        "host": plain(run["host"]),
        "seconds": round(ended - run["started"], 1),
        "results": run["results"],
        "outcome": run["outcome"] or "unfinished",
    }


def _flat(values: Values, prefix: str = "") -> list[tuple[str, str]]:
    """Return nested settings as lines, their names joined by points."""
    lines: list[tuple[str, str]] = []
    for name, one in values.items():
        if isinstance(one, dict):
            lines += _flat(one, f"{prefix}{name}.")
        else:
            lines.append((f"{prefix}{name}", plain(_setting(one))))
    return lines


def _setting(value: object) -> str:
    """Return a setting as a person reads it."""
    match value:
        case None | "":
            return "not set"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.0f}" if abs(value) >= LONG else f"{value:.4g}"
        case _:
            return str(value)


def _rounded(column: np.ndarray[Any, Any]) -> list[float | int | None]:
    """Return a column with four significant digits, None where it is not a number."""
    return [_short(one) for one in column.tolist()]


def _short(one: float | int) -> float | int | None:
    if isinstance(one, int):
        return one
    return float(f"{one:.4g}") if np.isfinite(one) else None
