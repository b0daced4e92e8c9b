"""The simulated engine loses nothing, keeps within its cache, and repeats itself exactly."""

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blend.core.completion import Completion
from blend.core.engines import Capacity, StepReport
from blend.core.engines.blocks import BlockPool
from blend.core.engines.sim import SimEngine
from blend.core.engines.sim_answers import hashed_length
from blend.core.request import Request
from tests.small_jobs import capacity, grouped, request, step_s


def run_all(
    requests: list[Request], capacity: Capacity, *, outputs: dict[int, int] | None = None
) -> list[StepReport]:
    """Submit everything at once and step until all is answered."""

    def length(request: Request) -> int:
        return hashed_length(request) if outputs is None else outputs[request.row]

    engine = SimEngine(capacity, step_s=step_s, output_tokens=length)
    for one in requests:
        engine.submit(one)
    reports: list[StepReport] = []
    while sum(len(report.completions) for report in reports) < len(requests):
        reports.append(engine.step())
    return reports


def answers(reports: list[StepReport]) -> dict[int, Completion]:
    done = [completion for report in reports for completion in report.completions]
    by_row = {completion.row: completion for completion in done}
    assert len(by_row) == len(done)
    return by_row


prompts = st.lists(st.integers(0, 2), min_size=1, max_size=90)
jobs = st.lists(
    st.tuples(prompts, st.integers(1, 40), st.integers(1, 3)), min_size=1, max_size=25
).map(
    lambda rows: [
        request(row, prompt, max_tokens=max_tokens, sequences=sequences)
        for row, (prompt, max_tokens, sequences) in enumerate(rows)
    ]
)
capacities = st.builds(
    lambda blocks, slots, budget: capacity(
        16 * blocks, max_sequences=slots, step_tokens=max(slots, budget)
    ),
    st.integers(9, 40),
    st.integers(1, 12),
    st.integers(4, 200),
)


@settings(max_examples=150, deadline=None)
@given(jobs, capacities)
def test_every_request_is_answered_once_within_the_cache(
    requests: list[Request], capacity: Capacity
) -> None:
    reports = run_all(requests, capacity)

    assert set(answers(reports)) == {one.row for one in requests}
    for report in reports:
        assert report.kv_tokens <= capacity.kv_tokens
        assert report.running <= capacity.max_sequences
        assert report.prefill_tokens + report.decode_tokens <= capacity.step_tokens
    assert (reports[-1].running, reports[-1].waiting, reports[-1].kv_tokens) == (0, 0, 0)


@settings(max_examples=150, deadline=None)
@given(jobs, capacities)
def test_every_token_is_computed_or_cached_once_unless_preempted(
    requests: list[Request], capacity: Capacity
) -> None:
    reports = run_all(requests, capacity)
    prefilled = sum(report.prefill_tokens for report in reports)
    prompts = sum(len(one.prompt) * one.sequences for one in requests)
    cached = sum(report.cached_tokens for report in reports)
    decoded = sum(report.decode_tokens for report in reports)
    outputs = sum(one.completion_tokens for one in answers(reports).values())
    sequences = sum(one.sequences for one in requests)

    if not sum(report.preemptions for report in reports):
        assert prefilled == prompts - cached
        # The last token of a prompt gives the first token of the answer.
        assert decoded == outputs - sequences
    else:
        assert prefilled + decoded >= prompts - cached + outputs - sequences


def test_the_same_submissions_give_the_same_reports() -> None:
    requests = grouped(6, size=4, shared=48, own=20, max_tokens=60)

    assert run_all(requests, capacity(900)) == run_all(requests, capacity(900))


def test_a_shared_prefix_is_computed_once() -> None:
    requests = grouped(10, size=8, shared=64, own=16, max_tokens=4)
    reports = run_all(requests, capacity(1 << 16))

    assert sum(report.prefill_tokens for report in reports) == 10 * (64 + 8 * 16)


def test_a_cached_prompt_still_computes_its_last_block() -> None:
    requests = [request(row, [7] * 64, max_tokens=1) for row in range(2)]
    reports = run_all(requests, capacity())

    assert [one.cached_tokens for one in answers(reports).values()] == [0, 48]


def test_a_prefix_stays_cached_while_its_group_runs_and_not_much_longer() -> None:
    """With a cache for two of three prefixes, going round in turn loses most of the hits."""
    cache = capacity(2 * 80, max_sequences=1)

    def cached(groups: list[int]) -> int:
        rows = [request(row, [group] * 64 + [9], max_tokens=1) for row, group in enumerate(groups)]
        return sum(report.cached_tokens for report in run_all(rows, cache))

    assert cached([1, 1, 1, 2, 2, 2, 3, 3, 3]) == 6 * 64
    assert cached([1, 2, 3] * 3) < 3 * 64


def test_released_blocks_are_taken_keyless_first_then_the_oldest_release_tail_first() -> None:
    pool = BlockPool(6)
    first, second = pool.take(2), pool.take(4)
    for block, key in zip([*first, *second[:3]], "abcde", strict=True):
        pool.publish(block, key)
    pool.release(first)
    pool.release(second)

    assert pool.match("ab") == first
    assert pool.take(6) == [second[3], *first[::-1], *second[2::-1]]
    assert pool.match("ab") == []


def test_a_block_that_is_hit_is_held_and_not_taken() -> None:
    pool = BlockPool(2)
    blocks = pool.take(2)
    pool.publish(blocks[0], "a")
    pool.release(blocks)
    hits = pool.match("ab")

    assert (hits, pool.unheld(hits)) == ([blocks[0]], 1)
    pool.hold(hits)
    assert pool.free_blocks == 1
    assert pool.take(1) == [blocks[1]]


def test_a_long_prompt_is_computed_in_chunks_beside_running_answers() -> None:
    requests = [
        request(0, [1] * 16, max_tokens=40),
        request(1, [2] * 1000, max_tokens=1),
    ]
    reports = run_all(requests, capacity(step_tokens=100), outputs={0: 40, 1: 1})

    assert [report.prefill_tokens for report in reports[:3]] == [100, 99, 99]
    assert [report.decode_tokens for report in reports[:3]] == [0, 1, 1]


def test_the_newest_gives_way_when_the_cache_is_full_and_comes_back() -> None:
    requests = [request(row, [row] * 32, max_tokens=100) for row in range(3)]
    reports = run_all(requests, capacity(2 * 132 + 20), outputs=dict.fromkeys(range(3), 100))
    done = answers(reports)

    assert sum(report.preemptions for report in reports) >= 1
    assert {one.completion_tokens for one in done.values()} == {100}
    assert max(done, key=lambda row: done[row].finished) == 2


def test_answers_end_by_themselves_or_at_max_tokens_or_at_the_context() -> None:
    requests = [
        request(row, [row] * length, max_tokens=50) for row, length in enumerate([9, 9, 2040])
    ]
    done = answers(run_all(requests, capacity(), outputs={0: 20, 1: 400, 2: 400}))

    assert [(done[row].finish_reason, done[row].completion_tokens) for row in range(3)] == [
        ("stop", 20),
        ("length", 50),
        ("length", 8),
    ]


@pytest.mark.parametrize(
    ("prompt_tokens", "message"),
    [(0, "prompt is empty"), (2048, "maximum context length is 2048"), (790, "whole KV cache")],
)
def test_what_can_never_run_fails_and_the_rest_goes_on(prompt_tokens: int, message: str) -> None:
    requests = [request(0, [1] * prompt_tokens, max_tokens=30), request(1, [1] * 8)]
    done = answers(run_all(requests, capacity(800), outputs={0: 30, 1: 3}))

    assert (done[0].status_code, done[1].status_code) == (400, 200)
    assert message in orjson.loads(done[0].body)["error"]["message"]


def test_time_is_the_sum_of_the_steps() -> None:
    requests = grouped(3, size=3, shared=16, own=8, max_tokens=9)
    reports = run_all(requests, capacity())
    total_s = sum(report.seconds for report in reports)

    assert max(one.finished for one in answers(reports).values()) == pytest.approx(total_s)


def test_an_answer_is_an_object_of_its_endpoint() -> None:
    chat = request(3, [1] * 20, max_tokens=5, sequences=2)
    done = answers(run_all([chat], capacity(), outputs={3: 5}))[3]
    body = orjson.loads(done.body)

    assert (body["object"], body["model"]) == ("chat.completion", "blend-sim")
    assert [choice["index"] for choice in body["choices"]] == [0, 1]
    assert body["choices"][0]["message"]["role"] == "assistant"
    assert body["usage"]["prompt_tokens"] == done.prompt_tokens == 20
    assert body["usage"]["completion_tokens"] == done.completion_tokens == 10


def test_a_list_of_prompts_gives_a_choice_for_each_copy_of_each() -> None:
    body = orjson.dumps({"prompt": [[1, 2], [3, 4], [5, 6]], "n": 2})
    one = Request(0, "list", "/v1/completions", body, np.arange(6, dtype=np.uint32), 4, sequences=6)
    reports = run_all([one], capacity(), outputs={0: 4})
    answer = orjson.loads(answers(reports)[0].body)

    assert answer["object"] == "text_completion"
    assert len(answer["choices"]) == 6
    assert reports[0].prefill_tokens == 2 * 6


@given(st.integers(1, 5000), st.text(min_size=1))
def test_default_lengths_lie_within_max_tokens(max_tokens: int, custom_id: str) -> None:
    one = Request(0, custom_id, "/v1/completions", b"{}", np.ones(3, np.uint32), max_tokens)

    assert 1 <= hashed_length(one) <= max_tokens
    assert hashed_length(one) == hashed_length(one)


def test_an_engine_without_work_says_so() -> None:
    with pytest.raises(RuntimeError, match="nothing to run"):
        SimEngine(capacity(), step_s=step_s).step()


def test_abort_drops_what_is_inside_and_says_how_far_it_was() -> None:
    engine = SimEngine(capacity(max_sequences=2), step_s=step_s, output_tokens=lambda _: 10)
    for row in range(3):
        engine.submit(request(row, [row] * 40))
    for _ in range(4):
        engine.step()
    ages = dict(engine.ages())
    aborted = engine.abort()

    assert aborted.tokens == ages == {0: 4, 1: 4, 2: 0}
    assert (aborted.report.running, aborted.report.waiting, aborted.report.kv_tokens) == (0, 0, 0)
    engine.submit(request(3, [3] * 40))
    while not (completions := engine.step().completions):
        pass
    assert [completion.row for completion in completions] == [3]
