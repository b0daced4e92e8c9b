"""Parquet files as input: every row judged as a line would be, resumed by row, in flat memory."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from blend.cli import intake
from blend.cli.api import Batch, BlendError
from blend.cli.app import main
from blend.core.input.draft import Draft, Rejection
from blend.core.input.request_file import opened_lines
from blend.core.input.validate import parse_line
from blend.store.job import Job
from tests.batch_files import chat, completion

URL = "/v1/completions"
ROWS = 20


def written(path: Path, rows: list[dict[str, Any]], **options: Any) -> Path:
    pq.write_table(pa.Table.from_pylist(rows), path, **options)
    return path


def judged(path: Path, **start: int) -> list[Draft | Rejection | None]:
    with opened_lines(path, **start) as lines:
        return [parse_line(line) for line in lines]


def rejections(path: Path) -> list[tuple[int, int, str]]:
    return [
        (one.line, one.column, one.reason) for one in judged(path) if isinstance(one, Rejection)
    ]


def full(number: int, **body: Any) -> dict[str, Any]:
    return completion(f"r{number}", f"prompt {number}", max_tokens=4, **body)


def as_text(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"body": json.dumps(row["body"])}


@pytest.mark.parametrize("shape", [dict, as_text])
def test_full_requests_are_what_they_are_as_lines(tmp_path: Path, shape: Any) -> None:
    rows = [chat(f"r{n}", f"text {n}", max_tokens=4, stop=["a", "b"]) for n in range(ROWS)]
    drafts = judged(written(tmp_path / "in.parquet", [shape(row) for row in rows]))

    assert [one.custom_id for one in drafts if isinstance(one, Draft)] == [
        row["custom_id"] for row in rows
    ]
    assert [one.fields for one in drafts if isinstance(one, Draft)] == [row["body"] for row in rows]


def test_a_body_that_is_text_stays_byte_for_byte(tmp_path: Path) -> None:
    body = '{ "prompt":"x",\n "seed": 12345678901234567890123, "seed":1 }'
    (draft,) = judged(written(tmp_path / "in.parquet", [{"url": URL, "body": body}]))

    assert isinstance(draft, Draft)
    assert draft.body == body.encode()


def test_columns_of_a_short_request_are_its_fields_and_others_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"label": "spam", "prompt": "x", "max_tokens": 4.0, "temperature": float("nan")}
    path = written(tmp_path / "in.parquet", [row, row | {"prompt": "y"}])
    drafts = judged(path)
    assert main(["check", str(path)]) == 0

    assert [one.fields for one in drafts if isinstance(one, Draft)] == [
        {"prompt": "x", "max_tokens": 4.0},
        {"prompt": "y", "max_tokens": 4.0},
    ]
    assert "columns that no request is made of: label" in capsys.readouterr().err


def test_messages_are_nested_or_text_and_nulls_are_members_that_are_not_there(
    tmp_path: Path,
) -> None:
    messages = [{"role": "user", "content": "hi", "name": None}]
    plain = [{"role": "user", "content": "hi"}]
    nested = written(tmp_path / "a.parquet", [{"messages": messages, "custom_id": "one"}])
    text = written(tmp_path / "b.parquet", [{"messages": json.dumps(plain), "custom_id": "one"}])

    for path in (nested, text):
        (draft,) = judged(path)
        assert isinstance(draft, Draft)
        assert draft.fields == {"messages": plain}
        assert draft.custom_id == "one"


def test_a_map_is_an_object(tmp_path: Path) -> None:
    bias = pa.array([[("50", 1.5)]], pa.map_(pa.string(), pa.float64()))
    table = pa.table({"prompt": ["x"], "logit_bias": bias})
    pq.write_table(table, tmp_path / "in.parquet")
    (draft,) = judged(tmp_path / "in.parquet")

    assert isinstance(draft, Draft)
    assert draft.fields["logit_bias"] == {"50": 1.5}


def test_bad_rows_have_a_row_the_number_of_their_column_and_a_reason(tmp_path: Path) -> None:
    good = as_text(full(0))
    path = written(
        tmp_path / "in.parquet",
        [
            good,
            good | {"custom_id": "bad-json", "body": '{"prompt": '},
            good | {"custom_id": "mended", "body": '{"prompt": "a"}, "x": {}'},
            good | {"custom_id": "no-object", "body": "5"},
            good | {"custom_id": "none", "body": None},
            good | {"custom_id": "bad-url", "url": "/v1/other"},
            good | {"custom_id": "bad-tokens", "body": '{"prompt": "a", "max_tokens": 0}'},
        ],
    )

    assert rejections(path) == [
        (2, 4, "not JSON"),
        (3, 4, "not JSON"),
        (4, 4, "bad body"),
        (5, 4, "bad body"),
        (6, 3, "unknown url"),
        (7, 4, "bad max_tokens"),
    ]


def test_what_json_cannot_say_is_refused_by_the_rule_of_its_field(tmp_path: Path) -> None:
    row = {"prompt": "x", "temperature": b"\xff"}

    assert rejections(written(tmp_path / "in.parquet", [row])) == [(1, 2, "bad field")]


@pytest.mark.parametrize("start", [0, 1, 7, 8, 19, 20])
def test_reading_goes_on_after_any_row(tmp_path: Path, start: int) -> None:
    path = written(tmp_path / "in.parquet", [full(n) for n in range(ROWS)], row_group_size=8)
    rest = judged(path, start_offset=start, start_line=start)

    assert [one.line for one in rest if isinstance(one, Draft)] == list(range(start + 1, ROWS + 1))


def test_a_table_is_ingested_once_and_goes_on_where_it_was_killed(
    tmp_path: Path, tiny_tokenizer_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path / "in.parquet", [full(n) for n in range(ROWS)], row_group_size=8)
    monkeypatch.setattr(intake, "BATCH_LINES", 6)
    batch = Batch(tmp_path / "job.blend")
    killed = monkeypatch.context()
    with killed as patch:
        render, calls = intake.render, []

        def dying(*given: Any) -> Any:
            calls.append(given)
            if len(calls) == 3:
                raise KeyboardInterrupt
            return render(*given)

        patch.setattr(intake, "render", dying)
        with pytest.raises(KeyboardInterrupt):
            batch.ingest_files([path], model=str(tiny_tokenizer_dir))
    with Job.open(batch.path) as job:
        assert [(one.line, one.offset) for one in job.sources()] == [(12, 12)]
    counts = batch.ingest_files([path])

    assert counts.accepted == ROWS - 12
    assert batch.ingest_files([path]).finished == [str(path)]
    with Job.open(batch.path) as job:
        assert job.custom_ids(range(len(job))) == [f"r{n}" for n in range(ROWS)]


def test_rows_and_lines_share_one_set_of_custom_ids(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = written(tmp_path / "in.parquet", [full(1), full(2), full(1)])
    lines = tmp_path / "in.jsonl"
    lines.write_text(json.dumps(full(2)) + "\n")

    assert main(["check", str(table), str(lines)]) == 3
    said = capsys.readouterr().err
    assert "in.parquet:3:1: duplicate custom_id" in said
    assert f"first used at {table}:2" in said


def test_an_empty_table_has_no_request(tmp_path: Path) -> None:
    schema = pa.schema([("prompt", pa.string())])
    pq.write_table(schema.empty_table(), tmp_path / "in.parquet")

    assert judged(tmp_path / "in.parquet") == []


def test_a_table_without_requests_is_refused_with_its_columns(tmp_path: Path) -> None:
    path = written(tmp_path / "in.parquet", [{"text": "x", "id": 1}])

    with pytest.raises(BlendError, match="it has text, id"):
        judged(path)


@pytest.mark.parametrize("keep", [0, 5, 0.5, 0.99])
def test_a_broken_file_is_refused_by_name(tmp_path: Path, keep: float) -> None:
    path = written(tmp_path / "in.parquet", [full(n) for n in range(ROWS)])
    whole = path.read_bytes()
    path.write_bytes(whole[: int(keep if keep > 1 else keep * len(whole))])

    with pytest.raises(BlendError, match="is truncated, corrupt or no Parquet file"):
        judged(path)


def test_damage_inside_a_file_is_told_after_the_rows_before_it(tmp_path: Path) -> None:
    rows = [full(n, user="u" * 50 + str(n)) for n in range(2000)]
    path = written(tmp_path / "in.parquet", rows, row_group_size=1000, compression="gzip")
    second = pq.ParquetFile(path).metadata.row_group(1).column(3)
    spoilt = bytearray(path.read_bytes())
    begin = second.dictionary_page_offset or second.data_page_offset
    spoilt[begin : begin + second.total_compressed_size] = bytes(second.total_compressed_size)
    path.write_bytes(spoilt)
    with opened_lines(path) as lines:
        seen = [next(lines).number for _ in range(1000)]
        with pytest.raises(BlendError, match="truncated, corrupt"):
            next(lines)

    assert seen == list(range(1, 1001))


@pytest.mark.parametrize("command", ["check", "ingest"])
def test_a_table_of_another_name_is_recognised(
    tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path / "in.jsonl", [full(1)])
    options = ["--job", str(tmp_path / "j"), "-m", "m"] if command == "ingest" else []

    assert main([command, str(path), *options]) == 2
    assert "is a Parquet file" in capsys.readouterr().err


def test_without_pyarrow_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path / "in.parquet", [full(1)])
    for name in ("pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(BlendError, match="Parquet needs pyarrow") as raised:
        judged(path)

    assert "blend-batch[parquet]" in (raised.value.hint or "")


def test_run_says_at_once_that_it_cannot_write_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text('{"prompt": "x"}\n')
    for name in ("pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, name, None)
    output = tmp_path / "out.parquet"

    assert main(["run", "-i", str(source), "-o", str(output), "-m", str(tmp_path)]) == 2
    assert [one.name for one in tmp_path.iterdir()] == ["in.jsonl"]


def test_run_takes_a_table_to_a_table(tmp_path: Path, tiny_tokenizer_dir: Path) -> None:
    path = written(tmp_path / "in.parquet", [full(n) for n in range(ROWS)])
    output = tmp_path / "out.parquet"
    command = ["run", "-i", str(path), "-o", str(output), "-m", str(tiny_tokenizer_dir)]
    assert main([*command, "--engine", "sim"]) == 0

    table = pq.read_table(output)
    assert table.column("custom_id").to_pylist() == [f"r{n}" for n in range(ROWS)]
    assert None not in table.column("text").to_pylist()


# Not ru_maxrss: it counts what the test had in memory when it started the process.
PEAK_MB = """
import re, sys
from pathlib import Path
from blend.cli.app import main
assert main(["check", sys.argv[1]]) == 0
print(int(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_table(tmp_path: Path) -> None:
    peaks = []
    for count in (3_000, 30_000):  # the prompts of the larger are 150 MB
        rows = [as_text(full(n, user=f"{n:05} " * 850)) for n in range(count)]
        path = written(tmp_path / f"{count}.parquet", rows, row_group_size=count)
        ended = subprocess.run(
            [sys.executable, "-c", PEAK_MB, str(path)], capture_output=True, text=True, check=True
        )
        peaks.append(float(ended.stdout.split()[-1]))

    assert peaks[1] < peaks[0] + 60, peaks
