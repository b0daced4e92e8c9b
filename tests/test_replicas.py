"""Several replicas run every row exactly once, whichever of them die, and none is left idle."""

from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blend.core.engines import EngineDiedError, StepReport
from blend.core.engines.replicas import ReplicaSet
from blend.core.engines.sim import SimEngine
from blend.core.planning.engine_model import engine_model
from blend.core.planning.hardware import hardware_preset, model_preset
from blend.core.planning.parts import walk_of
from blend.core.planning.plan import plan_on
from blend.core.planning.replicas import simulate_replicas
from blend.core.planning.simulate import simulate
from blend.core.planning.tree import build_tree
from blend.core.request import Request
from blend.core.running.carried import Carried
from blend.core.running.executor import run
from blend.core.running.replica_scan import ReplicaScanner
from blend.core.running.supervise import Life, supervise
from blend.core.running.suspects import Mask, Suspects
from blend.core.schedule import Policy, Schedule
from tests.local_replicas import local_set
from tests.mortal_engine import MortalEngine, mortal
from tests.prompt_sets import prompts_of
from tests.small_jobs import capacity, grouped, schedule, step_s

POLICIES: Sequence[Policy] = ("fcfs", "paper", "blend")
PLAIN: Sequence[Policy] = ("fcfs", "paper")


def scanner_of(
    requests: list[Request],
    plan: Schedule,
    replicas: ReplicaSet,
    carried: Carried | None = None,
) -> ReplicaScanner:
    return ReplicaScanner(
        plan,
        prompt_tokens=np.array([len(one.prompt) for one in requests]),
        sequences=np.array([one.sequences for one in requests]),
        replicas=replicas,
        hardware=hardware_preset("a100-80g"),
        model=model_preset("llama-3-8b"),
        carried=carried,
    )


def opened(
    requests: list[Request], plan: Schedule, count: int, kind: Any = SimEngine, **limits: Any
) -> tuple[ReplicaScanner, ReplicaSet]:
    held = capacity(**limits)
    replicas = local_set(lambda _: kind(held, step_s=step_s), count)
    assert replicas.wait_ready(0)
    return scanner_of(requests, plan, replicas), replicas


def answers(reports: Sequence[StepReport]) -> list[int]:
    return [completion.row for report in reports for completion in report.completions]


@settings(max_examples=25)
@given(
    st.lists(st.integers(1, 60), min_size=1, max_size=40),
    st.integers(2, 4),
    st.integers(1, 4),
    st.sampled_from(PLAIN),
)
def test_every_row_is_answered_once_whatever_the_lengths(
    lengths: list[int], count: int, slots: int, policy: Policy
) -> None:
    requests = grouped(len(lengths), size=1, shared=16, own=8, max_tokens=64)
    plan = schedule(requests, policy=policy, expected=lengths)
    scanner, replicas = opened(requests, plan, count, max_sequences=slots)

    reports = list(run(scanner, requests.__getitem__, replicas))

    assert sorted(answers(reports)) == list(range(len(requests)))
    assert scanner.done


def test_a_blended_job_is_paced_in_each_replica() -> None:
    requests = grouped(12, size=8, shared=64, own=16, max_tokens=48)
    plan = schedule(requests, policy="blend")
    scanner, replicas = opened(requests, plan, 2)

    reports = list(run(scanner, requests.__getitem__, replicas))

    assert sorted(answers(reports)) == list(range(len(requests)))
    assert set(replicas.placement.of_row.values()) == {0, 1}


def test_a_replica_with_nothing_left_takes_over_what_another_has_not_begun() -> None:
    """All is expected to be alike, but what the first was given takes thirty times as long."""
    requests = grouped(64, size=1, shared=0, own=24, max_tokens=64)
    plan = schedule(requests, policy="fcfs", expected=[8.0] * 64)
    replicas = local_set(
        lambda number: SimEngine(
            capacity(max_sequences=2),
            step_s=step_s,
            output_tokens=lambda _: 60 if number == 0 else 2,
        ),
        2,
        turns=True,
    )
    assert replicas.wait_ready(0)
    scanner = scanner_of(requests, plan, replicas)

    rows = answers(list(run(scanner, requests.__getitem__, replicas)))

    assert sorted(rows) == list(range(64))
    ran_in = np.bincount([replicas.placement.of_row[row] for row in rows])
    assert ran_in[1] > 2 * ran_in[0]


@settings(max_examples=40)
@given(
    st.lists(st.integers(1, 60), min_size=1, max_size=40),
    st.integers(2, 4),
    st.integers(1, 4),
    st.integers(0, 60),
    st.sampled_from(PLAIN),
    st.integers(0, 60),
)
def test_what_runs_in_a_replica_runs_on_there_when_another_schedule_begins(
    lengths: list[int], count: int, slots: int, steps: int, policy: Policy, dies_at: int
) -> None:
    requests = grouped(len(lengths), size=1, shared=16, own=8, max_tokens=60)
    held = capacity(max_sequences=slots)
    kind = type("Once", (DiesOnce,), {"deaths": 0, "steps": -dies_at})
    replicas = local_set(
        lambda _: kind(held, step_s=step_s, output_tokens=lambda one: lengths[one.row]), count
    )
    assert replicas.wait_ready(0)
    first, inside = scanner_of(requests, schedule(requests), replicas), set[int]()
    done = answers(list(islice(run(first, requests.__getitem__, replicas, inside=inside), steps)))
    told, where = replicas.ages(), dict(replicas.placement.of_row)
    left = np.isin(np.arange(len(requests)), done, invert=True)
    ages = {row: told.get(row, 1) for row in inside}
    carried = Carried(ages, np.ones(len(requests), np.int64), None)
    plan = schedule(requests, policy=policy).only(left)
    second, submitted = scanner_of(requests, plan, replicas, carried), list[int]()
    lost: set[int] = set()

    for report in run(
        second, requests.__getitem__, replicas, on_admit=submitted.extend, inside=inside
    ):
        done += answers([report])
        lost |= {row for one in report.lost for row in one.rows}

    assert sorted(done) == list(range(len(requests)))
    assert set(submitted).isdisjoint(set(ages) - lost)
    assert len(submitted) == len(set(submitted)) or lost
    stayed = set(ages) - lost
    assert {row: where[row] for row in stayed} == {
        row: replicas.placement.of_row[row] for row in stayed
    }


class Ledger:
    """A job in memory, run by replicas that die; a set that is lost as a whole is made anew."""

    def __init__(self, kind: type[MortalEngine], *, rows: int, count: int, slots: int):
        self.requests = grouped(rows, size=1, shared=16, own=8, max_tokens=6)
        self.plan = schedule(self.requests)
        self.results: dict[int, str] = {}
        self.deaths: dict[int, int] = {}
        self._new = lambda: local_set(
            lambda _: kind(capacity(max_sequences=slots), step_s=step_s), count
        )
        self.replicas = self._new()

    def unfinished(self) -> Mask:
        mask = np.ones(len(self.requests), np.bool_)
        mask[list(self.results)] = False
        return mask

    def live(self, rows: Mask) -> Life:
        before, inside, losses = len(self.results), set[int](), []
        assert self.replicas.wait_ready(0)
        scanner = scanner_of(self.requests, self.plan.only(rows), self.replicas)
        try:
            for report in run(scanner, self.requests.__getitem__, self.replicas, inside=inside):
                losses += report.lost
                for row in answers([report]):
                    assert row not in self.results
                    self.results[row] = "answered"
        except EngineDiedError as death:
            answered = len(self.results) - before
            return Life(answered, death=death, inside=sorted(inside), losses=losses)
        return Life(len(self.results) - before, losses=losses)

    def blame(self, rows: Sequence[int]) -> None:
        for row in rows:
            self.deaths[row] = self.deaths.get(row, 0) + 1

    def fail(self, row: int, message: str) -> None:
        assert row not in self.results
        self.results[row] = message

    def renew(self, _reason: str) -> None:
        self.replicas = self._new()


@settings(max_examples=25)
@given(st.integers(1, 24), st.integers(2, 3), st.integers(1, 4), st.data())
def test_rows_that_kill_a_replica_fail_alone(
    rows: int, count: int, slots: int, data: st.DataObject
) -> None:
    poison = data.draw(st.sets(st.integers(0, rows - 1), max_size=2))
    ledger = Ledger(mortal(poison=poison), rows=rows, count=count, slots=slots)

    supervise(ledger, Suspects({}), max_rebuilds=3)

    failed = {row for row, said in ledger.results.items() if said != "answered"}
    assert (failed, len(ledger.results)) == (poison, rows)


class DiesOnce(MortalEngine):
    """The first of all of them dies after some steps."""

    steps = 0

    def step(self) -> StepReport:
        type(self).steps += 1
        if self.steps == 20:
            self.die("no luck")
        return super().step()


def test_what_a_lost_replica_had_runs_elsewhere_in_the_same_life() -> None:
    ledger = Ledger(mortal_once(), rows=40, count=2, slots=4)
    said: list[str] = []
    ledger.replicas._say = said.append

    life = ledger.live(ledger.unfinished())

    assert (life.answered, life.death) == (40, None)
    assert [loss.death.reason for loss in life.losses] == ["no luck"]
    assert len(said) == 1
    assert "no luck" in said[0]
    assert len(ledger.replicas.living) == 2  # a fresh one has taken its place


def mortal_once() -> type[DiesOnce]:
    return type("Once", (DiesOnce,), {"deaths": 0, "steps": 0})


def test_nobody_is_blamed_for_a_death_that_a_row_has_outlived() -> None:
    ledger = Ledger(mortal_once(), rows=40, count=2, slots=4)

    supervise(ledger, Suspects({}), max_rebuilds=3)

    assert ledger.deaths == {}
    assert set(ledger.results.values()) == {"answered"}


def test_a_set_whose_replicas_all_die_gives_up_and_fails_no_row() -> None:
    ledger = Ledger(mortal(poison=range(40)), rows=40, count=2, slots=4)

    with pytest.raises(EngineDiedError, match="the engine died"):
        supervise(ledger, Suspects({}), max_rebuilds=3)

    assert ledger.results == {}


def test_what_is_aborted_can_be_run_again() -> None:
    requests = grouped(16, size=1, shared=0, own=24, max_tokens=64)
    scanner, replicas = opened(requests, schedule(requests), 2, max_sequences=2)
    for row in scanner.admit():
        replicas.submit(requests[row])
    replicas.step()

    aborted = replicas.abort()
    again = scanner_of(requests, schedule(requests), replicas)
    rows = answers(list(run(again, requests.__getitem__, replicas)))

    assert len(aborted.tokens) + len(aborted.report.completions) >= 4
    assert sorted(rows) == list(range(16))


@pytest.mark.slow  # compiles the kernels where that has not been done
def test_simulated_replicas_run_every_row_once_and_share_like_one() -> None:
    requests = grouped(12, size=8, shared=64, own=16, max_tokens=48)
    prompts = prompts_of([one.prompt.tolist() for one in requests], max_tokens=48)
    tree = build_tree(prompts)
    engine = engine_model(hardware_preset("a100-80g"), model_preset("llama-3-8b"))
    lengths = np.random.default_rng(0).integers(1, 48, len(requests))
    for policy in ("dfs", "paper", "blend"):
        plan = plan_on(engine, prompts, policy=policy, observations=None, tree=tree, seed=0)
        walk = walk_of(
            plan.schedule,
            prompt_tokens=prompts.lengths,
            sequences=prompts.sequences,
            hardware=engine.hardware,
            model=engine.model,
        )

        found = simulate_replicas(
            tree, plan.schedule, walk, output_tokens=lengths, engine=engine, replicas=3
        )
        one = simulate(tree, plan.schedule, output_tokens=lengths, engine=engine)

        together = found.together
        assert not np.isnan(together.finished_s).any()
        assert together.decode_tokens == one.decode_tokens
        assert together.seconds == max(run.seconds for run in found.runs) <= one.seconds
        assert together.cached_tokens >= 0.7 * one.cached_tokens
