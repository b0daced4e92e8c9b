"""A model small enough to build in a second: trained tokenizer, chat template, random Llama."""

import json
from pathlib import Path

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

CORPUS = (
    "You are a careful tutor. Solve the problem step by step and end with the answer.",
    "The following are multiple choice questions (with answers) about history and marketing.",
    "Question: how many apples does she have? A. 1 B. 2 C. 3 D. 4 Answer: B",
    "Write a short story about the sea, the wind and a small boat that never came home.",
)


def tiny_model(directory: Path, *, weights: bool = True, context_tokens: int = 4096) -> Path:
    """Write a Llama of 4 layers and 64 hidden units, its tokenizer and template; return its path.

    Byte-level BPE of about 400 tokens, so that any text round-trips. The weights are random, but
    seeded.
    """
    directory.mkdir(parents=True, exist_ok=True)
    config = _config(_write_tokenizer(directory, context_tokens), context_tokens)
    (directory / "config.json").write_text(json.dumps(config, indent=1))
    if weights:
        _write_weights(directory, config)
    return directory


def _config(vocabulary: int, context_tokens: int) -> dict[str, object]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": vocabulary,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 4,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "max_position_embeddings": context_tokens,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "pad_token_id": 2,
        "torch_dtype": "float32",
    }


def _write_tokenizer(directory: Path, context_tokens: int) -> int:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=512,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.save(str(directory / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|endoftext|>",
        "eos_token": "<|im_end|>",
        "pad_token": "<|im_end|>",
        "model_max_length": context_tokens,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(settings, indent=1))
    return tokenizer.get_vocab_size()


def _write_weights(directory: Path, config: dict[str, object]) -> None:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    fields = {k: v for k, v in config.items() if k != "torch_dtype"}
    model = LlamaForCausalLM(LlamaConfig(**fields)).to(torch.float32)
    model.save_pretrained(directory)
