"""A run on real vLLM keeps its promises, whatever is killed or interrupted and whenever."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from blend.cli.app import main
from blend.core.running.in_flight import WAITING_SEQUENCES
from blend.store.job import Job
from tests.batch_files import chat, completion, read_lines
from tests.blend_process import (
    assert_sound,
    attempts,
    blend,
    counts,
    finished,
    texts,
)
from tests.broken_lines import BROKEN
from tests.tiny_engine import living, wait_until

pytestmark = pytest.mark.vllm

GOOD = 40
SLOTS = 2
CACHE = ["--kv-cache-memory-bytes", str(64 << 20)]
# Few slots make answers of a few hundred tokens last: there is time to kill.
ENGINE = ["--max-num-seqs", str(SLOTS), *CACHE]
SHOTS = "The following are multiple choice questions (with answers) about history. " * 20


def good_request(number: int) -> dict[str, Any]:
    """One of eight kinds: short and long, greedy and seeded, of one sequence and of two."""
    name, greedy = f"good-{number}", {"temperature": 0}
    long = {"ignore_eos": True, "max_tokens": 100 + 5 * number}
    question = f"Write a short story about the number {number}."
    match number % 8:
        case 0:
            return chat(name, question, **greedy, **long)
        case 2:
            return chat(name, question, temperature=1, seed=number, **long)
        case 4:
            return completion(name, [question, f"The sea {number}"], **greedy, **long)
        case 6:
            return chat(name, question, temperature=1, seed=number, n=2, **long)
        case 7:
            return completion(name, question, **greedy, **long)
        case _:
            return completion(name, f"{SHOTS}Question {number}: A or B?", **greedy, max_tokens=2)


REQUESTS = [good_request(number) for number in range(GOOD)]
IDS = [request["custom_id"] for request in REQUESTS]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 good lines with 14 differently broken ones between them."""
    lines = [json.dumps(request) for request in REQUESTS]
    for index, line in enumerate(BROKEN.values()):
        lines.insert(5 + 3 * index, line)
    path = tmp_path_factory.mktemp("requests") / "mixed.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


@dataclass(frozen=True)
class Undisturbed:
    """What a run that nobody disturbs leaves."""

    folder: Path
    exit_code: int
    stderr: str
    lines: Sequence[dict[str, Any]]
    told_before_start: bool


def run_command(source: Path, folder: Path, model: Path) -> list[object]:
    return ["run", "-i", source, "-o", folder / "out.jsonl", "-m", model]


@pytest.fixture(scope="module")
def undisturbed(
    source: Path, tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Undisturbed:
    folder = tmp_path_factory.mktemp("undisturbed")
    command = [*run_command(source, folder, tiny_model_dir), *CACHE, "--pacing", "step-budget"]
    with blend(command, folder / "stderr") as process:
        assert wait_until(lambda: "duplicate custom_id" in process.stderr)
        begun = (folder / "out.blend.engine.log").exists()
        code = process.exit_code()
        lines = read_lines(folder / "out.jsonl")
        return Undisturbed(folder, code, process.stderr, lines, told_before_start=not begun)


def test_every_good_line_has_one_sensible_result_in_input_order(undisturbed: Undisturbed) -> None:
    assert [line["custom_id"] for line in undisturbed.lines] == IDS
    for request, line in zip(REQUESTS, undisturbed.lines, strict=True):
        asked, body = request["body"], line["response"]["body"]
        sequences = 2 if "n" in asked or isinstance(asked.get("prompt"), list) else 1
        usage = body["usage"]

        assert line["error"] is None
        assert line["response"]["status_code"] == 200
        assert [choice["finish_reason"] for choice in body["choices"]] == ["length"] * sequences
        assert usage["completion_tokens"] == sequences * asked["max_tokens"]
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
        assert all(texts(line))


def test_prompts_with_a_seed_are_not_cut_into_steps_on_a_cpu(undisturbed: Undisturbed) -> None:
    log = (undisturbed.folder / "out.blend.engine.log").read_text()

    assert undisturbed.stderr.count("the engine sets no budget for each step") == 1
    assert "not on a CPU with requests that have a seed: --scheduler-cls" in log


def test_broken_lines_are_told_with_their_place_before_the_engine_starts(
    undisturbed: Undisturbed, source: Path
) -> None:
    lines = source.read_text().splitlines()
    errors = read_lines(undisturbed.folder / "out.errors.jsonl")

    assert undisturbed.exit_code == 3
    assert undisturbed.told_before_start
    assert len(errors) == len(BROKEN) == 14
    for reason, text in BROKEN.items():
        place = f"{source}:{len(lines) - lines[::-1].index(text)}:"
        told = [line for line in undisturbed.stderr.splitlines() if line.startswith(place)]
        assert len(told) == 1
        assert told[0].removeprefix(place).partition(":")[0].isdigit()
        assert f": {reason}: " in told[0]


def assert_as_undisturbed(output: Path, undisturbed: Undisturbed) -> None:
    """Every row is there once, and greedy answers are what they would have been."""
    lines = read_lines(output)
    assert [line["custom_id"] for line in lines] == IDS
    for request, line, expected in zip(REQUESTS, lines, undisturbed.lines, strict=True):
        if not request["body"]["temperature"]:
            assert texts(line) == texts(expected)


def test_whatever_is_killed_nothing_is_lost_doubled_or_left_behind(
    source: Path, undisturbed: Undisturbed, tiny_model_dir: Path, tmp_path: Path
) -> None:
    """With the first results, at the start of an engine, in the middle of the schedule."""
    job = tmp_path / "out.blend"
    command = [*run_command(source, tmp_path, tiny_model_dir), *ENGINE]

    with blend(command, tmp_path / "1") as process:
        process.wait_for_results(job, 1)
        process.kill("blend")
        assert process.exit_code() == -9
    lost = [counts(job).running]
    assert_sound(job)

    with blend(command, tmp_path / "2") as process:
        process.host()
        process.kill("both")
        assert process.exit_code() == -9
    assert counts(job).running == lost[0]

    with blend(command, tmp_path / "3") as process:
        assert wait_until(lambda: planned(job)), process.stderr
        process.wait_for_results(job, 3)
        process.kill("host")
        # Lines were rejected; every good one has its result.
        assert process.exit_code() == 3
        assert "its process is gone: another engine starts" in process.stderr
    lost.append(attempts(job) - GOOD - lost[0])

    assert_as_undisturbed(tmp_path / "out.jsonl", undisturbed)
    assert_sound(job)
    # Waiting ones count, and results of less than a second.
    assert max(lost) <= SLOTS + WAITING_SEQUENCES + GOOD // 2
    assert attempts(job) - GOOD == sum(lost)
    with Job.open(job) as opened:
        runs = opened.runs()
    outcomes = [(run.purpose, run.outcome) for run in runs]
    assert not any(living(run.engine_pid) for run in runs if run.engine_pid)
    # What is sampled is for the plan to say; a sample may have ended just before the kill.
    assert outcomes[0] in {
        ("sample", "killed"),
        ("sample", "finished"),
        ("sample", "handed on"),
        ("execute", "killed"),
    }
    assert outcomes[-2:] == [("execute", "engine died"), ("execute", "finished")]


def planned(job: Path) -> bool:
    with Job.open(job) as opened:
        return opened.plan() is not None


def test_others_look_in_on_a_job_at_work_and_ctrl_c_drains_or_stops_it(
    source: Path, tiny_model_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job, part = tmp_path / "stages.blend", tmp_path / "part.jsonl"
    assert main(["ingest", str(source), "--job", str(job), "-m", str(tiny_model_dir)]) == 3
    assert main(["plan", str(job), "--no-sample"]) == 0

    with blend(["execute", job, *ENGINE], tmp_path / "1") as process:
        process.wait_for_results(job, 1)
        # However slow the looks are, it is not through before the interrupt.
        with process.stopped():
            capsys.readouterr()
            assert main(["execute", str(job), "--resume"]) == 5
            assert f"process {process.pid} on" in capsys.readouterr().err
            assert main(["status", str(job)]) == main(["show", str(job), "schedule"]) == 0
            assert main(["export", str(job), "-o", str(part)]) == 0
            assert 0 < len(read_lines(part)) < GOOD
            process.interrupt()
        assert process.exit_code() == 4
        assert f"blend execute {job} --resume" in process.stderr
    drained = finished(job)
    assert attempts(job) == drained < GOOD

    with blend(["execute", job, "--resume", *ENGINE], tmp_path / "2") as process:
        process.wait_for_results(job, 1)
        # However late that is seen, it has not drained before the second interrupt.
        with process.engine_stopped():
            process.interrupt()
            assert wait_until(lambda: "stopping" in process.stderr)
            process.interrupt()
            assert process.exit_code() == 130
    assert finished(job) > drained
    assert counts(job).running == 0
    assert_sound(job)
