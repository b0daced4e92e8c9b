"""What `blend` says: every error with a remedy, every option with help, and no traceback ever."""

import ast
import re
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from blend.cli.app import main
from blend.cli.commands import COMMANDS
from blend.cli.config import every_command
from tests.batch_files import ingested, mixed, write_requests
from tests.viewed_job import viewed_job

ROOT = Path(__file__).parent.parent
ERRORS = {"BlendError", "DiskFullError"}
NAMES = ("SQLite", "JSON", "Parquet", "UTF-8", "GPU", "KV", "HTTP", "Ctrl-C")
"""What may begin with a capital letter."""


def calls(*names: str) -> Iterator[tuple[str, ast.Call]]:
    """Yield every call of these names in the program, with its place."""
    for top in ("cli", "core", "store"):
        for path in sorted((ROOT / top).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and ast.unparse(node.func) in names:
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", node


def written(node: ast.expr | None) -> list[str]:
    """Return the texts that an expression can be, values in them as `{}`."""
    match node:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.JoinedStr():
            return ["".join(p.value if isinstance(p, ast.Constant) else "{}" for p in node.values)]
        case ast.IfExp():
            return written(node.body) + written(node.orelse)
        case ast.BinOp():
            return written(node.left)
        case _:
            return []


def of_keyword(node: ast.Call, name: str) -> ast.expr | None:
    return next((one.value for one in node.keywords if one.arg == name), None)


def test_every_error_says_what_helps() -> None:
    without = [
        place
        for place, call in calls(*ERRORS)
        if of_keyword(call, "hint") is None or ast.unparse(of_keyword(call, "hint")) == "None"
    ]

    assert without == []


def test_messages_begin_small_and_end_without_a_stop() -> None:
    said = [
        (place, text)
        for place, call in calls(
            *ERRORS, "err.print", "warn", "out.print", "logger.info", "logger.warning"
        )
        for argument in (*call.args[:1], of_keyword(call, "hint"))
        for text in written(argument)
    ]
    wrong = [
        (place, text)
        for place, text in said
        if (text[:1].isupper() and not text.startswith(NAMES))
        or (text.endswith(".") and not text.endswith("…"))
    ]

    assert len(said) > 100
    assert wrong == []


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_help_and_every_command_an_example(name: str) -> None:
    command = every_command()[name]
    helpless = [one.name for one in command.params if not getattr(one, "help", None)]
    example = COMMANDS[name].example

    assert helpless == []
    assert command.help
    assert example.startswith(f"blend {name}")
    assert command.epilog == f"Example: {example}"


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_can_be_read_on_eighty_columns(
    name: str, capsys, monkeypatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([name, "--help"]) == 0
    text = capsys.readouterr().out
    options = [one for param in every_command()[name].params for one in param.opts]
    longest = max(len(panel) for panel in re.split(r"╭─ (?!Arguments)", text))

    assert [one for one in options if one.startswith("-") and one not in text] == []
    assert max(map(len, text.splitlines())) <= 80
    assert longest < 45 * 80


def test_options_that_many_commands_share_stand_in_panels() -> None:
    for name in ("run", "plan", "execute"):
        command = every_command()[name]
        panels = [getattr(one, "rich_help_panel", None) for one in command.params]

        assert panels.count(None) <= 8
        assert {"Engine", "Engine: trouble", "Display"} <= set(panels)


@pytest.fixture
def clumsy(tmp_path: Path, tiny_tokenizer_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with a job, and with much that is none."""
    monkeypatch.chdir(tmp_path)
    write_requests(tmp_path / "in.jsonl", mixed(4))
    ingested(tmp_path / "job.blend", mixed(4), model=tiny_tokenizer_dir)
    shutil.copytree(tiny_tokenizer_dir, tmp_path / "broken")
    (tmp_path / "broken" / "config.json").write_text("{")
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "empty.blend").touch()
    (tmp_path / "text.blend").write_text("a text\n" * 100)
    (tmp_path / "out.jsonl").write_text("{}\n" * 100)
    (tmp_path / "out.blend").touch()
    (tmp_path / "damaged.gz").write_bytes(b"\x1f\x8bnonsense")
    shutil.copy(tmp_path / "job.blend", tmp_path / "newer.blend")
    with sqlite3.connect(tmp_path / "newer.blend") as sql:
        sql.execute("PRAGMA user_version = 999")
    sql.close()
    (tmp_path / "cut.blend").write_bytes((tmp_path / "job.blend").read_bytes()[:5000])
    return tmp_path


MISTAKES = [
    ("plan", "argument missing: `JOB`", "blend plan --help"),
    ("pln job.blend", "no such command: `blend pln`", "did you mean `blend plan`?"),
    ("plan job.blend --polcy x", "no such option: `--polcy`", "did you mean `--policy`?"),
    ("plan job.blend --config x", "no such option: `--config`", "before the command"),
    ("plan job.blend more", "one word too many: `more`", "blend plan --help"),
    ("plan job.blend --seed", "option `--seed` needs a value behind it", "blend plan --help"),
    ("plan job.blend --seed 1.5", "`--seed` must be a whole number: 1.5", "--help"),
    ("plan job.blend --seed -1", "`--seed` must be at least 0: -1", "--help"),
    ("plan job.blend --sample-rate x", "`--sample-rate` must be a number: x", "--help"),
    ("plan job.blend --sample-rate 2", "`--sample-rate` must be at most 1: 2", "--help"),
    ("plan job.blend --policy x", "`--policy` must be one of auto, paper, blend", "--help"),
    ("plan job.blend --no-sample=1", "option `--no-sample` does not take a value", "--help"),
    ("plan job.blend --hardware x", "unknown hardware: x", "known: "),
    ("plan job.blend --engine openai", "needs the address of a server", "`--base-url`"),
    ("plan job.blend --engine sim --max-model-len 7", "--max-model-len` is 7", "leave it out"),
    ("run -i in.jsonl", "option missing: `--output` / `-o`", "blend run --help"),
    ("run -i no.jsonl -o o.jsonl -m broken", "no such file: no.jsonl", "taken from "),
    ("run -i in.jsonl -o folder -m broken", "is a directory: folder", "name a file in it"),
    ("run -i in.jsonl -o - -m broken", "leave no place for the job", "add `--job JOB`"),
    ("check folder", "not a file but a directory: folder", "folder/*.jsonl"),
    ("check n*.jsonl", "no file matches: n*.jsonl", "check the pattern"),
    ("check damaged.gz", "damaged.gz is truncated or corrupt", "make the file again"),
    ("ingest in.jsonl -j new.blend", "a new job needs a model", "`--model`"),
    ("ingest in.jsonl -j new.blend -m folder", "not a model folder: folder", "Hugging Face"),
    ("ingest in.jsonl -j new.blend -m ./none", "no such model folder: ./none", "give a folder"),
    ("ingest in.jsonl -j new.blend -m broken", "cannot load the tokenizer of ", "whole"),
    ("ingest empty.jsonl -j new.blend -m broken", "no request to ingest", '{"prompt": "'),
    ("ingest in.jsonl -j folder", "job is a directory: folder", "such as batch.blend"),
    ("ingest in.jsonl -j text.blend -m broken", "not a job: text.blend", "`blend ingest`"),
    ("status none.blend", "no such job: none.blend", "make it with `blend ingest"),
    ("status folder", "job is a directory: folder", "such as batch.blend"),
    ("status empty.blend", "job is empty: empty.blend", "fill it with `blend ingest"),
    ("status text.blend", "not a job: text.blend", "made by `blend ingest`"),
    ("status out.jsonl", "not a job: out.jsonl", "did you mean out.blend?"),
    ("status newer.blend", "written by a newer blend: newer.blend: format 999", "--upgrade"),
    ("status cut.blend", "job is damaged: cut.blend", "save what is left"),
    ("show job.blend tree", "the job has no plan yet", "`blend plan job.blend`"),
    ("show job.blend nothing", "`what` must be one of job, schedule", "blend show --help"),
    ("show job.blend request none", "has the custom_id: none", "names some"),
    ("execute job.blend", "the job has no plan yet", "`blend plan job.blend`"),
    ("export job.blend -o in.jsonl", "the output exists: in.jsonl", "`--overwrite`"),
    ("export job.blend -o none/o.jsonl", "no such directory: ", "mkdir -p "),
    ("export job.blend -o o --errors o", "would share one file", "`--errors`"),
    ("retry job.blend --reason x", "no request failed for this reason: x", "blend status"),
    ("retry job.blend --truncated --failed", "`--truncated` chooses answers", "once for each"),
    ("simulate job.blend --policy x", "unknown policy: x", "known: all, "),
    ("execute job.blend --max-time x", "`--max-time` is no duration: x", "1h30m"),
    ("config x", "no such command: x", "commands are run, "),
]


def test_a_clumsy_user_is_told_what_is_wrong_and_what_helps(clumsy, capsys) -> None:
    assert clumsy.is_dir()
    for words, message, hint in MISTAKES:
        capsys.readouterr()
        code = main(words.split())
        said = capsys.readouterr().err
        wrong, _, helps = said.partition("\nhint: ")

        assert code in (2, 6), words
        assert f"error: {wrong.rpartition('error: ')[2]}" in said, words
        assert message in wrong.rpartition("error: ")[2], (words, said)
        assert hint in helps, (words, said)


def test_a_file_without_a_line_is_told(clumsy, capsys) -> None:
    assert main(["check", "empty.jsonl"]) == 0
    assert "no line to check in empty.jsonl" in capsys.readouterr().err
    assert clumsy.is_dir()


def test_status_and_show_have_one_table_of_what_went_wrong(
    tmp_path, tiny_tokenizer_dir, capsys
) -> None:
    job = str(viewed_job(tmp_path / "batch.blend", model=tiny_tokenizer_dir))
    said = {}
    for words in (("status", job), ("show", job, "failures"), ("show", job, "rejected")):
        capsys.readouterr()
        assert main(list(words)) == 0
        said[words[-1]] = capsys.readouterr().out.splitlines()

    causes, reasons = (re.split(r"  +", said[view][0].strip()) for view in ("failures", "rejected"))
    assert causes == ["rows", "status", "for example", "why they failed"]
    assert reasons == ["lines", "why they were rejected", "first at"]
    assert set(said["failures"][:2]) <= set(said[job])
    assert set(said["rejected"][:2]) <= set(said[job])


def test_the_status_of_a_finished_run_points_at_its_report(
    tmp_path, tiny_tokenizer_dir, capsys, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_requests(tmp_path / "in.jsonl", mixed(4))
    words = ["run", "-i", "in.jsonl", "-o", "out.jsonl", "-m", str(tiny_tokenizer_dir)]
    assert main([*words, "--engine", "sim", "--no-sample", "--policy", "fcfs"]) == 0
    capsys.readouterr()

    assert main(["status", "out.blend"]) == 0
    assert "results in `out.jsonl`" in (said := capsys.readouterr().out)
    assert "`blend report out.blend`" in said


def test_without_vllm_the_user_is_told_what_to_install(
    clumsy, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blend.core.engines.vllm_version.find_spec", lambda _name: None)

    assert main(["plan", str(clumsy / "job.blend")]) == 2
    said = capsys.readouterr().err
    assert "error: vLLM is not installed\nhint: `pip install 'blend-batch[gpu]'`" in said
