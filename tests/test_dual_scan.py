"""The dual scan blends both ends of a schedule in the proportion that the densities ask for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blend.core.engines import Capacity
from blend.core.engines.sim import SimEngine
from blend.core.request import Request
from blend.core.running.dual_scan import DualScanner, partition
from blend.core.running.executor import run
from blend.core.schedule import Schedule
from tests.small_jobs import capacity, request, scanner_of, schedule, step_s


def dual(requests: list[Request], plan: Schedule, capacity: Capacity) -> DualScanner:
    scanner = scanner_of(requests, plan, capacity)
    assert isinstance(scanner, DualScanner)
    return scanner


def two_sided(
    left: int, right: int, *, left_tokens: int = 2, right_tokens: int = 64
) -> tuple[list[Request], Schedule]:
    """Return rows of 64 tokens with short answers on the left and of 16 with long on the right."""
    requests = [request(row, [row] * 64, max_tokens=left_tokens) for row in range(left)]
    requests += [
        request(left + row, [left + row] * 16, max_tokens=right_tokens) for row in range(right)
    ]
    density = [4.0] * left + [0.5] * right
    return requests, schedule(requests, policy="paper", density=density, root_density=1.2)


densities = st.floats(0.01, 1000)


@given(st.floats(1, 1e7), densities, densities, densities)
def test_the_two_sides_share_the_memory_and_blend_to_the_root(
    memory: float, left: float, right: float, root: float
) -> None:
    of_left, of_right = partition(memory, left=left, right=right, root=root)

    assert of_left + of_right == pytest.approx(memory)
    assert min(of_left, of_right) >= 0
    if right < root < left and left - right > 1e-6 * left:
        assert left * of_left + right * of_right == pytest.approx(root * memory)


def test_the_papers_example_of_a_partition() -> None:
    of_left, of_right = partition(60.0, left=3.73, right=0.096, root=1.27)

    assert (round(of_left, 1), round(of_right, 1)) == (19.4, 40.6)


def test_a_root_beyond_both_densities_gives_all_memory_to_the_nearer_side() -> None:
    assert partition(100.0, left=2.0, right=1.0, root=3.0) == (100.0, 0.0)
    assert partition(100.0, left=2.0, right=1.0, root=0.5) == (0.0, 100.0)
    assert partition(100.0, left=1.0, right=1.0, root=1.0) == (100.0, 0.0)


def test_where_the_memory_is_unknown_the_sequences_bound_it_and_the_sides_keep_their_shares() -> (
    None
):
    requests, plan = two_sided(200, 200)
    scanner = dual(requests, plan, capacity(1 << 40, max_sequences=64, step_tokens=1 << 20))
    admitted = scanner.admit()
    left, right = scanner.used_tokens
    of_left, of_right = partition(1.0, left=4.0, right=0.5, root=1.2)

    assert len(admitted) == 64
    assert left / right == pytest.approx(of_left / of_right, rel=0.2)


def test_the_left_pointer_reads_forwards_and_the_right_one_backwards() -> None:
    requests, plan = two_sided(60, 60)
    admitted: list[int] = []
    limits = capacity(2000)
    for _ in run(
        dual(requests, plan, limits),
        requests.__getitem__,
        SimEngine(limits, step_s=step_s),
        on_admit=admitted.extend,
    ):
        pass
    left = [row for row in admitted[:60] if row < 60]
    right = [row for row in admitted[:60] if row >= 60]

    assert left == list(range(len(left)))
    assert right == list(range(119, 119 - len(right), -1))
    assert left
    assert right


def test_each_side_fills_its_share_of_the_memory() -> None:
    """While answers grow towards their expected length, short ones are replaced at once."""
    requests, plan = two_sided(2000, 200)
    limits = capacity(4000, max_sequences=256, step_tokens=2048)
    scanner = dual(requests, plan, limits)
    engine = SimEngine(limits, step_s=step_s, output_tokens=lambda one: one.max_tokens)
    of_left, of_right = scanner.shares_tokens
    for _ in range(40):
        for row in scanner.admit():
            engine.submit(requests[row])
        left, right = scanner.used_tokens
        scanner.observe(engine.step())

        assert 0.9 * of_left <= left <= of_left
        assert 0.9 * of_right <= right <= of_right


def test_a_row_that_runs_past_its_estimate_moves_to_the_right() -> None:
    requests, plan = two_sided(1, 1, left_tokens=400, right_tokens=400)
    plan = schedule(
        requests, policy="paper", expected=[2.0, 400.0], density=[4.0, 0.5], root_density=1.2
    )
    limits = capacity(4000)
    scanner = dual(requests, plan, limits)
    engine = SimEngine(limits, step_s=step_s, output_tokens=lambda _: 400)
    used: list[tuple[float, float]] = [
        scanner.used_tokens for _ in run(scanner, requests.__getitem__, engine)
    ]

    assert used[0] == (64 + 1, 16 + 200)
    left, right = used[200]
    assert left == 0
    assert right >= 64 + 200 / 2 + 16 + 200


def test_a_row_as_large_as_the_memory_gets_its_turn() -> None:
    """The other side makes room for it, instead of going on for ever."""
    requests = [request(0, [0] * 900, max_tokens=2)]
    requests += [request(row, [row] * 16, max_tokens=40) for row in range(1, 200)]
    plan = schedule(requests, policy="paper", density=[4.0] + [0.5] * 199, root_density=0.6)
    limits = capacity(1024)
    admitted: list[int] = []
    for _ in run(
        dual(requests, plan, limits),
        requests.__getitem__,
        SimEngine(limits, step_s=step_s),
        on_admit=admitted.extend,
    ):
        pass

    assert admitted.index(0) < 60
    assert sorted(admitted) == list(range(200))


def test_a_resumed_schedule_admits_only_what_is_pending() -> None:
    requests, plan = two_sided(20, 20)
    pending = np.arange(40) % 3 == 0
    limits = capacity()
    done = [
        completion.row
        for report in run(
            dual(requests, plan.only(pending), limits),
            requests.__getitem__,
            SimEngine(limits, step_s=step_s),
        )
        for completion in report.completions
    ]

    assert sorted(done) == np.flatnonzero(pending).tolist()
