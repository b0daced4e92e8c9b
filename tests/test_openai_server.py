"""What is asked of a server before the first request, and what is said when it is not there."""

import time
from dataclasses import replace
from typing import Any

import pytest

from blend.core.engines import UNKNOWN_TOKENS
from blend.core.errors import RESUMABLE, USAGE, BlendError
from tests.faulty_server import KEY, MODEL, FaultyServer, serving
from tests.http_engine import HASTY, opened, run


def test_capacity_is_what_the_server_tells() -> None:
    metrics = 'vllm:cache_config_info{block_size="32",num_gpu_blocks="101"} 1.0\n'
    with serving(FaultyServer(metrics=metrics)) as server, opened(server) as engine:
        told = engine.capacity
    with (
        serving(FaultyServer(models=[{"id": MODEL}])) as server,
        opened(server, concurrency=7) as engine,
    ):
        untold = engine.capacity

    assert (told.kv_tokens, told.block_tokens, told.context_tokens) == (3200, 32, 2048)
    assert told.max_sequences == 64
    assert (untold.kv_tokens, untold.context_tokens) == (UNKNOWN_TOKENS, UNKNOWN_TOKENS)
    assert untold.max_sequences == 7


def refusal(server: FaultyServer, **more: Any) -> BlendError:
    with opened(server, **more) as engine, pytest.raises(BlendError) as refused:
        engine.wait_ready()
    return refused.value


def test_a_server_that_does_not_come_is_waited_for_and_then_said() -> None:
    with serving(FaultyServer()) as server:
        pass
    began = time.monotonic()
    error = refusal(server)

    assert time.monotonic() - began >= HASTY.start_s
    assert error.exit_code == RESUMABLE
    assert (
        f"no server is ready at {server.url}: cannot connect: connection refused" in error.message
    )


def test_a_server_that_is_still_loading_is_waited_for() -> None:
    with (
        serving(FaultyServer(models_status=503)) as server,
        opened(server, patience=replace(HASTY, start_s=10)) as engine,
    ):
        assert not engine.wait_ready(0.1)
        server.models_status = 200
        assert engine.wait_ready()


def test_a_refused_key_is_said_at_the_start() -> None:
    with serving(FaultyServer(key=KEY)) as server:
        without, wrong = refusal(server), refusal(server, api_key="sk-something-wrong")

    assert without.exit_code == wrong.exit_code == USAGE
    assert "refuses the API key" in wrong.message
    assert "OPENAI_API_KEY" in str(wrong.hint)
    assert "sk-something-wrong" not in f"{wrong.message} {wrong.hint}"


def test_an_unknown_model_is_said_with_those_that_are_there() -> None:
    with serving(FaultyServer(models=[{"id": "other"}])) as server:
        error = refusal(server)

    assert "does not serve tiny: it has other" in error.message
    assert error.hint == "`--served-model-name other`, if that is the job's model"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"models": None}, "does not list models"),
        ({"models": []}, "it has no model"),
        ({"models": [1, 2]}, "does not list models"),
        ({"models_status": 400}, "`/v1/models` answers 400"),
        ({"models_status": 302}, "redirects to"),
    ],
)
def test_what_is_no_openai_server_is_said_so(more: dict[str, Any], said: str) -> None:
    with serving(FaultyServer(**more)) as server:
        error = refusal(server)

    assert said in error.message


def test_a_server_without_a_list_of_models_is_taken_at_its_word() -> None:
    with serving(FaultyServer(models_status=404)) as server, opened(server) as engine:
        _, _, came = run(engine, 3)

    assert sorted(came) == [0, 1, 2]


def test_an_unknown_host_is_said_at_once() -> None:
    began = time.monotonic()
    error = refusal(FaultyServer(), base_url="http://no-such-host.invalid:1")

    assert "unknown host: no-such-host.invalid" in error.message
    assert time.monotonic() - began < 60
