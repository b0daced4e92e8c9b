"""What Tab completes, as the shells ask for it."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from blend.cli.app import main
from tests.batch_files import chat, ingested, mixed


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer_dir: Path) -> Path:
    """A folder with jobs and other files, which no test changes."""
    path = tmp_path_factory.mktemp("completed")
    (path / "deep").mkdir()
    (path / "deep" / "other.blend").touch()
    (path / "notes.txt").touch()
    requests = [*mixed(6), chat("odd one", "hi"), chat("choice'", "ho")]
    ingested(path / "batch.blend", requests, model=tiny_tokenizer_dir)
    return path


@pytest.fixture
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: that one."""
    monkeypatch.chdir(folder)
    return folder


def bash(monkeypatch, capsys, line: str) -> list[str]:
    """Return what bash is offered for the last word of *line*."""
    monkeypatch.setenv("_BLEND_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
    return asked(capsys).split()


def zsh(monkeypatch, capsys, line: str) -> list[str]:
    """Return what zsh is offered for the last word of *line*."""
    monkeypatch.delenv("COMP_WORDS", raising=False)
    monkeypatch.setenv("_BLEND_COMPLETE", "complete_zsh")
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", line)
    said = asked(capsys)
    if said.strip() == "_files":
        return ["_files"]
    return re.findall(r'^(?:_arguments \'\*: :\(\()?"(.*?)"(?=[:)\n]|$)', said, re.MULTILINE)


def asked(capsys) -> str:
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main([])
    return capsys.readouterr().out


SHELLS = pytest.mark.parametrize("shell", [bash, zsh])


@SHELLS
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("blend pl", {"plan"}),
        ("blend status ", {"batch.blend"}),
        ("blend status ./b", {"./batch.blend"}),
        ("blend status deep/", {"deep/other.blend"}),
        ("blend ingest in.jsonl --job b", {"batch.blend"}),
        ("blend plan batch.blend --pol", {"--policy"}),
        ("blend plan batch.blend --policy d", {"dfs"}),
        ("blend plan batch.blend --policy memory", {"memory-first"}),
        ("blend simulate batch.blend --policy dfs,fc", {"dfs,fcfs"}),
        ("blend plan batch.blend --hardware h200", {"h200", "h200-nvl"}),
        ("blend show batch.blend tr", {"tree"}),
        ("blend show batch.blend request choice-", {"choice-1", "choice-3", "choice-5"}),
        ("blend config re", {"retry", "report"}),
    ],
)
def test_the_last_word_becomes_what_it_can(here, monkeypatch, capsys, shell, line, offered) -> None:
    assert here.is_dir()
    assert set(shell(monkeypatch, capsys, line)) == offered


@SHELLS
@pytest.mark.parametrize(
    "line",
    [
        "blend status no",
        "blend status gone/",
        "blend show batch.blend request odd",
        "blend show notes.txt request x",
        "blend show none.blend request x",
        "blend show batch.blend tree x",
    ],
)
def test_what_is_not_known_is_left_to_the_shell(here, monkeypatch, capsys, shell, line) -> None:
    assert here.is_dir()
    assert shell(monkeypatch, capsys, line) in ([], ["_files"])


def test_a_broken_settings_file_does_not_hinder(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "blend.toml").write_text("polcy = 1")

    assert bash(monkeypatch, capsys, "blend pl") == ["plan"]


def test_bash_completes_with_what_was_installed(tmp_path) -> None:
    """The whole way: installed for this shell, read by the next one, asked by Tab."""
    blend = Path(sys.executable).with_name("blend")
    shell = shutil.which("bash")
    if not blend.exists() or not shell:
        pytest.skip("no bash, or blend is not installed as a command")
    paths = f"{blend.parent}:{os.environ['PATH']}"
    environment = os.environ | {"HOME": str(tmp_path), "PATH": paths}
    script = (
        "blend --install-completion && source ~/.bashrc && "
        "COMP_WORDS=(blend pl) COMP_CWORD=1 && "
        '_blend_completion blend && echo "offered: ${COMPREPLY[*]}"'
    )
    ended = subprocess.run(
        [shell, "--norc", "-c", script], env=environment, capture_output=True, text=True, check=True
    )

    assert "offered: plan" in ended.stdout
    assert (tmp_path / ".bash_completions" / "blend.sh").is_file()
