"""What an engine of a model holds once a running one is known."""

from dataclasses import replace

from blend.core.engines import UNKNOWN_TOKENS, Capacity
from blend.core.planning.engine_model import engine_model
from blend.core.planning.hardware import hardware_preset, model_preset

ENGINE = engine_model(hardware_preset("a100-80g"), model_preset("llama-3-8b"))
RUNNING = Capacity(
    kv_tokens=1000, max_sequences=7, step_tokens=512, context_tokens=900, block_tokens=32
)


def test_an_engine_holds_what_a_running_one_does() -> None:
    assert ENGINE.holding(RUNNING) == replace(ENGINE, capacity=RUNNING)


def test_what_a_server_does_not_tell_stays_as_the_device_would_have_it() -> None:
    untold = replace(RUNNING, kv_tokens=UNKNOWN_TOKENS, context_tokens=UNKNOWN_TOKENS)
    held = ENGINE.holding(untold).capacity

    assert held.kv_tokens == ENGINE.capacity.kv_tokens
    assert held.context_tokens == ENGINE.capacity.context_tokens
    assert held.max_sequences == 7
