"""Fixtures that several test files share."""

from pathlib import Path

import pytest

from tests.tiny_model import tiny_model


@pytest.fixture(scope="session")
def tiny_tokenizer_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder with tokenizer, template and config, but no weights."""
    return tiny_model(tmp_path_factory.mktemp("tokenizer"), weights=False)


@pytest.fixture(scope="session")
def tiny_model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder that vLLM can load."""
    return tiny_model(tmp_path_factory.mktemp("model"))
