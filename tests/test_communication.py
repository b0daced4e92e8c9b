"""What devices that share a model say to each other takes time, and is counted once."""

from dataclasses import replace

import pytest

from blend.core.planning.communication import network_step_s, network_token_s
from blend.core.planning.engine_model import MODES, StepCosts, engine_model
from blend.core.planning.hardware import (
    Parallel,
    hardware_names,
    hardware_preset,
    model_preset,
    model_shape,
    several,
)
from blend.core.planning.interference import Interference
from blend.core.planning.profile import with_costs

A100, LLAMA = hardware_preset("a100-80g"), model_preset("llama-3-70b")
EIGHT = engine_model(several(A100, Parallel(8)), LLAMA, attention=False)
SILENT = replace(EIGHT, hardware=replace(EIGHT.hardware, link_bytes_s=None))
WORK = {"prefill_tokens": 1000, "decode_tokens": 48, "read_tokens": 60_000}


def test_a_step_of_eight_devices_sums_twice_a_layer_over_a_ring() -> None:
    ring = 160 * (14 / 8 * 1048 * 8192 * 2 / 300e9 + 6.6e-6 + 14 * 0.6e-6)

    talked = EIGHT.step_s(**WORK) - SILENT.step_s(**WORK)

    assert talked == pytest.approx(ring)
    assert EIGHT.network_token_s == pytest.approx(15.3e-6, rel=0.01)
    # Where a step is as long as its reads of the weights, it is so beside them.
    assert EIGHT.step_s(0, 1, 0) - SILENT.step_s(0, 1, 0) > EIGHT.network_step_s


def test_an_engine_that_overlaps_has_the_links_at_work_beside_the_rest() -> None:
    engine, silent = (
        replace(one, mode="overlapped", interference=Interference(0.1)) for one in (EIGHT, SILENT)
    )
    network = 1048 * engine.network_token_s + engine.network_step_s

    assert engine.step_s(**WORK) - silent.step_s(**WORK) == pytest.approx(0.1 * network)
    # A link so slow that it takes longest of all.
    slow = replace(engine, hardware=replace(engine.hardware, link_bytes_s=1e9))
    network = 1048 * slow.network_token_s + slow.network_step_s
    others = 1048 * slow.token_s + 60_000 * slow.read_s + slow.weights_s
    assert slow.step_s(**WORK) == pytest.approx(network + 0.1 * others)


@pytest.mark.parametrize("name", hardware_names())
def test_one_device_says_nothing_and_more_take_no_less_time_to_agree(name: str) -> None:
    one = hardware_preset(name)
    sizes = [several(one, Parallel(n)) for n in (1, 2, 4, 8)]

    token_s = [network_token_s(size, LLAMA) for size in sizes]
    step_s = [network_step_s(size, LLAMA) for size in sizes]

    assert token_s[0] == step_s[0] == 0.0
    assert min(token_s[1:]) > 0.0
    assert step_s == sorted(step_s)
    if not one.link_peers:
        assert token_s == sorted(token_s)


def test_where_each_pair_has_a_link_two_devices_have_one_of_seven() -> None:
    card = hardware_preset("mi300x")
    two, eight = (several(card, Parallel(n)) for n in (2, 8))

    assert card.link_bytes_s == 7 * 64e9
    assert network_token_s(two, LLAMA) == pytest.approx(160 * 8192 * 2 / 64e9)
    assert network_token_s(eight, LLAMA) == pytest.approx(160 * 14 / 8 * 8192 * 2 / 448e9)


def test_a_sum_is_as_wide_as_what_goes_from_layer_to_layer() -> None:
    config = {
        "model_type": "qwen3",
        "hidden_size": 2560,
        "intermediate_size": 9728,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 151936,
    }
    shape = model_shape(config, name="model")

    assert shape.hidden == 4096
    assert shape.activation_bytes == 2 * 2560
    assert model_shape(config, name="model", dtype="float32").activation_bytes == 4 * 2560


@pytest.mark.parametrize("mode", MODES)
def test_a_round_of_a_pipeline_reads_all_weights_at_the_pace_of_one_stage(mode) -> None:
    one = engine_model(A100, LLAMA, overhead_s=2e-3, attention=False)
    four = engine_model(several(A100, Parallel(1, 4)), LLAMA, overhead_s=2e-3, mode=mode)

    assert four.weights_s == pytest.approx(one.weights_s)
    assert four.overhead_s == pytest.approx(4 * one.overhead_s)
    assert four.token_s == pytest.approx(one.token_s / 4)
    assert four.read_s == pytest.approx(one.read_s / 4)
    # Handed on with its residual; three boundaries before a lone token is through.
    assert four.network_token_s == pytest.approx(2 * 8192 * 2 / 300e9)
    assert four.network_step_s == pytest.approx(3 * (6.6e-6 + 0.6e-6))


def test_stages_of_several_devices_sum_at_the_same_time() -> None:
    both, eight = several(A100, Parallel(4, 2)), several(A100, Parallel(8))
    handed = 2 * 8192 * 2 / 300e9

    assert both.flops == eight.flops
    assert both.memory_bytes == eight.memory_bytes
    summed = 160 * 6 / 4 * 8192 * 2 / 300e9
    assert network_token_s(both, LLAMA) == pytest.approx(summed / 2 + handed)


def test_measured_steps_have_it_in_them() -> None:
    costs = StepCosts(2e-3, 7e-5, 7e-5, 4e-8, weights_s=9e-3)
    engine = with_costs(EIGHT, costs)

    assert engine.network_token_s == engine.network_step_s == 0.0
    assert network_token_s(engine.hardware, LLAMA) == 0.0
    assert engine.step_s(**WORK) == pytest.approx(1048 * 7e-5 + 60_000 * 4e-8 + 2e-3)


def test_batches_of_a_pipeline_that_were_measured_are_put_together_to_a_round() -> None:
    costs = StepCosts(2e-3, 7e-5, 7e-5, 1e-8, weights_s=3e-3)
    engine = with_costs(engine_model(several(A100, Parallel(2, 4)), LLAMA), costs)
    # Four batches: each its overhead and weights, and a fourth of the cache that seemed all read.
    batches = 4 * (2e-3 + max(7e-5 * 12, 3e-3) + 1e-8 * 60_000)

    assert engine.step_s(0, 48, 60_000) == pytest.approx(batches)
