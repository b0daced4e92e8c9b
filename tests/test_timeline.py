"""The timeline of a run leaves nothing out, whatever the pace of the engine's reports."""

from contextlib import suppress
from pathlib import Path

import pytest

from blend.core.engines import StepReport
from blend.store.timeline import Timeline
from tests.filled_job import answer, filled_job


def report(row: int, *, seconds: float) -> StepReport:
    return StepReport((answer(row),), 3, 2, 96, 1, 10, 4, 6, 0, seconds)


@pytest.mark.parametrize(("seconds", "lines"), [(0.02, 4), (1.0, 10), (30.0, 10)])
def test_the_lines_add_up_to_what_was_reported_and_a_short_run_has_some_too(
    tmp_path: Path, seconds: float, lines: int
) -> None:
    with filled_job(tmp_path / "batch.blend", rows=10) as job:
        run = job.begin_run(purpose="execute", engine="sim", settings={})
        with Timeline(job, run) as timeline:
            for row in range(10):
                timeline.add(report(row, seconds=seconds))
        saved = job.steps(run)

    assert len(saved) == lines
    assert sum(step.answered for step in saved) == 10
    assert sum(step.prefill_tokens for step in saved) == 100
    assert saved[-1].seconds == pytest.approx(10 * seconds)
    assert {(step.running, step.waiting, step.kv_tokens) for step in saved} == {(3, 2, 96)}


def test_an_interrupt_does_not_cost_the_line_that_has_begun(tmp_path: Path) -> None:
    with filled_job(tmp_path / "batch.blend", rows=1) as job:
        run = job.begin_run(purpose="execute", engine="sim", settings={})
        with suppress(KeyboardInterrupt), Timeline(job, run) as timeline:
            timeline.add(report(0, seconds=0.1))
            raise KeyboardInterrupt

        assert [step.answered for step in job.steps(run)] == [1]
