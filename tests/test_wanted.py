"""When enough answers of a sample have been seen to make a plan."""

from pathlib import Path

import numpy as np
import pytest

from blend.cli.planning import CLASS_MINIMUM, PlanOptions, WarmUp, warm_up_of
from blend.core.planning.hardware import hardware_preset, model_preset
from blend.core.planning.tree import build_tree
from blend.core.planning.wanted import WantedAnswers
from blend.core.schedule import PolicyChoice
from blend.store.job import Job
from tests.filled_job import answer, filled_job
from tests.prompt_sets import prompts_of


def wanted_of(*, minimum: int) -> WantedAnswers:
    """Return what is wanted of two kinds of rows: 10 of the first are sampled, 3 of the other."""
    prompts = prompts_of(
        [[kind, row] for kind in (1, 2) for row in range(40)],
        max_tokens=np.repeat([64, 4_096], 40),
    )
    sampled = np.zeros(80, np.bool_)
    sampled[:10] = sampled[40:43] = True
    return WantedAnswers(build_tree(prompts), prompts, sampled, minimum=minimum)


def test_so_many_of_every_cohort_are_waited_for() -> None:
    wanted = wanted_of(minimum=3)

    for row in range(10):
        wanted.see(row)
    assert wanted  # nothing is known of the other kind
    for row in (40, 41):
        wanted.see(row)
    assert wanted
    wanted.see(42)
    assert not wanted


def test_of_a_cohort_with_fewer_all_are() -> None:
    wanted = wanted_of(minimum=8)

    for row in (*range(8), 40, 41):
        wanted.see(row)
    assert wanted
    wanted.see(42)
    assert not wanted


def test_one_answer_counts_once_and_one_out_of_the_sample_never() -> None:
    wanted = wanted_of(minimum=2)

    for row in (0, 0, 30, 41, 41, 60):
        wanted.see(row)
    assert wanted
    wanted.see(1)
    wanted.see(40)
    assert not wanted


def test_without_a_sample_nothing_is_wanted() -> None:
    prompts = prompts_of([[row] for row in range(4)], max_tokens=64)

    assert not WantedAnswers(build_tree(prompts), prompts, np.zeros(4, np.bool_), minimum=30)


def warm_up(job: Job, policy: PolicyChoice) -> WarmUp:
    """Return the warm-up of a job, all rows of which are sampled."""
    prompts = job.prompts()
    device, model = hardware_preset("a100-80g"), model_preset("llama-3-8b")
    options = PlanOptions(policy, device, model, sample_rate=1.0)
    return warm_up_of(job, prompts, build_tree(prompts), options)


@pytest.mark.parametrize(
    ("policy", "enough"),
    [
        ("paper", 100),
        ("dfs", 100),
        ("memory-first", 100),
        pytest.param("blend", CLASS_MINIMUM, marks=pytest.mark.slow),  # compiles the kernels
        pytest.param("auto", CLASS_MINIMUM, marks=pytest.mark.slow),
    ],
)
def test_only_a_plan_that_blends_does_with_a_part_of_the_sample(
    tmp_path: Path, policy: PolicyChoice, enough: int
) -> None:
    with filled_job(tmp_path / "a.blend", rows=100) as job:
        wanted = warm_up(job, policy).wanted

    seen = 0
    while wanted:
        wanted.see(seen)
        seen += 1
    assert seen == enough


@pytest.mark.slow  # compiles the kernels
def test_what_an_interrupted_warm_up_has_seen_is_not_waited_for_again(tmp_path: Path) -> None:
    with filled_job(tmp_path / "a.blend", rows=100) as job:
        run = job.begin_run(purpose="sample", engine="sim", settings={})
        job.record(run, [answer(row) for row in range(CLASS_MINIMUM - 1)])
        ahead = warm_up(job, "blend")

    assert len(ahead.sampled) == 100 - (CLASS_MINIMUM - 1)
    assert ahead.wanted
    ahead.wanted.see(CLASS_MINIMUM)
    assert not ahead.wanted
