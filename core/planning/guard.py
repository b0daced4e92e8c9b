"""Which way of running a job is the fastest? Simulate a few on drawn lengths, and keep the best.

No policy wins on every job: a forecast has nothing to win on a job of one kind, a tiny cache leaves
no room for a reserve, and a pace only costs where no prefill rides free on a step. The file's own
order is always among the candidates, so that a plan is not slower than it as far as the simulation
can tell. All candidates get the same draws, each on the engine as it is when run in that way.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from blend.core.completion import Completion
from blend.core.engines import silence
from blend.core.planning.blending import blended_schedule, memory_first_schedule
from blend.core.planning.classes import LengthClasses, find_classes
from blend.core.planning.engine_model import EngineModel
from blend.core.planning.lengths import Observations, limited_of
from blend.core.planning.outlook import Candidate, Contender, Outlook, look_ahead
from blend.core.planning.plan import Plan, plan_on
from blend.core.planning.simulate import simulate
from blend.core.planning.tree import Floats, Ints, Tree, build_tree, tree_of, uncached_tokens
from blend.core.planning.ways import (
    ANY,
    MAX_SEQUENCES,
    Reach,
    Way,
    more_sequences,
    paced_ways,
    small_step_ways,
    told_of,
)
from blend.core.prompts import Prompts
from blend.core.running.carried import Carried, open_carrying
from blend.core.schedule import LEFT, Policy, Schedule

GAIN = 1.002
"""How much faster than a plainer candidate one must be, to be worth leaving that."""

PACED_GAIN = 1.01
"""The same for one that paces prefill, or cuts steps: what rides free is known no better."""

SURE = 2.0
"""Standard errors, over the draws, that it must be faster by than a plain order: in a job of a few
long answers, or a cache of a few requests, which order is the faster is often chance."""

PLAIN: tuple[Policy, ...] = ("fcfs", "dfs")

GUESS_SPREAD = 0.7
"""Deviation of the log of a length that is guessed from `max_tokens`: a factor of two."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The best candidate's name, schedule and way, and what all candidates come to."""

    name: str
    schedule: Schedule
    way: Way
    outlook: Outlook

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """Return what was simulated, the fastest first."""
        return self.outlook.candidates


def guarded_plan(
    prompts: Prompts,
    tree: Tree,
    engine: EngineModel,
    *,
    observations: Observations | None = None,
    reach: Reach = ANY,
    seed: int = 0,
    draws: int = 1,
    wanted: Callable[[], bool] = lambda: True,
) -> Plan:
    """Return the plan of the candidate that is fastest for the rows without an answer yet.

    ``reach``: the ways that can be chosen.
    """
    each = _by_sequence(prompts, tree, observations)
    contenders = {
        name: replace(one, schedule=one.schedule.only(each.pending))
        for name, one in candidates_of(
            each.tree, each.classes, engine, reach=reach, seed=seed
        ).items()
    }
    choice = choose(
        each.tree,
        each.classes,
        engine,
        contenders,
        limited=limited_of(each.prompts),
        reach=reach,
        draws=draws,
        seed=seed,
        wanted=wanted,
    )
    plan = plan_on(
        engine,
        prompts,
        policy=choice.schedule.policy,
        observations=observations,
        tree=tree,
        seed=seed,
    )
    # The order is that of the plan; how boldly to admit is that of the candidate.
    blending = choice.schedule.blending
    if blending is not None and plan.schedule.blending is not None:
        # The candidates are of single answers, the plan of whole requests.
        blending = replace(blending, classes=plan.schedule.blending.classes)
    schedule = replace(plan.schedule, blending=blending)
    settings = replace(plan.settings, way=choice.way, candidate=choice.name)
    return replace(plan, schedule=schedule, settings=settings, outlook=choice.outlook)


def outlook_of(
    plan: Plan,
    prompts: Prompts,
    tree: Tree,
    engine: EngineModel,
    *,
    observations: Observations | None = None,
    draws: int = 1,
    wanted: Callable[[], bool] = lambda: True,
) -> Outlook:
    """Return what *plan* comes to for the rows without an answer, beside the file's own order."""
    each = _by_sequence(prompts, tree, observations)
    schedule, settings = plan.schedule, plan.settings
    if len(each.prompts) > len(prompts):
        schedule = plan_on(
            engine,
            each.prompts,
            policy=settings.policy,
            observations=each.observations,
            tree=each.tree,
            seed=settings.seed,
        ).schedule
    contenders = {
        schedule.policy: Contender(schedule, settings.way),
        "fcfs": Contender(plain_schedule(each.tree, "fcfs", np.arange(len(each.tree)))),
    }
    return look_ahead(
        each.tree,
        engine,
        {
            name: replace(one, schedule=one.schedule.only(each.pending))
            for name, one in contenders.items()
        },
        drawing(each.classes, limited=limited_of(each.prompts), seed=settings.seed),
        draws=draws,
        wanted=wanted,
    )


@dataclass(frozen=True, slots=True)
class _Sequences:
    """A job as the simulator takes it: one sequence a row, ``pending`` those without an answer."""

    prompts: Prompts
    tree: Tree
    classes: LengthClasses
    observations: Observations | None
    pending: npt.NDArray[np.bool_]


def _by_sequence(prompts: Prompts, tree: Tree, observations: Observations | None) -> _Sequences:
    each, row = prompts.by_sequence()
    tree = tree if len(each) == len(prompts) else build_tree(each)
    pending = np.ones(len(each), np.bool_)
    if observations is not None:
        observations = observations.at(row)
        pending = ~observations.answered
    classes = find_classes(tree, each.max_tokens, observations, known_tokens=each.known_tokens)
    return _Sequences(each, tree, classes, observations, pending)


def warm_up(engine: EngineModel) -> None:
    """Load the simulator, or compile it where it never ran, with a job of two requests.

    What a scanner calls kernel by kernel in an execution is loaded too.
    """
    tree = tree_of(np.arange(2), lengths=np.array([2, 2]), lcp=np.array([0, 1]))
    classes = find_classes(tree, np.full(2, 16, np.int32))
    capacity = replace(engine.capacity, kv_tokens=64)
    for one in candidates_of(tree, classes, engine).values():
        simulate(
            tree,
            one.schedule,
            output_tokens=np.full(2, 2),
            engine=replace(one.way.engine(engine), capacity=capacity),
        )
    blended = blended_schedule(
        tree, classes, hardware=engine.hardware, model=engine.model, mode=engine.mode
    )
    ones = np.ones(2, np.int64)
    scanner = open_carrying(
        blended,
        prompt_tokens=2 * ones,
        sequences=ones,
        capacity=capacity,
        carried=Carried({0: 1}, ones, None),
    )
    scanner.withdraw(scanner.admit())
    done = Completion(0, 200, b"", completion_tokens=2)
    scanner.observe(replace(silence(None), completions=(done,), steps=1, silent=False))


def candidates_of(
    tree: Tree, classes: LengthClasses, engine: EngineModel, *, reach: Reach = ANY, seed: int = 0
) -> dict[str, Contender]:
    """Return what the guard compares, by name, the plain before the elaborate.

    The file order is the first. The first paced way is tried in three tempers. Small steps come
    last: they go on when the long answers have ended, sooner than was thought.
    """
    ours = blended_schedule(
        tree, classes, hardware=engine.hardware, model=engine.model, mode=engine.mode, seed=seed
    )
    known = ours.blending
    assert known is not None
    known = told_of(known, engine)
    memory_first = memory_first_schedule(
        tree, classes, hardware=engine.hardware, model=engine.model
    )
    found = {
        "fcfs": Contender(plain_schedule(tree, "fcfs", np.arange(len(tree)))),
        "dfs": Contender(plain_schedule(tree, "dfs", tree.rows)),
        "memory-first": Contender(memory_first),
    }
    if "none" in reach.pacings:
        unpaced = replace(ours, blending=replace(known, paced=False))
        found["blend, unpaced"] = Contender(unpaced)
    for number, way in enumerate(paced_ways(engine, reach)):
        name = f"blend, {way.pacing}" if number else "blend"
        found[name] = Contender(replace(ours, blending=known), way)
        if number == 0:
            bold = replace(known, caution=0.0)
            found["blend, bold"] = Contender(replace(ours, blending=bold), way)
            bolder = replace(bold, reserved=False)
            found["blend, bolder"] = Contender(replace(ours, blending=bolder), way)
    for way in small_step_ways(engine, reach):
        found[f"memory-first, steps of {way.step_tokens}"] = Contender(memory_first, way)
    return found


def plain_schedule(tree: Tree, policy: Policy, rows: Ints) -> Schedule:
    """Return the schedule of a plain order, which needs no lengths."""
    n = len(tree)
    return Schedule(
        policy,
        rows,
        np.full(n, LEFT, np.int8),
        np.ones(n),
        uncached_tokens(tree, rows)[rows],
        np.ones(n),
        1.0,
    )


def choose(
    tree: Tree,
    classes: LengthClasses,
    engine: EngineModel,
    contenders: Mapping[str, Contender],
    *,
    limited: npt.NDArray[np.bool_] | None = None,
    reach: Reach = ANY,
    draws: int = 1,
    seed: int = 0,
    wanted: Callable[[], bool] = lambda: True,
) -> Choice:
    """Return the fastest of *contenders*; a later one must surely be faster than all before it.

    ``limited`` (n,): the answers that are known by nothing but a tiny limit.
    Where it could use more sequences than the engine takes, and *reach* allows them, it is tried
    with more. Lengths are drawn *draws* times. Once ``wanted`` is false nothing more is simulated;
    the first contender always is, on the first draw.
    """
    outlook = look_ahead(
        tree,
        engine,
        contenders,
        drawing(classes, limited=limited, seed=seed),
        draws=draws,
        wanted=wanted,
    )
    best = best_of(contenders, outlook.candidates)
    full = best.peak_running >= engine.capacity.max_sequences
    if full and reach.may_set(MAX_SEQUENCES) and wanted():
        way = more_sequences(best.way, engine)
        name = f"{best.name}, {way.max_sequences} sequences"
        contenders = dict(contenders) | {name: Contender(contenders[best.name].schedule, way)}
        more = look_ahead(
            tree,
            engine,
            {name: contenders[name]},
            drawing(classes, limited=limited, seed=seed),
            draws=outlook.draws,
            wanted=wanted,
        )
        # Of fewer draws it would be compared on other lengths.
        if more.draws == outlook.draws:
            every = sorted((*outlook.candidates, *more.candidates), key=lambda one: one.seconds)
            outlook = replace(outlook, candidates=tuple(every))
            best = best_of(contenders, outlook.candidates)
    return Choice(best.name, contenders[best.name].schedule, best.way, outlook)


def best_of(contenders: Mapping[str, Contender], candidates: Iterable[Candidate]) -> Candidate:
    """Return the one of *candidates* that a plan should take, the first unless others gain.

    None is taken that may well be slower than the best of the plain orders.
    """
    found = {one.name: one for one in candidates}
    best = plain = found[next(iter(contenders))]
    for name, one in contenders.items():
        if name not in found:
            continue
        gains = found[name].seconds * _gain(one) < best.seconds
        if gains and _surely_faster(found[name], plain):
            best = found[name]
            plain = best if best.policy in PLAIN else plain
    return best


def _surely_faster(one: Candidate, other: Candidate) -> bool:
    """Tell whether *one* gains more than the draws scatter; a single draw tells nothing of that."""
    gained = np.subtract(other.drawn_s, one.drawn_s)
    n = len(gained)
    return n == 1 or bool(gained.mean() > SURE * gained.std(ddof=1) / n**0.5)


def _gain(one: Contender) -> float:
    blending = one.schedule.blending
    paced = blending is not None and blending.paced
    return PACED_GAIN if paced or one.way.step_tokens else GAIN


def drawing(
    classes: LengthClasses, *, seed: int, limited: npt.NDArray[np.bool_] | None = None
) -> Callable[[int], Ints]:
    """Return what draws lengths: first from the sample as it is, then each time from it anew.

    Answers that are ``limited`` are as long as their limit at first, and then up to that long: all
    of one length would move in step, and which order that suits is chance.
    """
    rng = np.random.default_rng(seed)

    def draw(number: int) -> Ints:
        lengths = draw_lengths(redrawn(classes, rng) if number else classes, rng)
        if number and limited is not None:
            lengths[limited] = rng.integers(1, lengths[limited], endpoint=True)
        return lengths

    return draw


def draw_lengths(classes: LengthClasses, rng: np.random.Generator) -> Ints:
    """Return a length for every row, (n,), from its class's estimate; known ones as they are."""
    from blend.core.kernels.survival import EDGE
    from blend.core.planning.beliefs import beliefs_of  # numba is slow to import

    survival = beliefs_of(classes).survival
    lengths = classes.known.copy()
    for one in range(len(classes)):
        rows = np.flatnonzero((classes.label == one) & (classes.known == 0))
        # Survival falls with length, and np.interp wants what rises.
        drawn = np.interp(rng.random(len(rows)), survival[one][::-1], EDGE[::-1])
        lengths[rows] = np.minimum(np.ceil(drawn), classes.limit[one])
    return np.maximum(lengths, 1).astype(np.int64)


def redrawn(classes: LengthClasses, rng: np.random.Generator) -> LengthClasses:
    """Return the classes as another sample of the same size might have shown them."""
    lengths, centre = classes.lengths.copy(), classes.centre.copy()
    for one in range(len(classes)):
        seen = np.flatnonzero(classes.length_label == one)
        if len(seen):
            lengths[seen] = rng.choice(classes.lengths[seen], len(seen))
            # Answers that were cut off have moved the centre, and stay what they are.
            centre[one] += _log_mean(lengths[seen]) - _log_mean(classes.lengths[seen])
        else:
            centre[one] += rng.normal(0.0, GUESS_SPREAD)
    return replace(classes, lengths=lengths, centre=centre)


def _log_mean(lengths: Floats) -> float:
    return float(np.log(np.maximum(lengths, 1.0)).mean())
