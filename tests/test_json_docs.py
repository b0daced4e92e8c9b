"""docs/json.md is the contract of `--json`: each field is told, and each told field is there."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from blend.cli.app import main
from blend.cli.option_names import OPTION_NAMES
from blend.store.job import Job
from tests.measured_job import job_that_ran
from tests.viewed_job import planned_job, viewed_job

DOCUMENT = Path(__file__).parent.parent / "docs" / "json.md"

# Below these keys stand names of others: a body, a vocabulary of reasons; and the settings of a run
# are the options of its engine.
OPEN = {"body", "endpoints", "notes", "reasons", "simulated"}

READERS = (
    "status",
    "show job",
    "show schedule",
    "show tree",
    "show timeline",
    "show request",
    "show rejected",
    "show failures",
)
COMMANDS = {
    "status": ["status", "JOB"],
    "show job": ["show", "JOB"],
    "show schedule": ["show", "JOB", "schedule"],
    "show tree": ["show", "JOB", "tree"],
    "show timeline": ["show", "JOB", "timeline"],
    "show request": ["show", "JOB", "request", "essay-2"],
    "show rejected": ["show", "JOB", "rejected"],
    "show failures": ["show", "JOB", "failures"],
    "check": ["check", "INPUT"],
    "ingest": ["ingest", "INPUT", "--job", "NEW", "--model", "MODEL"],
    "retry": ["retry", "JOB", "--failed", "--dry-run"],
    "config": ["config", "status"],
    "calibrate": ["calibrate", "RAN"],
    "doctor": ["doctor", "JOB"],
}


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer_dir: Path) -> Path:
    path = tmp_path_factory.mktemp("documented") / "batch.blend"
    return viewed_job(path, model=tiny_tokenizer_dir)


def sections() -> dict[str, str]:
    """Return the text below each heading of the document."""
    parts = re.split(r"^## (.*)$", DOCUMENT.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def fields(value: Any) -> set[str]:
    """Return the names of all fields of a JSON value, but for what is open to any name."""
    if isinstance(value, list):
        return {name for one in value[:50] for name in fields(one)}
    if not isinstance(value, dict):
        return set()
    others = OPEN | {"settings"} if "boot_id" in value else OPEN
    inner = (fields(part) for name, part in value.items() if name not in others)
    return set(value).union(*inner)


def printed(job: Path, command: str, capsys: pytest.CaptureFixture[str]) -> Any:
    with Job.open(job) as opened:
        model = str(opened.meta("model"))
    places = {
        "JOB": str(job),
        "INPUT": str(job.with_suffix(".bad.jsonl")),
        "NEW": str(job.with_suffix(".new")),
        "MODEL": model,
        "RAN": str(job.with_suffix(".ran")),
    }
    if command == "calibrate" and not Path(places["RAN"]).exists():
        job_that_ran(Path(places["RAN"]), Path(model))
    capsys.readouterr()
    main([places.get(word, word) for word in COMMANDS[command]] + ["--json"])
    return json.loads(capsys.readouterr().out)


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer_dir: Path) -> Path:
    return planned_job(
        tmp_path_factory.mktemp("planned") / "batch.blend", model=tiny_tokenizer_dir, rows=40
    )


def told_in(command: str) -> set[str]:
    """Return the names that a section of the document names; `show job` has all of `status`."""
    names = [command, "status"] if command == "show job" else [command]
    return {word for name in names for word in re.findall(r"`(\w+)`", sections()[name])}


def test_the_document_tells_of_every_command() -> None:
    assert list(sections()) == list(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_field_is_told_and_every_told_field_is_there(job, command: str, capsys) -> None:
    section = sections()[command]
    told = set(re.findall(r"`(\w+)`", section))
    first_column = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    promised = {name for cell in first_column for name in re.findall(r"`(\w+)`", cell)}
    there = fields(printed(job, command, capsys))
    if command == "show job":  # which has all of `status`
        there -= set(re.findall(r"`(\w+)`", sections()["status"])) - promised

    assert sorted(there - told) == []
    assert sorted(promised - there) == []


@pytest.mark.parametrize("command", READERS)
def test_before_a_run_every_field_is_told_too(planned, command: str, capsys) -> None:
    there = fields(printed(planned, command, capsys))

    assert there
    assert sorted(there - told_in(command)) == []


def test_every_command_that_prints_json_is_in_a_document() -> None:
    printing = {name for name, options in OPTION_NAMES.items() if "json" in options}

    assert printing == {command.split()[0] for command in COMMANDS} | {"simulate"}
