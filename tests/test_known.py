"""Lengths that a request says itself are taken as said, from the file to the plan."""

import json
from pathlib import Path

import numpy as np
import pytest

from blend.cli.app import main
from blend.core.input.known import known_tokens
from blend.core.planning.classes import find_classes
from blend.core.planning.hardware import hardware_preset, model_preset
from blend.core.planning.lengths import KNOWN, OBSERVED, Observations, choose_sample, estimate
from blend.core.planning.plan import make_plan
from blend.core.planning.tree import build_tree
from blend.core.prompts import Prompts
from blend.store.job import Job
from blend.store.migrations import MIGRATIONS, migrate
from tests.batch_files import chat, ingested
from tests.prompt_sets import prompts_of

ON = {"hardware": hardware_preset("a100-80g"), "model": model_preset("llama-3-8b")}


@pytest.mark.parametrize(
    ("fields", "tokens"),
    [
        ({}, None),
        ({"ignore_eos": True}, 100),
        ({"ignore_eos": False}, None),
        ({"ignore_eos": True, "stop": ["."]}, None),
        ({"ignore_eos": True, "stop_token_ids": [7]}, None),
        ({"ignore_eos": True, "stop": None, "stop_token_ids": []}, 100),
        ({"min_tokens": 99}, None),
        ({"min_tokens": 100, "stop": "."}, 100),
        # The context may leave less than was asked for.
        ({"min_tokens": 400}, 100),
        ({"metadata": {"output_tokens": 30}}, 30),
        ({"metadata": {"output_tokens": "30"}}, 30),
        ({"metadata": {"output_tokens": 3_000}}, 100),
        ({"metadata": {"output_tokens": 0}}, None),
        ({"metadata": {"output_tokens": -5}}, None),
        ({"metadata": {"output_tokens": "long"}}, None),
        ({"metadata": {"output_tokens": True}}, None),
        ({"metadata": {"tokens": 30}}, None),
        ({"metadata": None}, None),
        ({"metadata": "30"}, None),
    ],
)
def test_a_length_is_known_where_nothing_ends_the_answer_before_it_or_the_request_says_it(
    fields: dict[str, object], tokens: int | None
) -> None:
    assert known_tokens(fields, max_tokens=100) == tokens


def test_a_request_without_room_for_an_answer_knows_no_length() -> None:
    assert known_tokens({"ignore_eos": True}, max_tokens=0) is None


def some_known(known: list[float]) -> Prompts:
    plain = prompts_of([[row // 20, row] for row in range(len(known))], max_tokens=1000)
    return Prompts(plain.tokens, plain.starts, plain.max_tokens, plain.sequences, np.array(known))


def test_known_lengths_are_expected_as_they_are_and_teach_nothing_about_the_others() -> None:
    prompts = some_known([700.0] * 20 + [np.nan] * 20)
    tree = build_tree(prompts)
    tokens = np.full(40, np.nan)
    tokens[0] = 690.0  # ended, whatever it said
    tokens[1] = 5.0  # still running
    tokens[20:25] = 50.0
    finished = ~np.isnan(tokens)
    finished[1] = False

    lengths = estimate(tree, prompts, Observations(tokens, finished))

    assert lengths.expected[0] == 690.0
    assert lengths.source[0] == OBSERVED
    assert lengths.expected[1:20].tolist() == [700.0] * 19
    assert (lengths.source[1:20] == KNOWN).all()
    assert lengths.expected[25:].tolist() == pytest.approx([50.0] * 15)


def test_rows_of_known_length_are_not_sampled() -> None:
    prompts = some_known([700.0] * 20 + [np.nan] * 20)
    sample = choose_sample(build_tree(prompts), prompts, probability=1.0, seed=0)

    assert sample.tolist() == list(range(20, 40))


@pytest.mark.parametrize("policy", ["paper", "dfs"])
def test_a_plan_expects_known_lengths(policy) -> None:
    prompts = some_known([700.0, 3.0] * 10 + [np.nan] * 20)
    plan = make_plan(prompts, policy=policy, **ON)

    expected = dict(zip(plan.schedule.order, plan.schedule.expected_tokens, strict=True))
    assert [expected[row] for row in range(20)] == [700.0, 3.0] * 10


def test_classes_hold_known_lengths_apart_from_unknown_ones() -> None:
    prompts = some_known([700.0] * 20 + [np.nan] * 20)
    classes = find_classes(
        build_tree(prompts), prompts.max_tokens, known_tokens=prompts.known_tokens
    )

    assert classes.known.tolist() == [700.0] * 20 + [0.0] * 20
    assert not set(classes.label[:20]) & set(classes.label[20:])


def test_every_sequence_of_a_row_has_its_known_length() -> None:
    one = some_known([700.0, np.nan])
    twice = Prompts(one.tokens, one.starts, one.max_tokens, 2 * one.sequences, one.known_tokens)
    each, rows = twice.by_sequence()

    assert rows.tolist() == [0, 0, 1, 1]
    assert each.known_tokens is not None
    assert each.known_tokens[:2].tolist() == [700.0, 700.0]
    assert np.isnan(each.known_tokens[2:]).all()


def test_a_length_goes_from_the_file_through_job_and_plan_to_what_show_says(
    tmp_path: Path, tiny_tokenizer_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [
        chat("fixed", "hello", max_tokens=40, ignore_eos=True),
        chat("said", "hello", max_tokens=40, metadata={"output_tokens": "9"}),
        chat("open", "hello", max_tokens=40),
    ]
    path = ingested(tmp_path / "j.blend", lines, model=tiny_tokenizer_dir)
    with Job.open(path) as job:
        known = job.prompts().known_tokens
    assert known is not None
    assert known[:2].tolist() == [40.0, 9.0]
    assert np.isnan(known[2])

    assert main(["plan", str(path), "--no-sample"]) == 0
    assert "2 requests say how long their answers will be" in capsys.readouterr().err
    assert main(["show", str(path), "request", "said"]) == 0
    assert "9 output tokens expected: the request itself says so" in capsys.readouterr().out
    assert main(["show", str(path), "request", "said", "--json"]) == 0
    place = json.loads(capsys.readouterr().out)["place"]
    assert (place["expected_tokens"], place["length_source"]) == (9.0, "known")


def test_the_simulated_engine_answers_as_long_as_is_known(
    tmp_path: Path, tiny_tokenizer_dir: Path
) -> None:
    lines = [chat("fixed", "hello", max_tokens=40, ignore_eos=True)]
    path = ingested(tmp_path / "j.blend", lines, model=tiny_tokenizer_dir)
    assert main(["plan", str(path), "--no-sample"]) == 0
    assert main(["execute", str(path), "--engine", "sim"]) == 0
    with Job.open(path) as job:
        result = job.result(0)
    assert result is not None
    assert (result.completion_tokens, result.finish_reason) == (40, "length")


def test_a_job_of_the_first_format_says_nothing_of_lengths(tmp_path: Path) -> None:
    import sqlite3

    old = sqlite3.connect(tmp_path / "old.blend", isolation_level=None)
    migrate(old, MIGRATIONS[:1])
    old.execute("INSERT INTO sources (path, size_bytes, digest) VALUES ('in.jsonl', 1, 'd')")
    old.execute("INSERT INTO requests VALUES (0, 'a', 1, 1, '/v1/completions', 1, 16, 1)")
    old.execute("INSERT INTO bodies VALUES (0, CAST('{}' AS BLOB))")
    old.execute("INSERT INTO prompts VALUES (0, CAST('abcd' AS BLOB))")
    old.close()

    with Job.open(tmp_path / "old.blend") as job:
        known = job.prompts().known_tokens
    assert known is not None
    assert np.isnan(known).all()
