"""A retry takes results back whole or not at all, and costs no answer."""

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blend.cli.app import main
from blend.core.completion import Completion
from blend.core.engines import StepReport
from blend.core.engines.sim import SimEngine
from blend.store.job import Job
from tests.batch_files import mixed, planned, read_lines
from tests.filled_job import answer, failure, filled_job

ROWS = 24
SIM = ["--engine", "sim"]


def rows(*numbers: int) -> Any:
    return np.array(numbers, np.int64)


def exported(job: Job) -> dict[int, tuple[Completion, bool]]:
    found = list(job.latest_answers())
    assert [completion.row for _, completion, _ in found] == sorted(
        {completion.row for _, completion, _ in found}
    )
    return {completion.row: (completion, earlier) for _, completion, earlier in found}


KINDS = {
    "answer": lambda row, text: answer(row, text=text),
    "cut": lambda row, text: answer(row, text=text, finish_reason="length"),
    "fail": lambda row, text: failure(row, text, status_code=500),
}


@settings(max_examples=40, deadline=None)
@given(
    acts=st.lists(
        st.tuples(st.sampled_from([*KINDS, "retry", "start"]), st.integers(0, 3)), max_size=24
    )
)
def test_a_row_has_one_result_and_its_latest_answer_stays(
    tmp_path_factory: pytest.TempPathFactory, acts: list[tuple[str, int]]
) -> None:
    current: dict[int, Completion] = {}
    answered: dict[int, Completion] = {}
    taken: dict[int, list[Completion]] = {}
    starts = [0] * 4
    with filled_job(tmp_path_factory.mktemp("job") / "j.db", rows=4) as job:
        run = job.begin_run(purpose="execute", engine="sim", settings={})
        for number, (act, row) in enumerate(acts):
            if act == "retry":
                assert job.retry(rows(row), asked="failed") == (row in current)
                if row in current:
                    taken.setdefault(row, []).append(current.pop(row))
            elif row in current:
                continue
            elif act == "start":
                job.start_rows(run, [row])
                starts[row] += 1
            else:
                current[row] = KINDS[act](row, f"text {number}")
                job.record(run, [current[row]])
                if act != "fail":
                    answered[row] = current[row]

        assert {c.row: c for _, c in job.results()} == current
        assert job.pending().tolist() == [row not in current for row in range(4)]
        assert [job.attempts(row) for row in range(4)] == starts
        latest = {row: answered.get(row) or current[row] for row in {*current, *answered}}
        assert exported(job) == {row: (one, current.get(row) != one) for row, one in latest.items()}
        assert [job.earlier_results(row) for row in range(4)] == [
            taken.get(r, []) for r in range(4)
        ]
        counts = job.counts()
        assert counts.answered_before == sum(current.get(r) != one for r, one in answered.items())
        assert counts.total == counts.answered + counts.failed + counts.pending + counts.running
        assert job.runs()[0].results == len(current) + sum(map(len, taken.values()))


def test_a_retry_that_fails_half_way_changes_nothing(tmp_path: Path) -> None:
    with filled_job(tmp_path / "j.db", rows=3) as job:
        run = job.begin_run(purpose="execute", engine="sim", settings={})
        job.record(run, [answer(row, finish_reason="length") for row in range(3)])
        with pytest.raises(Exception, match="CHECK"):
            job.retry(rows(0, 1, 2), asked="truncated", max_tokens=rows(32, 32, 0))

        assert not job.pending().any()
        assert job.request(0).max_tokens == 16
        assert job.raised_limit(0) is None


@pytest.mark.parametrize(
    ("limits", "raised"),
    [
        ('"max_tokens": 16', '"max_tokens": 64'),
        ('"max_completion_tokens": 16, "x": 1', '"max_completion_tokens": 64, "x": 1'),
        (
            '"max_tokens": 9, "max_completion_tokens":16',
            '"max_tokens": 64, "max_completion_tokens":64',
        ),
        ('"x": {"max_tokens": 1}', '"max_tokens": 64, "x": {"max_tokens": 1}'),
    ],
)
def test_a_raised_limit_is_sent_and_the_stored_body_stays(
    tmp_path: Path, limits: str, raised: str
) -> None:
    path = tmp_path / "j.db"
    with filled_job(path, rows=1) as job:
        with job._database.write(durable=False) as sql:
            sql.execute("UPDATE bodies SET body = ?", (f"{{{limits}}}".encode(),))
        run = job.begin_run(purpose="execute", engine="sim", settings={})
        job.record(run, [answer(0, finish_reason="length")])
        job.retry(rows(0), asked="truncated", max_tokens=rows(64))
        request = job.request(0)
        with job._database.read() as sql:
            stored = sql.execute("SELECT body FROM bodies").fetchone()[0]

        assert request.body == f"{{{raised}}}".encode()
        assert (request.max_tokens, job.raised_limit(0)) == (64, 64)
        assert job.sizes().max_tokens.tolist() == [64]
        assert stored == f"{{{limits}}}".encode()


@pytest.mark.parametrize(
    ("fields", "known"),
    [
        ('"ignore_eos": true', 64),
        ('"min_tokens": 64', 64),
        ('"metadata": {"output_tokens": "40"}', 40),
        ('"min_tokens": 16', np.nan),
        ('"seed": 36893488147419103232', np.nan),
    ],
)
def test_what_is_known_of_an_answers_length_is_known_at_the_raised_limit(
    tmp_path: Path, fields: str, known: float
) -> None:
    with filled_job(tmp_path / "j.db", rows=1) as job:
        body = f'{{"max_tokens": 16, {fields}}}'.encode()
        with job._database.write(durable=False) as sql:
            sql.execute("UPDATE bodies SET body = ?", (body,))
            sql.execute("UPDATE requests SET known_tokens = 16")
        run = job.begin_run(purpose="execute", engine="sim", settings={})
        job.record(run, [answer(0, finish_reason="length")])
        job.retry(rows(0), asked="truncated", max_tokens=rows(64))
        found = job.prompts().known_tokens

    np.testing.assert_equal(found, [known])


class Faulty(SimEngine):
    """Answers every choice with an error, half of them with another number in it."""

    status = 503

    def step(self) -> StepReport:
        report = super().step()
        completions = tuple(
            failure(c.row, f"overloaded since {c.row} s", status_code=self.status)
            if c.row % 2
            else c
            for c in report.completions
        )
        return StepReport(completions, *(getattr(report, name) for name in REST))


REST = StepReport.__slots__[1:]


@pytest.fixture(scope="module")
def finished_job(tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer_dir: Path) -> Path:
    """A job in a folder whose name a shell would cut, half of its rows failed."""
    path = tmp_path_factory.mktemp("a folder") / "job.blend"
    planned(path, mixed(ROWS), model=tiny_tokenizer_dir)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("blend.core.engines.sim.SimEngine", Faulty)
        assert main(["execute", str(path), *SIM]) == 3
    return path


@pytest.fixture
def job(tmp_path: Path, finished_job: Path) -> Path:
    folder = tmp_path / "it's here"
    folder.mkdir()
    return Path(shutil.copy(finished_job, folder / "job.blend"))


def status(job: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    capsys.readouterr()
    assert main(["status", str(job), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_failed_rows_run_again_by_the_command_that_status_names(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (group,) = status(job, capsys)["failures"]
    retry = shlex.split(group["command"])
    assert main(["status", str(job)]) == 0
    shown = capsys.readouterr().out

    assert group["command"] in shown
    assert (group["rows"], group["custom_id"]) == (ROWS // 2, "choice-1")
    assert retry == ["blend", "retry", str(job), "--reason", "503"]
    assert main([*retry[1:], "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["requests"], said["pending"]) == (ROWS // 2, ROWS // 2)
    assert main(shlex.split(said["next"])[1:] + SIM) == 0
    with Job.open(job) as opened:
        counts = opened.counts()
        assert (counts.answered, counts.failed) == (ROWS, 0)
        assert [opened.attempts(row) for row in (0, 1)] == [1, 2]


def test_what_would_fail_again_is_to_be_looked_at(
    job: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["retry", str(job)]) == 0
    monkeypatch.setattr("blend.core.engines.sim.SimEngine", Faulty)
    monkeypatch.setattr(Faulty, "status", 400)
    assert main(["execute", str(job), *SIM, "--resume"]) == 3
    (group,) = status(job, capsys)["failures"]

    words = shlex.split(group["command"])
    assert words == ["blend", "show", str(job), "request", "choice-1"]
    assert main(words[1:]) == 0


def test_a_dry_run_changes_nothing(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = status(job, capsys)

    assert main(["retry", str(job), "--reason", "overloaded", "--dry-run"]) == 0
    assert f"{ROWS // 2} requests would run again" in capsys.readouterr().err
    assert status(job, capsys) == before


def test_an_unknown_reason_and_a_job_without_failures_are_said(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["retry", str(job), "--reason", "quota"]) == 2
    assert "blend status" in capsys.readouterr().err
    assert main(["retry", str(job)]) == 0
    assert main(["retry", str(job)]) == 0
    assert "nothing to run again" in capsys.readouterr().err


def cut_ids(path: Path) -> list[str]:
    return [
        line["custom_id"]
        for line in read_lines(path)
        if line["response"]["body"]["choices"][0]["finish_reason"] == "length"
    ]


def test_cut_answers_are_exported_until_longer_ones_arrive(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, meanwhile, last = (job.with_name(f"{n}.jsonl") for n in range(3))
    assert main(["retry", str(job)]) == 0
    assert main(["execute", str(job), *SIM, "--resume"]) == 0
    assert main(["export", str(job), "-o", str(first)]) == 0
    cut = cut_ids(first)

    assert cut
    assert main(["retry", str(job), "--truncated", "--max-tokens", "400"]) == 0
    assert main(["export", str(job), "-o", str(meanwhile)]) == 0
    assert f"{len(cut)} of them are answers from before a retry" in capsys.readouterr().err
    assert meanwhile.read_bytes() == first.read_bytes()
    assert status(job, capsys)["answered_before"] == len(cut)
    assert main(["execute", str(job), *SIM, "--resume"]) == 0
    assert main(["export", str(job), "-o", str(last)]) == 0
    old, new = ({line["custom_id"]: line for line in read_lines(p)} for p in (first, last))
    assert old.keys() == new.keys()
    assert {name for name in old if old[name] != new[name]} == set(cut)
    assert status(job, capsys)["answered_before"] == 0


def test_a_retry_that_fails_leaves_the_cut_answer_in_the_export(
    job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = job.with_name("out.jsonl")
    assert main(["retry", str(job)]) == 0
    assert main(["execute", str(job), *SIM, "--resume"]) == 0
    with Job.open(job) as opened:
        cut = opened.custom_ids(opened.truncated_rows())
    assert main(["retry", str(job), "--truncated", "--max-tokens", "400"]) == 0
    monkeypatch.setattr("blend.core.engines.sim.SimEngine", Faulty)

    assert main(["execute", str(job), *SIM, "--resume"]) == 3
    assert main(["export", str(job), "-o", str(output)]) == 0
    assert len(read_lines(output)) == ROWS
    assert {one for one in cut if one.startswith("choice")} <= set(cut_ids(output))
    assert read_lines(output.with_name("out.errors.jsonl")) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["--truncated"],
        ["--truncated", "--failed", "--max-tokens", "400"],
        ["--max-tokens", "400"],
        ["--truncated", "--max-tokens", "1"],
    ],
)
def test_what_could_not_help_is_refused_with_a_remedy(
    job: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with Job.open(job) as opened:
        run = opened.begin_run(purpose="execute", engine="sim", settings={})
        opened.retry(rows(0), asked="test")
        opened.record(run, [answer(0, finish_reason="length")])
    before = status(job, capsys)

    assert main(["retry", str(job), *arguments]) == 2
    assert status(job, capsys) == before


def test_nothing_is_retried_while_another_process_works_on_the_job(job: Path) -> None:
    with Job.open(job) as opened, opened.lock("execute"):
        assert main(["retry", str(job)]) == 5
        assert main(["retry", str(job), "--dry-run"]) == 0
