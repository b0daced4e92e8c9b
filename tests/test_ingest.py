"""From request files to the rows of a job, through the real command and a real tokenizer."""

import gzip
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest
import zstandard

from blend.cli.app import main
from blend.cli.intake import BATCH_BYTES, batches
from blend.cli.sharing import opened_sketch
from blend.core.input.lines import RawLine
from blend.core.sharing_sketch import SharingSketch
from blend.store.job import Job
from tests.batch_files import chat, completion, write_requests
from tests.chat_models import with_config, with_template

GOOD = [chat("a", "one"), completion("b", "two"), chat("c", "three")]


@pytest.fixture
def model(tiny_tokenizer_dir: Path) -> str:
    return str(tiny_tokenizer_dir)


def ingest(job: Path, *arguments: str | Path, model: str | None = None) -> int:
    named = ["--model", model] if model else []
    return main(["ingest", *map(str, arguments), "--job", str(job), *named])


def ids(path: Path) -> list[str]:
    with Job.open(path) as job:
        return job.custom_ids(range(len(job)))


def test_rows_keep_order_body_and_tokens(tmp_path: Path, model: str) -> None:
    body = '{"messages": [{"role":"user","content":"\\u0041"}],  "nonce": 12345678901234567890123}'
    line = f'{{"custom_id": "x", "url": "/v1/chat/completions", "body": {body}}}\n'
    source = tmp_path / "in.jsonl"
    source.write_text(line + json.dumps({"prompt": "hi", "max_tokens": 3}) + "\n")

    assert ingest(tmp_path / "j", source, model=model) == 0
    with Job.open(tmp_path / "j") as job:
        first, second = job.request(0), job.request(1)
        assert first.body == body.encode()
        assert first.max_tokens == 4096 - len(first.prompt)
        assert (second.custom_id, second.endpoint, second.max_tokens) == (
            "line-2",
            "/v1/completions",
            3,
        )
        assert second.prompt.tolist() == [74, 75]
        assert job.meta("model") == model
        assert job.meta("context_tokens") == 4096


def test_the_end_says_what_came_in_and_what_is_shared(
    tmp_path: Path, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_requests(
        tmp_path / "in.jsonl", [completion(f"r{i}", "z" * 64 + f"{i}") for i in range(5)]
    )

    assert ingest(tmp_path / "j", source, model=model) == 0
    said = capsys.readouterr()
    assert "accepted: 5\n" in said.out
    assert "prompt tokens: 325\n" in said.out
    assert "shared prefix: 256 tokens (78.8 %)\n" in said.out
    assert f"next: `blend plan {tmp_path / 'j'}`" in said.err


def test_json_says_the_same_on_stdout_alone(
    tmp_path: Path, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text('{"prompt": "hi"}\n{"prompt": 5}\n')

    assert ingest(tmp_path / "j", source, "--json", model=model) == 3
    document = orjson.loads(capsys.readouterr().out)
    assert (document["accepted"], document["rejected"]) == (1, 1)
    assert document["rejections"][0]["examples"][0]["line"] == 2
    assert document["job"]["requests"] == 1


def test_broken_lines_are_told_before_a_model_is_loaded_and_nothing_is_written_without_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_requests(tmp_path / "in.jsonl", [*GOOD, chat("d", "x", max_tokens=-5), GOOD[0]])

    assert ingest(tmp_path / "j", source, model=str(tmp_path / "missing")) == 2
    said = capsys.readouterr().err
    assert f"{source}:4:" in said
    assert "`max_tokens` must be a positive integer: -5" in said
    assert f"was first used at {source}:1" in said
    assert said.index("duplicate custom_id") < said.index("no such model folder")
    assert sorted(tmp_path.iterdir()) == [source]


def test_good_lines_come_in_beside_broken_ones(tmp_path: Path, model: str) -> None:
    source = tmp_path / "in.jsonl"
    source.write_bytes(
        b'\xef\xbb\xbf{"prompt": "a"}\r\n\r\nnot json\n{"prompt": "\xff"}\n{"prompt": "b"}'
    )

    assert ingest(tmp_path / "j", source, model=model) == 3
    assert ids(tmp_path / "j") == ["line-1", "line-5"]
    with Job.open(tmp_path / "j") as job:
        places = [(path, r.line, r.reason) for path, r in job.rejected()]
    assert places == [(str(source), 3, "not JSON"), (str(source), 4, "not UTF-8")]


def test_what_does_not_fit_the_context_is_rejected_with_both_numbers(
    tmp_path: Path, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    long = [completion("p", "z" * 100), completion("q", "a", max_tokens=65), completion("r", "a")]
    source = write_requests(tmp_path / "in.jsonl", long)

    assert ingest(tmp_path / "j", source, "--max-model-len", "64", model=model) == 3
    said = capsys.readouterr().err
    assert "the prompt has 100 tokens, but the context has 64" in said
    assert "`max_tokens` is 65, but the context has 64" in said
    assert ids(tmp_path / "j") == ["r"]


def test_the_same_file_again_changes_nothing_and_is_said(
    tmp_path: Path, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_requests(tmp_path / "in.jsonl", GOOD)
    moved = write_requests(tmp_path / "moved.jsonl", GOOD)
    ingest(tmp_path / "j", source, model=model)

    for again in (source, moved):
        assert ingest(tmp_path / "j", again) == 0
        assert f"already ingested: {again}" in capsys.readouterr().err
    assert ids(tmp_path / "j") == ["a", "b", "c"]


def test_another_file_is_appended_and_duplicates_of_the_job_are_named(
    tmp_path: Path, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    first = write_requests(tmp_path / "1.jsonl", GOOD)
    second = write_requests(tmp_path / "2.jsonl", [chat("d", "four"), chat("b", "five")])
    ingest(tmp_path / "j", first, model=model)
    capsys.readouterr()

    assert ingest(tmp_path / "j", second) == 3
    assert ids(tmp_path / "j") == ["a", "b", "c", "d"]
    said = capsys.readouterr().err
    assert f'{second}:2:15: duplicate custom_id: custom_id "b"' in said
    assert said.count(f"was first used at {first}:2") == 1


def test_a_file_that_changed_is_said_to_be_new(
    tmp_path: Path, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_requests(tmp_path / "in.jsonl", GOOD)
    ingest(tmp_path / "j", source, model=model)
    write_requests(source, [*GOOD, chat("d", "four")])

    assert ingest(tmp_path / "j", source) == 3
    assert "has changed since it was ingested" in capsys.readouterr().err
    assert ids(tmp_path / "j") == ["a", "b", "c", "d"]


def test_duplicates_are_renamed_on_request_and_made_up_ids_always(
    tmp_path: Path, model: str
) -> None:
    first = write_requests(tmp_path / "1.jsonl", [*GOOD, chat("a", "again"), {"prompt": "p"}])
    second = write_requests(tmp_path / "2.jsonl", [*[chat(f"e{i}", "e") for i in range(4)]])
    with second.open("a") as stream:
        stream.write('{"prompt": "q"}\n')

    assert ingest(tmp_path / "j", first, "--on-duplicate", "rename", model=model) == 0
    assert ingest(tmp_path / "j", second) == 0
    assert ids(tmp_path / "j")[:5] == ["a", "b", "c", "a-1-4", "line-5"]
    assert ids(tmp_path / "j")[-1] == "line-5-2-5"


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_plain_and_compressed_files_are_read_by_suffix(
    tmp_path: Path, model: str, suffix: str
) -> None:
    plain = write_requests(tmp_path / "x", GOOD).read_bytes()
    pack = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress}[suffix]
    for name in ("2", "1"):
        (tmp_path / f"{name}.jsonl{suffix}").write_bytes(
            pack(plain.replace(b'"custom_id": "', b'"custom_id": "' + name.encode()))
        )

    assert ingest(tmp_path / "j", f"{tmp_path}/?.jsonl{suffix}", model=model) == 0
    assert ids(tmp_path / "j") == ["1a", "1b", "1c", "2a", "2b", "2c"]


def test_two_files_of_one_content_come_in_once(
    tmp_path: Path, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [write_requests(tmp_path / name, GOOD) for name in ("1.jsonl", "2.jsonl")]

    assert ingest(tmp_path / "j", *files, model=model) == 0
    assert f"left out {files[1]}: the same content as {files[0]}" in capsys.readouterr().err
    assert ids(tmp_path / "j") == ["a", "b", "c"]


def test_a_damaged_file_stops_before_anything_is_written(
    tmp_path: Path, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "in.jsonl.gz"
    source.write_bytes(gzip.compress(os.urandom(4000).hex().encode() + b"\n")[:-20])

    assert ingest(tmp_path / "j", source, model=model) == 2
    assert "truncated or corrupt" in capsys.readouterr().err
    assert not (tmp_path / "j").exists()


def test_stdin_is_read_once_and_known_again_by_its_content(
    tmp_path: Path, model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    requests = write_requests(tmp_path / "x", GOOD).read_bytes()
    for expected in ("accepted: 3", "accepted: 0"):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(requests))))

        assert ingest(tmp_path / "j", "-", model=model) == 0
        assert expected in capsys.readouterr().out
    with Job.open(tmp_path / "j") as job:
        assert [source.path for source in job.sources()] == ["stdin"]


def test_strict_stops_at_the_first_bad_line_with_nothing_written(
    tmp_path: Path, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_requests(tmp_path / "in.jsonl", [GOOD[0], chat("x", "y", n=0), GOOD[1]])

    assert ingest(tmp_path / "j", source, "--strict", model=model) == 3
    assert f"{source}:2:" in capsys.readouterr().err
    assert not (tmp_path / "j").exists()


def test_strict_stops_at_a_line_that_only_the_model_refuses(
    tmp_path: Path, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_requests(tmp_path / "in.jsonl", [GOOD[0], completion("x", "z" * 5000)])

    assert ingest(tmp_path / "j", source, "--strict", model=model) == 3
    assert f"{source}:2:" in capsys.readouterr().err
    assert ids(tmp_path / "j") == []


def test_another_model_in_a_body_is_one_warning_or_a_stop(
    tmp_path: Path, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_requests(tmp_path / "in.jsonl", GOOD)

    assert ingest(tmp_path / "j", source, "--strict-model", model=model) == 2
    assert f"{source}:1: the body asks for the model m" in capsys.readouterr().err
    assert ingest(tmp_path / "j", source, model=model) == 0
    assert capsys.readouterr().err.count("another model") == 1


def test_a_job_stays_with_its_model(
    tmp_path: Path, tiny_tokenizer_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = write_requests(tmp_path / "1.jsonl", GOOD[:1])
    second = write_requests(tmp_path / "2.jsonl", GOOD[1:])
    other = with_template(tiny_tokenizer_dir, tmp_path / "other", "{{ messages[0].content }}")
    ingest(tmp_path / "j", first, model=str(tiny_tokenizer_dir))

    assert ingest(tmp_path / "j", second, model=str(other)) == 6
    said = capsys.readouterr().err
    assert str(tiny_tokenizer_dir) in said
    assert str(other) in said
    assert ingest(tmp_path / "j", second, "--max-model-len", "100") == 6
    assert ids(tmp_path / "j") == ["a"]


def test_a_new_job_needs_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_requests(tmp_path / "in.jsonl", GOOD)

    assert ingest(tmp_path / "j", source) == 2
    assert "--model" in capsys.readouterr().err


def test_a_job_in_use_is_left_alone(
    tmp_path: Path, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_requests(tmp_path / "in.jsonl", GOOD)
    with Job.open(tmp_path / "j", create=True) as job, job.lock("execute"):
        assert ingest(tmp_path / "j", source, model=model) == 5
    assert str(os.getpid()) in capsys.readouterr().err


def test_a_request_without_a_limit_gets_the_models_own(
    tmp_path: Path, tiny_tokenizer_dir: Path
) -> None:
    folder = with_config(tiny_tokenizer_dir, tmp_path / "m")
    (folder / "generation_config.json").write_text('{"max_new_tokens": 99}')
    source = write_requests(tmp_path / "in.jsonl", [chat("a", "x"), chat("b", "x", max_tokens=7)])

    assert ingest(tmp_path / "j", source, model=str(folder)) == 0
    with Job.open(tmp_path / "j") as job:
        assert job.sizes().max_tokens.tolist() == [99, 7]


def test_batches_are_bounded_by_bytes_and_never_empty() -> None:
    lines = [RawLine(i, bytes(BATCH_BYTES // 3), 0, 0) for i in range(7)]
    huge = RawLine(8, bytes(BATCH_BYTES * 2), 0, 0)

    assert [len(batch) for batch in batches([huge, *lines])] == [1, 3, 3, 1]


def test_a_sketch_left_behind_by_a_kill_catches_up(tmp_path: Path, model: str) -> None:
    source = write_requests(
        tmp_path / "in.jsonl", [completion(f"r{i}", "z" * 50) for i in range(9)]
    )
    ingest(tmp_path / "j", source, model=model)
    with Job.open(tmp_path / "j") as job:
        whole = opened_sketch(job)
        behind = SharingSketch().seen([job.request(row).prompt for row in range(4)])
        for stored in (behind, whole.merged(whole)):
            job.set_blob("sharing_sketch", stored.to_bytes())

            assert opened_sketch(job).to_bytes() == whole.to_bytes()


ROWS = 800

# Forks once per round, so that the libraries are imported once; the first child kills itself in the
# middle for certain, the others are killed wherever they are.
KILLED = """
import os, random, signal, sys, time
from pathlib import Path
import transformers
from blend.cli import intake
from blend.cli.app import main
from blend.store.job import Job

intake.BATCH_LINES = 40
append, calls = Job.append, 0

def append_and_die(self, *arguments, **named):
    global calls
    append(self, *arguments, **named)
    calls += 1
    if calls == 5:
        os.kill(os.getpid(), signal.SIGKILL)

moment = random.Random(3)
for round in range(50):
    child = os.fork()
    if not child:
        if round == 0:
            Job.append = append_and_die
        os._exit(main(sys.argv[1:]))
    if 0 < round < 4:
        time.sleep(moment.uniform(0.05, 0.3))
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    if not os.WIFSIGNALED(status):
        sys.exit(os.waitstatus_to_exitcode(status))
sys.exit("never ended")
"""


@pytest.mark.slow
def test_an_ingest_killed_anywhere_goes_on_and_calls_no_row_of_its_own_a_duplicate(
    tmp_path: Path, model: str
) -> None:
    requests: list[dict[str, Any]] = [chat(f"r{i}", f"number {i}") for i in range(ROWS)]
    source = write_requests(tmp_path / "in.jsonl", [*requests, requests[7], chat("bad", "x", n=0)])
    command = ["ingest", str(source), "--job", str(tmp_path / "j"), "--model", model]
    done = subprocess.run(
        [sys.executable, "-c", KILLED, *command],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        cwd=Path(__file__).parent.parent,
    )

    assert done.returncode == 3, done.stderr
    assert "going on with" in done.stderr
    assert ids(tmp_path / "j") == [f"r{i}" for i in range(ROWS)]
    with Job.open(tmp_path / "j") as job:
        assert [(r.line, r.reason) for _, r in job.rejected()] == [
            (ROWS + 1, "duplicate custom_id"),
            (ROWS + 2, "bad n"),
        ]
        assert job.sources()[0].complete
        assert opened_sketch(job).prompts == ROWS


def test_an_ingest_that_was_killed_before_its_first_row_goes_on(tmp_path: Path, model: str) -> None:
    source = write_requests(tmp_path / "in.jsonl", GOOD)
    with Job.open(tmp_path / "j", create=True) as job:
        job.set_meta(options={"model": model})

    assert ingest(tmp_path / "j", source) == 0
    assert ids(tmp_path / "j") == ["a", "b", "c"]


def test_a_job_whose_lines_were_all_rejected_is_neither_planned_nor_run(
    tmp_path: Path, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_requests(tmp_path / "in.jsonl", GOOD)
    assert ingest(tmp_path / "j", source, "--max-model-len", "1", model=model) == 3

    assert main(["plan", str(tmp_path / "j"), "--no-sample"]) == 2
    assert main(["execute", str(tmp_path / "j"), "--engine", "sim"]) == 2
    assert "no requests" in capsys.readouterr().err


@pytest.mark.parametrize("text", [b"{% for", b"\xff\xfe"])
def test_a_broken_chat_template_is_named_before_anything_is_written(
    tmp_path: Path, model: str, text: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_requests(tmp_path / "in.jsonl", GOOD)
    template = tmp_path / "template.jinja"
    template.write_bytes(text)

    assert ingest(tmp_path / "j", source, "--chat-template", template, model=model) == 2
    assert "template.jinja" in capsys.readouterr().err
    assert not (tmp_path / "j").exists()


def test_a_device_is_no_job(tmp_path: Path, model: str) -> None:
    source = write_requests(tmp_path / "in.jsonl", GOOD)
    os.mkfifo(tmp_path / "pipe")

    assert ingest(tmp_path / "pipe", source, model=model) == 2


@pytest.mark.parametrize("seed", ["-1", str(2**32)])
def test_a_seed_that_no_engine_takes_is_a_usage_error(tmp_path: Path, seed: str) -> None:
    assert main(["plan", str(tmp_path / "j"), "--seed", seed]) == 2
