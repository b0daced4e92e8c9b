from dataclasses import asdict

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blend.core.planning.hardware import hardware_preset, kv_capacity_tokens, model_preset
from blend.core.planning.lengths import Observations
from blend.core.planning.plan import Plan, make_plan
from blend.core.prompts import Prompts
from blend.core.schedule import LEFT, POLICIES, Policy
from tests.prompt_sets import computed_in_order, prompts_of, shared_prefixes, token_lists

ON = {"hardware": hardware_preset("a100-80g"), "model": model_preset("llama-3-8b")}


def plan_for(prompts: Prompts, policy: Policy = "paper", **options) -> Plan:
    return make_plan(prompts, policy=policy, **ON, **options)


def mixed_job(rows: int = 600, *, seed: int = 0) -> Prompts:
    """Return short answers in three groups, long answers in a fourth, and some of each mixed."""
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, 4, rows)
    long = np.where(rng.random(rows) < 0.02, groups != 3, groups == 3)
    token_ids = shared_prefixes([400] * rows, 420 + rng.integers(0, 200, rows), groups)
    return prompts_of(token_ids, max_tokens=np.where(long, 16_000, 2))


@given(token_lists, st.sampled_from(POLICIES), st.integers(0, 3))
def test_every_policy_orders_every_row_once(token_ids, policy: Policy, seed: int) -> None:
    schedule = plan_for(prompts_of(token_ids), policy, seed=seed).schedule

    assert sorted(schedule.order.tolist()) == list(range(len(token_ids)))
    assert schedule.policy == policy
    for column in (schedule.side, schedule.expected_tokens, schedule.density):
        assert column.shape == (len(token_ids),)
    assert np.isfinite(schedule.density).all()
    assert np.isfinite(schedule.root_density)


@given(token_lists, st.sampled_from(["dfs", "fcfs", "random"]))
def test_uncached_tokens_are_those_the_rows_before_lack(token_ids, policy: Policy) -> None:
    schedule = plan_for(prompts_of(token_ids), policy).schedule

    order = schedule.order.tolist()
    by_hand = computed_in_order(token_ids, order)
    assert schedule.uncached_tokens.tolist() == [by_hand[row] for row in order]


def test_fcfs_keeps_the_file_order_and_random_follows_its_seed() -> None:
    prompts = mixed_job()

    assert plan_for(prompts, "fcfs").schedule.order.tolist() == list(range(600))
    first, again, other = (
        plan_for(prompts, "random", seed=seed).schedule.order.tolist() for seed in (1, 1, 2)
    )
    assert first == again != other


def test_compute_bound_rows_come_first_and_the_sides_meet_once() -> None:
    schedule = plan_for(mixed_job()).schedule

    assert (np.diff(schedule.side) >= 0).all()
    left = schedule.side == LEFT
    assert (schedule.expected_tokens[left] > 2).mean() < 0.01
    assert (schedule.expected_tokens[~left] > 2).mean() > 0.95
    assert schedule.density[0] > schedule.root_density > schedule.density[-1]


def test_only_the_paper_reads_from_both_ends() -> None:
    assert (plan_for(mixed_job(), "dfs").schedule.side == LEFT).all()


def test_the_order_keeps_ninety_nine_per_cent_of_the_sharing() -> None:
    prediction = plan_for(mixed_job()).prediction

    assert prediction.computed_tokens > prediction.best_computed_tokens
    assert prediction.sharing >= 0.99 * prediction.best_sharing


def test_predictions_add_up() -> None:
    prompts = mixed_job()
    plan = plan_for(prompts, "dfs")
    found = plan.prediction

    assert found.prompt_tokens == len(prompts.tokens)
    assert found.computed_tokens == plan.schedule.uncached_tokens.sum()
    assert (
        found.sharing
        == found.best_sharing
        == pytest.approx(1 - found.computed_tokens / found.prompt_tokens)
    )
    assert found.density == pytest.approx(found.comp_s / found.mem_s)
    assert found.overlapped_s >= max(found.comp_s, found.mem_s)
    assert found.sequential_s >= found.comp_s + found.mem_s
    assert found.overlapped_tokens_s > found.sequential_tokens_s


@pytest.mark.parametrize("limit", [300, 16_000])
def test_the_fewest_steps_hold_a_shared_prefix_once(limit: int) -> None:
    rows = 400
    token_ids = shared_prefixes([2_000] * rows, [2_100] * rows, np.arange(rows) % 2)
    plan = plan_for(prompts_of(token_ids, max_tokens=np.full(rows, limit)), "dfs")
    expected = plan.lengths.expected
    held = (100 * expected + expected**2 / 2).sum()

    assert plan.prediction.steps == pytest.approx(
        max(expected.max(), held / kv_capacity_tokens(**ON))
    )


def test_several_sequences_share_their_prompt() -> None:
    one = prompts_of([[1] * 50 + [row] for row in range(20)], max_tokens=500)
    four = Prompts(one.tokens, one.starts, one.max_tokens, 4 * one.sequences)

    single, fourfold = plan_for(one).prediction, plan_for(four).prediction
    assert fourfold.computed_tokens == single.computed_tokens
    assert fourfold.mem_s == pytest.approx(4 * single.mem_s)
    assert fourfold.output_tokens == pytest.approx(4 * single.output_tokens)


def test_what_the_sample_showed_decides_the_side() -> None:
    groups = [row % 2 for row in range(200)]
    prompts = prompts_of(shared_prefixes([300] * 200, [900] * 200, groups), max_tokens=4000)
    tokens = np.full(200, np.nan)
    tokens[:20] = [3000.0 if row % 2 else 3.0 for row in range(20)]

    schedule = plan_for(prompts, observations=Observations(tokens, ~np.isnan(tokens))).schedule

    assert set(schedule.order[schedule.side == LEFT].tolist()) == set(range(0, 200, 2))


def test_a_plan_can_be_written_as_json() -> None:
    plan = plan_for(mixed_job())

    for part in (plan.prediction, plan.settings, plan.outline, plan.split):
        assert orjson.loads(orjson.dumps(part))
    assert asdict(plan.settings)["model"]["name"] == "llama-3-8b"


def test_the_outline_shows_the_costliest_subtrees() -> None:
    plan = plan_for(mixed_job(), "dfs")

    job, *groups = plan.outline
    assert (job.level, job.rows) == (0, 600)
    assert job.computed_tokens == plan.prediction.computed_tokens
    assert [node.prefix_tokens for node in groups] == [400] * 4
    assert sum(node.rows for node in groups) == 600
    assert groups[0].density < 1 < groups[-1].density
    assert [node.mem_s for node in groups] == sorted((n.mem_s for n in groups), reverse=True)


@pytest.mark.parametrize("policy", POLICIES)
def test_an_empty_job_has_an_empty_plan(policy: Policy) -> None:
    plan = plan_for(prompts_of([]), policy)

    assert len(plan.schedule) == 0
    assert plan.outline == ()
    assert plan.prediction.overlapped_s == 0.0
