"""Two replicas of a real vLLM run a job once, through a kill of an actor and of the driver."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from blend.cli.app import main
from blend.store.job import Job
from tests.batch_files import chat, ingested
from tests.blend_process import alive, assert_sound, blend, family, finished
from tests.test_ray import actors
from tests.tiny_engine import wait_until

pytestmark = pytest.mark.vllm

ROWS = 24
WAIT_S = 900.0  # two engines start on few processors, and a third one later
TWO = ["--data-parallel-size", "2"]
# Few slots make answers of some hundred tokens last: there is time to kill.
ENGINE = ["--max-num-seqs", "1", "--kv-cache-memory-bytes", str(64 << 20), "--seed", "0"]


def long_answer(number: int) -> dict[str, Any]:
    return chat(
        f"row-{number}",
        f"Write a short story about the number {number}.",
        temperature=0,
        ignore_eos=True,
        max_tokens=100 + 5 * number,
    )


@pytest.fixture
def job(tmp_path: Path, tiny_model_dir: Path) -> Path:
    path = ingested(
        tmp_path / "batch.blend", [long_answer(row) for row in range(ROWS)], model=tiny_model_dir
    )
    assert main(["plan", str(path), "--no-sample"]) == 0
    return path


def engines(pid: int) -> set[int]:
    """The processes of the family that lead a vLLM."""
    found = set()
    for one in family(pid):
        try:
            if b"blend.core.engines.vllm_host" in Path(f"/proc/{one}/cmdline").read_bytes():
                found.add(one)
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def test_a_job_of_two_replicas_outlives_an_actor_and_its_driver_and_ends_with_one(
    job: Path, tmp_path: Path
) -> None:
    argv = ["execute", str(job), *ENGINE, *TWO]
    with blend(argv, tmp_path / "stderr") as process:

        def answered(rows: int) -> bool:
            assert Path(f"/proc/{process.pid}").exists(), process.stderr
            return finished(job) >= rows

        assert wait_until(lambda: answered(2), timeout_s=WAIT_S), process.stderr
        assert len(engines(process.pid)) == 2
        victim = actors(process.pid)[0]
        started = set(family(process.pid))
        os.kill(victim, signal.SIGKILL)
        assert wait_until(lambda: "its process is gone" in process.stderr, timeout_s=WAIT_S)
        assert wait_until(lambda: answered(4), timeout_s=WAIT_S), process.stderr
        started |= set(family(process.pid))
        os.kill(process.pid, signal.SIGKILL)

        assert wait_until(lambda: not alive(started), timeout_s=WAIT_S)
    assert 4 <= finished(job) < ROWS

    assert main(["execute", str(job), *ENGINE, "--resume"]) == 0

    with Job.open(job) as opened:
        counts = opened.counts()
        assert (counts.answered, counts.failed, counts.running) == (ROWS, 0, 0)
        assert len(list(opened.results())) == ROWS
        assert [run.outcome for run in opened.runs()] == ["killed", "finished"]
    assert_sound(job)
