"""What is found in prompts is said by the commands: in words, with figures that can be checked."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from blend.cli.advice import advice, lint_document, lint_from
from blend.cli.app import main
from blend.core.input import words
from blend.core.input.draft import Draft
from blend.core.input.words import PromptSample, words_of
from blend.core.planning.prompt_lint import LateSharing, LooseLimits, PromptLint
from tests.batch_files import chat, ingested, write_requests

FOUND = PromptLint(
    (LateSharing(49, 12, 1998, 97_902, 0.614, 3),), 1200, 2, 8192, LooseLimits(3000, 4096, 212, 120)
)
MANUAL = " ".join(f"Rule {n}: never do number {n * n} twice." for n in range(60))


def requests(count: int) -> list[dict]:
    return [chat(f"row-{n}", f"Case {n * 7919}. {MANUAL} Now decide.") for n in range(count)]


def test_advice_says_what_to_move_and_what_it_saves() -> None:
    late, duplicates, full, loose = advice(FOUND, token_s=7560 / 97_902)

    assert late == (
        "49 requests differ from token 13 on,\n"
        "1,998 tokens are equal after it: moving the varying part to the end\n"
        "would save 61.4 % of prefill, about 2 h 6 min"
    )
    assert "1,200 requests repeat" in duplicates
    assert "8,192 tokens" in full
    assert "3,000 requests" in loose
    assert "4,096" in loose
    lines = "\n".join((late, duplicates, full, loose)).splitlines()
    assert max(map(len, lines)) <= 70  # beside a label of ten


@pytest.mark.parametrize(
    ("known", "worth"),
    [
        ({}, 10_000),
        ({"token_s": 1e-3}, 1_000),
        ({"token_s": 1e-3, "run_s": 50.0}, 1_000),
        ({"token_s": 1e-3, "run_s": 3600.0}, 36_000),
        ({"token_s": 1e-6}, 1_000_000),
    ],
)
def test_what_saves_next_to_nothing_is_not_advised(known: dict[str, float], worth: int) -> None:
    (late,) = FOUND.late_sharing
    told = [
        advice(replace(FOUND, late_sharing=(replace(late, saved_tokens=tokens),)), **known)
        for tokens in (worth - 1, worth)
    ]

    assert ["would save" in " ".join(one) for one in told] == [False, True]
    assert "1,200 requests repeat" in told[0][0]


def test_nothing_found_is_nothing_said() -> None:
    assert advice(PromptLint((), 0, 0, None, None)) == []


@pytest.mark.parametrize("found", [FOUND, PromptLint((), 0, 0, None, None)])
def test_what_was_found_comes_back_from_its_json(found: PromptLint) -> None:
    assert lint_from(json.loads(json.dumps(lint_document(found)))) == found


def test_check_tells_of_prompts_without_a_model(tmp_path: Path, capsys) -> None:
    lines = requests(30)
    lines += [{**lines[0], "custom_id": f"again-{n}"} for n in range(4)]
    source = write_requests(tmp_path / "in.jsonl", lines)

    assert main(["check", str(source)]) == 0
    text = capsys.readouterr().out
    assert "words are equal after it" in text
    assert "4 requests repeat" in text
    assert max(map(len, text.splitlines())) <= 90
    assert main(["check", str(source), "--json"]) == 0
    lint = json.loads(capsys.readouterr().out)["lint"]
    assert lint["duplicates"] == 4
    assert lint["late_sharing"][0]["saved_share"] > 0.8


def test_plan_and_show_tell_of_prompts_in_tokens_and_time(
    tmp_path: Path, tiny_tokenizer_dir: Path, capsys, monkeypatch
) -> None:
    monkeypatch.setattr("blend.cli.advice.LEAST_S", 0.0)
    monkeypatch.setattr("blend.cli.advice.LEAST_RUN_SHARE", 0.0)
    path = ingested(tmp_path / "batch.blend", requests(30), model=tiny_tokenizer_dir)
    assert main(["plan", str(path), "--no-sample", "--hardware", "a100-80g"]) == 0
    said = capsys.readouterr().err
    assert main(["show", str(path)]) == 0

    assert "prompts: about" not in said
    for text in (said, capsys.readouterr().out):
        assert "tokens are equal after it" in text
        assert "of prefill, about" in text


def draft(body: bytes, fields: dict) -> Draft:
    return Draft(1, "id", "/v1/chat/completions", body, fields, None, 1, None)


def test_words_are_those_that_the_model_reads_in_its_order() -> None:
    text = words_of({"prompt": "Say: hello, hello"})
    parts = words_of({"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]})

    assert len(text) == 5
    assert text[2] == text[4]
    assert parts[-1] == words_of({"prompt": "hi"})[0]
    assert words_of({"prompt": ["a b", "c"]}).tolist() == words_of({"input": "a b c"}).tolist()
    assert words_of({"prompt": [[1, 2], [3]]}).tolist() == words_of({"prompt": "1 2 3"}).tolist()
    assert len(words_of({})) == 0


def test_a_sample_is_even_bounded_and_counts_all(monkeypatch) -> None:
    monkeypatch.setattr(words, "PROMPTS_KEPT", 100)
    sample = PromptSample()
    for n in range(5000):
        sample.add(draft(b"%d" % n, {"prompt": [n]}))
    kept = sample.prompts()
    numbers = {int(words_of({"prompt": [n]})[0]): n for n in range(5000)}
    drawn = np.array([numbers[int(kept[row][0])] for row in range(len(kept))])

    assert len(kept) == 100
    assert sample.seen == 5000
    assert sample.scale == 50
    assert 1800 < drawn.mean() < 3200


def test_repeated_bodies_are_counted_and_beyond_a_number_estimated(monkeypatch) -> None:
    exact = PromptSample()
    for n in range(900):
        exact.add(draft(b"%d" % (n % 300), {}))
    monkeypatch.setattr(words, "BODIES_KEPT", 200)
    about, none = PromptSample(), PromptSample()
    for n in range(6000):
        about.add(draft(b"%d" % (n % 2000), {}))
        none.add(draft(b"%d" % n, {}))

    assert exact.repeated == 600
    assert about.repeated == pytest.approx(4000, rel=0.05)
    assert none.repeated == 0
