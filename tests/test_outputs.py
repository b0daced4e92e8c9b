"""An export destroys nothing that it was not asked to write, and says why it would not."""

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from blend.cli.app import main
from blend.store.job import Job
from tests.batch_files import mixed, planned, read_lines

ROWS = 6


@pytest.fixture(scope="module")
def finished_job(tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer_dir: Path) -> Path:
    path = tmp_path_factory.mktemp("finished") / "batch.blend"
    planned(path, mixed(ROWS), model=tiny_tokenizer_dir)
    assert main(["execute", str(path), "--engine", "sim"]) == 0
    return path


@pytest.fixture
def job(tmp_path: Path, finished_job: Path) -> Path:
    return Path(shutil.copy(finished_job, tmp_path / "batch.blend"))


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", ".lock"])
@pytest.mark.parametrize("option", ["--output", "--errors"])
def test_the_job_is_never_overwritten(job: Path, suffix: str, option: str) -> None:
    outputs = {"--output": str(job.with_name("out.jsonl"))} | {option: f"{job}{suffix}"}
    arguments = [word for pair in outputs.items() for word in pair]

    assert main(["export", str(job), *arguments, "--overwrite"]) == 2
    with Job.open(job) as opened:
        assert len(opened) == ROWS


def test_run_refuses_an_output_that_would_be_its_job(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text('{"prompt": "x"}\n')
    output = tmp_path / "out.blend"

    assert main(["run", "-i", str(source), "-o", str(output), "-m", str(tmp_path)]) == 2
    assert not output.exists()


def test_a_pipe_is_written_through_and_not_replaced(job: Path) -> None:
    pipe = job.with_name("pipe")
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()

    assert main(["export", str(job), "-o", str(pipe)]) == 0
    reader.join(10)
    assert pipe.is_fifo()
    assert len(read[0].splitlines()) == ROWS


def test_a_link_goes_on_pointing_to_the_file_that_is_replaced(job: Path) -> None:
    target, link = job.with_name("target.jsonl"), job.with_name("link.jsonl")
    target.write_text("old\n")
    link.symlink_to(target)

    assert main(["export", str(job), "-o", str(link)]) == 2
    assert target.read_text() == "old\n"
    assert main(["export", str(job), "-o", str(link), "--overwrite"]) == 0
    assert link.is_symlink()
    assert len(read_lines(target)) == ROWS


@pytest.mark.parametrize("output", [".", "..", "/"])
def test_a_folder_is_no_output(job: Path, output: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(job), "-o", output]) == 2
    assert "is a directory" in capsys.readouterr().err


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="needs a device that is full")
def test_a_full_disk_is_said_with_the_code_for_going_on(job: Path) -> None:
    # As stdout, never by its name: what this guards against would replace the device.
    command = [sys.executable, "-m", "blend.cli.app", "status", str(job)]
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)

    assert ended.returncode == 4
    assert b"No space left" in ended.stderr
    assert b"Traceback" not in ended.stderr


def test_names_that_are_not_utf8_work_from_end_to_end(
    tmp_path: Path, tiny_tokenizer_dir: Path
) -> None:
    folder = os.fsencode(tmp_path)
    source, output = (os.fsdecode(folder + name) for name in (b"/in\xff.jsonl", b"/out\xfe.jsonl"))
    Path(source).write_text('{"prompt": "one"}\n{"prompt": "two", "custom_id": "b"}\nbad\n')
    command = ["run", "-i", source, "-o", output, "-m", str(tiny_tokenizer_dir)]
    command += ["--engine", "sim", "--hardware", "a100-80g"]
    job = str(Path(output).with_suffix(".blend"))

    assert main(["check", source, "--json"]) == 3
    assert main(command) == 3
    assert main(command) == 3
    assert len(read_lines(Path(output))) == 2
    assert main(["status", job, "--json"]) == 0
    assert main(["show", job, "request", os.fsdecode(b"\xff")]) == 2


def test_what_a_killed_export_left_is_removed_by_the_next(job: Path) -> None:
    output = job.with_name("out.jsonl")
    # No process has this number: pids are smaller.
    left = output.with_name("out.jsonl.partial-99999999")
    left.write_text("half")
    running = output.with_name(f"out.jsonl.partial-{os.getppid()}")
    running.write_text("another export")

    assert main(["export", str(job), "-o", str(output)]) == 0
    assert not left.exists()
    assert running.exists()


def test_a_terminal_that_knows_only_ascii_ends_no_command(job: Path) -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "blend.cli.app", "show", str(job), "schedule"],
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=True,
    )

    assert b"density" in shown.stdout
