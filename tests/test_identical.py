"""Identical requests run once, and nobody can tell from the answers."""

import json
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blend.cli.app import main
from blend.cli.exporting import export
from blend.cli.made_plan import Planned
from blend.cli.observing import find_followers as find_job_followers
from blend.cli.observing import observations_of
from blend.cli.planning import PlanOptions, make_plan, warm_up_of
from blend.cli.run_context import RunContext
from blend.cli.running import run_rows
from blend.core.engines.sim import SimEngine
from blend.core.input.identity import request_digest
from blend.core.planning.hardware import hardware_preset, model_preset
from blend.core.planning.identical import Followers, find_followers, no_followers
from blend.core.planning.tree import build_tree
from blend.core.running.seat import Seat
from blend.core.schedule import Policy
from blend.store.job import Job, NewRow, PlanRecord
from tests.batch_files import chat, ingested, read_lines
from tests.filled_job import answer, failure, filled_job
from tests.small_jobs import capacity, request, schedule, step_s

CHAT = "/v1/chat/completions"
SIM = ["--engine", "sim"]


def digest(endpoint: str = CHAT, **fields: Any) -> bytes | None:
    return request_digest(endpoint, json.dumps(fields).encode())


def test_only_requests_that_leave_nothing_to_chance_have_a_digest() -> None:
    assert digest(prompt="x", temperature=0) is not None
    assert digest(prompt="x", temperature=0.0, n=2) is not None
    assert digest(prompt="x", temperature=0.7, seed=0) is not None
    assert digest(prompt="x", temperature=0.7) is None
    assert digest(prompt="x") is None
    assert digest(prompt="x", seed=None) is None
    assert digest("/v1/embeddings", input="x") is not None


def test_key_order_space_and_who_asks_make_no_difference() -> None:
    first = request_digest(CHAT, b'{"temperature": 0, "prompt": "x", "user": "a"}')
    second = request_digest(CHAT, b'{"prompt":"x","metadata":{"k":"v"},"temperature":0}')

    assert first == second is not None


def test_whatever_reaches_the_answer_makes_a_difference() -> None:
    one = {"temperature": 0, "prompt": "x"}
    others = [
        digest(**one),
        digest("/v1/completions", **one),
        digest("/v1/responses", **one, metadata={"k": "v"}),
        digest("/v1/responses", **one),
        digest(**one, seed=1),
        digest(**one, cache_salt="a"),
        digest(**(one | {"prompt": "y"})),
        digest(**one, max_tokens=9),
        request_digest(CHAT, json.dumps(one).encode(), max_tokens=9),
        request_digest(CHAT, b'{"temperature": 0, "prompt": "x", "k": 36893488147419103233}'),
        request_digest(CHAT, b'{"temperature": 0, "prompt": "x", "k": 36893488147419103234}'),
    ]

    assert len(set(others)) == len(others)


STATES = st.lists(
    st.tuples(st.sampled_from([b"", b"a", b"b"]), st.sampled_from(["open", "answered", "failed"])),
    max_size=12,
)


@given(rows=STATES)
def test_of_every_group_one_row_runs_or_has_run(rows: list[tuple[bytes, str]]) -> None:
    found = find_followers(
        np.array([name for name, _ in rows], "S16"),
        open_rows=np.array([state == "open" for _, state in rows], bool),
        answered=np.array([state == "answered" for _, state in rows], bool),
        settled=no_followers(),
    )
    leader_of = dict(zip(found.rows.tolist(), found.leaders.tolist(), strict=True))

    for row, (name, state) in enumerate(rows):
        group = [r for r, (other, _) in enumerate(rows) if other == name != b""]
        answered = [r for r in group if rows[r][1] == "answered"]
        waiting = [r for r in group if rows[r][1] == "open"]
        first = (answered or waiting or [None])[0]
        expected = first if state == "open" and first != row and name else None
        assert leader_of.get(row) == expected
    assert not set(leader_of.values()) & set(leader_of)


def followed_job(path: Path, *, rows: int, leaders: dict[int, int]) -> Job:
    """A job in which rows follow others, with a plan of those that run."""
    job = filled_job(path, rows=rows)
    requests = [request(row, [1, 2]) for row in range(rows)]
    runs = [row for row in range(rows) if row not in leaders]
    job.save_plan(
        PlanRecord("fcfs"),
        schedule(requests, order=runs),
        Followers(np.array(list(leaders), np.int64), np.array(list(leaders.values()), np.int64)),
    )
    return job


def test_followers_get_the_result_in_the_transaction_of_their_leader(tmp_path: Path) -> None:
    with followed_job(tmp_path / "j.db", rows=4, leaders={1: 0, 3: 0}) as job:
        run = job.begin_run(purpose="execute", engine="sim", settings={})
        job.start_rows(run, [0, 2])
        with pytest.raises(Exception, match="FOREIGN KEY"):
            job.record(run, [answer(0), answer(99)])
        assert job.pending().all()
        job.record(run, [answer(0), failure(2, "no")])
        job.record(run, [answer(0, text="late")])
        copied = {c.row: c for _, c in job.results()}

        assert not job.pending().any()
        assert copied[1].body == copied[3].body == answer(0).body
        assert [copied[row].same_as for row in range(4)] == [None, 0, None, 0]
        assert [job.attempts(row) for row in range(4)] == [1, 0, 1, 0]
        counts = job.counts()
        assert (counts.answered, counts.failed, counts.copied, counts.copied_from) == (3, 1, 2, 1)
        assert (counts.prompt_tokens, counts.output_tokens, counts.cached_tokens) == (2, 3, 1)
        assert [rows.tolist() for rows in job.output_tokens()] == [[0], [3]]


def test_a_leader_that_fails_fails_its_followers_and_retries_with_them(tmp_path: Path) -> None:
    with followed_job(tmp_path / "j.db", rows=3, leaders={1: 0}) as job:
        run = job.begin_run(purpose="execute", engine="sim", settings={})
        job.record(run, [failure(0, "no"), answer(2)])
        (group,) = job.failures()

        assert (group.rows, group.custom_id) == (2, "request-0")
        assert job.failed_rows([(400, "no")]).tolist() == [0, 1]
        assert job.retry(np.array([1]), asked="one of them") == 2
        assert job.pending().tolist() == [True, True, False]
        job.record(run, [answer(0)])
        assert job.counts().answered == 3
        assert [job.earlier_results(row)[0].same_as for row in (0, 1)] == [None, 0]


def test_rows_that_come_later_get_the_answer_there_is(tmp_path: Path) -> None:
    with filled_job(tmp_path / "j.db", rows=4) as job:
        with job._database.write(durable=False) as sql:
            sql.execute("UPDATE bodies SET body = ?", (b'{"temperature": 0}',))
        run = job.begin_run(purpose="sample", engine="sim", settings={})
        job.record(run, [failure(0, "no"), answer(2)])
        found = job.identical_rows()
        job.save_plan(PlanRecord("fcfs"), schedule([], order=[]), found)

        assert (found.rows.tolist(), found.leaders.tolist()) == ([1, 3], [2, 2])
        assert [job.result(row).same_as for row in (1, 3)] == [2, 2]  # type: ignore[union-attr]
        assert job.identical_rows().rows.tolist() == [1, 3]
        assert job.settled_followers().leaders.tolist() == [2, 2]


EXECUTION = """
import sys
from pathlib import Path
from blend.store.job import Job
from blend.store.recorder import Recorder
from tests.filled_job import answer

with Job.open(Path(sys.argv[1])) as job, job.lock("execute"):
    run = job.begin_run(purpose="execute", engine="sim", settings={})
    print("begun", flush=True)
    with Recorder(job, run, clock=iter(range(10**9)).__next__) as recorder:
        for row in job.schedule().only(job.pending()).order.tolist():
            recorder.add([answer(row)])
"""


def test_after_a_kill_followers_have_a_result_exactly_where_their_leader_has(
    tmp_path: Path,
) -> None:
    path, rows = tmp_path / "j.db", 1200
    leaders = {row: row - row % 4 for row in range(rows) if row % 4}
    followed_job(path, rows=rows, leaders=leaders).close()
    moment = random.Random(3)
    for _ in range(4):
        command = [sys.executable, "-c", EXECUTION, str(path)]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, cwd=Path(__file__).parent.parent
        ) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            time.sleep(moment.uniform(0.0, 0.02))
            writer.send_signal(signal.SIGKILL)
        with Job.open(path) as job:
            pending = job.pending()
            assert all(pending[row] == pending[leader] for row, leader in leaders.items())
    subprocess.run([sys.executable, "-c", EXECUTION, str(path)], check=True, cwd=Path.cwd())

    with Job.open(path) as job:
        assert (job.counts().answered, job.counts().copied) == (rows, rows * 3 // 4)


DEVICE, MODEL = hardware_preset("a100-80g"), model_preset("llama-3-8b")
SAMPLING: tuple[dict[str, Any], ...] = (
    {"temperature": 0},
    {"temperature": 1, "seed": 5},
    {"temperature": 1},
)


def body_of(number: int, what: int, chance: int) -> dict[str, Any]:
    return {"prompt": str(what), "max_tokens": 20 + what, "user": f"u{number}", **SAMPLING[chance]}


def job_of(path: Path, kinds: list[tuple[int, bool, int]]) -> Job:
    """A job of requests that are identical where their kinds are, and chance does not decide."""
    job = Job.open(path, create=True)
    source = job.open_source("in.jsonl", size=1, digest="d")
    rows = [
        NewRow(
            f"id-{number}",
            number + 1,
            CHAT if is_chat else "/v1/completions",
            json.dumps(body_of(number, what, chance)).encode(),
            np.array([7] * 40 + [what, is_chat], np.uint32),
            20 + what,
        )
        for number, (what, is_chat, chance) in enumerate(kinds)
    ]
    job.append(source, rows, [], offset=1, line=len(rows), complete=True)
    return job


def run_to_the_end(job: Job, options: PlanOptions, output: Path) -> list[dict[str, Any]]:
    """Sample, plan and execute a job, and return the lines of its export."""
    followers = find_job_followers(job, fan_out=options.fan_out)
    prompts = job.prompts(followers.others(len(job)))
    tree = build_tree(prompts)
    seat = Seat(lambda: SimEngine(capacity(), step_s=step_s))
    run_rows(job, warm_up_of(job, prompts, tree, options).sample, seat, SAMPLE)
    seen = observations_of(job, prompts, {})
    make_plan(prompts, tree, options, seen, Planned.of(job)).save(job, followers)
    planned = job.schedule()
    assert planned is not None
    run_rows(job, planned.only(job.pending()), seat, EXECUTE)
    export(job, str(output), str(output.with_suffix(".errors")))
    return read_lines(output)


SAMPLE = RunContext("sample", "sim", {})
EXECUTE = RunContext("execute", "sim", {})


def stripped(line: dict[str, Any]) -> dict[str, Any]:
    """A line without ids, times and usage."""
    body = line["response"]["body"]
    kept = {name: value for name, value in body.items() if name not in ("id", "created", "usage")}
    response = line["response"] | {"request_id": None, "body": kept}
    return line | {"response": response}


@settings(max_examples=25, deadline=None)
@given(
    kinds=st.lists(
        st.tuples(st.integers(0, 3), st.booleans(), st.integers(0, 2)), min_size=1, max_size=24
    ),
    policy=st.sampled_from(["paper", "dfs", "random"]),
)
def test_fanned_out_a_job_has_the_answers_that_it_has_without(
    tmp_path_factory: pytest.TempPathFactory, kinds: list[tuple[int, bool, int]], policy: Policy
) -> None:
    folder = tmp_path_factory.mktemp("both")
    options = PlanOptions(policy, DEVICE, MODEL, sample_rate=0.2)
    runs = len({kind for kind in kinds if kind[2] < 2}) + sum(kind[2] == 2 for kind in kinds)
    with job_of(folder / "a.db", kinds) as once, job_of(folder / "b.db", kinds) as each:
        lines = run_to_the_end(once, options, folder / "a.jsonl")
        all_lines = run_to_the_end(each, replace(options, fan_out=False), folder / "b.jsonl")

        assert [stripped(line) for line in lines] == [stripped(line) for line in all_lines]
        assert len(once.schedule() or ()) == runs
        assert (once.counts().copied, each.counts().copied) == (len(kinds) - runs, 0)
        for job, exported in ((once, lines), (each, all_lines)):
            usages = [line["response"]["body"]["usage"] for line in exported]
            assert job.counts().output_tokens == sum(u["completion_tokens"] for u in usages)
            assert job.counts().prompt_tokens == sum(u["prompt_tokens"] for u in usages)
        assert len({line["response"]["request_id"] for line in lines}) == runs


def test_a_blending_schedule_of_some_rows_knows_them_by_their_numbers_in_the_job() -> None:
    rows = np.array([1, 4, 6])
    some = schedule([request(n, [1, 2]) for n in range(3)], policy="blend", order=[2, 0, 1])
    renumbered = some.renumbered(rows, total=8)

    assert renumbered.order.tolist() == [6, 1, 4]
    assert some.blending is not None
    assert renumbered.blending is not None
    labels = renumbered.blending.classes.label
    assert labels[rows].tolist() == some.blending.classes.label.tolist()
    assert len(labels) == 8


def test_what_was_shared_is_said(
    tmp_path: Path, tiny_tokenizer_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = tmp_path / "j.blend"
    requests = [
        chat(f"id-{number}", f"Question {number % 2}", max_tokens=20, temperature=0)
        for number in range(6)
    ]
    ingested(job, requests, model=tiny_tokenizer_dir)
    capsys.readouterr()
    assert main(["plan", str(job), "--no-sample", "--hardware", "a100-80g"]) == 0
    assert "4 more requests are identical to 2 of these" in capsys.readouterr().err
    assert main(["execute", str(job), *SIM]) == 0
    said = capsys.readouterr().err
    assert "6/6 done" in said
    assert "4 rows answered from 2 identical requests" in said
    assert main(["status", str(job), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)

    assert (document["copied"], document["copied_from"]) == (4, 2)
    assert main(["show", str(job), "request", "id-3"]) == 0
    assert "identical to id-1" in capsys.readouterr().out


def test_a_sample_for_a_plan_without_fan_out_hands_no_answer_on(
    tmp_path: Path, tiny_tokenizer_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also not to those who follow in the plan before."""
    job = tmp_path / "j.blend"
    requests = [chat(f"id-{number}", "Why?", max_tokens=20, temperature=0) for number in range(4)]
    ingested(job, requests, model=tiny_tokenizer_dir)
    assert main(["plan", str(job), "--no-sample"]) == 0
    capsys.readouterr()
    assert main(["plan", str(job), "--no-fan-out", "--sample-rate", "1", *SIM]) == 0

    assert "sampled 4 requests" in capsys.readouterr().err
    with Job.open(job) as opened:
        assert (opened.counts().answered, opened.counts().copied) == (4, 0)
        assert [opened.attempts(row) for row in range(4)] == [1] * 4


def test_what_the_sample_of_no_plan_brought_is_handed_on_by_an_execution(
    tmp_path: Path, tiny_tokenizer_dir: Path
) -> None:
    job = tmp_path / "j.blend"
    requests = [chat(f"id-{number}", "Why?", max_tokens=20, temperature=0) for number in range(4)]
    ingested(job, requests, model=tiny_tokenizer_dir)
    assert main(["plan", str(job), "--no-sample"]) == 0
    with Job.open(job) as opened:
        run = opened.begin_run(purpose="sample", engine="sim", settings={})
        opened.record(run, [answer(0)])
        assert opened.pending().tolist() == [False, True, True, True]
    assert main(["execute", str(job), *SIM]) == 0

    with Job.open(job) as opened:
        assert [opened.counts().copied, opened.counts().copied_from] == [3, 1]
