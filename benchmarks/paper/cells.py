"""One run of one system on one workload, and what came of it.

All systems run on the same simulated device, engine limits and lengths; only the order of
admissions and whether compute and memory overlap differ. As in the paper's terms there is no
prefill attention, no overhead of a step, and the weights do not slow the cache's reads down.

Orders that need lengths are told those of a sample, chosen as the product chooses it; that a row
is of one trace or another they are not told. The sample costs no time and runs again with the rest,
but in a cell with a warm-up, which is the run itself, as in `warm_up`.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from time import perf_counter, process_time
from typing import Literal, get_args

import numpy as np

from benchmarks.paper.warm_up import warmed_run
from benchmarks.traces import PAPER_HARDWARE, TraceName
from benchmarks.workloads import Workload, mixture
from blend.cli.planning import CLASS_MINIMUM, DRAWS, MINIMUM
from blend.core.planning.engine_model import EngineModel, Mode, StepCosts, engine_model
from blend.core.planning.guard import guarded_plan, plain_schedule
from blend.core.planning.hardware import Parallel, hardware_preset, model_preset, several
from blend.core.planning.lengths import Observations, choose_sample
from blend.core.planning.optimum import Work, bound_s, practical_optimum_s, work_of
from blend.core.planning.parts import walk_of
from blend.core.planning.plan import BY_CLASS, Plan, make_plan
from blend.core.planning.replicas import simulate_replicas
from blend.core.planning.simulate import Simulated, simulate
from blend.core.planning.tree import Tree
from blend.core.planning.ways import ANY, PacingName, Reach, paced_ways, small_step_ways, told_of
from blend.core.prompts import Prompts
from blend.core.schedule import Policy, PolicyChoice

System = Literal[
    "vllm-dfs",
    "sglang",
    "nanoflow-dfs",
    "nanoflow-balance",
    "memory-first",
    "paper",
    "blend",
    "auto",
]
SYSTEMS: tuple[System, ...] = get_args(System)
# What sets the pace on a sequential engine as stock vLLM is, and the order that goes with it.
PacedBy = Literal["file order", "step budget", "gate", "gate, W unknown", "small steps"]
PACED_BY: dict[PacedBy, Policy] = {
    "file order": "fcfs",
    "step budget": "blend",
    "gate": "blend",
    "gate, W unknown": "blend",
    "small steps": "memory-first",
}
FIXED = SYSTEMS[:-1]
"""All but ``auto``, which simulates six ways of running a job to keep the fastest."""

# What each system of the paper is here: how its operators run, and its order.
ENGINES: dict[System, tuple[Mode, PolicyChoice]] = {
    "vllm-dfs": ("sequential", "dfs"),
    "sglang": ("sequential", "sglang"),
    "nanoflow-dfs": ("overlapped", "dfs"),
    "nanoflow-balance": ("overlapped", "random"),
    "memory-first": ("overlapped", "memory-first"),
    "paper": ("overlapped", "paper"),
    "blend": ("overlapped", "blend"),
    "auto": ("overlapped", "auto"),
}

OVERLAPPED: tuple[System, ...] = tuple(one for one in FIXED if ENGINES[one][0] == "overlapped")

# The guard chooses among the six ways that leave the engine's options alone.
AS_IT_IS = Reach(("step-budget",), started=True)
STEP_TOKENS, MAX_SEQUENCES = 2_048, 4_096
LINE_STEPS, POINTS = 64, 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A system on a workload; ``devices`` are tensor parallel, ``sample`` is the part run ahead.

    With ``paced_by`` it is stock vLLM on a ``gpu``, with an overhead of each step, instead.
    ``known``: every request says how long its answer will be; ``warm_up``: the sample is the
    beginning of the run, as in `blend run`, and is cut off at its bound.
    """

    system: System
    density: float
    sharing: float
    n: int
    seed: int
    compute: TraceName = "burstgpt"
    model: str = "llama-3-8b"
    devices: int = 1
    replicas: int = 1
    sample: float = 0.01
    kept_sharing: float = 0.99
    step_tokens: int = STEP_TOKENS
    paced_by: PacedBy | None = None
    gpu: str = "a100-80g"
    overhead_ms: float = 0.0
    known: bool = False
    warm_up: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a cell came to; the last three are by stretch of equal steps, at most 100 of them.

    ``sampled`` rows told their lengths, ``sampled_output`` is their part of all output tokens;
    ``sample_s`` is what they take alone, in depth-first order: no part of ``seconds``;
    ``refused`` rows could never fit the cache, and did not run;
    ``chosen`` is the way of running the job that ``auto`` found the fastest, "" for the others.
    """

    seconds: float
    optimum_s: float
    bound_s: float
    tokens: int
    steps: int
    sharing: float
    best_sharing: float
    density: float
    preemptions: int
    refused: int
    sampled: int
    sampled_output: float
    sample_s: float
    chosen: str
    plan_s: float
    wall_s: float
    line_s: list[float]
    line_compute_s: list[float]
    line_memory_s: list[float]

    @property
    def tokens_s(self) -> float:
        """Return input and output tokens a second."""
        return self.tokens / self.seconds

    @property
    def optimum_share(self) -> float:
        """Return the practical optimum over the time taken."""
        return self.optimum_s / self.seconds


def available(cell: Cell) -> bool:
    """Whether this version of the project can run the cell."""
    return cell.replicas >= 1


def measure(cell: Cell) -> Outcome:
    """Generate the workload of *cell*, plan it and run it in virtual time."""
    began = perf_counter()
    workload, tree = _workload(cell.density, cell.sharing, cell.n, cell.seed, cell.compute)
    engine = engine_of(cell)
    planning = process_time()
    observed = _observed(workload, tree, cell)
    if cell.warm_up:
        observed, plan, simulated = warmed_run(
            _prompts(workload, cell),
            tree,
            engine,
            observed.finished,
            output_tokens=workload.output_tokens,
            plan_of=lambda seen: _plan(workload, tree, engine, seen, cell),
            policy=policy_of(cell),
            reach=AS_IT_IS,
            line_steps=LINE_STEPS,
            seed=cell.seed,
        )
        plan_s = 0.0
    else:
        plan = _plan(workload, tree, engine, observed, cell)
        plan_s = process_time() - planning
        simulated = _simulated(workload, tree, engine, plan, cell)
    outcome = _outcome(
        workload, tree, engine, observed, plan, simulated, plan_s=plan_s, began=began
    )
    if cell.warm_up:
        # Its sample has run as the beginning.
        outcome = replace(outcome, sample_s=0.0)
    return _of_each(outcome, workload, tree, engine, replicas=cell.replicas)


def _simulated(
    workload: Workload, tree: Tree, engine: EngineModel, plan: Plan, cell: Cell
) -> Simulated:
    lengths = workload.output_tokens
    if cell.replicas == 1:
        return simulate(
            tree, plan.schedule, output_tokens=lengths, engine=engine, line_steps=LINE_STEPS
        )
    walk = walk_of(
        plan.schedule,
        prompt_tokens=workload.prompt_tokens,
        sequences=np.ones(len(workload), np.int64),
        hardware=engine.hardware,
        model=engine.model,
    )
    return simulate_replicas(
        tree,
        plan.schedule,
        walk,
        output_tokens=lengths,
        engine=engine,
        replicas=cell.replicas,
        line_steps=LINE_STEPS,
    ).together


def work_on(workload: Workload, tree: Tree, engine: EngineModel) -> Work:
    """Return the work of *workload*, whose tree or one like it is *tree*, on *engine*."""
    return work_of(
        tree,
        workload.output_tokens,
        hardware=engine.hardware,
        model=engine.model,
        attention=engine.attention,
    )


def _of_each(
    outcome: Outcome, workload: Workload, tree: Tree, engine: EngineModel, *, replicas: int
) -> Outcome:
    """Return the outcome with the bounds of replicas that share the work evenly."""
    if replicas == 1:
        return outcome
    work = work_on(workload, tree, engine).shared_by(replicas)
    return replace(
        outcome,
        optimum_s=practical_optimum_s(work, interference=engine.interference),
        bound_s=bound_s(work, engine),
    )


# The systems of one workload are measured one after another.
@lru_cache(maxsize=1)
def _workload(
    density: float, sharing: float, n: int, seed: int, compute: TraceName
) -> tuple[Workload, Tree]:
    workload = mixture(density, sharing, n=n, seed=seed, compute=compute)
    return workload, workload.tree()


def _plan(
    workload: Workload, tree: Tree, engine: EngineModel, observed: Observations, cell: Cell
) -> Plan:
    policy = policy_of(cell)
    if policy == "auto":
        return guarded_plan(
            _prompts(workload, cell),
            tree,
            engine,
            observations=observed,
            reach=AS_IT_IS,
            seed=cell.seed,
            draws=DRAWS,
        )
    plan = make_plan(
        _prompts(workload, cell),
        policy=policy,
        hardware=engine.hardware,
        model=engine.model,
        observations=observed,
        tree=tree,
        seed=cell.seed,
        kept_sharing=cell.kept_sharing,
        mode=engine.mode,
    )
    blending = plan.schedule.blending
    if blending is None:
        return plan
    return replace(plan, schedule=replace(plan.schedule, blending=told_of(blending, engine)))


def policy_of(cell: Cell) -> PolicyChoice:
    """Return the order of *cell*."""
    return PACED_BY[cell.paced_by] if cell.paced_by else ENGINES[cell.system][1]


def paced_engine(cell: Cell) -> EngineModel:
    """Return stock vLLM as *cell* runs it, with the defaults of a GPU."""
    engine = engine_model(
        hardware_preset(cell.gpu),
        model_preset(cell.model),
        attention=False,
        overhead_s=cell.overhead_ms / 1000.0,
    )
    if cell.paced_by == "small steps":
        return small_step_ways(engine, ANY)[0].engine(engine)
    if cell.paced_by == "file order":
        return engine
    pacing: PacingName = "step-budget" if cell.paced_by == "step budget" else "gate"
    (way,) = paced_ways(engine, Reach((pacing,)))
    if cell.paced_by != "gate, W unknown":
        costs = (engine.overhead_s, engine.token_s, engine.token_s, engine.read_s, engine.weights_s)
        engine = replace(engine, measured=StepCosts(*costs))
    return way.engine(engine)


def engine_of(cell: Cell) -> EngineModel:
    """Return the engine and device of *cell*: tensor parallel is one larger device (paper §5.5)."""
    if cell.paced_by:
        return paced_engine(cell)
    engine = engine_model(
        several(PAPER_HARDWARE, Parallel(cell.devices)),
        model_preset(cell.model),
        mode=ENGINES[cell.system][0],
        max_sequences=MAX_SEQUENCES,
        step_tokens=cell.step_tokens,
        attention=False,
        report_lag=0,  # The paper's scheduler is part of its engine.
    )
    return replace(engine, shared_bandwidth=False)


def _prompts(workload: Workload, cell: Cell) -> Prompts:
    sizes = workload.sizes()
    if not cell.known:
        return sizes
    return replace(sizes, known_tokens=workload.output_tokens.astype(np.float64))


def _observed(workload: Workload, tree: Tree, cell: Cell) -> Observations:
    tokens = np.full(len(workload), np.nan)
    rows = np.arange(len(workload))
    if cell.sample < 1.0:
        by_class = policy_of(cell) in (*BY_CLASS, "auto")
        rows = choose_sample(
            tree,
            _prompts(workload, cell),
            probability=cell.sample,
            minimum=CLASS_MINIMUM if by_class else MINIMUM,
            every_cohort=by_class,
            seed=cell.seed,
        )
    tokens[rows] = workload.output_tokens[rows]
    return Observations(tokens, finished=~np.isnan(tokens))


def _sample_s(
    workload: Workload, tree: Tree, engine: EngineModel, observed: Observations, policy: Policy
) -> float:
    """Return the seconds of the sample alone, 0 where there is none or it is all rows."""
    told = observed.finished.any() and not observed.finished.all()
    if policy not in (*BY_CLASS, "paper") or not told:
        return 0.0
    order = plain_schedule(tree, "dfs", tree.rows).only(observed.finished)
    return simulate(
        tree, order, output_tokens=workload.output_tokens, engine=engine, line_steps=LINE_STEPS
    ).seconds


def _outcome(
    workload: Workload,
    tree: Tree,
    engine: EngineModel,
    observed: Observations,
    plan: Plan,
    simulated: Simulated,
    *,
    plan_s: float,
    began: float,
) -> Outcome:
    work = work_on(workload, tree, engine)
    line = simulated.timeline
    stretches = min(POINTS, len(line.seconds))
    cuts = np.arange(stretches, dtype=np.int64) * len(line.seconds) // stretches
    ends = np.append(cuts[1:], len(line.seconds)) - 1
    prompt_tokens, output_tokens = int(workload.prompt_tokens.sum()), workload.output_tokens.sum()
    policy = plan.schedule.policy
    return Outcome(
        seconds=simulated.seconds,
        optimum_s=practical_optimum_s(work, interference=engine.interference),
        bound_s=bound_s(work, engine),
        tokens=prompt_tokens + int(output_tokens),
        steps=simulated.steps,
        sharing=simulated.cached_tokens / prompt_tokens,
        best_sharing=tree.sharing,
        density=workload.density,
        preemptions=simulated.preemptions,
        refused=simulated.refused,
        sampled=int(observed.finished.sum()),
        sampled_output=float(np.nansum(observed.tokens) / output_tokens),
        sample_s=_sample_s(workload, tree, engine, observed, policy),
        chosen=next((one.name for one in plan.candidates if one.policy == policy), ""),
        plan_s=plan_s,
        wall_s=perf_counter() - began,
        line_s=line.seconds[ends].tolist(),
        line_compute_s=np.add.reduceat(line.compute_s, cuts).tolist(),
        line_memory_s=np.add.reduceat(line.memory_s, cuts).tolist(),
    )
