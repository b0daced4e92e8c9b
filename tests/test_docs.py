"""The documentation says what is there, and nothing else."""

import fnmatch
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from blend.cli.app import blend_app
from blend.cli.commands import COMMANDS, command_function
from blend.cli.settings import opposite, settable

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
ARCHITECTURE = ROOT / "docs" / "architecture.md"

MACHINE_PATH = re.compile(r"(?<![\w.~:/-])/(?:home|root|work|Users|mnt|media)/\w")
# Of vLLM, by `--engine-arg` or from a plan; `--help` is no parameter.
OPTIONS_OF_OTHERS = {
    "--help",
    "--enable-metrics",
    "--enable-prompt-tokens-details",
    "--long-prefill-token-threshold",
    "--max-num-scheduled-tokens",
}
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def project_files() -> Iterator[Path]:
    """Yield the files of the project that .gitignore does not name."""
    ignored = [".git", *(line.strip("/") for line in (ROOT / ".gitignore").read_text().split())]
    folders = [ROOT]
    while folders:
        for path in sorted(folders.pop().iterdir()):
            if any(fnmatch.fnmatch(path.name, pattern) for pattern in ignored):
                continue
            if path.is_dir() and not path.is_symlink():
                folders.append(path)
            elif path.is_file():
                yield path


def documents() -> list[Path]:
    return [path for path in project_files() if path.suffix == ".md"]


def commands() -> dict[str, str | None]:
    """Return the help of every command of `blend`, by name."""
    group = typer.main.get_command(blend_app(list(COMMANDS)))
    return {name: command.help for name, command in group.commands.items()}  # type: ignore[attr-defined]


def anchors(document: Path) -> set[str]:
    """Return the anchors that GitHub gives the headings of *document*."""
    headings = re.findall(r"^#+ (.*)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_the_readme_table_names_every_command_and_no_other() -> None:
    table = re.findall(r"^\| `blend (\w+)", README.read_text(), re.MULTILINE)

    assert sorted(table) == sorted(commands())


def test_every_command_has_help() -> None:
    helpless = [name for name, text in commands().items() if not text]

    assert helpless == []


def test_the_readme_fits_on_a_few_screens() -> None:
    assert len(README.read_text().splitlines()) <= 120


def test_make_targets_that_the_docs_name_exist() -> None:
    named = {
        target
        for document in documents()
        for target in re.findall(r"(?:`|^\$? ?)make ([a-z-]+)", document.read_text(), re.MULTILINE)
    }

    assert named
    assert named <= make_targets()


def test_every_module_has_its_line_in_the_architecture_document() -> None:
    text = ARCHITECTURE.read_text()
    named = set(re.findall(r"^\| `((?:cli|core|store)/[\w./]+)` \|", text, re.MULTILINE))
    present = {
        path.relative_to(ROOT).as_posix()
        for top in ("cli", "core", "store")
        for pattern in ("*.py", "*.sql")
        for path in (ROOT / top).rglob(pattern)
        # A package file without code has nothing to say.
        if path.name != "__init__.py" or "def " in path.read_text() or "class " in path.read_text()
    }

    assert sorted(present - named) == []
    assert sorted(named - present) == []


@pytest.mark.parametrize("document", documents(), ids=lambda p: p.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(document: Path) -> None:
    broken = []
    for link in LINK.findall(document.read_text()):
        target, _, anchor = link.partition("#")
        path = document.parent / target if target else document
        if re.match(r"https?://", link):
            continue
        if not path.exists() or (anchor and anchor not in anchors(path)):
            broken.append(link)

    assert broken == []


def test_no_file_names_a_path_of_somebodys_machine() -> None:
    named = []
    for path in project_files():
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            continue
        found = [
            f"{path.relative_to(ROOT)}:{n}"
            for n, x in enumerate(lines, 1)
            if MACHINE_PATH.search(x)
        ]
        named += found

    assert named == []


def test_the_job_format_document_names_every_table_and_no_other() -> None:
    scripts = "\n".join(path.read_text() for path in (ROOT / "store").glob("*.sql"))
    created = set(re.findall(r"^CREATE (?:TABLE|VIEW) (\w+)", scripts, re.MULTILINE))
    document = (ROOT / "docs" / "job-format.md").read_text()
    named = re.findall(r"^\| `(\w+)` \|", document, re.MULTILINE)

    assert sorted(named) == sorted(created)


def test_files_that_the_docs_name_exist() -> None:
    pattern = re.compile(
        r"`((?:cli|core|store|benchmarks|tests|typings|docs|examples|scripts)/[\w./-]*)`"
    )
    missing = [
        f"{document.relative_to(ROOT)}: {name}"
        for document in documents()
        for name in pattern.findall(document.read_text())
        if not (ROOT / name).exists()
    ]

    assert missing == []


def test_options_that_the_docs_name_exist() -> None:
    group = typer.main.get_command(blend_app(list(COMMANDS)))
    taken = {
        name
        for command in (group, *group.commands.values())  # type: ignore[attr-defined]
        for option in command.params
        for name in option.opts
    }
    taken |= {
        str(opposite(option))
        for command in group.commands.values()  # type: ignore[attr-defined]
        for option in settable(command)
    }
    unknown = [
        f"{document.relative_to(ROOT)}: {name}"
        for document in documents()
        for name in re.findall(r"`(--[a-z][a-z-]*)", document.read_text())
        if name not in taken | OPTIONS_OF_OTHERS
    ]

    assert unknown == []


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_is_its_docstring(name: str) -> None:
    docstring = command_function(COMMANDS[name]).__doc__ or ""

    assert docstring.splitlines()[0] == COMMANDS[name].help


def test_help_and_looking_in_import_nothing_heavy() -> None:
    heavy = "torch transformers vllm numba aiohttp blend.core.planning.plan"
    for words in (["--help"], ["show", "--help"], ["status", "--help"], ["check", "--help"]):
        code = (
            "import sys; from blend.cli.app import main; "
            f"main({words}); print(sorted(set({heavy.split()}) & set(sys.modules)))"
        )
        ended = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        assert ended.stdout.splitlines()[-1] == "[]"
