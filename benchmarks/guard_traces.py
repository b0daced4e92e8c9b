"""Is a job, run as `auto` chooses, ever slower than in the file's or in depth-first order?

python -m benchmarks.guard_traces [--real FOLDER] [--only openvid] [--caches 40] [--results FILE]

Every stand-in trace, a mixture of them, and the public traces in FOLDER, each in caches from one
that hardly holds the largest request to one that holds forty of them. A sample has told lengths, as
`blend plan` takes it; its rows have run, and the others are simulated on the lengths they have.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.machine import simulated_on
from benchmarks.paper.markdown import number, table
from benchmarks.real_traces import read_trace
from benchmarks.traces import PAPER_MODEL, TRACES, Ints
from benchmarks.workloads import Workload, one_trace, table_2
from blend.cli.planning import DRAWS
from blend.core.planning.engine_model import MODES, EngineModel, Mode, engine_model
from blend.core.planning.guard import guarded_plan, plain_schedule
from blend.core.planning.hardware import hardware_preset
from blend.core.planning.lengths import Observations, choose_sample
from blend.core.planning.plan import plan_on
from blend.core.planning.simulate import Simulated, simulate
from blend.core.planning.tree import Tree, shared_within, tree_of
from blend.core.planning.ways import ANY, Reach, paced_ways, told_of
from blend.core.prompts import Prompts
from blend.core.schedule import Schedule

CACHES = (1.1, 3.0, 10.0, 40.0)
"""Times the largest request."""

# Long answers take long to simulate.
ROWS = {"openvid": 120, "wildchat": 600, "trace 2": 1_500}
OTHER_ROWS = 900
LEAST = 0.99
DEVICES: dict[Mode, tuple[str, int]] = {
    "sequential": ("h200", 8_192),
    "overlapped": ("a100-80g", 2_048),
}
PLAIN = ("fcfs", "dfs")
COLUMNS = (*PLAIN, "paper", "blend", "blend, gate", "auto")


@dataclass(frozen=True, slots=True)
class Job:
    """A job and what its answers turn out to be; arrays (n,) by row."""

    name: str
    tree: Tree
    prompts: Prompts
    output_tokens: Ints

    @property
    def largest(self) -> int:
        """Return the tokens of the largest request."""
        return int((self.prompts.lengths + self.output_tokens).max())


def stand_in(name: str, *, seed: int = 3) -> Job:
    """Return requests of one stand-in trace, or of the mixture ``trace 2``."""
    rows = ROWS.get(name, OTHER_ROWS)
    workload: Workload = (
        table_2(name, n=rows, seed=seed) if name not in TRACES else one_trace(name, rows, seed=seed)
    )
    return Job(name, workload.tree(), workload.sizes(), workload.output_tokens)


def real(path: Path) -> Job:
    """Return the first requests of a public trace, all with a limit that holds its answers."""
    # The file of MMLU counts one token; the label and its end are two.
    trace = read_trace(path, output_tokens=2 if path.stem.startswith("mmlu") else None)
    count = min(ROWS.get(path.stem, OTHER_ROWS), len(trace.tree))
    kept, shared = shared_within(trace.tree, np.arange(len(trace.tree)) < count)
    tree = tree_of(trace.tree.rows[kept], lengths=trace.tree.lengths[kept], lcp=shared)
    output = trace.output_tokens[:count]
    return Job(path.stem, tree, _sizes(tree, 1 << int(output.max()).bit_length()), output)


def _sizes(tree: Tree, limit: int) -> Prompts:
    lengths = np.empty(len(tree), np.int64)
    lengths[tree.rows] = tree.lengths
    starts = np.concatenate([[0], np.cumsum(lengths)])
    limits, ones = np.full(len(tree), limit, np.int32), np.ones(len(tree), np.int32)
    return Prompts(np.empty(0, np.uint32), starts, limits, ones)


def engine_of(job: Job, *, mode: Mode, cache: float) -> EngineModel:
    """Return the engine whose cache holds the largest request *cache* times."""
    device, step_tokens = DEVICES[mode]
    engine = engine_model(hardware_preset(device), PAPER_MODEL, mode=mode, step_tokens=step_tokens)
    room = int(cache * job.largest) + engine.capacity.block_tokens
    kv_tokens = min(room, engine.capacity.kv_tokens)
    return replace(engine, capacity=replace(engine.capacity, kv_tokens=kv_tokens))


def runs_of(
    job: Job, engine: EngineModel, *, draws: int, seed: int = 1
) -> tuple[dict[str, Simulated], str]:
    """Return what each order comes to for the rows not sampled, and what ``auto`` has chosen."""
    rows = choose_sample(job.tree, job.prompts, minimum=30, every_cohort=True, seed=seed)
    tokens = np.full(len(job.tree), np.nan)
    tokens[rows] = job.output_tokens[rows]
    seen, left = Observations(tokens, ~np.isnan(tokens)), np.isnan(tokens)

    def run(schedule: Schedule, on: EngineModel) -> Simulated:
        return simulate(job.tree, schedule.only(left), output_tokens=job.output_tokens, engine=on)

    file_order = plain_schedule(job.tree, "fcfs", np.arange(len(job.tree)))
    found = {
        "fcfs": run(file_order, engine),
        "dfs": run(plain_schedule(job.tree, "dfs", job.tree.rows), engine),
    }
    for policy in ("paper", "blend"):
        schedule = plan_on(
            engine, job.prompts, policy=policy, observations=seen, tree=job.tree, seed=seed
        ).schedule
        if schedule.blending is not None:
            schedule = replace(schedule, blending=told_of(schedule.blending, engine))
            (gate,) = paced_ways(engine, Reach(("gate",)))
            found["blend, gate"] = run(schedule, gate.engine(engine))
        found[policy] = run(schedule, engine)
    plan = guarded_plan(
        job.prompts, job.tree, engine, observations=seen, reach=ANY, draws=draws, seed=seed
    )
    found["auto"] = run(plan.schedule, plan.settings.way.engine(engine))
    return found, plan.settings.candidate


def share(found: Mapping[str, Simulated], name: str) -> float:
    """Return the time of the better plain order over that of *name*: 1 and more is no slower."""
    return min(found[plain].seconds for plain in PLAIN) / found[name].seconds


@dataclass(frozen=True, slots=True)
class Case:
    """A job by its name or its file, in a cache and on a kind of engine."""

    source: str
    cache: float
    mode: Mode

    @property
    def name(self) -> str:
        """Return the name of the job."""
        return Path(self.source).stem


def cases(
    real_traces: Path | None, only: Sequence[str], caches: Sequence[float] = CACHES
) -> list[Case]:
    """Return what to run, of the jobs in *only* if it names any."""
    files = sorted(real_traces.glob("*.npz")) if real_traces else []
    sources = [*TRACES, "trace 2", *map(str, files)]
    # A mixture in a cache of one request takes minutes: one video at a time.
    every = [
        Case(source, cache, mode)
        for cache in sorted(caches, reverse=True)
        for source in sources
        for mode in MODES
        if source != "trace 2" or cache > 2.0
    ]
    return [case for case in every if not only or case.name in only]


def measure(case: Case, draws: int) -> list[str]:
    """Return the line of a case in the table."""
    job = real(Path(case.source)) if case.source.endswith(".npz") else stand_in(case.source)
    engine = engine_of(job, mode=case.mode, cache=case.cache)
    found, chosen = runs_of(job, engine, draws=draws)
    shared = max(found["dfs"].cached_tokens, 1)
    kept = [found[name].cached_tokens / shared for name in ("blend", "blend, gate")]
    return [
        f"{case.name}, {len(job.tree):,}",
        case.mode,
        f"{case.cache:g}",
        number(found["dfs"].cached_tokens / int(job.prompts.lengths.sum())),
        *(number(min(found[plain].seconds for plain in PLAIN), 1),),
        *(number(share(found, name), 3) for name in COLUMNS),
        chosen,
        *(number(one, 3) if found["dfs"].cached_tokens else number(None) for one in kept),
    ]


HEADER = [
    "trace, requests", "engine", "cache", "sharing of DFS", "best plain, s", *COLUMNS, "chosen",
    "sharing kept by blend", "by blend, gate",
]  # fmt: skip


def write(rows: Sequence[Sequence[str]], *, draws: int) -> str:
    """Return the document."""
    at = HEADER.index("auto")
    worst = {name: min(float(row[HEADER.index(name)]) for row in rows) for name in COLUMNS}
    missed = sum(float(row[at]) < LEAST for row in rows)
    return (
        "# The guard on every trace\n\nWritten by `python -m benchmarks.guard_traces` "
        f"{simulated_on()}. Each figure "
        "is the time of the better plain order, the file's (`fcfs`) or depth-first (`dfs`), over "
        "that of the order named: 1 and more is no slower. `cache` is how many times it holds the "
        "largest request. Simulated, Llama-3-8B: `sequential` as vLLM on an H200, with steps of "
        "at most 8,192 tokens, `overlapped` on an A100-80G, with 2,048. A sample has told lengths "
        "and has run; the others run on the lengths that they have. `auto` chooses among up to "
        f"eleven ways, each simulated on {draws} draws of the lengths; it leaves a plain one only "
        "for a gain that is more than these scatter. `trace 2` in a cache of one request takes "
        "minutes, one video at a time, and is left out.\n\n"
        f"{len(rows)} cases ({_by_cache(rows)}). `auto` is below {LEAST} in {missed} of them. "
        "The worst of each: "
        + ", ".join(f"{name} {worst[name]:.3f}" for name in COLUMNS)
        + ".\n\n"
        + table(HEADER, rows)
    )


def _by_cache(rows: Sequence[Sequence[str]]) -> str:
    found = Counter(row[HEADER.index("cache")] for row in rows)
    return ", ".join(f"{count} with a cache of {cache}" for cache, count in found.items())


def main(arguments: Sequence[str]) -> None:
    """Run the cases, print a line each, and write the document where asked."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.guard_traces")
    parser.add_argument("--real", type=Path, metavar="FOLDER", help="public traces, as .npz")
    parser.add_argument("--only", nargs="*", default=[], help="names of traces")
    parser.add_argument("--caches", nargs="+", type=float, default=CACHES, metavar="TIMES")
    parser.add_argument("--draws", type=int, default=DRAWS, help="of the guard")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--results", type=Path, metavar="FILE", help="where the document goes")
    options = parser.parse_args(arguments)
    wanted = cases(options.real, options.only, options.caches)
    rows: dict[Case, list[str]] = {}
    with ProcessPoolExecutor(options.jobs) as pool:
        running = {pool.submit(measure, case, options.draws): case for case in wanted}
        for done in as_completed(running):
            rows[running[done]] = done.result()
            print(" | ".join(done.result()), flush=True)
            if options.results:
                ordered = [rows[case] for case in wanted if case in rows]
                options.results.write_text(write(ordered, draws=options.draws), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
