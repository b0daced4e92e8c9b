"""An export as JSON lines, CSV or Parquet says the same, in the memory of a group of rows."""

import csv
import json
import os
import subprocess
import sys
import threading
from dataclasses import fields
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from blend.cli.api import Batch, BlendError
from blend.cli.app import main
from blend.core import answer_files
from blend.core.answers import Answer
from blend.core.completion import Completion
from blend.core.input.draft import Rejection
from blend.store.job import Job
from tests.filled_job import failure, filled_job

TEXT = 'a "quoted", text\r\nof two lines,\rof three and ✓'
COLUMNS = [one.name for one in fields(Answer)]
FORMATS = ["parquet", "csv"]


def answered(row: int, body: dict[str, Any]) -> Completion:
    return Completion(row, 200, json.dumps(body).encode(), "stop", 2, 3, 1)


BODIES: list[tuple[dict[str, Any], str | None]] = [
    ({"choices": [{"message": {"content": TEXT}}, {"message": {"content": "other"}}]}, TEXT),
    ({"choices": [{"text": "plain"}]}, "plain"),
    ({"choices": [{"message": {"content": None, "tool_calls": [{}]}}]}, None),
    (
        {
            "output": [
                {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}]},
                {"type": "message", "content": [{"type": "output_text", "text": "said"}]},
                {"type": "message", "content": [{"type": "output_text", "text": " more"}]},
            ]
        },
        "said more",
    ),
    ({"data": [{"embedding": [0.5, 1.0]}]}, None),
]


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """Five answers of all kinds, one failure, one rejected line, one row without a result."""
    path = tmp_path / "job.blend"
    with filled_job(path, rows=len(BODIES) + 2) as job:
        source = job.open_source("bad, in.jsonl", size=3, digest="e")
        bad = Rejection(1, 7, "bad max_tokens", "`max_tokens` must be positive", "mine")
        job.append(source, [], [bad], offset=3, line=1, complete=True)
        run = job.begin_run(purpose="execute", engine="sim", settings={})
        job.record(run, [answered(row, body) for row, (body, _) in enumerate(BODIES)])
        job.record(run, [failure(len(BODIES), "too long", status_code=400)])
        job.end_run(run, "stopped")
    return path


def read(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".parquet":
        rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
        return rows
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def exported(job: Path, name: str, *options: str) -> list[dict[str, Any]]:
    assert main(["export", str(job), "-o", str(job.with_name(name)), *options]) == 0
    return read(job.with_name(name))


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_table_says_what_the_lines_say(job: Path, suffix: str) -> None:
    rows = exported(job, f"out.{suffix}")
    assert main(["export", str(job), "-o", str(job.with_name("out.jsonl"))]) == 0
    lines = [json.loads(line) for line in job.with_name("out.jsonl").read_text().splitlines()]

    assert [row["custom_id"] for row in rows] == [line["custom_id"] for line in lines]
    assert [json.loads(row["body"]) for row in rows] == [line["response"]["body"] for line in lines]
    assert [row["text"] or None for row in rows] == [text for _, text in BODIES]
    assert {str(row["status_code"]) for row in rows} == {"200"}
    assert [str(row["completion_tokens"]) for row in rows] == ["3"] * len(rows)


@pytest.mark.parametrize("suffix", FORMATS)
def test_errors_are_a_table_of_the_same_columns(job: Path, suffix: str) -> None:
    exported(job, f"out.{suffix}")
    failed, rejected = read(job.with_name(f"out.errors.{suffix}"))

    assert list(failed) == list(rejected) == COLUMNS
    assert (failed["custom_id"], str(failed["status_code"])) == ("request-5", "400")
    assert (failed["error_code"], failed["error_message"]) == ("400", "too long")
    assert (rejected["custom_id"], rejected["error_code"]) == ("bad, in.jsonl:1", "bad_max_tokens")
    assert rejected["error_message"] == "bad, in.jsonl:1:7: `max_tokens` must be positive"
    assert (str(rejected["error_line"]), str(rejected["error_column"])) == ("1", "7")
    assert rejected["error_custom_id"] == "mine"
    assert (rejected["status_code"] or None, rejected["body"]) == (None, "")


def test_a_parquet_file_names_its_form_and_types(job: Path) -> None:
    exported(job, "out.parquet")
    schema = pq.read_schema(job.with_name("out.parquet"))

    assert schema.names == COLUMNS
    assert schema.metadata[b"blend.answers"] == b"1"
    assert {str(one.type) for one in schema} == {"string", "int64"}
    assert [one.name for one in schema if not one.nullable] == ["custom_id", "body"]


def test_a_format_that_is_named_goes_before_the_suffix(job: Path) -> None:
    assert main(["export", str(job), "-o", str(job.with_name("a.dat")), "--format", "csv"]) == 0

    assert job.with_name("a.dat").read_text().startswith("custom_id,status_code,text,")
    assert job.with_name("a.errors.dat").read_text().startswith("custom_id,")


def test_each_file_of_two_has_the_form_of_its_suffix(job: Path) -> None:
    exported(job, "out.parquet", "--errors", str(job.with_name("bad.jsonl")))

    assert len(job.with_name("bad.jsonl").read_text().splitlines()) == 2


@pytest.mark.parametrize("suffix", [*FORMATS, "jsonl"])
def test_the_same_export_twice_gives_the_same_bytes(job: Path, suffix: str) -> None:
    first, second = job.with_name(f"one.{suffix}"), job.with_name(f"two.{suffix}")
    Batch(job).export(first)
    Batch(job).export(second)

    assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_job_without_results_gives_a_whole_empty_table(tmp_path: Path, suffix: str) -> None:
    filled_job(tmp_path / "job.blend", rows=1).close()

    assert exported(tmp_path / "job.blend", f"out.{suffix}") == []


@pytest.mark.parametrize("suffix", FORMATS)
def test_an_export_that_fails_leaves_what_was_there(
    job: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = job.with_name(f"out.{suffix}")
    output.write_text("before")
    (job.parent / f"out.errors.{suffix}").write_text("before")
    monkeypatch.setattr(answer_files, "answer_of", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        Batch(job).export(output, overwrite=True)

    assert output.read_text() == job.with_name(f"out.errors.{suffix}").read_text() == "before"
    assert [one for one in job.parent.iterdir() if "partial" in one.name] == []


def test_parquet_can_be_written_into_a_pipe(job: Path) -> None:
    pipe, copy = job.with_name("pipe"), job.with_name("copy.parquet")
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: copy.write_bytes(pipe.read_bytes()), daemon=True)
    reader.start()
    assert main(["export", str(job), "-o", str(pipe), "--format", "parquet"]) == 0
    reader.join(60)

    assert len(read(copy)) == len(BODIES)


def test_rows_are_written_in_groups_and_none_is_lost(
    job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer_files, "GROUP_ROWS", 2)
    rows = exported(job, "out.parquet")

    assert pq.ParquetFile(job.with_name("out.parquet")).num_row_groups == 3
    assert [row["custom_id"] for row in rows] == [f"request-{n}" for n in range(len(BODIES))]


def test_without_pyarrow_the_extra_is_named_and_the_other_forms_work(
    job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(BlendError, match="pyarrow") as raised:
        Batch(job).export(job.with_name("out.parquet"))

    assert "blend-batch[parquet]" in (raised.value.hint or "")
    assert not job.with_name("out.errors.parquet").exists()
    assert Batch(job).export(job.with_name("out.csv")).results == len(BODIES)


# Not ru_maxrss: it counts what the test had in memory when it started the process.
PEAK_MB = """
import re, sys
from pathlib import Path
from blend.cli.api import Batch
Batch(sys.argv[1]).export(sys.argv[2])
print(int(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024)
"""


@pytest.fixture(scope="module")
def large_jobs(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """A job, and one of ten times as many rows: the answers of that are 150 MB."""
    folder = tmp_path_factory.mktemp("large")
    return {rows: large_job(folder / f"{rows}.blend", rows) for rows in (3_000, 30_000)}


def large_job(path: Path, rows: int) -> Path:
    with filled_job(path, rows=rows) as job:
        run = job.begin_run(purpose="execute", engine="sim", settings={})
        for first in range(0, rows, 1000):
            job.record(run, [large_answer(row) for row in range(first, first + 1000)])
    return path


def large_answer(row: int) -> Completion:
    return answered(row, {"choices": [{"text": f"{row:05} " * 850}]})


@pytest.mark.slow
@pytest.mark.parametrize("suffix", FORMATS)
def test_memory_does_not_grow_with_the_job(
    large_jobs: dict[int, Path], tmp_path: Path, suffix: str
) -> None:
    peaks = []
    for rows, job in large_jobs.items():
        output = tmp_path / f"{rows}.{suffix}"
        command = [sys.executable, "-c", PEAK_MB, str(job), str(output)]
        ended = subprocess.run(command, capture_output=True, text=True, check=True)
        peaks.append(float(ended.stdout))
        assert len(read(output)) == rows

    assert peaks[1] < peaks[0] + 60, peaks


def test_answers_in_python_are_those_of_the_table(job: Path) -> None:
    rows = exported(job, "out.parquet")
    with Job.open(job) as opened:
        assert opened.counts().answered == len(rows)
    answers = [one for one in Batch(job).answers() if not one.failed]

    assert [[getattr(one, name) for name in COLUMNS] for one in answers] == [
        list(row.values()) for row in rows
    ]
