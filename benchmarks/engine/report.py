"""What the runs come to: medians, paired ratios, and how they stand to what was asked for.

Ratios are taken between runs of one repetition, which the machine treated alike. The interval of a
median of n paired ratios is from the least to the greatest, which holds the true median with
probability 1 - 2^(1-n).
"""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from benchmarks.engine.contest import WAYS, Way
from benchmarks.paper.markdown import MISSING, number, table

Row = Mapping[str, Any]
"""One line of a result file."""


def report(rows: Sequence[Row]) -> str:
    """Return the whole report as Markdown."""
    conditions = rows[-1]["conditions"]
    text = "# blend beside vLLM's own ways of running a batch\n\n" + _introduction(conditions)
    for one in dict.fromkeys(map(_contest, rows)):
        text += _case([row for row in rows if _contest(row) == one])
    return text


def _contest(row: Row) -> tuple[str, str]:
    return row["case"], row["model"]


def _introduction(conditions: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in conditions["versions"].items())
    return (
        f"Written by `make bench` on {conditions['date']}: {conditions['cpu']}, "
        f"{conditions['cores']} cores, load {conditions['load']:.1f} before; {versions}.\n\n"
        "All ways run the same requests on engines with the same options (float32, blocks of 32 "
        "tokens, whole prompts, the same cache), greedy, every answer as long as its max_tokens. "
        "The ways of one repetition follow each other at once, each first in turn; engines live "
        "from run to run with an empty prefix cache at the start of each, and a run-batch is a "
        "process of its own. Seconds are those of the run, from the first prompt text to the last "
        "result saved, without the start of the engine and the plan. `LLM.generate` gets texts; "
        "run-batch renders and tokenises each chat; `blend execute` has done that when it took the "
        "file in, and does it again for some, to compare. A plan is made "
        "anew before each run, uncounted and without a sample: what steps cost is what the run "
        "before has measured, a first one that is not counted or the last. "
        "CPU seconds are those of all processes, most of them the engine's, which "
        "looks for work all the time. What is around it takes some for each request: to tokenise, "
        "to tell the engine, to make text of tokens; for `blend execute` to choose what enters, "
        "to make response objects by vLLM's own serving layer, and to save them. "
        "Possible hits: what a cache that forgets nothing would save.\n\n"
    )


def _case(rows: Sequence[Row]) -> str:
    first = rows[0]
    runs = first["runs"]
    repetitions = 1 + max(row["repetition"] for row in rows)
    head = (
        f"## ({first['case']}) {first['title']}; a model of {first['model']}\n\n"
        f"{first['requests']:,} requests, {runs['prompt_tokens']:,} prompt and "
        f"{runs['output_tokens']:,} output tokens, a cache of {first['kv_tokens']:,} tokens, "
        f"{first['max_sequences']} sequences; possible hits "
        f"{first['possible_tokens'] / runs['prompt_tokens']:.1%}. "
        f"Medians of {repetitions} repetitions.\n\n"
    )
    ways = [way for way in WAYS if any(row["way"] == way for row in rows)]
    return head + _table(rows, ways) + "\n" + "\n".join(_verdicts(rows)) + "\n\n"


def _table(rows: Sequence[Row], ways: Sequence[Way]) -> str:
    header = ("way", "seconds", "over file order", "CPU seconds",
              "CPU ms a request around the engine", "steps", "tokens/s",
              "hits of possible", "preemptions", "predicted, seconds", "of predicted",
              "engine start, seconds")  # fmt: skip
    return table(header, (_line(rows, way) for way in ways))


def _line(rows: Sequence[Row], way: Way) -> tuple[str, ...]:
    mine = [row for row in rows if row["way"] == way]
    last = mine[-1]

    def median(value: Callable[[Row], float]) -> float:
        return statistics.median(value(row) for row in mine)

    def known(name: str, form: str) -> str:
        if last["runs"][name] is None:
            return MISSING
        return format(median(lambda row: row["runs"][name]), form)

    runs = last["runs"]
    around = MISSING
    if runs.get("around_s") is not None:
        around = number(median(lambda row: 1000 * row["runs"]["around_s"] / row["requests"]))
    policy = f" ({runs['policy']})" if runs["policy"] else ""
    return (
        WAYS[way] + policy,
        number(median(lambda row: row["runs"]["wall_s"])),
        interval(ratios(rows, "generate-file", way)),
        number(median(lambda row: row["runs"]["cpu_s"])),
        around,
        known("steps", ",.0f"),
        number(median(_tokens_per_s), 0),
        f"{median(_hits):.1%}" if last["possible_tokens"] else MISSING,
        known("preemptions", ",.0f"),
        known("predicted_s", ".2f"),
        known("times_predicted", ".2f"),
        number(last["start_s"], 1),
    )


def _tokens_per_s(row: Row) -> float:
    runs = row["runs"]
    return float((runs["prompt_tokens"] + runs["output_tokens"]) / runs["wall_s"])


def _hits(row: Row) -> float:
    return float(row["runs"]["cached_tokens"] / row["possible_tokens"])


def ratios(rows: Iterable[Row], way: Way, other: Way) -> list[float]:
    """Return the seconds of *way* over those of *other*, for each repetition that has both."""
    seconds = {(row["repetition"], row["way"]): float(row["runs"]["wall_s"]) for row in rows}
    return [
        seconds[repetition, way] / seconds[repetition, other]
        for repetition, one in sorted(seconds)
        if one == way and (repetition, other) in seconds
    ]


def interval(values: Sequence[float]) -> str:
    """Return the median with the least and the greatest of *values*."""
    if not values:
        return MISSING
    middle = statistics.median(values)
    return f"{middle:.3f} [{min(values):.3f}-{max(values):.3f}]"


def _verdicts(rows: Sequence[Row]) -> Iterable[str]:
    """Yield a line for each thing that is asked of blend in this case."""
    case = rows[0]["case"]
    ours: tuple[Way, ...] = ("blend-paper", "blend-auto")
    for way in ours:
        over_file = ratios(rows, "generate-file", way)
        if not over_file:
            continue
        beside_file = ratios(rows, way, "generate-file")
        beside_dfs = ratios(rows, way, "generate-dfs")
        predicted = [row["runs"]["times_predicted"] for row in rows if row["way"] == way]
        if None not in predicted:
            times = f"{interval(predicted)} times as long as predicted"
            yield f"- {WAYS[way]}: {times}, asked for 0.85 to 1.15"
        if case == "a":
            hits = statistics.median(_hits(row) for row in rows if row["way"] == way)
            yield _verdict(way, "times as fast as file order", over_file, at_least=1.5)
            yield f"- {WAYS[way]}: hits {hits:.1%} of possible, asked for 98.0%"
            yield _verdict(way, "seconds over depth-first order", beside_dfs, at_most=1.03)
        elif case == "b":
            yield _verdict(way, "seconds over file order", beside_file, at_most=1.0)
        else:
            yield _verdict(way, "seconds over `LLM.generate`", beside_file, at_most=1.02)


def _verdict(
    way: Way,
    what: str,
    values: Sequence[float],
    *,
    at_least: float | None = None,
    at_most: float | None = None,
) -> str:
    asked = f"at least {at_least}" if at_least is not None else f"at most {at_most}"
    return f"- {WAYS[way]}: {what} {interval(values)}, asked for {asked}"
