import numpy as np
import pytest

from blend.core.planning.cost import (
    comp_s,
    decode_comp_s,
    mem_s,
    segment_comp_s,
    set_density,
    weights_s,
)
from blend.core.planning.hardware import Hardware, ModelShape

HARDWARE = Hardware("card", flops=1e12, bandwidth_bytes_s=1e11, memory_bytes=1e10)
MODEL = ModelShape(
    "model",
    parameters=1e9,
    active_parameters=1e9,
    layers=10,
    hidden=1000,
    kv_bytes_per_token=1e4,
    weight_bytes=2e9,
)
ON = {"hardware": HARDWARE, "model": MODEL}


def test_compute_is_matrix_products_and_prefill_attention() -> None:
    seconds = comp_s(np.array([100]), np.array([20]), **ON)

    assert seconds == pytest.approx((2 * 120 * 1e9 + 4 * 100**2 * 1000 * 10) / 1e12)


def test_the_attention_term_can_be_left_out() -> None:
    seconds = comp_s(np.array([100]), np.array([20]), attention=False, **ON)

    assert seconds == pytest.approx(2 * 120 * 1e9 / 1e12)


def test_memory_time_reads_the_growing_cache_once_a_step() -> None:
    read_tokens = sum(100 + step + 0.5 for step in range(20))

    assert mem_s(np.array([100]), np.array([20]), **ON) == pytest.approx(read_tokens * 1e4 / 1e11)


def test_segments_of_a_path_cost_what_the_whole_prompt_costs() -> None:
    whole = comp_s(np.array([90]), np.array([0]), **ON)

    parts = segment_comp_s(np.array([0, 30, 31]), np.array([30, 31, 90]), **ON)
    assert parts.sum() == pytest.approx(whole[0])


def test_sequences_share_a_prefill() -> None:
    one = comp_s(np.array([100]), np.array([20]), **ON)

    three = comp_s(np.array([100]), np.array([60]), **ON)
    assert three - one == pytest.approx(decode_comp_s(np.array([40]), **ON))


def test_a_set_has_the_ratio_of_the_sums_not_the_mean_of_ratios() -> None:
    assert set_density(3.0 + 1.0, 1.0 + 4.0, sharing=0.25) == pytest.approx(0.6)


def test_a_step_takes_at_least_the_time_to_read_the_weights() -> None:
    assert weights_s(**ON) == pytest.approx(0.02)
