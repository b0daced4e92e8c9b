"""The job gives back what was put in, and never half-writes."""

import os
import sqlite3
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blend.core.input.draft import Rejection
from blend.store.job import Job, NewRow
from tests.filled_job import filled_job, new_row

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
ROWS = st.lists(
    st.builds(
        NewRow,
        custom_id=TEXT,
        line=st.integers(1, 10**9),
        endpoint=st.sampled_from(["/v1/chat/completions", "/v1/completions"]),
        body=st.binary(max_size=40),
        tokens=st.lists(st.integers(0, 2**32 - 1), max_size=8).map(lambda t: np.array(t, "u4")),
        max_tokens=st.integers(1, 2**31 - 1),
        sequences=st.integers(1, 128),
    ),
    unique_by=lambda row: row.custom_id,
    max_size=12,
)


@settings(max_examples=25, deadline=None)
@given(rows=ROWS, cut=st.integers(0, 12))
def test_rows_come_back_as_they_were_appended(
    tmp_path_factory: pytest.TempPathFactory, rows: list[NewRow], cut: int
) -> None:
    with Job.open(tmp_path_factory.mktemp("job") / "j.db", create=True) as job:
        source = job.open_source("a.jsonl", size=1, digest="d")
        job.append(source, rows[:cut], [], offset=1, line=1)
        job.append(source, rows[cut:], [], offset=2, line=2)
        requests = [job.request(row) for row in range(len(rows))]
        prompts, sizes = job.prompts(), job.sizes()

        assert len(job) == len(prompts) == len(rows)
        assert job.sequences().tolist() == sizes.sequences.tolist()
        assert job.custom_ids(range(len(rows))) == [row.custom_id for row in rows]
        for i, (row, request) in enumerate(zip(rows, requests, strict=True)):
            assert (request.row, request.custom_id, request.body) == (i, row.custom_id, row.body)
            assert (request.endpoint, request.max_tokens) == (row.endpoint, row.max_tokens)
            assert request.prompt.tolist() == prompts[i].tolist() == row.tokens.tolist()
            assert request.sequences == prompts.sequences[i] == sizes.sequences[i] == row.sequences
            assert prompts.max_tokens[i] == sizes.max_tokens[i] == row.max_tokens
            assert sizes.prompt_tokens[i] == prompts.lengths[i] == len(row.tokens)
            assert (job.find(row.custom_id), job.origin(i)) == (i, ("a.jsonl", row.line))
        assert job.find_ids([r.custom_id for r in rows] + [" absent "]) == {
            r.custom_id: ("a.jsonl", r.line) for r in rows if r.custom_id != " absent "
        }


def test_a_job_knows_whether_any_body_has_a_field(tmp_path: Path) -> None:
    bodies = [b'{"seed": 1}', b'{"prompt": "the seed"}', b'{"prompt": "\\"seed\\": 1"}']
    found = []
    for number, body in enumerate(bodies):
        with filled_job(tmp_path / f"{number}.db", rows=3) as job:
            source = job.open_source("b.jsonl", size=1, digest="e")
            job.append(source, [replace(new_row(7), body=body)], [], offset=1, line=1)
            found.append(job.any_body_has("seed"))

    assert found == [True, False, False]


def test_settings_and_blobs_come_back_and_replace_each_other(tmp_path: Path) -> None:
    with Job.open(tmp_path / "j.db", create=True) as job:
        job.set_meta(model="a", fingerprint={"digest": "x", "sizes": [1, 2.5, None]})
        job.set_meta(model="b")
        job.set_blob("sketch", b"\0\xff")
        job.set_blob("sketch", b"\0\xfe")

        assert job.meta("model") == "b"
        assert job.meta("fingerprint") == {"digest": "x", "sizes": [1, 2.5, None]}
        assert job.blob("sketch") == b"\0\xfe"
        assert job.meta("absent") is None
        assert job.blob("absent") is None


def test_the_same_file_again_is_the_same_source_as_far_as_it_was_done(tmp_path: Path) -> None:
    with Job.open(tmp_path / "j.db", create=True) as job:
        source = job.open_source("a.jsonl", size=9, digest="d")
        job.append(source, [new_row(0)], [], offset=5, line=1)
        again = job.open_source("a.jsonl", size=9, digest="d")
        changed = job.open_source("a.jsonl", size=9, digest="e")
        job.append(again, [], [], offset=9, line=2, complete=True)
        done, _ = job.sources()

        assert (again.id, again.offset, again.line, again.complete) == (source.id, 5, 1, False)
        assert (done.offset, done.line, done.complete, done.digest) == (9, 2, True, "d")
        assert (changed.id != source.id, changed.offset) == (True, 0)


def test_an_append_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    with filled_job(tmp_path / "j.db", rows=2) as job:
        source = job.open_source("b.jsonl", size=9, digest="d")
        with pytest.raises(sqlite3.IntegrityError):
            job.append(source, [new_row(2), new_row(1)], [], offset=9, line=2)

        assert (len(job), job.find("request-2"), job.sources()[1].offset) == (2, None, 0)


def test_an_offset_is_never_passed_twice(tmp_path: Path) -> None:
    with filled_job(tmp_path / "j.db", rows=1) as job:
        source = job.sources()[0]
        with pytest.raises(ValueError, match="already past offset"):
            job.append(source, [new_row(1)], [], offset=50, line=1)

        assert len(job) == 1


def test_rejections_come_back_in_order_and_grouped(tmp_path: Path) -> None:
    with Job.open(tmp_path / "j.db", create=True) as job:
        a, b = (job.open_source(p, size=1, digest="d") for p in ("a.jsonl", "b.jsonl"))
        first = Rejection(7, 3, "not JSON", "unexpected `}`", None)
        second = Rejection(2, 9, "not JSON", "unexpected end", None)
        third = Rejection(4, 1, "bad n", "`n` must be positive: -1", "x\x1b[31m")
        job.append(a, [], [first], offset=1, line=7)
        job.append(b, [], [second, third], offset=1, line=4)

        assert list(job.rejected()) == [
            ("a.jsonl", first),
            ("b.jsonl", second),
            ("b.jsonl", third),
        ]
        assert job.rejections_by_reason() == [
            ("not JSON", 2, "a.jsonl", 7, 3, "unexpected `}`"),
            ("bad n", 1, "b.jsonl", 4, 1, "`n` must be positive: -1"),
        ]


def test_a_file_name_that_is_not_utf8_is_kept_readable(tmp_path: Path) -> None:
    with Job.open(tmp_path / "j.db", create=True) as job:
        source = job.open_source(os.fsdecode(b"caf\xe9.jsonl"), size=1, digest="d")

        assert source.path == "caf\\xe9.jsonl"


def test_an_overview_shows_every_row_to_other_programs(tmp_path: Path) -> None:
    filled_job(tmp_path / "j.db", rows=2).close()
    connection = sqlite3.connect(tmp_path / "j.db")
    found = connection.execute("SELECT row, origin, state, request FROM overview").fetchall()
    connection.close()

    assert found == [
        (0, "in.jsonl:1", "pending", '{"messages": [0]}'),
        (1, "in.jsonl:2", "pending", '{"messages": [1]}'),
    ]
