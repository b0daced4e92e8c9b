"""What do several ways of running a job come to? Each simulated on the same drawn lengths.

What is unknown of a job is how long its answers will be. So a time has a range: that of the draws.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from blend.core.planning.engine_model import EngineModel
from blend.core.planning.optimum import bound_s, practical_optimum_s, work_of
from blend.core.planning.replicas import Several
from blend.core.planning.simulate import Simulated, simulate
from blend.core.planning.tree import Ints, Tree, shared_within
from blend.core.planning.ways import AS_IT_COMES, Way
from blend.core.schedule import Policy, Schedule


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way of running the job, and what to expect of it.

    ``drawn_s``: the seconds of each draw; ``seconds``: their mean; ``low_s`` and ``high_s``: their
    10 % and 90 % quantiles.
    ``sharing``: the share of prompt tokens found in the cache. Counts are means over the draws.
    ``way``: how the engine is run.
    """

    name: str
    policy: Policy
    seconds: float
    low_s: float
    high_s: float
    steps: float
    sharing: float
    preemptions: float
    peak_kv_tokens: float
    peak_running: float
    way: Way
    drawn_s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Contender:
    """A schedule, and the way in which the engine is run with it."""

    schedule: Schedule
    way: Way = AS_IT_COMES


@dataclass(frozen=True, slots=True)
class Outlook:
    """The ways of running a job on one engine, the fastest first, and what no order can beat.

    Counts and seconds are means over the draws. ``best_sharing``: the share of prompt tokens that
    a cache without end would save. ``cut_answers``: those that ended where the cache was full.
    ``optimum_s``: the practical optimum, of engines that overlap compute and memory.
    """

    engine: EngineModel
    candidates: tuple[Candidate, ...]
    draws: int
    rows: int
    prompt_tokens: int
    output_tokens: float
    best_sharing: float
    cut_answers: float
    bound_s: float
    optimum_s: float

    def tokens_s(self, one: Candidate) -> float:
        """Return input and output tokens a second."""
        return (self.prompt_tokens + self.output_tokens) / one.seconds

    def sharing_kept(self, one: Candidate) -> float | None:
        """Return the part of the possible sharing that is found; None where there is none."""
        return one.sharing / self.best_sharing if self.best_sharing else None

    def behind(self, one: Candidate) -> float:
        """Return how much longer than the fastest it takes, as a share of the fastest's time."""
        return one.seconds / self.candidates[0].seconds - 1.0

    def described(self) -> list[dict[str, Any]]:
        """Return the candidates as JSON values, with all that follows from their figures."""
        return [
            {name: value for name, value in asdict(one).items() if name != "drawn_s"}
            | {
                "way": {"pacing": one.way.pacing} | one.way.arguments,
                "tokens_s": self.tokens_s(one),
                "sharing_kept": self.sharing_kept(one),
                "peak_kv_share": one.peak_kv_tokens / self.engine.capacity.kv_tokens,
                "bound_share": self.bound_s / one.seconds,
                "practical_optimum_share": self.optimum_s / one.seconds,
                "behind": self.behind(one),
            }
            for one in self.candidates
        ]


def look_ahead(
    tree: Tree,
    engine: EngineModel,
    contenders: Mapping[str, Contender],
    draw: Callable[[int], Ints],
    *,
    draws: int,
    least: int = 1,
    several: Several | None = None,
    wanted: Callable[[], bool] = lambda: True,
    on_run: Callable[[int], None] = lambda _: None,
) -> Outlook:
    """Return what *contenders*, who hold the same rows, come to on each of *draws* lengths.

    Each runs on the engine as it is in its way, or on ``several`` of them.

    ``draw`` returns the lengths of all rows, (n,), for the number of a draw; an answer for which
    the cache has no room is cut there. Once ``wanted`` is false nothing more is simulated but the
    *least* first contenders on the first draw; a later draw counts where it was run in whole.
    ``on_run`` hears how many runs each draw has, before each run.
    """
    rows = np.zeros(len(tree), np.bool_)
    rows[next(iter(contenders.values())).schedule.order] = True
    runs: dict[str, list[Simulated]] = {}
    drawn: list[_Draw] = []
    for number in range(draws):
        if number and not wanted():
            break
        lengths, cut = _held(tree, engine, draw(number))
        found = _simulated(
            tree,
            engine,
            {name: one for name, one in contenders.items() if name in runs or not number},
            lengths,
            several=several,
            least=1 if number else least,
            wanted=wanted,
            on_run=on_run,
        )
        if number and len(found) < len(runs):
            break
        for name, run in found.items():
            runs.setdefault(name, []).append(run)
        replicas = several.replicas if several else 1
        drawn.append(_draw(tree, engine, lengths, cut, rows, replicas=replicas))
    return _outlook(tree, engine, contenders, rows, runs, drawn)


class _Draw(NamedTuple):
    output_tokens: float
    cut_answers: float
    bound_s: float
    optimum_s: float


def _simulated(
    tree: Tree,
    engine: EngineModel,
    contenders: Mapping[str, Contender],
    lengths: Ints,
    *,
    several: Several | None,
    least: int,
    wanted: Callable[[], bool],
    on_run: Callable[[int], None],
) -> dict[str, Simulated]:
    found: dict[str, Simulated] = {}
    for name, one in contenders.items():
        if len(found) >= least and not wanted():
            break
        on_run(len(contenders))
        on = one.way.engine(engine)
        run = several.simulate if several else simulate
        found[name] = run(tree, one.schedule, output_tokens=lengths, engine=on)
    return found


def _held(tree: Tree, engine: EngineModel, lengths: Ints) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Return the lengths that the cache has room for, and which answers that cut."""
    prompts = np.empty(len(tree), np.int64)
    prompts[tree.rows] = tree.lengths
    block = engine.capacity.block_tokens
    room = np.maximum(engine.capacity.kv_tokens // block * block - prompts, 1)
    return np.minimum(lengths, room), lengths > room


def _draw(
    tree: Tree,
    engine: EngineModel,
    lengths: Ints,
    cut: npt.NDArray[np.bool_],
    rows: npt.NDArray[np.bool_],
    *,
    replicas: int,
) -> _Draw:
    work = work_of(tree, lengths, hardware=engine.hardware, model=engine.model, rows=rows)
    work = work.shared_by(replicas)
    return _Draw(
        float(lengths[rows].sum()),
        float(cut[rows].sum()),
        bound_s(work, engine),
        practical_optimum_s(work, interference=engine.interference),
    )


def _outlook(
    tree: Tree,
    engine: EngineModel,
    contenders: Mapping[str, Contender],
    rows: npt.NDArray[np.bool_],
    runs: Mapping[str, Sequence[Simulated]],
    drawn: Sequence[_Draw],
) -> Outlook:
    kept, shared = shared_within(tree, rows)
    prompt_tokens = int(tree.lengths[kept].sum())
    found = [_candidate(name, contenders[name], one, prompt_tokens) for name, one in runs.items()]
    return Outlook(
        engine,
        tuple(sorted(found, key=lambda one: one.seconds)),
        len(drawn),
        len(kept),
        prompt_tokens,
        best_sharing=int(shared.sum()) / max(prompt_tokens, 1),
        **_Draw(*np.mean(drawn, axis=0).tolist())._asdict(),
    )


def _candidate(
    name: str, one: Contender, runs: Sequence[Simulated], prompt_tokens: int
) -> Candidate:
    """Return what *runs* of one contender on several draws of the lengths come to."""

    def mean(of: Callable[[Simulated], float]) -> float:
        return float(np.mean([of(run) for run in runs]))

    low_s, high_s = np.quantile([run.seconds for run in runs], [0.1, 0.9]).tolist()
    return Candidate(
        name,
        one.schedule.policy,
        mean(lambda run: run.seconds),
        low_s,
        high_s,
        steps=mean(lambda run: run.steps),
        sharing=mean(lambda run: run.cached_tokens / max(prompt_tokens, 1)),
        preemptions=mean(lambda run: run.preemptions),
        peak_kv_tokens=mean(lambda run: run.peak_kv_tokens),
        peak_running=mean(lambda run: run.peak_running),
        way=one.way,
        drawn_s=tuple(run.seconds for run in runs),
    )
