"""What the documents quote of the program is what it says, and what they tell to type works."""

import ast
import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
import typer

from blend.cli.app import blend_app, main
from blend.cli.commands import COMMANDS
from scripts.documents import (
    COMMAND_PAGES,
    SESSION,
    blocks,
    played,
    session_folder,
    with_help,
)
from tests.test_docs import ROOT, documents

QUICKSTART = ROOT / "docs" / "quickstart.md"
HOW_IT_WORKS = ROOT / "docs" / "how-it-works.md"
PICTURES = ROOT / "docs" / "pictures"

STALE = "{} is out of date: `make docs`, and look at what it changes"
BEFORE_A_SIMULATION = {"check", "ingest", "simulate"}
compiles = pytest.mark.slow  # half a minute and more where the kernels are not compiled yet

FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
AMOUNT = re.compile(r"\d[\d.,]*( (?:µs|ms|s|min|h)\b)*")
# What the quickstart downloads; the tests have a tokenizer and no weights.
MODELS = {"demo/model", "Qwen/Qwen2.5-7B-Instruct"}


def prose(text: str) -> str:
    return FENCED.sub("", text)


def typed_lines(text: str) -> Iterator[str]:
    """Yield each line that the console blocks of a document tell to type, continued ones whole."""
    for language, block in FENCED.findall(text):
        if language == "console":
            for line in re.findall(r"^\$ ((?:.*\\\n)*.*)$", block, re.MULTILINE):
                yield line.replace("\\\n", " ")


def shell_commands(text: str) -> Iterator[list[str]]:
    """Yield the words of each command that the console blocks of a document tell to type."""
    for line in typed_lines(text):
        yield from split_at_operators(shlex.split(line, comments=True))


def split_at_operators(words: list[str]) -> Iterator[list[str]]:
    command: list[str] = []
    for word in words:
        if word in {"|", "&&", ">", ">>", "||", ";"}:
            yield command
            command = []
        else:
            command.append(word)
    yield command


def blend_commands(document: Path) -> list[list[str]]:
    """Return the words after `blend` of all its commands that a document tells to type."""
    commands = [words for words in shell_commands(document.read_text()) if words]
    return [words[1:] for words in commands if words[0].rpartition("/")[2] == "blend"]


def click_commands() -> dict[str, typer.core.TyperCommand]:
    return typer.main.get_command(blend_app(list(COMMANDS))).commands  # type: ignore[attr-defined]


def without_amounts(text: str) -> str:
    """Return a text without what differs from machine to machine: times, and how lines break."""
    return " ".join(AMOUNT.sub("N", text).split())


@pytest.mark.parametrize("document", documents(), ids=lambda p: p.relative_to(ROOT).as_posix())
def test_quoted_help_is_that_of_the_command(document: Path) -> None:
    text = document.read_text()

    assert with_help(text) == text, STALE.format(document.name)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_page_with_words_an_example_and_its_help(name: str) -> None:
    page = COMMAND_PAGES / f"{name}.md"

    assert page.exists(), f"write docs/commands/{name}.md, then `make docs`"
    text = page.read_text()
    assert text.startswith(f"# blend {name}\n")
    assert len(prose(text).split()) >= 40
    assert name in [words[0] for words in blend_commands(page)]
    assert f"<!-- help: {name} -->\n```text\nUsage: blend {name}" in text
    assert f"]({name}.md)" in (COMMAND_PAGES / "README.md").read_text()


def test_no_page_is_of_a_command_that_is_not_there() -> None:
    pages = {page.stem for page in COMMAND_PAGES.glob("*.md")} - {"README"}

    assert pages == set(COMMANDS)


def test_every_option_has_help() -> None:
    helpless = [
        f"{name} {option.opts[-1]}"
        for name, command in click_commands().items()
        for option in command.params
        if not getattr(option, "help", None)
    ]

    assert helpless == []


def test_an_engine_that_is_simulated_takes_its_options_as_one_that_runs() -> None:
    shown = {
        name: {
            option.opts[0]: (option.rich_help_panel, option.help, option.metavar, option.opts)  # type: ignore[attr-defined]
            for option in click_commands()[name].params
            if getattr(option, "rich_help_panel", None)
        }
        for name in ("execute", "simulate")
    }
    both = set(shown["execute"]) & set(shown["simulate"])

    assert len(both) >= 7
    assert {name: shown["simulate"][name] for name in both} == {
        name: shown["execute"][name] for name in both
    }


def assert_played_as_shown(pages: Iterable[Path]) -> None:
    with session_folder():
        played("$ python examples/make_model.py llama-3-8b")
        for document in pages:
            for block in blocks(document.read_text()):
                assert without_amounts(played(block)) == without_amounts(block), STALE.format(
                    document.name
                )


def test_commands_print_what_their_pages_show() -> None:
    pages = [page for page in SESSION if page.parent == COMMAND_PAGES]
    assert_played_as_shown(page for page in pages if page.stem != "simulate")


def test_examples_print_what_their_page_shows() -> None:
    assert_played_as_shown(page for page in SESSION if page.parent != COMMAND_PAGES)


@compiles
def test_a_simulation_prints_what_its_page_shows() -> None:
    assert_played_as_shown(page for page in SESSION if page.stem in BEFORE_A_SIMULATION)


@compiles
def test_the_quickstart_works_as_typed(capsys: pytest.CaptureFixture[str]) -> None:
    ran = []
    with session_folder() as folder:
        (folder / "demo").mkdir()
        for line in typed_lines(QUICKSTART.read_text()):
            name, *words = shlex.split(line, comments=True)
            if name == "python":
                played(f"$ {line}".replace(" 2000 ", " 60 "))
            if name == "blend":
                words = ["llama-3-8b" if word in MODELS else word for word in words]
                if words[0] in {"run", "plan", "execute"} and "--engine" not in words:
                    words += ["--engine", "sim"]
                ran.append(words[0])

                assert main(words) == 0, f"{words}: {capsys.readouterr().err}"

    assert {"check", "run", "report", "status", "export"} <= set(ran)


@pytest.mark.parametrize("document", documents(), ids=lambda p: p.relative_to(ROOT).as_posix())
def test_commands_that_the_documents_show_are_understood(document: Path) -> None:
    commands = click_commands()
    for name, *words in blend_commands(document):
        if not name.startswith("-"):
            commands[name].make_context(name, words)


def test_options_that_the_documents_name_with_their_command_exist() -> None:
    commands = click_commands()
    unknown = []
    for document in documents():
        for code in re.findall(r"`blend (\w[^`]*)`", prose(document.read_text())):
            name, *words = code.split()
            if name.isupper():  # stands for any command
                continue
            taken = {opt for param in commands[name].params for opt in param.opts}
            unknown += [
                f"{document.name}: {code}"
                for word in words
                if word.startswith("--") and word.partition("=")[0] not in {*taken, "--help"}
            ]

    assert unknown == []


def definitions(path: Path) -> set[str]:
    """Return the names of functions, classes and their methods that a module defines."""
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{n.name}" for n in node.body if isinstance(n, ast.FunctionDef)}
    return names


def test_functions_and_tests_that_explain_the_scheduler_exist() -> None:
    text = HOW_IT_WORKS.read_text()
    functions = re.findall(r"`((?:planning|running|kernels|engines)\.\w+)\.([\w.]+)`", text)
    tests = re.findall(r"`(test_\w+)\.(test_\w+)`", text)
    missing = [
        f"{module}.{name}"
        for module, name in functions
        if name not in definitions(ROOT / "core" / f"{module.replace('.', '/')}.py")
    ]
    missing += [
        f"{module}.{name}"
        for module, name in tests
        if name not in definitions(ROOT / "tests" / f"{module}.py")
    ]

    assert len(functions) > 20
    assert len(tests) > 15
    assert missing == []


def test_every_document_is_reached_from_the_readme() -> None:
    reached, todo = set(), [ROOT / "README.md"]
    while todo:
        document = todo.pop().resolve()
        if document in reached or document.suffix != ".md":
            continue
        reached.add(document)
        links = re.findall(r"\]\(([^)\s#]+)", document.read_text())
        todo += [document.parent / link for link in links if not link.startswith("http")]

    assert {path.resolve() for path in documents()} - reached == set()


def test_pictures_are_small_and_shown_with_words_for_who_cannot_see_them() -> None:
    shown = {}
    for document in documents():
        for words, target in re.findall(r"!\[([^\]]*)\]\(([^)\s]+)\)", document.read_text()):
            shown[(document.parent / target).resolve()] = words
    pictures = sorted(PICTURES.iterdir())

    assert {"report.png", "run.svg", "schedule.svg", "tree.svg"} <= {path.name for path in pictures}
    for path in pictures:
        assert path.stat().st_size <= 200_000, path.name
        assert len(shown[path.resolve()]) > 30, path.name
        if path.suffix == ".svg":
            # All that an SVG may ask of the network is the name of its language.
            addresses = re.findall(r"https?://[^\"' ]+", path.read_text())
            assert set(addresses) == {"http://www.w3.org/2000/svg"}
