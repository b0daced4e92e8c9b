"""A few rounds of `make chaos`: whatever happens to a job, it ends as if nothing had."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from blend.cli.app import main
from tests.chaos.__main__ import drawn
from tests.chaos.accidents import SIM, VLLM
from tests.chaos.rounds import Round
from tests.chaos.subject import Subject, prepare

ROWS = 300


@pytest.fixture(scope="module")
def subject(tiny_tokenizer_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Subject:
    folder = tmp_path_factory.mktemp("undisturbed")
    return prepare(folder, tiny_tokenizer_dir, engine="sim", rows=ROWS, seed=0, run=here)


def here(_folder: Path, argv: Sequence[object]) -> int:
    """Run a command in this process: another one would load all libraries again."""
    return main([str(word) for word in argv])


@pytest.mark.slow
@pytest.mark.parametrize("accident", ["kill execute", "torn journal", "full disk in execute"])
def test_a_job_survives(accident: str, subject: Subject, tmp_path: Path) -> None:
    SIM[accident](Round(subject, tmp_path / "round", name=accident, seed="1"))


def test_a_hundred_rounds_bring_every_accident_in_an_order_that_the_seed_decides() -> None:
    rounds = drawn(1, 100, 6)

    assert {one.accident for one in rounds if one.engine == "sim"} == set(SIM)
    assert {one.accident for one in rounds if one.engine == "vllm"} == set(VLLM)
    assert [one.number for one in rounds] == list(range(100))
    assert rounds == drawn(1, 100, 6)
    assert rounds != drawn(2, 100, 6)


def test_a_broken_promise_is_noticed(subject: Subject, tmp_path: Path) -> None:
    round_ = Round(subject, tmp_path / "round", name="broken", seed="1")
    round_.begin("export")
    round_.finish("export")
    round_.lost = -1
    with pytest.raises(AssertionError, match="ran again"):
        round_.check()
    output = round_.job.with_name("out.jsonl")
    output.write_bytes(output.read_bytes().replace(b'"stop"', b'"length"', 1))
    with pytest.raises(AssertionError):
        round_.check()
