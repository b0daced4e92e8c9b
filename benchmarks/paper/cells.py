"""One run of one system on one workload, and what came of it.

All systems run on the same simulated device, engine limits and lengths; only the order of
admissions and whether compute and memory overlap differ. As in the paper's terms there is no
prefill attention, no overhead of a step, and the weights do not slow the cache's reads down.
"""

from dataclasses import dataclass, replace
from time import perf_counter
from typing import Literal, get_args

import numpy as np

from benchmarks.traces import PAPER_HARDWARE, TraceName
from benchmarks.workloads import Workload, mixture
from blend.core.planning.engine_model import EngineModel, Mode, engine_model
from blend.core.planning.hardware import model_preset, tensor_parallel
from blend.core.planning.lengths import Observations, choose_sample
from blend.core.planning.optimum import bound_s, practical_optimum_s, work_of
from blend.core.planning.plan import make_plan
from blend.core.planning.simulate import Simulated, simulate
from blend.core.planning.tree import Tree
from blend.core.schedule import POLICIES, Policy

System = Literal["vllm-dfs", "nanoflow-dfs", "nanoflow-balance", "paper", "blend"]
SYSTEMS: tuple[System, ...] = get_args(System)

# What each system of the paper is here: how its operators run, and its order.
ENGINES: dict[System, tuple[Mode, str]] = {
    "vllm-dfs": ("sequential", "dfs"),
    "nanoflow-dfs": ("overlapped", "dfs"),
    "nanoflow-balance": ("overlapped", "random"),
    "paper": ("overlapped", "paper"),
    "blend": ("overlapped", "blend"),
}
# The policies that the compiled simulator follows to the letter.
SIMULATED = frozenset({"dfs", "fcfs", "random"})

STEP_TOKENS, MAX_SEQUENCES = 2_048, 4_096
SAMPLE_MINIMUM = 30
LINE_STEPS, POINTS = 64, 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A system on a workload; ``devices`` are tensor parallel, ``sample`` is the part run ahead."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a cell came to; the last three are by stretch of equal steps, at most 100 of them."""

    seconds: float
    optimum_s: float
    bound_s: float
    tokens: int
    steps: int
    sharing: float
    best_sharing: float
    density: float
    preemptions: int
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
    policy = ENGINES[cell.system][1]
    return policy in SIMULATED and policy in POLICIES and cell.replicas == 1


def measure(cell: Cell) -> Outcome:
    """Generate the workload of *cell*, plan it and run it in virtual time."""
    began = perf_counter()
    workload = mixture(cell.density, cell.sharing, n=cell.n, seed=cell.seed, compute=cell.compute)
    tree, engine = workload.tree(), engine_of(cell)
    planning = perf_counter()
    policy = _policy(ENGINES[cell.system][1])
    plan = make_plan(
        workload.sizes(),
        policy=policy,
        hardware=engine.hardware,
        model=engine.model,
        observations=_observed(workload, tree, cell),
        tree=tree,
        seed=cell.seed,
        kept_sharing=cell.kept_sharing,
    )
    plan_s = perf_counter() - planning
    simulated = simulate(
        tree,
        plan.schedule,
        output_tokens=workload.output_tokens,
        engine=engine,
        line_steps=LINE_STEPS,
    )
    return _outcome(workload, tree, engine, simulated, plan_s=plan_s, began=began)


def engine_of(cell: Cell) -> EngineModel:
    """Return the engine and device of *cell*: tensor parallel is one larger device (paper §5.5)."""
    engine = engine_model(
        tensor_parallel(PAPER_HARDWARE, cell.devices),
        model_preset(cell.model),
        mode=ENGINES[cell.system][0],
        max_sequences=MAX_SEQUENCES,
        step_tokens=STEP_TOKENS,
        attention=False,
    )
    return replace(engine, shared_bandwidth=False)


def _policy(name: str) -> Policy:
    return next(policy for policy in POLICIES if policy == name)


def _observed(workload: Workload, tree: Tree, cell: Cell) -> Observations:
    tokens = np.full(len(workload), np.nan)
    rows = np.arange(len(workload))
    if cell.sample < 1.0:
        rows = choose_sample(
            tree,
            workload.sizes(),
            probability=cell.sample,
            minimum=SAMPLE_MINIMUM,
            seed=cell.seed,
        )
    tokens[rows] = workload.output_tokens[rows]
    return Observations(tokens, finished=~np.isnan(tokens))


def _outcome(
    workload: Workload,
    tree: Tree,
    engine: EngineModel,
    simulated: Simulated,
    *,
    plan_s: float,
    began: float,
) -> Outcome:
    work = work_of(
        tree,
        workload.output_tokens,
        hardware=engine.hardware,
        model=engine.model,
        attention=engine.attention,
    )
    line = simulated.timeline
    stretches = min(POINTS, len(line.seconds))
    cuts = np.arange(stretches, dtype=np.int64) * len(line.seconds) // stretches
    ends = np.append(cuts[1:], len(line.seconds)) - 1
    prompt_tokens = int(workload.prompt_tokens.sum())
    return Outcome(
        seconds=simulated.seconds,
        optimum_s=practical_optimum_s(work, alpha=engine.interference),
        bound_s=bound_s(work, engine),
        tokens=prompt_tokens + int(workload.output_tokens.sum()),
        steps=simulated.steps,
        sharing=simulated.cached_tokens / prompt_tokens,
        best_sharing=tree.sharing,
        density=workload.density,
        preemptions=simulated.preemptions,
        plan_s=plan_s,
        wall_s=perf_counter() - began,
        line_s=line.seconds[ends].tolist(),
        line_compute_s=np.add.reduceat(line.compute_s, cuts).tolist(),
        line_memory_s=np.add.reduceat(line.memory_s, cuts).tolist(),
    )
