"""`blend run --engine openai` from end to end, against a server that fails."""

import json
import os
import signal
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from blend.cli import server as cli_server
from blend.cli.app import main
from blend.core.engines.openai_retry import Patience
from blend.store.job import Job
from tests.batch_files import chat, completion, read_lines, write_requests
from tests.faulty_server import KEY, MODEL, FaultyServer, serving

ROWS = 40
HASTY = Patience(first_s=0.01, longest_s=0.05, outage_s=10.0, start_s=0.3)
TRANSIENT = ["drop", "half", "garbage", "500", "429", "503"]


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli_server, "PATIENCE", HASTY)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def requests() -> list[dict[str, Any]]:
    """Return short answers behind a shared prefix among long answers, named by their last word."""
    shots = "The following are multiple choice questions. " * 40
    return [
        completion(f"row-{i}", f"{shots}A or B? r{i}", max_tokens=2)
        if i % 2
        else chat(f"row-{i}", f"Write about the number r{i}", max_tokens=60 + i)
        for i in range(ROWS)
    ]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_requests(tmp_path / "in.jsonl", requests())


def command(source: Path, server: FaultyServer, model: Path, *more: str) -> list[str]:
    return [
        *("run", "-i", str(source), "-o", str(source.with_name("out.jsonl")), "-m", str(model)),
        *("--engine", "openai", "--base-url", server.url, "--served-model-name", MODEL),
        *("--hardware", "a100-80g", *more),
    ]


def outcome(source: Path) -> dict[str, list[int]]:
    """Return the status codes of each custom_id in both output files."""
    found: dict[str, list[int]] = {}
    for name in ("out.jsonl", "out.errors.jsonl"):
        path = source.with_name(name)
        for line in read_lines(path) if path.exists() else []:
            found.setdefault(line["custom_id"], []).append(line["response"]["status_code"])
    return found


def everything_in(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def ids() -> list[str]:
    return [f"row-{i}" for i in range(ROWS)]


def test_a_run_through_faults_gives_every_row_one_result(
    source: Path, tiny_tokenizer_dir: Path
) -> None:
    def fault_of(name: str, attempt: int) -> str:
        return TRANSIENT[int(name[1:]) % len(TRANSIENT)] if attempt == 1 else "none"

    with serving(FaultyServer(fault_of)) as server:
        code = main(command(source, server, tiny_tokenizer_dir, "--concurrency", "8"))

    assert code == 0
    assert outcome(source) == {custom_id: [200] for custom_id in ids()}
    assert server.most_inside <= 8


def test_refused_rows_fail_alone(source: Path, tiny_tokenizer_dir: Path) -> None:
    def fault_of(name: str, _attempt: int) -> str:
        return "400" if name == "r12" else "none"

    with serving(FaultyServer(fault_of)) as server:
        code = main(command(source, server, tiny_tokenizer_dir))

    assert code == 3
    assert outcome(source) == {i: [400 if i == "row-12" else 200] for i in ids()}


def test_a_key_that_is_refused_later_is_no_row_s_fault(
    source: Path, tiny_tokenizer_dir: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with serving(FaultyServer(lambda _name, _attempt: "401")) as server:
        code = main(command(source, server, tiny_tokenizer_dir))

    assert code == 4
    assert "4 x the server" in capfd.readouterr().err
    with Job.open(source.with_name("out.blend")) as job:
        assert job.deaths() == {}
        assert job.counts().pending == ROWS


def test_a_server_that_is_lost_ends_the_run_and_the_same_command_goes_on(
    source: Path,
    tiny_tokenizer_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(cli_server, "PATIENCE", replace(HASTY, outage_s=0.3))
    answered = set()

    def fault_of(name: str, _attempt: int) -> str:
        if len(answered) >= 15:
            return "503"
        answered.add(name)
        return "none"

    with serving(FaultyServer(fault_of)) as server:
        argv = command(source, server, tiny_tokenizer_dir, "--concurrency", "4", "--no-sample")
        first = main(argv)
        said = capfd.readouterr().err
        server.fault_of = lambda _name, _attempt: "none"
        server.arrivals.clear()
        second = main(argv)

    assert first == 4
    assert "has turned every request away" in said
    assert "--resume" in said
    assert "engine.log" not in said
    assert second == 0
    assert not answered & set(server.arrivals)
    assert outcome(source) == {custom_id: [200] for custom_id in ids()}


def test_outages_are_held_against_no_row_that_was_not_let_in(
    source: Path, tiny_tokenizer_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last row is sent away through two outages, and there is no other to ask."""
    monkeypatch.setattr(cli_server, "PATIENCE", replace(HASTY, outage_s=0.3))
    with serving(FaultyServer(lambda name, _: "429" if name == "r12" else "none")) as server:
        argv = command(source, server, tiny_tokenizer_dir, "--no-sample", "--max-rebuilds", "1")
        first = main(argv)
        with Job.open(source.with_name("out.blend")) as job:
            assert job.deaths() == {}
            assert (job.counts().pending, job.counts().failed) == (1, 0)
        server.fault_of = lambda _name, _attempt: "none"
        second = main(argv)

    assert (first, second) == (4, 0)
    assert outcome(source) == {custom_id: [200] for custom_id in ids()}


def test_an_interrupt_drains_while_long_answers_are_awaited(
    source: Path, tiny_tokenizer_dir: Path
) -> None:
    def fault_of(_name: str, _attempt: int) -> str:
        if len(server.arrivals) == 10:
            os.kill(os.getpid(), signal.SIGINT)
        return "none"

    server = FaultyServer(fault_of, answer_s=0.05)
    with serving(server):
        argv = command(source, server, tiny_tokenizer_dir, "--concurrency", "2", "--no-sample")
        first = main(argv)
        arrived = len(server.arrivals)
        second = main(argv)

    assert (first, second) == (4, 0)
    assert arrived < ROWS
    assert sorted(server.arrivals) == sorted(f"r{i}" for i in range(ROWS))
    assert outcome(source) == {custom_id: [200] for custom_id in ids()}


@pytest.mark.parametrize("by_environment", [True, False])
def test_the_key_is_used_and_left_nowhere(
    source: Path,
    tiny_tokenizer_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    by_environment: bool,
) -> None:
    def fault_of(name: str, _attempt: int) -> str:
        return "400" if name == "r12" else "none"

    if by_environment:
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
    more = [] if by_environment else ["--engine-arg", f"api-key={KEY}"]
    with serving(FaultyServer(fault_of, key=KEY)) as server:
        code = main(command(source, server, tiny_tokenizer_dir, *more))
        job = source.with_name("out.blend")
        assert main(["status", str(job)]) == 0
        assert main(["show", str(job), "request", "row-12"]) == 0
    said = capfd.readouterr()

    assert code == 3
    assert server.authorizations == {f"Bearer {KEY}"}
    assert KEY not in said.out + said.err
    assert KEY.encode() not in everything_in(source.parent)


def test_the_run_remembers_which_server_it_was(source: Path, tiny_tokenizer_dir: Path) -> None:
    with serving(FaultyServer()) as server:
        assert main(command(source, server, tiny_tokenizer_dir, "--no-sample")) == 0
    with sqlite3.connect(source.with_name("out.blend")) as job:
        ((engine, settings),) = job.execute("SELECT engine, settings FROM runs")
    job.close()

    assert engine == "openai"
    expected = {"base-url": server.url, "served-model-name": MODEL, "pacing": "none"}
    assert json.loads(settings) == expected


def test_a_sample_that_is_not_through_goes_on_beside_the_plan_and_nothing_is_asked_twice(
    source: Path, tiny_tokenizer_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Whatever is sampled is only answered beside what the plan lets in.
    briefly = ["--policy", "dfs", "--sample-seconds", "0.1", "--sample-rate", "0.2"]
    with serving(FaultyServer(answers_from=ROWS // 2)) as server:
        assert main(command(source, server, tiny_tokenizer_dir, *briefly)) == 0

    assert "go on" in capsys.readouterr().err
    assert sorted(server.arrivals) == sorted(f"r{i}" for i in range(ROWS))
    assert outcome(source) == {custom_id: [200] for custom_id in ids()}
    with Job.open(source.with_name("out.blend")) as job:
        plan = job.plan()
        assert [run.outcome for run in job.runs()] == ["handed on", "finished"]
    assert plan is not None
    # The server does not tell how old an answer is: nothing was seen of any.
    assert not len(plan.sample_rows)


def test_a_sample_that_is_cut_off_is_dropped_at_the_server_too(
    source: Path, tiny_tokenizer_dir: Path
) -> None:
    job = source.with_name("out.blend")
    with serving(FaultyServer(answer_s=60)) as server:
        argv = command(source, server, tiny_tokenizer_dir, "--sample-rate", "0.2")
        _, _, _, _, _, *engine = argv
        assert main(["ingest", str(source), "--job", str(job), *engine[:2]]) == 0
        assert main(["plan", str(job), *engine[2:], "--sample-seconds", "0.1"]) == 0

    with Job.open(job) as opened:
        (sample,) = opened.runs()
        assert sample.outcome == "cut off"
        assert opened.counts().pending == ROWS
    assert 0 < len(server.arrivals) < ROWS


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--engine", "openai"], "needs the address of a server"),
        (["--engine", "openai", "--base-url", "localhost:8000"], "not the address of a server"),
        (["--engine", "openai", "--base-url", "http://x:y:z"], "not the address of a server"),
        (["--engine", "openai", "--base-url", "http://h/?key=1"], "not the address of a server"),
        (["--engine", "openai", "--base-url", "http://me:pw@h"], "must not hold a name or passw"),
        (
            ["--engine", "openai", "--base-url", "http://h", "-tp", "2"],
            "`--tensor-parallel-size` cannot be set from here",
        ),
        (["--engine", "sim", "--base-url", "http://h"], "`--base-url` is for a server"),
        (["--engine", "sim", "--concurrency", "3"], "`--concurrency` is for a server"),
        (
            ["--engine", "openai", "--base-url", "http://h", "--api-key", "k\u00e9y"],
            "no HTTP header may hold",
        ),
    ],
)
def test_options_that_make_no_sense_are_refused(
    source: Path,
    tiny_tokenizer_dir: Path,
    capfd: pytest.CaptureFixture[str],
    argv: list[str],
    said: str,
) -> None:
    output = source.with_name("out.jsonl")
    code = main(["run", "-i", str(source), "-o", str(output), "-m", str(tiny_tokenizer_dir), *argv])
    error = capfd.readouterr().err

    assert code == 2
    assert said in error
    assert "pw@" not in error


@pytest.mark.parametrize(
    ("text", "base"),
    [
        ("http://h:8000", "http://h:8000"),
        ("http://h:8000/v1/", "http://h:8000"),
        ("https://h/api/v1", "https://h/api"),
        ("http://[::1]:8000/", "http://[::1]:8000"),
    ],
)
def test_a_base_url_is_taken_with_and_without_v1(text: str, base: str) -> None:
    assert cli_server.base_url_of(text) == base


def test_the_base_url_of_clients_of_the_api_works(source: Path, tiny_tokenizer_dir: Path) -> None:
    with serving(FaultyServer()) as server:
        argv: list[Any] = command(source, server, tiny_tokenizer_dir)
        argv[argv.index(server.url)] = f"{server.url}/v1"
        assert main(argv) == 0

    assert server.others == []
