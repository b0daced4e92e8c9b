"""A job from Python: the same stages as the commands, and nothing printed."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from blend.cli import api
from blend.cli.api import (
    Answer,
    Batch,
    BlendError,
    Interrupt,
    PlanChoices,
    RunLimits,
    drain_on_interrupt,
    engine_options,
)
from blend.cli.app import main

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "python.md").read_text()
ROWS = 24
SIM = engine_options("sim", {"max_num_seqs": 4})


def requests(rows: int = ROWS) -> list[dict[str, object]]:
    return [
        {"custom_id": f"r{n}", "prompt": f"A shared beginning, then {n}", "max_tokens": 8}
        for n in range(rows)
    ]


@pytest.fixture
def batch(tmp_path: Path, tiny_tokenizer_dir: Path) -> Batch:
    batch = Batch(tmp_path / "batch.blend")
    batch.ingest(requests(), model=str(tiny_tokenizer_dir))
    return batch


@pytest.fixture
def planned(batch: Batch) -> Batch:
    batch.plan(SIM, PlanChoices(policy="fcfs", sample_rate=0))
    return batch


def test_a_library_needs_neither_typer_nor_rich() -> None:
    heavy = "typer rich torch transformers vllm numba aiohttp ray pyarrow"
    code = f"import sys, blend.cli.api; print(sorted(set({heavy.split()}) & set(sys.modules)))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert ended.stdout == "[]\n"


def test_the_page_runs_as_written_and_prints_nothing(
    tmp_path: Path,
    tiny_tokenizer_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "llama-3-8b").symlink_to(tiny_tokenizer_dir)
    known: dict[str, object] = {}
    for block in re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE):
        exec(block, known)

    assert (tmp_path / "reviews.jsonl").read_bytes().count(b"\n") == 40
    assert capfd.readouterr() == ("", "")


def test_the_page_names_everything_that_is_public() -> None:
    methods = {name for name in vars(Batch) if not name.startswith("_")}
    missing = [name for name in (*api.__all__, *methods) if f"`{name}" not in PAGE]

    assert missing == []


def test_what_is_public_says_what_it_does() -> None:
    assert [name for name in api.__all__ if not getattr(api, name).__doc__] == []


@pytest.mark.slow  # compiles the kernels where that has not been done
def test_the_example_runs(tmp_path: Path, tiny_tokenizer_dir: Path) -> None:
    command = [sys.executable, ROOT / "examples" / "library.py", tiny_tokenizer_dir, "job.blend"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)

    assert "200 answered, 0 failed" in ended.stdout
    assert ended.stderr == ""


def test_the_example_is_about_forty_lines() -> None:
    lines = (ROOT / "examples" / "library.py").read_text().splitlines()

    assert len([line for line in lines if line.strip()]) <= 45


def test_every_answer_is_told_as_it_arrives_and_can_be_read_later(planned: Batch) -> None:
    told: list[Answer] = []
    shares: list[float] = []
    counts = planned.execute(
        SIM, on_answer=told.append, on_progress=lambda run: shares.append(run.share)
    )

    assert counts.answered == ROWS
    assert sorted(told, key=lambda one: int(one.custom_id[1:])) == list(planned.answers())
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1.0)


def test_a_job_goes_on_in_another_program_or_command(planned: Batch, tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    planned.execute(SIM, RunLimits(rows=5))
    assert main(["execute", str(planned.path), "--resume", "--engine", "sim"]) == 0
    exported = Batch(planned.path).export(output)

    assert exported.results == ROWS == len(output.read_bytes().splitlines())


def test_a_job_is_planned_and_executed_with_one_start_of_the_engine(batch: Batch) -> None:
    told: list[Answer] = []
    counts = batch.run(SIM, PlanChoices(policy="dfs", sample_rate=0.1), on_answer=told.append)

    assert counts.answered == ROWS
    assert sorted(one.custom_id for one in told) == sorted(one.custom_id for one in batch.answers())


def test_whoever_asks_to_stop_gets_what_has_arrived(planned: Batch) -> None:
    stop = Interrupt()

    def stop_soon(_answer: Answer) -> None:
        stop.asked = True

    counts = planned.execute(SIM, on_answer=stop_soon, interrupt=stop)
    assert 0 < counts.answered < ROWS
    assert planned.execute(SIM).answered == ROWS


def test_what_a_callback_raises_ends_the_run_and_costs_no_answer(planned: Batch) -> None:
    told: list[Answer] = []

    def fail(answer: Answer) -> None:
        told.append(answer)
        if len(told) == 3:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        planned.execute(SIM, on_answer=fail)

    assert {one.custom_id for one in told} <= {one.custom_id for one in planned.answers()}
    assert planned.execute(SIM).answered == ROWS


def test_signals_are_handled_only_where_that_is_asked_for(planned: Batch) -> None:
    before = signal.getsignal(signal.SIGINT)
    during: list[object] = []

    def look(_answer: Answer) -> None:
        during.append(signal.getsignal(signal.SIGINT))

    planned.execute(SIM, RunLimits(rows=1), on_answer=look)
    planned.execute(SIM, RunLimits(rows=1), on_answer=look, interrupt=drain_on_interrupt())

    assert during[0] is before
    assert during[1] is not before
    assert signal.getsignal(signal.SIGINT) is before


def test_a_job_that_was_executed_can_be_refused(planned: Batch) -> None:
    planned.execute(SIM, RunLimits(rows=1))

    with pytest.raises(BlendError, match="executed before"):
        planned.execute(SIM, resume=False)


def test_requests_are_values_or_lines_and_bad_ones_have_a_place(
    tmp_path: Path, tiny_tokenizer_dir: Path
) -> None:
    batch = Batch(tmp_path / "mixed.blend")
    good = [{"prompt": "one"}, '{"prompt": "two"}\n', b'{"prompt": "three"}']
    lines = [*good, "not JSON", {"prompt": 4}]
    counts = batch.ingest(lines, model=str(tiny_tokenizer_dir), name="mine")

    assert counts.accepted == 3
    assert [one.custom_id for one in batch.rejected()] == ["mine:4", "mine:5"]
    assert [one.error_code for one in batch.rejected()] == ["not_json", "bad_prompt"]


def test_the_same_requests_again_change_nothing_and_others_are_added(batch: Batch) -> None:
    again = batch.ingest(iter(requests()))
    more = batch.ingest([{"custom_id": "new", "prompt": "new"}])

    assert (again.accepted, again.finished) == (0, ["requests"])
    assert (more.accepted, batch.counts().total) == (1, ROWS + 1)


@pytest.mark.parametrize("request_", [{"prompt": object()}, '{"prompt":\n"two lines"}'])
def test_what_is_no_line_is_refused_with_its_place(batch: Batch, request_: object) -> None:
    with pytest.raises(BlendError, match="requests:2: "):
        batch.ingest([{"prompt": "fine"}, request_])  # type: ignore[list-item]


def test_what_a_server_is_told_is_refused_for_an_engine_of_our_own() -> None:
    with pytest.raises(BlendError, match="is for a server"):
        engine_options("vllm", {"base_url": "http://127.0.0.1:1"})


def test_arguments_have_vllms_names_and_flags_no_value() -> None:
    asked = engine_options("vllm", {"max_num_seqs": 4, "enforce-eager": True, "dtype": None})

    assert dict(asked.arguments) == {"max-num-seqs": "4", "enforce-eager": None}
