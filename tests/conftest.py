"""Fixtures that several test files share."""

from pathlib import Path

import pytest
from hypothesis import settings

from tests.tiny_model import tiny_model

# A busy machine is no counterexample.
settings.register_profile("any speed", deadline=None)
settings.load_profile("any speed")


@pytest.fixture(scope="session")
def tiny_tokenizer_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder with tokenizer, template and config, but no weights."""
    return tiny_model(tmp_path_factory.mktemp("tokenizer"), weights=False)


@pytest.fixture(scope="session")
def tiny_model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder that vLLM can load."""
    return tiny_model(tmp_path_factory.mktemp("model"))
