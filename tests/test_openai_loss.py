"""A server that is lost ends the run, resumable, and fails no row; a slow one is borne with."""

import time
from dataclasses import replace

import pytest

from blend.core.completion import Completion
from blend.core.engines import openai_health
from blend.core.engines.openai import OpenAIEngine
from tests.faulty_server import KEY, FaultyServer, serving
from tests.http_engine import (
    HASTY,
    HURRIED,
    death_of,
    end_of,
    message_of,
    opened,
    request,
    run,
    settings,
    wait_until,
)


def test_a_server_that_is_gone_ends_the_run_and_what_came_before_counts() -> None:
    hasty = replace(HASTY, outage_s=0.3)
    with serving(FaultyServer()) as server:
        engine = OpenAIEngine(settings(server, patience=hasty))
        before, _, _ = run(engine, 5)
    for row in range(5, 30):
        engine.submit(request(row))
    began = time.monotonic()
    death = end_of(engine)
    took_s = time.monotonic() - began
    engine.close()

    assert len(before) == 5
    assert "has turned every request away" in death.reason
    assert "cannot connect" in death.reason
    # It was gone before any of these was sent.
    assert death.blameless
    # By default it is waited for much longer.
    assert took_s < 60


def test_a_server_that_ends_with_requests_inside_ends_the_run_and_fails_none_of_them() -> None:
    def first(name: str, _attempt: int) -> str:
        return "none" if name == "r0" else "hang"

    with serving(FaultyServer(first)) as server:
        engine = OpenAIEngine(settings(server, patience=replace(HASTY, outage_s=0.3)))
        for row in range(400):
            engine.submit(request(row))
        answered: list[Completion] = []
        while not answered:
            answered += engine.step().completions
        wait_until(lambda: server.inside > 1)
    death = end_of(engine)
    engine.close()

    assert "cannot connect" in death.reason
    # One of those may be what it ended by.
    assert not death.blameless
    assert [(completion.row, completion.status_code) for completion in answered] == [(0, 200)]


def test_a_server_that_comes_back_in_time_costs_no_row() -> None:
    with serving(FaultyServer()) as first:
        engine = OpenAIEngine(settings(first))
        run(engine, 5)
    for row in range(5, 30):
        engine.submit(request(row))
    assert not engine.step().completions
    with serving(FaultyServer(), port=first.port):
        completions = []
        while len(completions) < 25:
            completions += engine.step().completions
        engine.close()

    assert sorted(c.row for c in completions) == list(range(5, 30))
    assert {c.status_code for c in completions} == {200}


@pytest.mark.parametrize("fault", ["429", "503", "429 7200"])
def test_a_server_that_turns_everything_away_ends_the_run(fault: str) -> None:
    hasty = replace(HASTY, outage_s=0.3)
    with (
        serving(FaultyServer(lambda _name, _attempt: fault)) as server,
        opened(server, patience=hasty) as engine,
    ):
        for row in range(20):
            engine.submit(request(row))
        death = end_of(engine)

    assert f"the server answered {fault[:3]}" in death.reason
    assert ("come back in 7,200 s" in death.reason) == (fault == "429 7200")
    # A gateway says 503 for a server that a request has killed.
    assert death.blameless == fault.startswith("429")


def test_a_server_that_hangs_ends_the_run() -> None:
    with (
        serving(FaultyServer(lambda _name, _attempt: "hang")) as server,
        opened(server, patience=replace(HURRIED, silent_rows=8)) as engine,
    ):
        for row in range(20):
            engine.submit(request(row))
        death = death_of(engine)

    assert "takes requests and answers none" in death
    assert "no whole answer within 0.8 s for 8 rows" in death


def test_rows_that_hang_while_others_are_answered_fail_alone() -> None:
    def last(name: str, _attempt: int) -> str:
        return "none" if name == "r0" else "hang"

    hasty = replace(HASTY, attempt_s=1.5, attempts=2)
    with serving(FaultyServer(last)) as server, opened(server, patience=hasty) as engine:
        # One fewer than make a server that hangs.
        completions, _, _ = run(engine, 7)

    assert sorted(row for row, c in completions.items() if c.failed) == list(range(1, 7))
    assert completions[6].status_code == 502
    assert "no whole answer within 1.5 s; given up after 2 attempts" in message_of(completions[6])


def test_what_came_before_the_end_is_reported_before_it() -> None:
    def last(name: str, _attempt: int) -> str:
        return "401" if name == "r9" else "none"

    with serving(FaultyServer(last)) as server, opened(server, concurrency=1) as engine:
        for row in range(10):
            engine.submit(request(row))
        wait_until(lambda: len(server.arrivals) == 10)
        time.sleep(0.1)
        report = engine.step()
        death = death_of(engine)

    assert [completion.row for completion in report.completions] == list(range(9))
    assert "401" in death


def test_a_row_that_is_let_in_at_last_is_not_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are turned away at first; one is taken on then, and its answer takes its time."""

    def fault_of(name: str, attempt: int) -> str:
        return "429" if name == "r1" or attempt == 1 else "none"

    monkeypatch.setattr(openai_health, "_TAKEN_ON_S", 0.1)
    hasty = replace(HASTY, outage_s=0.6, row_s=1.0)
    with (
        serving(FaultyServer(fault_of, answer_s=1.4)) as server,
        opened(server, patience=hasty) as engine,
    ):
        completions, _, _ = run(engine, 2)

    assert [completions[row].status_code for row in (0, 1)] == [200, 429]


def test_long_answers_are_not_an_outage() -> None:
    """One row is turned away for longer than an outage lasts, while another is computed."""

    def mixed(name: str, _attempt: int) -> str:
        return "429" if name == "r1" else "none"

    hasty = replace(HASTY, outage_s=0.1, row_s=0.5)
    with (
        serving(FaultyServer(mixed, answer_s=0.8)) as server,
        opened(server, patience=hasty) as engine,
    ):
        completions, _, _ = run(engine, 2)

    assert [completions[row].status_code for row in (0, 1)] == [200, 429]


def test_a_key_that_is_refused_in_the_middle_ends_the_run_and_fails_no_row() -> None:
    with serving(FaultyServer(key=KEY)) as server, opened(server, api_key=KEY) as engine:
        run(engine, 3)
        server.key = "another"
        engine.submit(request(3))
        death = death_of(engine)

    assert "no longer accepts the API key" in death
