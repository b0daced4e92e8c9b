"""Test files that share a costly engine run in one process, which starts it once."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.side_by_side import TOGETHER

FOLDER = Path(__file__).parent


def functions(path: Path) -> Iterator[ast.FunctionDef]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return (one for one in tree.body if isinstance(one, ast.FunctionDef))


def arguments(function: ast.FunctionDef) -> set[str]:
    return {argument.arg for argument in function.args.args + function.args.kwonlyargs}


def decorated(function: ast.FunctionDef) -> str:
    return " ".join(ast.unparse(one) for one in function.decorator_list)


def engines_of_a_session() -> set[str]:
    """The fixtures for all files that load the weights of the tiny model."""
    return {
        one.name
        for one in functions(FOLDER / "conftest.py")
        if "session" in decorated(one) and "tiny_model_dir" in arguments(one)
    }


def asked_for(path: Path, engines: set[str]) -> set[str]:
    """Those of *engines* that a test or a fixture of a file asks for."""
    of_file = list(functions(path))
    asking = [one for one in of_file if one.name.startswith("test_") or "fixture" in decorated(one)]
    asked = {name for one in asking for name in arguments(one) if f"'{name}'" not in decorated(one)}
    return asked & engines - {one.name for one in of_file}


def test_files_that_share_an_engine_are_in_one_group() -> None:
    engines = engines_of_a_session()
    groups: dict[str, set[str | None]] = {engine: set() for engine in engines}
    for path in FOLDER.glob("test_*.py"):
        for engine in asked_for(path, engines):
            groups[engine].add(TOGETHER.get(path.name))

    assert groups == {"engine": {"engine"}, "server": {"engine"}, "small_memory": {"small memory"}}


def test_no_file_is_listed_that_is_not_there() -> None:
    assert not [name for name in TOGETHER if not (FOLDER / name).is_file()]
