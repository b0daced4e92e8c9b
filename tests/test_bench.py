"""`make bench`: its cases are what they say, and its report says what the runs came to."""

import os
from pathlib import Path

import numpy as np
import pytest

from benchmarks import accidents, scale
from benchmarks.engine.cases import cases, possible_cached_tokens
from benchmarks.engine.processes import cpu_seconds, tree
from benchmarks.engine.report import interval, ratios, report
from blend.core.prompts import Prompts


def prompts(*rows: list[int]) -> Prompts:
    starts = np.cumsum([0, *map(len, rows)])
    ones = np.ones(len(rows), np.int32)
    return Prompts(np.concatenate(rows).astype(np.uint32), starts, ones, ones)


def test_possible_hits_are_the_full_blocks_that_another_prompt_begins_with() -> None:
    shared = prompts([1, 2, 3, 4, 5], [1, 2, 3, 4, 9], [1, 2, 9, 9, 9], [3, 4, 3, 4, 5])

    assert possible_cached_tokens(shared, block_tokens=2) == 4 + 2
    # The last token is always computed.
    assert possible_cached_tokens(prompts([1, 2], [1, 2]), block_tokens=2) == 0


def test_cases_are_the_same_for_the_same_seed_and_fit_their_context(tmp_path: Path) -> None:
    one, same, other = cases(), cases(), cases(1)

    assert list(one) == ["a", "b", "c"]
    assert one == same != other
    for case in one.values():
        longest = max(len(ask.system) + len(ask.user) + ask.output_tokens for ask in case.asks)
        assert longest < 900
        case.write(tmp_path / case.name)
        assert len((tmp_path / case.name).read_text().splitlines()) == len(case.asks)


def row(way: str, repetition: int, wall_s: float, *, cached: int = 90) -> dict[str, object]:
    return {
        "case": "a",
        "title": "groups",
        "requests": 10,
        "kv_tokens": 100,
        "max_sequences": 4,
        "possible_tokens": 100,
        "way": way,
        "repetition": repetition,
        "runs": {
            "wall_s": wall_s,
            "cpu_s": 1.0,
            "prompt_tokens": 200,
            "output_tokens": 10,
            "cached_tokens": cached,
            "preemptions": None,
            "steps": None,
            "predicted_s": None,
            "times_predicted": None,
            "policy": None,
        },
        "model": "4 layers",
        "start_s": 5.0,
        "plan_s": None,
        "load": 0.1,
        "conditions": {"date": "today", "cpu": "x", "cores": 2, "load": 0.1, "versions": {}},
    }


def test_runs_are_compared_within_their_repetition() -> None:
    rows = [
        row("generate-file", 0, 4.0, cached=40),
        row("generate-file", 1, 8.0, cached=40),
        row("blend-auto", 0, 2.0),
        row("blend-auto", 1, 2.0),
        row("blend-auto", 2, 9.0),
    ]

    assert ratios(rows, "generate-file", "blend-auto") == [2.0, 4.0]
    assert interval([2.0, 4.0]) == "3.000 [2.000-4.000]"
    text = report(rows)
    assert "| `blend execute` | 2.00 | 3.000 [2.000-4.000] |" in text
    assert "times as fast as file order 3.000 [2.000-4.000], asked for at least 1.5" in text


def test_an_accident_is_reported_with_what_is_left_to_do() -> None:
    conditions = {"date": "today", "versions": {"vllm": "1"}}
    left = [
        accidents.Left("engine killed", "run-batch", False, 1, 0, 0, 0, 2, 9.0),
        accidents.Left("engine killed", "blend run", False, 4, 0, 0, 30, 0, 9.0),
    ]
    text = accidents.report(left, conditions)

    assert "| engine killed | `run-batch` | 1 | 0 | 0 | 0 | 40 | 2 |" in text
    assert "| engine killed | `blend run` | 4 | 0 | 0 | 30 | 10 | 0 |" in text


def test_the_cpu_time_of_a_process_counts_its_children() -> None:
    assert os.getpid() in tree(os.getppid())
    # In this order: both grow meanwhile.
    own = cpu_seconds(os.getpid())
    assert cpu_seconds(os.getppid()) >= own > 0


@pytest.mark.parametrize("rows", [200])
def test_an_execution_is_measured_by_its_own_process(rows: int, tmp_path: Path) -> None:
    path = tmp_path / "job.blend"
    scale.fill(path, rows)
    found = scale.execute(path, rows)

    assert found.rows == rows
    assert 0 < found.run_s < found.wall_s
    assert found.peak_mb > 10
