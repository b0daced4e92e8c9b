"""No run of a job, however it is cut into steps, takes less than its bounds."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blend.core.engines import Capacity
from blend.core.planning.engine_model import MODES, EngineModel, Mode
from blend.core.planning.hardware import Hardware, ModelShape, Parallel, several
from blend.core.planning.interference import Interference, at_once_s
from blend.core.planning.optimum import (
    Work,
    bound_s,
    fewest_steps,
    practical_optimum_s,
    sequential_bound_s,
    work_of,
)
from blend.core.planning.tree import build_tree
from tests.drawn_interference import interferences
from tests.prompt_sets import Trie, prompts_of, token_lists

HARDWARE = Hardware(
    "card",
    flops=1e6,
    bandwidth_bytes_s=1e3,
    memory_bytes=1e6,
    link_bytes_s=1e2,
    link_start_s=0.05,
)
MODEL = ModelShape(
    "model",
    parameters=1e3,
    active_parameters=1e3,
    layers=1,
    hidden=10,
    kv_bytes_per_token=7.0,
    weight_bytes=2e3,
    activation_bytes=10.0,
)
seconds = st.floats(0.0, 1e3)
step_lists = st.lists(st.tuples(seconds, seconds), min_size=1, max_size=20)


def work_in_steps(steps: list[tuple[float, float]], *, capacity: int) -> Work:
    """Return the work of steps whose memory seconds are that many tokens read."""
    comp, mem = (sum(column) for column in zip(*steps, strict=True))
    return Work(comp, mem, held_token_steps=mem, longest_tokens=min(len(steps), capacity))


def common_tokens(first: list[int], second: list[int]) -> int:
    pairs = zip(first, second, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


@given(token_ids=token_lists, data=st.data())
def test_work_is_counted_as_steps_do_it(token_ids: list[list[int]], data: st.DataObject) -> None:
    n = len(token_ids)
    answers = data.draw(st.lists(st.integers(1, 9), min_size=n, max_size=n))
    sequences = data.draw(st.lists(st.integers(1, 3), min_size=n, max_size=n))

    tree = build_tree(prompts_of(token_ids))
    two = several(HARDWARE, Parallel(2))
    found, shared = (
        work_of(tree, np.array(answers), hardware=one, model=MODEL, sequences=np.array(sequences))
        for one in (HARDWARE, two)
    )

    reads, held, decoded = 0, 0, 0
    for row, (ids, answer, times) in enumerate(zip(token_ids, answers, sequences, strict=True)):
        others = token_ids[:row] + token_ids[row + 1 :]
        alone = len(ids) - max((common_tokens(ids, other) for other in others), default=0)
        for step in range(1, answer):
            reads += times * (len(ids) + step)
            held += alone + times * step
            decoded += times
    assert found.held_token_steps == held
    assert found.mem_s == pytest.approx(reads * 7.0 / 1e3)
    assert found.longest_tokens == max(answers)
    computed = Trie.of(token_ids).tokens() + decoded
    assert found.network_s == 0.0
    assert shared.network_s == pytest.approx(2 * 10.0 / 1e2 * computed)
    products = 2e3 * (Trie.of(token_ids).tokens() + decoded) / 1e6
    assert found.comp_s >= products * (1 - 1e-9)
    assert found.comp_s == pytest.approx(products, abs=1.01 * n * 4 * 10 * 6**2 / 1e6)


@given(steps=step_lists, interference=interferences)
def test_no_overlapped_run_beats_the_practical_optimum(
    steps: list[tuple[float, float]], interference: Interference
) -> None:
    taken = sum(at_once_s(*step, interference=interference) for step in steps)

    bound = practical_optimum_s(work_in_steps(steps, capacity=1), interference=interference)
    assert bound <= taken * (1 + 1e-9)


@given(steps=step_lists, weights=seconds, overhead=seconds)
def test_no_sequential_run_beats_its_bound(
    steps: list[tuple[float, float]], weights: float, overhead: float
) -> None:
    capacity = max(1, *(int(mem) + 1 for _, mem in steps))
    taken = sum(max(comp, weights) + mem + overhead for comp, mem in steps)

    bound = sequential_bound_s(
        work_in_steps(steps, capacity=len(steps)),
        weights_s=weights,
        capacity_tokens=capacity,
        step_overhead_s=overhead,
    )
    assert bound <= taken * (1 + 1e-9)


def test_a_perfect_run_meets_the_bounds() -> None:
    work = Work(comp_s=8.0, mem_s=4.0, held_token_steps=400.0, longest_tokens=3.0)

    assert practical_optimum_s(work, interference=Interference(0.25)) == 9.0
    assert fewest_steps(work, capacity_tokens=100) == 4.0
    assert sequential_bound_s(work, weights_s=1.0, capacity_tokens=100) == 12.0
    assert sequential_bound_s(work, weights_s=3.0, capacity_tokens=100) == 16.0
    assert sequential_bound_s(work, weights_s=3.0, capacity_tokens=100, step_overhead_s=0.5) == 18.0


@given(
    steps=st.lists(
        st.tuples(st.integers(0, 50), st.integers(0, 20), st.integers(0, 90), st.integers(0, 500)),
        min_size=1,
    ),
    mode=st.sampled_from(MODES),
    shared_bandwidth=st.booleans(),
    overhead_s=st.floats(0.0, 1.0),
    devices=st.integers(1, 3),
    interference=interferences,
)
def test_no_run_of_an_engine_beats_its_bound(
    steps: list[tuple[int, int, int, int]],
    mode: Mode,
    shared_bandwidth: bool,
    overhead_s: float,
    devices: int,
    interference: Interference,
) -> None:
    # The last of each: reads of prefixes that are held once and that several rows share.
    engine = EngineModel(
        Capacity(90, max_sequences=20, step_tokens=70, context_tokens=90, block_tokens=1),
        several(HARDWARE, Parallel(devices)),
        MODEL,
        mode,
        interference=interference,
        overhead_s=overhead_s,
        attention=False,
        shared_bandwidth=shared_bandwidth,
    )
    held = sum(tokens for _, _, tokens, _ in steps)
    read = held + sum(again for *_, again in steps)
    computed = sum(prefill + decode for prefill, decode, _, _ in steps)
    work = Work(
        engine.token_s * computed,
        engine.read_s * read,
        float(held),
        longest_tokens=len(steps),
        network_s=engine.network_token_s * computed,
    )

    taken = sum(engine.step_s(prefill, decode, sum(reads)) for prefill, decode, *reads in steps)

    assert bound_s(work, engine) <= taken * (1 + 1e-9)
    if mode == "overlapped":
        assert practical_optimum_s(work, interference=interference) <= taken * (1 + 1e-9)


def test_a_small_job_waits_for_its_longest_answer() -> None:
    work = Work(comp_s=1.0, mem_s=1.0, held_token_steps=10.0, longest_tokens=1000.0)

    assert fewest_steps(work, capacity_tokens=100) == 1000.0
    assert sequential_bound_s(work, weights_s=0.01, capacity_tokens=100) == pytest.approx(11.0)


def test_attention_can_be_left_out_of_the_work() -> None:
    tree = build_tree(prompts_of([[1, 2, 3], [1, 2, 4]]))

    found = work_of(tree, np.array([1, 1]), hardware=HARDWARE, model=MODEL, attention=False)

    assert found.comp_s == pytest.approx(2e3 * 4 / 1e6)
