"""How many parameters and KV values a Hugging Face config.json implies.

Weight matrices are counted and norms and biases left out: the counts lie within 0.1 % of the
published ones for the models of data/models.json.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from blend.core.errors import BlendError

Config = Mapping[str, Any]

_NAMES = {
    "hidden_size": ("hidden_size", "n_embd", "d_model"),
    "layers": ("num_hidden_layers", "n_layer", "n_layers"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "intermediate_size": ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"),
    "experts": ("num_local_experts", "n_routed_experts", "num_experts", "moe_num_experts"),
    "experts_per_token": ("num_experts_per_tok", "experts_per_token", "moe_top_k", "moe_k"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "n_head_kv"),
}
_UNGATED = {
    "gpt2",
    "gpt_bigcode",
    "gpt_neox",
    "gptj",
    "opt",
    "phi",
    "falcon",
    "bloom",
    "starcoder2",
}
_DTYPE_BYTES = {"float32": 4, "float": 4, "float16": 2, "half": 2, "bfloat16": 2, "int8": 1}


@dataclass(frozen=True, slots=True)
class ParameterCount:
    """Parameters stored, those that compute each token, and those of the embeddings.

    ``hidden`` is the width of what goes from one layer to the next.
    """

    total: int
    active: int
    embedding: int
    layers: int
    hidden: int


@dataclass(frozen=True, slots=True)
class LayerWidths:
    """The matrices of a model as so many equal dense layers that compute as much for each token.

    ``inner``: of the gated MLP; of a mixture of experts, all that a token passes through.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    inner: int
    vocabulary: int

    @property
    def layer_parameters(self) -> int:
        """Return the parameters of one layer."""
        attention = 2 * self.hidden * (self.heads + self.kv_heads) * self.head_size
        return attention + 3 * self.hidden * self.inner


def layer_widths(config: Config, *, name: str) -> LayerWidths:
    """Return the layers of the model that *config* describes; BlendError without its sizes."""
    text = text_config(config)
    count = count_parameters(text, name=name)
    hidden, heads = _required(text, "hidden_size", name), _required(text, "heads", name)
    size = attention_width(text, name=name) // heads
    kv_heads = max(1, min(heads, kv_values_per_token(text, name=name) // (2 * count.layers * size)))
    # Groups of queries share a head of the cache: a whole number of them.
    kv_heads = next(one for one in range(kv_heads, 0, -1) if heads % one == 0)
    attention = 2 * hidden * (heads + kv_heads) * size
    rest = (count.active - count.embedding) // count.layers - attention
    return LayerWidths(
        count.layers,
        hidden,
        heads,
        kv_heads,
        size,
        max(1, rest // (3 * hidden)),
        int(text.get("vocab_size") or 1),
    )


def text_config(config: Config) -> Config:
    """Return the language part of a multimodal config, the config itself otherwise."""
    inner = config.get("text_config") or config.get("llm_config")
    return {**config, **inner} if isinstance(inner, Mapping) else config


def dtype_bytes(dtype: str) -> int:
    """Return the bytes of one value of a torch dtype, its `torch.` left out or not."""
    short = dtype.removeprefix("torch.")
    return 1 if short.startswith("fp8") or "float8" in short else _DTYPE_BYTES.get(short, 2)


def attention_width(config: Config, *, name: str) -> int:
    """Return heads times the size of a head's queries and values (their mean where they differ)."""
    heads = _required(config, "heads", name)
    if config.get("kv_lora_rank"):
        return heads * (_query_size(config) + int(config["v_head_dim"])) // 2
    return heads * _head_size(config, name)


def kv_values_per_token(config: Config, *, name: str) -> int:
    """Return the values that one token leaves in the KV cache, over all layers."""
    layers = _required(config, "layers", name)
    if config.get("kv_lora_rank"):
        return layers * (int(config["kv_lora_rank"]) + int(config["qk_rope_head_dim"]))
    kinds = config.get("layer_types") or ()
    recurrent = sum("linear" in kind or "mamba" in kind for kind in kinds)
    return (layers - recurrent) * 2 * _kv_heads(config, name) * _head_size(config, name)


def kv_copies(config: Config, tensor: int, *, name: str) -> int:
    """Return how many of *tensor* devices that share each layer hold the same part of the cache.

    Its heads are dealt out, and repeated where there are fewer; latent attention has but one.
    """
    heads = 1 if config.get("kv_lora_rank") else _kv_heads(config, name)
    return max(1, tensor // heads)


def weight_bits(config: Config, text: Config) -> float | None:
    """Return the bits of a quantised weight, None when the weights are not quantised."""
    quantization = config.get("quantization_config") or text.get("quantization_config")
    if not isinstance(quantization, Mapping):
        return None
    bits = quantization.get("bits") or quantization.get("w_bit")
    if bits:
        return float(bits)
    for group in (quantization.get("config_groups") or {}).values():
        return float((group.get("weights") or {}).get("num_bits") or 8)
    four = quantization.get("load_in_4bit") or "4" in str(quantization.get("quant_method", ""))
    return 4.25 if four else 8.0


def count_parameters(config: Config, *, name: str) -> ParameterCount:
    """Return the parameters of the model that *config* describes; BlendError without its sizes."""
    hidden = _required(config, "hidden_size", name)
    layers = _required(config, "layers", name)
    tables = 1 if config.get("tie_word_embeddings", True) else 2
    embedding = tables * hidden * int(config.get("vocab_size") or 0)
    sparse = _sparse_layers(config, layers)
    attention = layers * _attention_parameters(config, hidden, name)
    dense = (layers - sparse) * _mlp_parameters(config, hidden, _dense_size(config, hidden))
    total = active = embedding + attention + dense
    if sparse:
        expert = _mlp_parameters(config, hidden, _expert_size(config, hidden))
        shared = _shared_parameters(config, hidden, expert)
        router = hidden * _optional(config, "experts", 0)
        total += sparse * (_optional(config, "experts", 0) * expert + shared + router)
        active += sparse * (_optional(config, "experts_per_token", 1) * expert + shared + router)
    return ParameterCount(total, active, embedding, layers, hidden)


def _attention_parameters(config: Config, hidden: int, name: str) -> int:
    heads = _required(config, "heads", name)
    if config.get("kv_lora_rank"):
        return _latent_attention_parameters(config, hidden, heads)
    size = _head_size(config, name)
    return hidden * size * (2 * heads + 2 * _kv_heads(config, name))


def _latent_attention_parameters(config: Config, hidden: int, heads: int) -> int:
    rank, rope = int(config["kv_lora_rank"]), int(config["qk_rope_head_dim"])
    value, no_rope = int(config["v_head_dim"]), int(config["qk_nope_head_dim"])
    query_rank = config.get("q_lora_rank")
    query_width = heads * (no_rope + rope)
    query = query_rank * (hidden + query_width) if query_rank else hidden * query_width
    down_and_up = hidden * (rank + rope) + rank * heads * (no_rope + value)
    return int(query) + down_and_up + heads * value * hidden


def _mlp_parameters(config: Config, hidden: int, inner: int) -> int:
    return (2 if config.get("model_type") in _UNGATED else 3) * hidden * inner


def _shared_parameters(config: Config, hidden: int, expert: int) -> int:
    named = config.get("shared_expert_intermediate_size")
    if named:
        return _mlp_parameters(config, hidden, int(named))
    return int(config.get("n_shared_experts") or 0) * expert


def _sparse_layers(config: Config, layers: int) -> int:
    if _optional(config, "experts", 0) <= 1:
        return 0
    dense_first = int(config.get("first_k_dense_replace") or 0)
    every = int(config.get("decoder_sparse_step") or config.get("moe_layer_freq") or 1)
    return (layers - dense_first) // every - len(config.get("mlp_only_layers") or ())


def _dense_size(config: Config, hidden: int) -> int:
    return _optional(config, "intermediate_size", 4 * hidden)


def _expert_size(config: Config, hidden: int) -> int:
    return int(config.get("moe_intermediate_size") or _dense_size(config, hidden))


def _query_size(config: Config) -> int:
    return int(config["qk_nope_head_dim"]) + int(config["qk_rope_head_dim"])


def _head_size(config: Config, name: str) -> int:
    explicit = config.get("head_dim")
    return int(
        explicit or _required(config, "hidden_size", name) // _required(config, "heads", name)
    )


def _kv_heads(config: Config, name: str) -> int:
    if config.get("multi_query") and not config.get("new_decoder_architecture"):
        return 1
    return _optional(config, "kv_heads", _required(config, "heads", name))


def _optional(config: Config, field: str, default: int) -> int:
    return next((int(config[key]) for key in _NAMES[field] if config.get(key)), default)


def _required(config: Config, field: str, name: str) -> int:
    value = _optional(config, field, 0)
    if value <= 0:
        raise BlendError(
            f"the config.json of {name} has no `{_NAMES[field][0]}`",
            hint="give the folder or the name of a language model",
        )
    return value
