"""What a person is told at once: before anything is read, and before they know the program."""

import re
import shlex
from pathlib import Path

import pytest

from blend.cli.app import main
from blend.cli.commands import COMMANDS
from blend.cli.next_steps import next_command
from blend.store.job import Job
from tests.batch_files import chat, planned, write_requests
from tests.filled_job import answer


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_requests(tmp_path / "in.jsonl", [chat("a", "one", max_tokens=4)])


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--engine", "sim", "--hardware", "h900"], "unknown hardware: h900"),
        (["--engine", "openai"], "needs the address of a server"),
        (["--engine", "openai", "--base-url", "h:8000"], "not the address of a server"),
        (["--engine", "vllm"], "vLLM is not installed"),
    ],
)
def test_an_engine_that_cannot_be_had_is_said_before_the_input_is_read(
    source: Path,
    tiny_tokenizer_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    argv: list[str],
    said: str,
) -> None:
    monkeypatch.setattr("blend.core.engines.vllm_version.find_spec", lambda _name: None)
    output = source.with_name("out.jsonl")

    code = main(["run", "-i", str(source), "-o", str(output), "-m", str(tiny_tokenizer_dir), *argv])
    printed = capfd.readouterr().err

    assert code == 2
    assert said in printed
    assert "accepted" not in printed
    assert not source.with_name("out.blend").exists()


def test_a_cache_without_room_for_a_block_is_refused_by_the_simulated_engine(
    tmp_path: Path, tiny_tokenizer_dir: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    job = planned(tmp_path / "job.blend", [chat("a", "one")], model=tiny_tokenizer_dir)

    assert main(["execute", str(job), "--engine", "sim", "--kv-cache-memory-bytes", "1"]) == 2
    assert "holds no block of 16 tokens: 1\nhint: one takes" in capfd.readouterr().err


def test_one_request_is_not_spoken_of_as_many(
    tmp_path: Path, tiny_tokenizer_dir: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    job = planned(tmp_path / "job.blend", [chat("a", "one")], model=tiny_tokenizer_dir)
    assert main(["execute", str(job), "--engine", "sim"]) == 0
    assert main(["export", str(job), "-o", str(tmp_path / "out.jsonl")]) == 0
    assert main(["retry", str(job)]) == 0
    said = capfd.readouterr().err

    assert "the only request has a result" in said
    assert "1 result: " in said
    assert "nothing to run again: no request has failed" in said


def test_the_command_that_goes_on_works_as_it_is_printed(
    tmp_path: Path, tiny_tokenizer_dir: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    requests = [chat(f"id-{number}", f"say {number}") for number in range(3)]
    job = planned(tmp_path / "job.blend", requests, model=tiny_tokenizer_dir)
    assert main(["execute", str(job), "--engine", "sim", "--limit", "1"]) == 4
    command = re.findall("`(blend execute [^`]*)`", capfd.readouterr().err)[-1]

    assert main(shlex.split(command)[1:]) == 0


def test_the_command_that_goes_on_names_the_server_of_the_results(
    tmp_path: Path, tiny_tokenizer_dir: Path
) -> None:
    requests = [chat(f"id-{number}", f"say {number}") for number in range(2)]
    planned(tmp_path / "job.blend", requests, model=tiny_tokenizer_dir)
    with Job.open(tmp_path / "job.blend") as job:
        run = job.begin_run(
            purpose="execute", engine="openai", settings={"base-url": "http://h:80"}
        )
        job.record(run, [answer(0)])
        command = next_command(job, job.counts())

    assert command.endswith("--resume --engine openai --base-url http://h:80")


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_the_help_of_a_switch_asks_for_no_value(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*([command] if command else []), "--help"]) == 0

    printed = capsys.readouterr().out
    assert "--help" in printed
    assert "<bool>" not in printed
