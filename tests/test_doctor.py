"""`blend doctor` finds what would go wrong, says what helps, and touches nothing."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from blend.cli.app import main
from blend.cli.health import disk_check
from blend.core.errors import USAGE
from blend.store.job import Job
from tests.batch_files import ingested, mixed

STATES = {"ok", "warn", "fail"}


def examined(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, dict[str, dict]]:
    capsys.readouterr()
    code = main(["doctor", *map(str, words), "--json"])
    found = json.loads(capsys.readouterr().out)
    states = [check["state"] for check in found["checks"]]
    assert found["state"] == next(one for one in ("fail", "warn", "ok") if one in states)
    assert code == (USAGE if "fail" in states else 0)
    return code, {check["name"]: check for check in found["checks"]}


@pytest.fixture
def job(tmp_path: Path, tiny_tokenizer_dir: Path) -> Path:
    return ingested(tmp_path / "batch.blend", mixed(6), model=tiny_tokenizer_dir)


def test_every_line_has_a_state_and_what_is_not_ok_a_remedy(capsys) -> None:
    _, checks = examined(capsys)

    assert {"python", "vllm", "sqlite", "device", "disk, here", "profile"} <= set(checks)
    assert {check["state"] for check in checks.values()} <= STATES
    assert all(check["remedy"] for check in checks.values() if check["state"] != "ok")


def test_a_sound_job_is_said_to_be_sound(job, capsys) -> None:
    _, checks = examined(capsys, job)

    assert [checks[name]["state"] for name in ("job", "integrity", "at work", "rows")] == ["ok"] * 4
    assert checks["input"]["state"] == "ok"
    assert checks["disk, job"]["state"] == "ok"


def test_nothing_of_the_job_changes(job, capsys) -> None:
    before = job.read_bytes(), sorted(path.name for path in job.parent.iterdir())
    examined(capsys, job)

    assert (job.read_bytes(), sorted(path.name for path in job.parent.iterdir())) == before


def test_no_job_and_no_database_are_failures(tmp_path, capsys) -> None:
    text = tmp_path / "text.blend"
    text.write_text("this is no database, however long the text of it may be" * 30)

    for path in (tmp_path / "none.blend", text):
        code, checks = examined(capsys, path)
        assert code == USAGE
        assert checks["job"]["state"] == "fail"


def test_a_model_that_is_gone_and_one_that_is_another_are_failures(tmp_path, job, capsys) -> None:
    with Job.open(job) as opened:
        opened.set_meta(model_config={"hidden_size": 1})
    assert examined(capsys, job)[1]["model"]["state"] == "fail"
    with Job.open(job) as opened:
        opened.set_meta(model=str(tmp_path / "gone"))
    assert examined(capsys, job)[1]["model"]["state"] == "fail"


def test_an_input_that_changed_is_worth_a_warning(job, capsys) -> None:
    with Job.open(job) as opened:
        (source,) = opened.sources()
    path = Path(source.path)
    text = path.read_text()
    path.write_text(text.replace("0", "1"))
    try:
        assert examined(capsys, job)[1]["input"]["state"] == "warn"
    finally:
        path.write_text(text)


def test_who_is_at_work_is_named_and_nobody_is_disturbed(job, capsys) -> None:
    with Job.open(job) as opened, opened.lock("execute"):
        _, checks = examined(capsys, job)

    assert f"`execute`, process {os.getpid()}" in checks["at work"]["found"]
    assert examined(capsys, job)[1]["at work"]["found"] == "nobody"


def test_rows_of_a_process_that_died_are_found(job, capsys) -> None:
    with Job.open(job) as opened:
        run = opened.begin_run(purpose="execute", engine="sim", settings={})
        opened.start_rows(run, [0])
    _, checks = examined(capsys, job)

    assert checks["at work"]["state"] == "warn"
    assert "blend " in checks["at work"]["remedy"]


def test_a_job_that_is_torn_is_found_damaged(job, capsys) -> None:
    with job.open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(job.stat().st_size - 8192))
    code, checks = examined(capsys, job)

    assert code == USAGE
    assert "fail" in {checks.get(name, {}).get("state") for name in ("job", "integrity")}


def test_a_disk_that_is_too_small_is_a_failure(tmp_path) -> None:
    inside = tmp_path / "not" / "there"

    assert disk_check("d", inside, needed_bytes=1e18, scarce_bytes=1e18).state == "fail"
    assert disk_check("d", inside, needed_bytes=0, scarce_bytes=1e18).state == "warn"
    assert disk_check("d", inside, needed_bytes=0, scarce_bytes=0).state == "ok"


def test_nothing_heavy_is_imported() -> None:
    heavy = "torch transformers vllm numba aiohttp"
    code = (
        "import sys; from blend.cli.app import main; "
        f"main(['doctor']); print(sorted(set({heavy.split()}) & set(sys.modules)))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert ended.stdout.splitlines()[-1] == "[]"


def test_it_reads_without_colour_and_says_how_many(capsys, monkeypatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    main(["doctor"])
    shown = capsys.readouterr()

    assert "python" in shown.out
    assert "checks: " in shown.err
