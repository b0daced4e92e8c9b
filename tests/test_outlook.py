"""What a plan predicts: ways of running the job, each simulated on the same draws."""

import json
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blend.cli.app import main
from blend.core.planning.engine_model import engine_model
from blend.core.planning.guard import candidates_of, choose, outlook_of, plain_schedule
from blend.core.planning.hardware import hardware_preset, model_preset
from blend.core.planning.lengths import Observations
from blend.core.planning.optimum import work_of
from blend.core.planning.outlook import Contender, look_ahead
from blend.core.planning.plan import make_plan
from blend.core.planning.tree import build_tree, shared_within
from blend.core.prompts import Prompts
from blend.store.job import Job
from tests.prompt_sets import prompts_of, token_lists
from tests.simulated_job import large_model_job
from tests.test_blending import classes_of, mixed_job

compiles = pytest.mark.slow  # half a minute and more where the kernels are not compiled yet

ON = {"hardware": hardware_preset("a100-80g"), "model": model_preset("llama-3-8b")}
H200 = ["--hardware", "h200", "--no-sample"]


@given(token_lists, st.data())
def test_rows_share_among_themselves_what_a_tree_of_them_alone_says(token_ids, data) -> None:
    rows = data.draw(st.lists(st.booleans(), min_size=len(token_ids), max_size=len(token_ids)))
    tree = build_tree(prompts_of(token_ids))
    kept, shared = shared_within(tree, np.array(rows))
    alone = build_tree(prompts_of([ids for ids, keep in zip(token_ids, rows, strict=True) if keep]))

    assert tree.lengths[kept].tolist() == alone.lengths.tolist()
    assert shared.tolist() == alone.lcp.tolist()


@given(token_lists, st.data())
def test_the_work_of_some_rows_is_that_of_a_job_of_them_alone(token_ids, data) -> None:
    size = len(token_ids)
    rows = np.array(data.draw(st.lists(st.booleans(), min_size=size, max_size=size)))
    tokens = np.array(data.draw(st.lists(st.integers(1, 9), min_size=size, max_size=size)))
    some = [ids for ids, keep in zip(token_ids, rows, strict=True) if keep]

    part = work_of(build_tree(prompts_of(token_ids)), tokens, rows=rows, **ON)
    alone = work_of(build_tree(prompts_of(some)), tokens[rows], **ON)
    assert part.comp_s == pytest.approx(alone.comp_s)
    assert part.mem_s == pytest.approx(alone.mem_s)
    assert part.longest_tokens == alone.longest_tokens


def orders(prompts: Prompts):
    tree = build_tree(prompts)
    return tree, {
        "fcfs": Contender(plain_schedule(tree, "fcfs", np.arange(len(tree)))),
        "dfs": Contender(plain_schedule(tree, "dfs", tree.rows)),
    }


@compiles
def test_a_draw_that_was_not_run_in_whole_does_not_count() -> None:
    prompts, lengths = mixed_job(200)
    tree, contenders = orders(prompts)
    asked = count()
    found = look_ahead(
        tree,
        engine_model(**ON),
        contenders,
        lambda number: lengths + 50 * number,
        draws=5,
        # One run of the first draw, two of the second, one of the third.
        wanted=lambda: next(asked) < 4,
    )

    assert found.draws == 2
    assert len(found.candidates) == 2
    assert all(one.low_s < one.high_s for one in found.candidates)
    assert found.output_tokens == lengths.sum() + 25 * len(tree)


@compiles
def test_what_is_not_wanted_is_left_out_but_for_the_first() -> None:
    prompts, lengths = mixed_job(200)
    tree, contenders = orders(prompts)
    found = look_ahead(
        tree, engine_model(**ON), contenders, lambda _: lengths, draws=5, wanted=lambda: False
    )

    assert [one.name for one in found.candidates] == ["fcfs"]
    assert found.draws == 1


@compiles
def test_no_candidate_is_faster_than_the_bound_and_ranges_hold_the_mean() -> None:
    prompts, lengths = mixed_job(400)
    tree = build_tree(prompts)
    classes, engine = classes_of(prompts, tree, lengths), engine_model(**ON)
    choice = choose(tree, classes, engine, candidates_of(tree, classes, engine), draws=3)

    assert choice.outlook.draws == 3
    for one in choice.outlook.described():
        assert one["seconds"] >= choice.outlook.bound_s
        assert one["low_s"] <= one["seconds"] <= one["high_s"]
        assert one["low_s"] < one["high_s"]


@compiles
def test_a_plan_is_predicted_for_what_is_left_to_run_and_for_every_sequence() -> None:
    one = prompts_of([[row // 10] * 50 + [row] for row in range(60)], max_tokens=100)
    prompts = Prompts(one.tokens, one.starts, one.max_tokens, 2 * one.sequences)
    tokens = np.full(60, np.nan)
    tokens[:20] = 30.0
    seen = Observations(tokens, ~np.isnan(tokens))
    tree = build_tree(prompts)
    plan = make_plan(prompts, policy="dfs", observations=seen, tree=tree, **ON)
    found = outlook_of(plan, prompts, tree, engine_model(**ON), observations=seen)

    assert found.rows == 2 * 40
    assert found.prompt_tokens == 2 * int(prompts.lengths[20:].sum())
    assert {one.name for one in found.candidates} == {"dfs", "fcfs"}


@pytest.fixture
def job(tmp_path: Path) -> Path:
    return large_model_job(tmp_path / "batch.blend", rows=200)


@compiles
@pytest.mark.parametrize(
    ("policy", "names"),
    [
        ("dfs", {"dfs", "fcfs"}),
        ("fcfs", {"fcfs"}),
        ("blend", {"blend", "fcfs"}),
        (
            "auto",
            {
                "fcfs",
                "dfs",
                "memory-first",
                "blend, unpaced",
                "blend",
                "blend, bold",
                "blend, bolder",
                "memory-first, steps of 256",
                "memory-first, steps of 1024",
            },
        ),
    ],
)
def test_a_plan_keeps_what_it_predicts_and_show_tells_it(
    job: Path, policy: str, names: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", str(job), *H200, "--policy", policy, "--plan-time", "600"]) == 0
    with Job.open(job) as opened:
        plan = opened.plan()
    assert plan is not None
    found = plan.predictions["simulated"]

    assert {one["name"] for one in found["policies"]} == names
    assert found["draws"] == 5
    assert found["requests"] == 200
    fields = {"seconds", "low_s", "high_s", "tokens_s", "sharing", "preemptions", "peak_kv_tokens"}
    for one in found["policies"]:
        assert fields <= one.keys()
        assert 0 < one["bound_share"] <= 1
    capsys.readouterr()
    assert main(["show", str(job)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("policy") and "10-90 %" in line for line in lines)
    assert max(len(line) for line in lines if "|" not in line and str(job) not in line) <= 80
    assert main(["show", str(job), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["plan"]["predictions"]["simulated"] == found


@compiles
def test_every_field_of_a_prediction_is_documented(job: Path) -> None:
    text = (Path(__file__).parent.parent / "docs" / "simulate.md").read_text()
    assert main(["plan", str(job), *H200, "--policy", "dfs", "--plan-time", "600"]) == 0
    with Job.open(job) as opened:
        plan = opened.plan()
    assert plan is not None
    found = plan.predictions["simulated"]

    assert [f for f in [*found, *found["policies"][0]] if f"`{f}`" not in text] == []


@pytest.mark.parametrize("policy", ["paper", "dfs", "random"])
def test_a_plan_without_time_simulates_nothing(job: Path, policy: str) -> None:
    assert main(["plan", str(job), *H200, "--policy", policy, "--plan-time", "0"]) == 0
    with Job.open(job) as opened:
        plan = opened.plan()

    assert plan is not None
    assert plan.predictions["simulated"] is None


@compiles
def test_auto_without_time_still_chooses(job: Path) -> None:
    assert main(["plan", str(job), *H200, "--policy", "auto", "--plan-time", "0"]) == 0
    with Job.open(job) as opened:
        plan = opened.plan()

    assert plan is not None
    assert plan.predictions["simulated"]["policies"]
