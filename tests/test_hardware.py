from typing import Any

import pytest

from blend.core.errors import BlendError
from blend.core.planning.hardware import (
    DEFAULT_HARDWARE,
    Hardware,
    ModelShape,
    hardware_for_gpu,
    hardware_names,
    hardware_preset,
    kv_capacity_tokens,
    model_names,
    model_preset,
    model_shape,
)

LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
MIXTRAL = LLAMA | {
    "model_type": "mixtral",
    "vocab_size": 32000,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}
QWEN_MOE = {
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "vocab_size": 151936,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
DEEPSEEK_V3 = {
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "moe_layer_freq": 1,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "vocab_size": 129280,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "quantization_config": {"quant_method": "fp8"},
}
GPT2 = {
    "model_type": "gpt2",
    "n_embd": 768,
    "n_layer": 12,
    "n_head": 12,
    "vocab_size": 50257,
}


def shape(config: dict[str, Any], **override: Any) -> ModelShape:
    return model_shape(config, name="model", **override)


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("llama-3-8b", 8_030_261_248),
        ("llama-3-70b", 70_553_706_496),
        ("llama-2-7b", 6_738_415_616),
        ("qwen-2.5-7b", 7_615_616_512),
        ("qwen-2.5-72b", 72_706_203_648),
        ("deepseek-67b", 67.42e9),
        ("smollm2-135m", 134_515_008),
    ],
)
def test_presets_count_as_many_parameters_as_published(name: str, published: float) -> None:
    assert model_preset(name).parameters == pytest.approx(published, rel=1e-3)


def test_every_named_preset_loads() -> None:
    for name in hardware_names():
        assert hardware_preset(name).source
    for name in model_names():
        assert model_preset(name).weight_bytes > 0
    assert DEFAULT_HARDWARE in hardware_names()


@pytest.mark.parametrize(
    ("config", "total", "active", "tolerance"),
    [
        (MIXTRAL, 46.7e9, 12.9e9, 0.01),
        (QWEN_MOE, 30.5e9, 3.3e9, 0.02),
        (DEEPSEEK_V3, 671e9, 37.5e9, 0.01),
        (GPT2, 124e6, 124e6, 0.02),
    ],
)
def test_experts_are_stored_all_and_computed_in_part(
    config: dict[str, Any], total: float, active: float, tolerance: float
) -> None:
    found = shape(config)

    assert found.parameters == pytest.approx(total, rel=tolerance)
    assert found.active_parameters == pytest.approx(active, rel=tolerance)


def test_cached_bytes_follow_the_kind_of_attention() -> None:
    assert shape(LLAMA).kv_bytes_per_token == 131072
    assert shape(LLAMA | {"num_key_value_heads": None}).kv_bytes_per_token == 4 * 131072
    assert shape(LLAMA | {"num_key_value_heads": 1}).kv_bytes_per_token == 131072 / 8
    assert shape(DEEPSEEK_V3).kv_bytes_per_token == 61 * (512 + 64) * 2
    assert shape(LLAMA, kv_dtype="fp8").kv_bytes_per_token == 131072 / 2


def test_devices_hold_the_same_heads_of_the_cache_where_it_has_too_few_for_all() -> None:
    two_heads = LLAMA | {"num_key_value_heads": 2}

    assert shape(LLAMA, tensor=8).kv_bytes_per_token == 131072
    assert shape(two_heads, tensor=2).kv_bytes_per_token == 131072 / 4
    assert shape(two_heads, tensor=8).kv_bytes_per_token == 4 * 131072 / 4
    # Latent attention keeps one vector for all heads, which each device needs.
    assert shape(DEEPSEEK_V3, tensor=8).kv_bytes_per_token == 8 * 61 * (512 + 64) * 2


def test_weights_take_the_bytes_of_their_type() -> None:
    plain = shape(LLAMA)
    quantised = shape(LLAMA | {"quantization_config": {"quant_method": "awq", "bits": 4}})

    assert plain.weight_bytes == 2 * plain.parameters
    assert shape(LLAMA, dtype="float32").weight_bytes == 4 * plain.parameters
    assert 0.25 < quantised.weight_bytes / plain.weight_bytes < 0.4
    assert shape(DEEPSEEK_V3).weight_bytes == pytest.approx(671e9, rel=0.01)


def test_the_language_part_of_a_multimodal_model_counts() -> None:
    assert shape({"model_type": "vlm", "text_config": LLAMA}) == shape(LLAMA)


def test_a_config_without_sizes_is_refused_by_name() -> None:
    with pytest.raises(BlendError, match=r"config.json of model has no `num_hidden_layers`"):
        shape({"model_type": "vit", "hidden_size": 768})


@pytest.mark.parametrize(
    ("gpu_name", "preset"),
    [
        ("NVIDIA A100-SXM4-80GB", "a100-80g"),
        ("NVIDIA A100 80GB PCIe", "a100-80g-pcie"),
        ("NVIDIA A100-SXM4-40GB", "a100-40g"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA H100 NVL", "h100-nvl"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA H200 NVL", "h200-nvl"),
        ("NVIDIA L4", "l4"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA B200", "b200"),
        ("AMD Instinct MI300X", "mi300x"),
    ],
)
def test_cards_are_known_by_the_name_they_report(gpu_name: str, preset: str) -> None:
    assert hardware_for_gpu(gpu_name) == hardware_preset(preset)


def test_an_unknown_card_is_none_and_an_unknown_preset_an_error() -> None:
    assert hardware_for_gpu("NVIDIA GeForce GT 710") is None
    with pytest.raises(BlendError, match="unknown hardware: abacus"):
        hardware_preset("abacus")
    with pytest.raises(BlendError, match="unknown model preset: eliza"):
        model_preset("eliza")


def test_the_cache_gets_what_the_weights_leave() -> None:
    card = Hardware("card", flops=1.0, bandwidth_bytes_s=1.0, memory_bytes=40e9)
    model = shape(LLAMA)

    assert kv_capacity_tokens(card, model, memory_fraction=0.5) == int(
        (20e9 - model.weight_bytes) / 131072
    )
    assert kv_capacity_tokens(card, model, memory_fraction=0.1) == 0
