"""Fixtures that several test files share."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from blend.core.engines.vllm import VllmEngine
from tests import tiny_engine
from tests.small_memory import SmallMemory, opened_small_memory
from tests.tiny_model import tiny_model
from tests.vllm_reference import vllm_serve
from tests.vllm_starts import let_vllm_fork

# A busy machine is no counterexample, and what passes here is to pass everywhere. New examples are
# looked for with `--hypothesis-profile search`.
hypothesis.settings.register_profile("search", deadline=None)
hypothesis.settings.register_profile("same examples", deadline=None, derandomize=True)
hypothesis.settings.load_profile("same examples")


def pytest_configure(config: pytest.Config) -> None:
    if getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput"):
        # Before several processes of pytest-xdist want the same kernels at once.
        from scripts.compile_kernels import compile_kernels

        compile_kernels()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    if config.getvalue("dist") != "loadscope":
        return None
    from tests.side_by_side import SideBySide

    return SideBySide(config, log)


@pytest.fixture(scope="session", autouse=True)
def _own_profiles(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What runs measure stays out of the home of whoever runs the tests, and its settings out."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [one for one in os.environ if one.startswith("BLEND_")]:
            patch.delenv(name)
        home = tmp_path_factory.mktemp("home")
        patch.setenv("BLEND_PROFILES", str(home / "profiles.json"))
        patch.setenv("XDG_CONFIG_HOME", str(home / "config"))
        yield


@pytest.fixture(scope="session", autouse=True)
def _forked_vllm(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if any(item.get_closest_marker("vllm") for item in request.session.items):
            let_vllm_fork(patch)
        yield


@pytest.fixture(scope="session")
def tiny_tokenizer_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder with tokenizer, template and config, but no weights."""
    return tiny_model(tmp_path_factory.mktemp("tokenizer"), weights=False)


@pytest.fixture(scope="session")
def tiny_model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder that vLLM can load."""
    return tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def log_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the output of `engine` goes."""
    return tmp_path_factory.mktemp("engine") / "engine.log"


@pytest.fixture(scope="session")
def engine(tiny_model_dir: Path, log_path: Path) -> Iterator[VllmEngine]:
    """One engine for all tests that leave it alive."""
    engine = VllmEngine.start(tiny_engine.settings(tiny_model_dir, log_path))
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def server(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of one `vllm serve` for all tests that leave it alive."""
    with vllm_serve(tiny_model_dir, tmp_path_factory.mktemp("serve") / "log") as (url, _):
        yield url


@pytest.fixture(scope="session")
def small_memory(
    tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SmallMemory]:
    """One engine with little memory for all tests that leave it empty."""
    with opened_small_memory(tiny_model_dir, tmp_path_factory.mktemp("small")) as engine:
        yield engine
