"""A cut: every row in one part, both loads alike, and hardly a prefix computed twice."""

from collections.abc import Sequence
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blend.core.planning.dealing import Dealer, Standing
from blend.core.planning.hardware import hardware_preset, model_preset
from blend.core.planning.interference import TURNS, Interference
from blend.core.planning.lengths import Observations
from blend.core.planning.parts import (
    CUTS,
    CutName,
    Walk,
    cut,
    heaviest_part,
    loads,
    lost_tokens,
    part_of,
    walk_of,
)
from blend.core.planning.plan import make_plan
from blend.core.prompts import Prompts
from blend.core.schedule import LEFT, RIGHT, Policy, Schedule
from tests.drawn_interference import interferences
from tests.prompt_sets import prompts_of, token_lists
from tests.small_jobs import blending
from tests.small_jobs import grouped as grouped_requests

HARDWARE, MODEL = hardware_preset("a100-80g"), model_preset("llama-3-8b")
PARTS = st.integers(1, 5)
POLICIES: Sequence[Policy] = ("paper", "dfs", "memory-first", "fcfs", "random")
lengths = st.lists(st.integers(1, 4000), min_size=14, max_size=14)


def walked(prompts: Prompts, schedule: Schedule) -> Walk:
    return walk_of(
        schedule,
        prompt_tokens=prompts.lengths,
        sequences=prompts.sequences,
        hardware=HARDWARE,
        model=MODEL,
    )


def planned(
    token_ids: Sequence[Sequence[int]], output: Sequence[int], policy: Policy = "paper"
) -> tuple[Prompts, Schedule]:
    """The plan of prompts of which all answers are known."""
    prompts = prompts_of(token_ids, max_tokens=4096)
    tokens = np.array(output[: len(prompts)], np.float64)
    seen = Observations(tokens, np.ones(len(prompts), np.bool_))
    plan = make_plan(
        prompts, policy=policy, hardware=HARDWARE, model=MODEL, observations=seen, kept_sharing=0.99
    )
    return prompts, plan.schedule


def grouped(groups: int, rows: int, *, seed: int = 0) -> tuple[Prompts, Schedule]:
    """Groups of rows that share 512 tokens, beside as many rows of long answers that share none."""
    rng = np.random.default_rng(seed)
    ids: list[list[int]] = []
    for group in range(groups):
        prefix = [group + 1] * 512
        ids += [[*prefix, *rng.integers(1000, 2000, 64).tolist()] for _ in range(rows)]
    ids += [rng.integers(2000, 3000, 64).tolist() for _ in range(groups * rows)]
    output = np.where(np.arange(len(ids)) < groups * rows, 8, 1 + rng.exponential(3000, len(ids)))
    return planned(ids, output.astype(np.int64).tolist())


def oracle_lost(walk: Walk, part: np.ndarray, parts: int) -> int:
    """What each part computes of prompts, row after row, less what the whole does."""
    lcp = walk.tree.lcp

    def computed(positions: Sequence[int]) -> int:
        total = 0
        for before, one in zip([None, *positions], positions, strict=False):
            shared = 0 if before is None else min(lcp[k] for k in range(before + 1, one + 1))
            total += int(walk.tree.lengths[one]) - int(shared)
        return total

    whole = computed(range(len(walk)))
    return sum(computed(np.flatnonzero(part == k).tolist()) for k in range(parts)) - whole


@given(token_lists, lengths, PARTS, st.sampled_from(POLICIES), st.sampled_from(CUTS))
def test_parts_are_a_partition_and_lose_what_a_loop_says(
    token_ids: list[list[int]], output: list[int], parts: int, policy: Policy, how: CutName
) -> None:
    prompts, schedule = planned(token_ids, output, policy)
    walk = walked(prompts, schedule)

    part = cut(walk, parts, how=how)

    assert part.shape == (len(schedule),)
    assert set(part.tolist()) <= set(range(parts))
    assert lost_tokens(walk, part, parts) == oracle_lost(walk, part, parts) >= 0
    of_parts = [part_of(schedule, walk, np.flatnonzero(part == k)) for k in range(parts)]
    assert sorted(np.concatenate([one.order for one in of_parts])) == sorted(schedule.order)
    for one in of_parts:
        place = {row: position for position, row in enumerate(schedule.order.tolist())}
        assert [place[row] for row in one.order] == sorted(place[row] for row in one.order)
        assert (one.uncached_tokens <= prompts.lengths[one.order]).all()


@given(token_lists, lengths, st.sampled_from(POLICIES), st.sampled_from(CUTS))
def test_one_part_is_the_plan_itself(
    token_ids: list[list[int]], output: list[int], policy: Policy, how: CutName
) -> None:
    prompts, schedule = planned(token_ids, output, policy)
    walk = walked(prompts, schedule)

    part = cut(walk, 1, how=how)
    alone = part_of(schedule, walk, np.flatnonzero(part == 0))

    for name in ("order", "side", "expected_tokens", "uncached_tokens", "density"):
        assert getattr(alone, name).tolist() == getattr(schedule, name).tolist()


@given(token_lists, lengths, PARTS)
def test_no_load_is_beyond_a_fair_part_by_more_than_two_of_the_heaviest_rows(
    token_ids: list[list[int]], output: list[int], parts: int
) -> None:
    prompts, schedule = planned(token_ids, output)
    walk = walked(prompts, schedule)
    alone = walk.decode_s + walk.comp_s(np.arange(len(walk))) + walk.prefix_s
    whole = walk.comp_s(np.arange(len(walk))).sum(), walk.mem_s.sum()
    # Both as parts of the whole: a row that is heavy in one weighs on where it stands in the other.
    heaviest = max(alone.max() / whole[0], walk.mem_s.max() / whole[1])

    part = cut(walk, parts)
    comp, mem = loads(walk, part, parts)

    assert (comp / whole[0]).max() <= 1 / parts + 2 * heaviest + 1e-9
    assert (mem / whole[1]).max() <= 1 / parts + 2 * heaviest + 1e-9


@pytest.mark.parametrize("parts", [2, 4, 8])
@pytest.mark.parametrize("how", CUTS)
def test_a_job_of_many_rows_is_cut_evenly_and_keeps_its_sharing(parts: int, how: CutName) -> None:
    prompts, schedule = grouped(groups=40, rows=50)
    walk = walked(prompts, schedule)

    part = cut(walk, parts, how=how)

    assert heaviest_part(walk, part, parts) < 1.03
    assert lost_tokens(walk, part, parts) <= 0.01 * walk.tree.lcp.sum()


def test_a_subtree_that_is_too_heavy_for_a_part_is_split() -> None:
    prompts, schedule = planned([[7] * 300 + [k] * 20 for k in range(40)], [10] * 40)
    walk = walked(prompts, schedule)

    part = cut(walk, 4)

    # The row that computes the prefix for the first part is worth more than one of the others.
    assert sorted(np.bincount(part).tolist())[0] >= 9
    assert lost_tokens(walk, part, 4) == 3 * 300


def test_rows_that_are_read_from_the_right_share_with_the_row_behind() -> None:
    """Of a blended schedule's memory side the last row of a group pays for its prefix."""
    requests = grouped_requests(1, size=4, shared=6, own=4, max_tokens=16)
    schedule = Schedule(
        "blend",
        np.arange(4),
        np.array([LEFT, RIGHT, RIGHT, RIGHT], np.int8),
        np.full(4, 8.0),
        np.array([10, 4, 4, 10]),
        np.ones(4),
        1.0,
        blending(requests),
    )
    walk = walk_of(
        schedule,
        prompt_tokens=np.full(4, 10),
        sequences=np.ones(4, np.int64),
        hardware=HARDWARE,
        model=MODEL,
    )

    assert walk.tree.lcp.tolist() == [0, 0, 6, 6]
    assert part_of(schedule, walk, np.array([1, 2])).uncached_tokens.tolist() == [4, 10]
    part = part_of(schedule, walk, np.array([1, 3]))
    assert part.uncached_tokens.tolist() == [4, 10]
    # The rest may yet take what waits.
    assert part.blending is not None
    assert part.blending.movable


standings = st.lists(st.tuples(st.floats(0, 5), st.floats(0, 5)), min_size=2, max_size=5)


@given(token_lists, lengths, standings, interferences, st.randoms())
def test_dealing_keeps_every_row_and_brings_no_later_end(
    token_ids: list[list[int]],
    output: list[int],
    inside: list[tuple[float, float]],
    interference: Interference,
    random: Random,
) -> None:
    prompts, schedule = planned(token_ids, output)
    walk = walked(prompts, schedule)
    dealer = Dealer(walk, parts=len(inside), interference=interference)
    owner = np.array([random.randrange(len(inside) + 1) for _ in range(len(walk))])
    before = [
        Standing(np.flatnonzero(owner == number), comp_s, mem_s)
        for number, (comp_s, mem_s) in enumerate(inside)
    ]

    dealt = dealer.deal(before)

    after = [
        Standing(dealt.get(number, one.left), one.comp_s, one.mem_s)
        for number, one in enumerate(before)
    ]
    left = np.sort(np.concatenate([one.left for one in before]))
    assert np.sort(np.concatenate([one.left for one in after])).tolist() == left.tolist()
    assert all((np.diff(one.left) > 0).all() for one in after)
    ends = [max(map(dealer.seconds, some)) for some in (before, after)]
    assert ends[1] <= ends[0] * (1 + 1e-9)


def test_a_replica_that_has_nothing_left_gets_half_of_what_another_has() -> None:
    prompts, schedule = grouped(groups=4, rows=50)
    walk = walked(prompts, schedule)
    dealer = Dealer(walk, parts=2, interference=TURNS)
    nothing = np.zeros(0, np.int64)
    before = [Standing(np.arange(len(walk)), 0.0, 0.0), Standing(nothing, 0.0, 0.0)]

    dealt = dealer.deal(before)

    ends = [dealer.seconds(Standing(dealt[number], 0.0, 0.0)) for number in range(2)]
    assert max(ends) == pytest.approx(dealer.seconds(before[0]) / 2, rel=0.05)
