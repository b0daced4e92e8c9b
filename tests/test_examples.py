"""What examples/ holds is what the README says it is."""

import itertools
import subprocess
import sys
from pathlib import Path

import orjson

from blend.core.input.draft import Draft
from blend.core.input.lines import open_lines
from blend.core.input.validate import parse_line

ROOT = Path(__file__).parent.parent
REQUESTS = ROOT / "examples" / "requests.jsonl"

KINDS = {"choice-sky", "choice-kitchen", "steps", "open"}


def drafts() -> list[Draft]:
    with REQUESTS.open("rb") as stream:
        parsed = [parse_line(line) for line in open_lines(stream)]
    accepted = [draft for draft in parsed if isinstance(draft, Draft)]
    assert len(accepted) == len(parsed)
    return accepted


def kind(draft: Draft) -> str:
    return draft.custom_id.rpartition("-")[0]


def opening(draft: Draft) -> str:
    """Return the text that requests of one kind may share: all but the last message."""
    fields = draft.fields
    if "prompt" in fields:
        return str(fields["prompt"])
    return "".join(message["content"] for message in fields["messages"][:-1])


def shared_characters(texts: list[str]) -> int:
    columns = zip(*texts, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda column: len(set(column)) == 1, columns))


def test_every_request_of_the_example_is_accepted_as_written() -> None:
    accepted = drafts()

    assert len(accepted) == 40
    assert len({draft.custom_id for draft in accepted}) == 40
    assert all(draft.notes == () for draft in accepted)


def test_the_example_mixes_its_kinds_in_shuffled_order() -> None:
    kinds = [kind(draft) for draft in drafts()]
    runs = sum(1 for _ in itertools.groupby(kinds))

    assert set(kinds) == KINDS
    assert runs > len(kinds) // 2


def test_requests_of_one_kind_share_a_long_opening() -> None:
    for name in KINDS - {"open"}:
        shared = shared_characters([opening(draft) for draft in drafts() if kind(draft) == name])

        assert shared > 400, name


def test_short_and_long_answers_are_both_asked_for() -> None:
    limits = {kind(draft): draft.max_tokens for draft in drafts()}

    assert limits["choice-sky"] == limits["choice-kitchen"] == 2
    assert (limits["steps"] or 0) >= 128
    assert (limits["open"] or 0) >= 128


def test_answers_are_printed_beside_their_questions(tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    results.write_bytes(
        b"".join(
            orjson.dumps({"custom_id": custom_id, "response": {"body": {"choices": [choice]}}})
            + b"\n"
            for custom_id, choice in (
                ("choice-sky-07", {"text": " telescope\n"}),
                ("open-02", {"message": {"content": "Water them."}}),
            )
        )
    )
    script = ROOT / "examples" / "answers.py"
    ids = ["choice-sky-07", "open-02", "open-03"]
    command = [sys.executable, "-X", "utf8", str(script), str(REQUESTS), str(results), *ids]
    printed = subprocess.run(command, capture_output=True, check=True, encoding="utf-8").stdout

    assert "→ telescope\n" in printed
    assert "tomatoes on a balcony" in printed
    assert "→ Water them.\n" in printed
    assert "→ (none yet)\n" in printed
