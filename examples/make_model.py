"""Write a model folder without weights, to try things on the simulated engine.

usage: python examples/make_model.py FOLDER

It has the shape of Llama 3 8B, so that costs are those of a real model, a context of 8,192 tokens,
and a small tokenizer that is trained on the spot on `examples/requests.jsonl`. Nothing is fetched.
"""

import json
import sys
from importlib import resources
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

CONTEXT_TOKENS = 8192
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tokenizer():
    """Return a byte-level tokenizer: any text comes back as it went in."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=2048,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = Path(__file__).with_name("requests.jsonl").read_text(encoding="utf-8")
    made.train_from_iterator(texts.splitlines(), trainer)
    return made


def config():
    """Return what a config.json says of the shape of Llama 3 8B."""
    presets = resources.files("blend.core.planning") / "data" / "models.json"
    shape = json.loads(presets.read_text(encoding="utf-8"))["llama-3-8b"]["config"]
    return shape | {
        "max_position_embeddings": CONTEXT_TOKENS,
        "architectures": ["LlamaForCausalLM"],
    }


def main(folder):
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer().save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": SPECIAL[0],
        "eos_token": SPECIAL[2],
        "model_max_length": CONTEXT_TOKENS,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1))
    (folder / "config.json").write_text(json.dumps(config(), indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:])
