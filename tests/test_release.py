"""What `make release-check` types, and where an installation keeps what it compiles."""

import os
import re
import tomllib
from pathlib import Path

import pytest

from scripts.quickstart_commands import commands

ROOT = Path(__file__).parent.parent


def test_the_quickstart_has_commands_for_who_has_the_wheel_alone() -> None:
    found = commands((ROOT / "docs" / "quickstart.md").read_text())

    assert any(line.startswith("blend run ") and "--engine sim" in line for line in found)
    assert not any("pip" in line or "make " in line for line in found)


def test_compiled_kernels_lie_beside_their_source_or_in_the_users_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from blend.core.kernels.compiled import cache_folder

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    beside = Path(cache_folder(tmp_path))
    monkeypatch.setattr(os, "access", lambda *_: False)

    assert beside.parent == tmp_path / "__pycache__"
    assert Path(cache_folder(tmp_path)) == tmp_path / "cache" / "blend" / "kernels" / beside.name


def test_the_audit_asks_about_all_that_we_choose_and_says_why_it_leaves_something_out() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    script = (ROOT / "scripts" / "audit").read_text()
    (installed,) = re.findall(r"install '\.\[(.*)\]'", script)
    (exceptions,) = re.findall(r"^EXCEPTIONS=\((.*?)\)", script, re.MULTILINE | re.DOTALL)
    told = (ROOT / "docs" / "releasing.md").read_text().partition("## Audit")[2]

    # vLLM pins what it brings; the others never leave our own machines.
    assert {*project["optional-dependencies"]} - {*installed.split(",")} == {"gpu", "paper", "dev"}
    assert [one for one in exceptions.split() if one not in told] == []
