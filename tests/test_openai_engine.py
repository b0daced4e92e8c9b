"""The engine over HTTP, against a server that fails in every way: each row one completion."""

import json
import threading
import time
from dataclasses import replace

import pytest

from tests.faulty_server import KEY, FaultyServer, serving
from tests.http_engine import HASTY, HURRIED, message_of, opened, request, run, settings, wait_until

TRANSIENT = ["drop", "half", "drip", "garbage", "other", "500", "504", "408", "429", "502", "503"]


def test_every_row_is_answered_once_and_its_body_is_the_servers() -> None:
    with serving(FaultyServer()) as server, opened(server) as engine:
        completions, reports, came = run(engine, 200)

    assert sorted(came) == list(range(200))
    assert json.loads(completions[7].body)["choices"][0]["text"] == "r7"
    assert completions[7].finish_reason == "stop"
    assert completions[7].started <= completions[7].finished
    assert server.most_inside <= 64
    assert sum(r.prefill_tokens for r in reports) == 200 * 6
    assert sum(r.cached_tokens for r in reports) == 200 * 4
    assert sum(r.decode_tokens for r in reports) == 200 * 3
    assert (reports[-1].running, reports[-1].waiting) == (0, 0)


def test_the_server_gets_the_body_as_written_but_for_the_model() -> None:
    body = b'{"model": "m",  "prompt": "say r0", "seed": 12345678901234567890123, "unknown": null}'
    with serving(FaultyServer()) as server, opened(server) as engine:
        engine.submit(replace(request(0), body=body))
        while not engine.step().completions:
            pass

    assert server.bodies == [body.replace(b'"m"', b'"tiny"')]


def test_requests_arrive_in_the_order_of_submission_within_the_window() -> None:
    window = 8
    with (
        serving(FaultyServer(answer_s=0.001)) as server,
        opened(server, concurrency=window) as engine,
    ):
        run(engine, 200)
    places = [int(name[1:]) for name in server.arrivals]

    assert server.most_inside <= window
    assert max(abs(row - place) for place, row in enumerate(places)) < window


def test_a_window_of_one_keeps_the_order_exactly() -> None:
    with serving(FaultyServer()) as server, opened(server, concurrency=1) as engine:
        run(engine, 50)

    assert server.arrivals == [f"r{row}" for row in range(50)]


def test_a_request_of_several_sequences_takes_as_many_places() -> None:
    with (
        serving(FaultyServer(answer_s=0.02)) as server,
        opened(server, concurrency=8) as engine,
    ):
        for row in range(12):
            engine.submit(request(row, sequences=20 if row == 5 else 4))
        rows: list[int] = []
        while len(rows) < 12:
            report = engine.step()
            assert report.running <= 20
            rows += [completion.row for completion in report.completions]

    assert server.most_inside == 2
    # The one that is larger than the window had it for itself.
    assert server.arrivals.index("r5") == 5


@pytest.mark.parametrize("fault", TRANSIENT)
def test_what_fails_once_is_tried_again_and_answered(fault: str) -> None:
    def once(_name: str, attempt: int) -> str:
        return fault if attempt == 1 else "none"

    patience = HURRIED if fault == "drip" else HASTY
    with serving(FaultyServer(once)) as server, opened(server, patience=patience) as engine:
        completions, _, came = run(engine, 12)

    assert sorted(came) == list(range(12))
    assert {c.status_code for c in completions.values()} == {200}
    assert all(server.arrivals.count(f"r{row}") >= 2 for row in range(12))


@pytest.mark.parametrize(
    ("fault", "status", "cause"),
    [
        ("drop", 502, "connection was lost"),
        ("half", 502, "broke off"),
        ("drip", 502, "no whole answer within 0.8 s"),
        ("garbage", 502, "not JSON"),
        ("other", 502, "no `choices`"),
        ("500", 500, "fault 500"),
        ("504", 504, "fault 504"),
    ],
)
def test_what_fails_again_and_again_is_given_up_with_its_cause_and_holds_up_nobody(
    fault: str, status: int, cause: str
) -> None:
    def some(name: str, _attempt: int) -> str:
        return fault if name in {"r1", "r4"} else "none"

    patience = HURRIED if fault == "drip" else HASTY
    with (
        serving(FaultyServer(some)) as server,
        opened(server, concurrency=4, patience=patience) as engine,
    ):
        completions, _, came = run(engine, 10)

    assert sorted(came) == list(range(10))
    assert sorted(row for row, c in completions.items() if c.failed) == [1, 4]
    assert completions[1].status_code == status
    assert cause in message_of(completions[1])
    assert server.arrivals.count("r1") == HASTY.attempts


@pytest.mark.parametrize("status", [400, 403, 404, 413, 422, 307])
def test_a_refusal_is_final(status: int) -> None:
    def second(name: str, _attempt: int) -> str:
        return str(status) if name == "r1" else "none"

    with serving(FaultyServer(second)) as server, opened(server) as engine:
        completions, _, _ = run(engine, 3)

    assert [completions[row].status_code for row in range(3)] == [200, status, 200]
    assert message_of(completions[1]).startswith(f"fault {status}")
    assert server.arrivals.count("r1") == 1
    assert server.others == []


@pytest.mark.parametrize(("asked", "least_s"), [("1", 1.0), ("date", 1.0)])
def test_the_pause_that_the_server_asks_for_is_kept(asked: str, least_s: float) -> None:
    def once(_name: str, attempt: int) -> str:
        return f"429 {asked}" if attempt == 1 else "none"

    with serving(FaultyServer(once)) as server, opened(server) as engine:
        completions, _, _ = run(engine, 3)

    assert {c.status_code for c in completions.values()} == {200}
    assert server.times[3] - server.times[2] >= least_s


def test_a_storm_of_429_passes_and_fails_no_row() -> None:
    until = time.monotonic() + 0.5

    def storm(_name: str, _attempt: int) -> str:
        return "429" if time.monotonic() < until else "none"

    with serving(FaultyServer(storm)) as server, opened(server, concurrency=16) as engine:
        completions, _, came = run(engine, 60)

    assert sorted(came) == list(range(60))
    assert {c.status_code for c in completions.values()} == {200}
    assert len(server.arrivals) > 60 + 16 * HASTY.attempts


def test_a_row_that_alone_is_turned_away_fails_when_its_time_is_over() -> None:
    def one(name: str, _attempt: int) -> str:
        return "429" if name == "r0" else "none"

    hasty = replace(HASTY, row_s=0.3)
    with serving(FaultyServer(one)) as server, opened(server, patience=hasty) as engine:
        completions, _, _ = run(engine, 5)

    assert completions[0].status_code == 429
    assert [completions[row].status_code for row in range(1, 5)] == [200] * 4


def test_all_faults_mixed_leave_one_completion_for_every_row() -> None:
    faults = [*TRANSIENT, "400", "none", "none", "none"]

    def mixed(name: str, attempt: int) -> str:
        number = int(name[1:])
        fault = faults[(number * 7 + attempt * number) % len(faults)]
        return "none" if fault == "drip" and number % 3 else fault

    with (
        serving(FaultyServer(mixed)) as server,
        opened(server, concurrency=32, patience=HURRIED) as engine,
    ):
        completions, reports, came = run(engine, 200)

    assert sorted(came) == list(range(200))
    assert {200, 400} <= {c.status_code for c in completions.values()}
    assert all(isinstance(json.loads(c.body), dict) for c in completions.values())
    assert reports[-1].running == reports[-1].waiting == 0


def test_the_key_goes_to_the_server_and_nowhere_else(caplog: pytest.LogCaptureFixture) -> None:
    def some(name: str, _attempt: int) -> str:
        return {"r0": "400", "r1": "500", "r2": "307"}.get(name, "none")

    caplog.set_level(0)
    with serving(FaultyServer(some, key=KEY)) as server, opened(server, api_key=KEY) as engine:
        completions, _, _ = run(engine, 4)
        shown = f"{engine.__dict__} {settings(server, api_key=KEY)}"

    assert server.authorizations == {f"Bearer {KEY}"}
    assert not any(KEY.encode() in completion.body for completion in completions.values())
    assert "[API key]" in message_of(completions[0])
    assert KEY not in caplog.text + shown


def test_without_a_key_none_is_sent() -> None:
    with serving(FaultyServer()) as server, opened(server) as engine:
        run(engine, 1)

    assert server.authorizations == {None}


def test_abort_drops_what_is_inside_and_the_engine_can_be_used_on() -> None:
    with (
        serving(FaultyServer(lambda name, _: "none" if name == "r0" else "429 9")) as server,
        opened(server, concurrency=4) as engine,
    ):
        for row in range(20):
            engine.submit(request(row))
        wait_until(lambda: len(server.arrivals) >= 5)
        ages = engine.ages()
        aborted = engine.abort()
        server.fault_of = lambda _name, _attempt: "none"
        completions, _, came = run(engine, 6)

    finished = {completion.row for completion in aborted.report.completions}
    assert finished | aborted.tokens.keys() == set(range(20))
    assert not finished & aborted.tokens.keys()
    assert set(aborted.tokens.values()) == {0}
    assert ages == dict.fromkeys(range(20), 0)
    assert (aborted.report.running, aborted.report.waiting) == (0, 0)
    assert sorted(came) == list(range(6))
    assert {c.status_code for c in completions.values()} == {200}


def test_reports_come_while_nothing_is_answered() -> None:
    with serving(FaultyServer(answer_s=60)) as server, opened(server, concurrency=2) as engine:
        for row in range(5):
            engine.submit(request(row))
        reports = [engine.step() for _ in range(4)]

    assert not any(report.completions for report in reports)
    assert (reports[-1].running, reports[-1].waiting) == (2, 3)
    assert max(report.seconds for report in reports) > 0.3


def test_closing_while_requests_run_leaves_no_thread() -> None:
    threads = threading.active_count()
    with serving(FaultyServer(answer_s=60)) as server:
        with opened(server, patience=replace(HASTY, attempt_s=60)) as engine:
            engine.submit(request(0))
            wait_until(lambda: server.inside == 1)
        wait_until(lambda: server.inside == 0)

    assert threading.active_count() == threads
