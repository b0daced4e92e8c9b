"""What a model folder says about its requests, and what helps when it cannot be loaded."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from blend.core.errors import BlendError
from blend.core.rendering.hub_errors import explanation
from blend.core.rendering.tokenizer import context_tokens, load_tokenizer, takes_media
from tests.chat_models import with_config, with_template


def test_a_folder_is_known_by_its_absolute_path_and_its_content(
    tiny_tokenizer_dir: Path, tmp_path: Path
) -> None:
    tokenizer = load_tokenizer(str(tiny_tokenizer_dir))
    again = load_tokenizer(str(tiny_tokenizer_dir / "."))
    other = load_tokenizer(str(with_template(tiny_tokenizer_dir, tmp_path / "m", "{{ messages }}")))

    assert tokenizer.model == str(tiny_tokenizer_dir.resolve())
    assert tokenizer.fingerprint == again.fingerprint
    assert tokenizer.fingerprint["tokenizer"] == other.fingerprint["tokenizer"]
    assert tokenizer.fingerprint["template"] != other.fingerprint["template"]
    assert tokenizer.context_tokens == 4096


def test_nothing_is_said_of_a_torch_that_is_not_there(tiny_tokenizer_dir: Path) -> None:
    code = (
        "import importlib.util as util, sys; there = util.find_spec; "
        "util.find_spec = lambda name, *more: name != 'torch' and there(name, *more) or None; "
        "from blend.core.rendering.tokenizer import load_tokenizer; "
        "load_tokenizer(sys.argv[1]); print('torch' in sys.modules)"
    )
    command = [sys.executable, "-c", code, str(tiny_tokenizer_dir)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)

    assert ended.stdout == "False\n"
    assert ended.stderr == ""


def test_a_template_given_by_the_user_takes_the_place_of_the_models(
    tiny_tokenizer_dir: Path,
) -> None:
    tokenizer = load_tokenizer(str(tiny_tokenizer_dir), chat_template="{{ messages | length }}")

    assert tokenizer.template is not None
    assert tokenizer.template.text == "{{ messages | length }}"


def test_the_answer_length_of_the_generation_config_is_read(
    tiny_tokenizer_dir: Path, tmp_path: Path
) -> None:
    folder = with_config(tiny_tokenizer_dir, tmp_path / "m")
    (folder / "generation_config.json").write_text('{"max_new_tokens": 99}')

    assert load_tokenizer(str(folder)).default_max_tokens == 99


@pytest.mark.parametrize(
    ("config", "tokens"),
    [
        ({"max_position_embeddings": 8192}, 8192),
        ({"n_positions": 1024, "max_position_embeddings": 2048}, 1024),
        ({"text_config": {"max_position_embeddings": 512}}, 512),
        ({"max_position_embeddings": 4096, "rope_scaling": {"type": "linear", "factor": 2}}, 8192),
        (
            {
                "max_position_embeddings": 4096,
                "rope_parameters": {"full": {"rope_type": "dynamic", "factor": 4.0}},
            },
            16_384,
        ),
        (
            {
                "max_position_embeddings": 131_072,
                "rope_scaling": {"rope_type": "llama3", "factor": 8.0},
            },
            131_072,
        ),
        (
            {
                "max_position_embeddings": 131_072,
                "original_max_position_embeddings": 4096,
                "rope_scaling": {"type": "longrope", "long_factor": [1.0]},
            },
            4096,
        ),
        ({}, 2048),
    ],
)
def test_the_context_is_read_as_the_engine_reads_it(config: dict[str, Any], tokens: int) -> None:
    assert context_tokens(config) == tokens


def test_a_context_beyond_the_models_is_refused_with_both_numbers() -> None:
    with pytest.raises(BlendError, match=r"5,000.*4,096"):
        context_tokens({"max_position_embeddings": 4096}, asked=5000)
    assert context_tokens({"max_position_embeddings": 4096}, asked=100) == 100


def test_only_a_plain_text_model_refuses_media() -> None:
    assert not takes_media({"model_type": "llama", "hidden_size": 1})
    assert takes_media({"vision_config": {}})


@pytest.mark.parametrize("name", ["./missing", "/missing/model", "a/b/c"])
def test_a_missing_folder_is_said_at_once(name: str) -> None:
    with pytest.raises(BlendError, match="no such model folder"):
        load_tokenizer(name)


def test_a_folder_without_a_config_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(BlendError, match=r"config\.json"):
        load_tokenizer(str(tmp_path))


def test_a_folder_without_a_tokenizer_is_explained(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')

    with pytest.raises(BlendError, match="cannot load the tokenizer"):
        load_tokenizer(str(tmp_path))


def test_a_model_missing_from_the_cache_names_the_variables(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))

    with pytest.raises(BlendError, match="HF_HUB_OFFLINE is set") as caught:
        load_tokenizer("nobody/nothing")
    assert "HF_HOME" in (caught.value.hint or "")


def hub_error(name: str) -> Exception:
    from huggingface_hub import errors

    kind: type[Exception] = getattr(errors, name)
    error = kind.__new__(kind)
    wrapped = OSError("cannot load")
    wrapped.__cause__ = error
    return wrapped


@pytest.mark.parametrize(
    ("error", "message", "hint"),
    [
        ("GatedRepoError", "model is gated: a/b", "HF_TOKEN"),
        ("RepositoryNotFoundError", "no such model on the hub", "HF_TOKEN"),
        ("RevisionNotFoundError", "no such revision: a/b: v9", "/tree/main"),
        ("LocalEntryNotFoundError", "the hub cannot be reached: a/b", "HF_HOME"),
    ],
)
def test_what_the_hub_says_becomes_what_helps(error: str, message: str, hint: str) -> None:
    explained = explanation(hub_error(error), "a/b", revision="v9")

    assert message in explained.message
    assert hint in (explained.hint or "")


def test_a_model_with_code_of_its_own_asks_for_consent() -> None:
    error = ValueError("contains custom code; pass `trust_remote_code=True`")

    assert "--trust-remote-code" in (explanation(error, "a/b", revision=None).hint or "")
