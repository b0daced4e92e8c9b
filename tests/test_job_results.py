"""A row has one result at most, and the counts add up at every moment."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blend.core.completion import Completion
from blend.store.job import Counts, Job
from tests.filled_job import answer, failure, filled_job


def begun(job: Job) -> int:
    return job.begin_run(purpose="execute", engine="sim", settings={"seed": 1})


def test_a_result_comes_back_byte_for_byte(tmp_path: Path) -> None:
    body = b'{"text": "\\u0000 \xc3\xa9", "n": 123456789012345678901234567890}'
    completion = Completion(1, 200, body, "stop", 5, 7, 4, 1.25, 2.5)
    with filled_job(tmp_path / "j.db", rows=3) as job:
        job.record(begun(job), [completion])

        assert job.result(1) == completion
        assert list(job.results()) == [("request-1", completion)]
        assert job.result(0) is None
        assert job.pending().tolist() == [True, False, True]


def test_the_first_of_two_results_stays(tmp_path: Path) -> None:
    with filled_job(tmp_path / "j.db", rows=2) as job:
        run = begun(job)
        job.start_rows(run, [0, 1])
        job.record(run, [answer(0, text="first"), answer(0, text="same batch")])
        job.record(run, [answer(0, text="later"), answer(1)])

        assert job.result(0) == answer(0, text="first")
        assert [completion.row for _, completion in job.results()] == [0, 1]
        assert job.counts().answered == 2


def test_results_come_in_row_order_whatever_the_order_of_arrival(tmp_path: Path) -> None:
    with filled_job(tmp_path / "j.db", rows=5) as job:
        run = begun(job)
        for row in (3, 0, 4, 1):
            job.record(run, [answer(row)])

        assert [completion.row for _, completion in job.results()] == [0, 1, 3, 4]


def test_reading_results_shows_the_moment_it_began(tmp_path: Path) -> None:
    with filled_job(tmp_path / "j.db", rows=3) as job:
        run = begun(job)
        job.record(run, [answer(0), answer(1)])
        reading = job.results()
        first = next(reading)
        job.record(run, [answer(2)])
        rest = list(reading)

        assert [first[1].row, *(completion.row for _, completion in rest)] == [0, 1]
        assert len(list(job.results())) == 3


def test_a_batch_that_fails_saves_none_of_its_results(tmp_path: Path) -> None:
    with filled_job(tmp_path / "j.db", rows=2) as job:
        run = begun(job)
        with pytest.raises(Exception, match="FOREIGN KEY"):
            job.record(run, [answer(0), answer(99)])

        assert job.pending().all()


FINISHED: dict[str, Callable[[int], Completion]] = {
    "answer": answer,
    "cut": lambda row: answer(row, finish_reason="length"),
    "fail": lambda row: failure(row, "no"),
}


class Book:
    """What the job should know, kept in a dictionary and a set."""

    def __init__(self) -> None:
        self.done: dict[int, str] = {}
        self.running: set[int] = set()
        self.starts = [0] * 6

    def apply(self, act: str, row: int, *, job: Job, run: int) -> None:
        """Do one thing in the job, and note it here."""
        match act:
            case "start":
                job.start_rows(run, [row])
                self.running.add(row)
                self.starts[row] += 1
            case "release":
                assert job.release([row]) == len(self.running & {row})
                self.running -= {row}
            case "release all":
                assert job.release() == len(self.running)
                self.running.clear()
            case _:
                job.record(run, [FINISHED[act](row)])
                self.done.setdefault(row, act)
                self.running -= {row}

    def counts(self) -> Counts:
        kinds = list(self.done.values())
        answered = kinds.count("answer") + kinds.count("cut")
        return Counts(
            total=6,
            answered=answered,
            failed=kinds.count("fail"),
            pending=6 - len(self.done) - len(self.running),
            running=len(self.running),
            truncated=kinds.count("cut"),
            rejected=0,
            total_prompt_tokens=12,
            prompt_tokens=2 * answered,
            output_tokens=3 * answered,
            cached_tokens=answered,
        )


@settings(max_examples=25, deadline=None)
@given(
    acts=st.lists(
        st.tuples(
            st.sampled_from(["start", "release", "release all", *FINISHED]), st.integers(0, 5)
        ),
        max_size=25,
    )
)
def test_counts_agree_with_a_plain_dictionary(
    tmp_path_factory: pytest.TempPathFactory, acts: list[tuple[str, int]]
) -> None:
    book = Book()
    with filled_job(tmp_path_factory.mktemp("job") / "j.db", rows=6) as job:
        run = begun(job)
        for act, row in acts:
            if act != "start" or row not in book.done:
                book.apply(act, row, job=job, run=run)

        assert job.counts() == book.counts()
        assert job.pending().tolist() == [row not in book.done for row in range(6)]
        assert [job.attempts(row) for row in range(6)] == book.starts


def test_failures_that_differ_in_numbers_are_one_cause(tmp_path: Path) -> None:
    with filled_job(tmp_path / "j.db", rows=6) as job:
        run = begun(job)
        job.record(
            run,
            [
                failure(0, "boom", status_code=500),
                failure(1, "prompt has 5003 tokens"),
                failure(2, "prompt has 6001 tokens"),
                Completion(3, 400, b'{"message": "boom"}'),
                Completion(4, 502, b"<html>\xff"),
                answer(5),
            ],
        )

        assert job.failures() == [
            (400, "prompt has 5003 tokens", 2, "request-1"),
            (500, "boom", 1, "request-0"),
            (400, "boom", 1, "request-3"),
            (502, "<html>\ufffd", 1, "request-4"),
        ]


def test_runs_tell_who_worked_and_how_it_ended(tmp_path: Path) -> None:
    with filled_job(tmp_path / "j.db", rows=3) as job:
        sample = job.begin_run(purpose="sample", engine="vllm", settings={})
        job.record(sample, [answer(0)])
        job.end_run(sample, "finished")
        sampled_only = job.executed()
        execution = begun(job)
        job.record(execution, [answer(1), answer(2)])
        first, second = job.runs()

        assert (sampled_only, job.executed()) == (False, True)
        assert (first.purpose, first.engine, first.outcome, first.results) == (
            "sample",
            "vllm",
            "finished",
            1,
        )
        assert (second.settings, second.outcome, second.results) == ({"seed": 1}, None, 2)
        assert second.started <= second.heartbeat


def test_runs_and_results_bear_the_time_of_the_job_s_clock(tmp_path: Path) -> None:
    filled_job(tmp_path / "j.db", rows=1).close()
    times = iter([100.0, 105.0, 110.0])
    with Job.open(tmp_path / "j.db", clock=lambda: next(times)) as job:
        run = job.begin_run(purpose="execute", engine="sim", settings={})
        job.record(run, [answer(0)])
        (under_way,) = job.runs()
        job.end_run(run, "finished")
        (ended,) = job.runs()

    assert (under_way.started, under_way.heartbeat, under_way.finished) == (100.0, 105.0, None)
    assert ended.finished == 110.0


def test_a_run_that_another_process_left_open_counts_as_killed(tmp_path: Path) -> None:
    with filled_job(tmp_path / "j.db", rows=1) as job:
        begun(job)
        with job._database.write(durable=False) as sql:
            sql.execute("UPDATE runs SET pid = pid + 1")
        begun(job)

        assert [run.outcome for run in job.runs()] == ["killed", None]


def test_a_timeline_comes_back(tmp_path: Path) -> None:
    lines = [(0.5, 3, 2, 1, 640, 100, 7, 30, 0, 0), (1.5, 9, 1, 0, 320, 0, 9, 0, 1, 2)]
    with filled_job(tmp_path / "j.db", rows=1) as job:
        run = begun(job)
        job.add_steps(run, lines)

        assert job.steps(run) == lines
        assert job.steps(run + 1) == []
