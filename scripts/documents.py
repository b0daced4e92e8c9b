"""Write into the documents what they quote of the program: its help, and what it prints.

usage: python -m scripts.documents (`make docs`)

Two comments mark what is quoted; a test holds that it is what the program says today.
`<!-- help: plan -->` stands before the help of a command. `<!-- session -->` stands before a block
whose lines with `$` are run, one block after another, in a folder of their own: on the simulated
engine, so that anyone can repeat it.
"""

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import typer

from blend.cli import console
from blend.cli.app import blend_app, main
from blend.cli.commands import COMMANDS

ROOT = Path(__file__).parent.parent
COMMAND_PAGES = ROOT / "docs" / "commands"
HELP_WIDTH = 90
SESSION_WIDTH = 80

# In the order in which their session runs: each goes on where the one before has ended.
SESSION = (
    *(
        COMMAND_PAGES / f"{name}.md"
        for name in (
            "check", "ingest", "simulate", "plan", "execute", "status", "show",
            "retry", "report", "export", "run", "config",
        )
    ),
    ROOT / "examples" / "README.md",
)  # fmt: skip

# Said when something takes long, as where the kernels are compiled.
_WAITING = re.compile(
    r"^(?:simulated \d+ of \d+ runs|(?:sample|execute): [\d,]+/[\d,]+ done .*)\n", re.MULTILINE
)
_TIME = re.compile(r"\d[\d.]* (µs|ms|s|min|h)\b")
_HELP = re.compile(r"(<!-- help: (\S+) -->\n```text\n)(.*?)(```)", re.DOTALL)
_BLOCK = re.compile(r"(<!-- session -->\n```console\n)(.*?)(\n```)", re.DOTALL)


def with_help(text: str) -> str:
    """Return a document with the help of every command that it quotes as it is now."""
    return _HELP.sub(lambda found: found[1] + help_of(found[2]) + "\n" + found[4], text)


def help_of(name: str) -> str:
    """Return what `blend NAME --help` says, without its frames and colours."""
    group = typer.main.get_command(blend_app(list(COMMANDS)))
    command = group.commands[name]  # type: ignore[attr-defined]
    command.rich_markup_mode = None
    context = command.context_class(
        command,
        info_name=f"blend {name}",
        terminal_width=HELP_WIDTH,
        help_option_names=["-h", "--help"],
    )
    return "\n".join(line.rstrip() for line in command.get_help(context).strip().split("\n"))


def blocks(text: str) -> list[str]:
    """Return the sessions that a document quotes: commands with what they print."""
    return [found[2] for found in _BLOCK.finditer(text)]


def with_blocks(text: str, printed: list[str]) -> str:
    """Return a document with its sessions replaced, each by the next one of *printed*."""
    following = iter(printed)
    return _BLOCK.sub(lambda found: found[1] + next(following) + found[3], text)


@contextlib.contextmanager
def session_folder() -> Iterator[Path]:
    """Stay in a fresh folder beside the examples."""
    with tempfile.TemporaryDirectory(prefix="documents-") as name:
        folder = Path(name)
        (folder / "examples").symlink_to(ROOT / "examples")
        with contextlib.chdir(folder), _narrow():
            yield folder


def replayed(block: str) -> str:
    """Return a session as it is played now, or as it was where nothing but times differ."""
    now = played(block)
    return block if _TIME.sub("", now) == _TIME.sub("", block) else now


def played(block: str) -> str:
    """Run the commands of a session and return it anew, with what each of them printed."""
    commands = re.findall(r"^\$ ((?:.*\\\n)*.*)$", block, re.MULTILINE)
    return "\n".join(f"$ {command}\n{printed(command)}".rstrip() for command in commands)


def printed(command: str) -> str:
    """Return what a command prints, stdout and stderr as a terminal shows them."""
    words = shlex.split(command, comments=True)
    # A pipe or a file needs a shell; the rest saves the start of a process.
    if words[0] != "blend" or {"|", ">", ">>"} & set(words):
        return _shell(command)
    stream = io.StringIO()
    with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
        code = main(words[1:])
    if code not in (0, 3, 4):
        raise RuntimeError(f"`{command}` exits with {code}:\n{stream.getvalue()}")
    return _tidy(stream.getvalue())


def _shell(command: str) -> str:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    ended = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=True,
        encoding="utf-8",
        env=os.environ | {"PATH": path, "COLUMNS": str(SESSION_WIDTH)},
    )
    return _tidy(ended.stdout)


def _tidy(text: str) -> str:
    folder = f"{Path.cwd()}/"
    text = _WAITING.sub("", text)
    return "\n".join(line.rstrip() for line in text.replace(folder, "").strip("\n").split("\n"))


@contextlib.contextmanager
def _narrow() -> Iterator[None]:
    consoles = (console.out, console.err)
    widths = [one.width for one in consoles]
    for one in consoles:
        one.width = SESSION_WIDTH
    try:
        yield
    finally:
        for one, width in zip(consoles, widths, strict=True):
            one.width = width


def documents() -> list[Path]:
    """Return the documents that may quote the program."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), SESSION[-1]]


def write() -> None:
    """Bring all documents up to date."""
    for path in documents():
        path.write_text(with_help(path.read_text()))
    with session_folder():
        for path in SESSION:
            text = path.read_text()
            path.write_text(with_blocks(text, [replayed(block) for block in blocks(text)]))


if __name__ == "__main__":
    write()
