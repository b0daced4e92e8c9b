"""How long does a plan of hundreds of thousands of requests take, and how much memory?

python -m benchmarks.plan_scale [--sizes 100000 400000 1000000 4000000] [--write]

Planned are requests like the paper's traces as token ids: prefix tree, densities, sort, split and
schedule of the policy `paper`, without a sample and without simulated runs. Beside it the same
prompts go into a plain radix tree, node by node, as serving engines keep their prefix cache. Each
size is a process of its own; its memory is the most it held while it planned, prompts included.
Beyond 400,000 requests prompts are shorter, for some 200 million tokens in all. Time is that of the
processor, of which one core is used, so that other work does not count.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from benchmarks.workloads import mixture
from blend.core.planning.hardware import hardware_preset, model_preset
from blend.core.planning.plan import make_plan
from blend.core.planning.tree import build_tree
from blend.core.prompts import Prompts

SIZES = (100_000, 400_000, 1_000_000, 4_000_000)
MOST_TOKENS = 200_000_000
REPORT = Path(__file__).parent.parent / "docs" / "results" / "plan-scale.md"


@dataclass(slots=True)
class Node:
    """A node of the plain radix tree: the tokens on its edge, and children by first token."""

    tokens: Any
    children: dict[int, "Node"] = field(default_factory=dict)


def insert(root: Node, tokens: Any) -> int:
    """Insert a prompt and return how many of its tokens were new."""
    node, at = root, 0
    while at < len(tokens):
        child = node.children.get(int(tokens[at]))
        if child is None:
            node.children[int(tokens[at])] = Node(tokens[at:])
            return len(tokens) - at
        length = min(len(child.tokens), len(tokens) - at)
        differs = child.tokens[:length] != tokens[at : at + length]
        same = int(differs.argmax()) if differs.any() else length
        if same < len(child.tokens):
            upper = Node(child.tokens[:same], {int(child.tokens[same]): child})
            node.children[int(tokens[at])] = upper
            child.tokens = child.tokens[same:]
            child = upper
        node, at = child, at + same
    return 0


def prompts_of(rows: int, *, seed: int) -> Prompts:
    """Return prompts that share as those of the paper's traces do, 500 tokens each at most."""
    workload = mixture(0.9, 0.65, n=rows, seed=seed)
    part = min(MOST_TOKENS / int(workload.prompt_tokens.sum()), 1.0)
    group = np.ceil(part * workload.group_tokens).astype(np.int64)
    shorter = replace(workload, group_tokens=group)
    own = np.ceil(part * (workload.prompt_tokens - workload.shared_tokens)).astype(np.int64)
    shorter = replace(shorter, prompt_tokens=shorter.shared_tokens + own)
    return shorter.prompts(seed=seed, vocabulary=128_256)


def measured(rows: int, *, what: str, seed: int) -> dict[str, float]:
    """Return seconds and memory of one size, in this process."""
    prompts = prompts_of(rows, seed=seed)
    _forget_peak()
    held = _peak_bytes()
    began = process_time()
    found: dict[str, float] = {"tokens": len(prompts.tokens)}
    if what == "plan":
        tree = build_tree(prompts)
        found["tree_s"] = process_time() - began
        make_plan(
            prompts,
            policy="paper",
            hardware=hardware_preset("a100-80g"),
            model=model_preset("llama-3-8b"),
            tree=tree,
        )
        found["new_tokens"] = tree.unique_tokens
    else:
        root = Node(prompts.tokens[:0])
        found["new_tokens"] = sum(insert(root, prompts[row]) for row in range(rows))
    found["seconds"] = process_time() - began
    found["before_bytes"], found["peak_bytes"] = held, _peak_bytes()
    return found


def _forget_peak() -> None:
    # The peak from here on, and not that of making the prompts up (Linux).
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _peak_bytes() -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(status.split("VmHWM:")[1].split()[0])


def _apart(rows: int, what: str, seed: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.plan_scale", "--one", what, "--sizes", str(rows)]
    command += ["--seed", str(seed)]
    ran = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(ran.stdout)
    return found


def _line(rows: int, seed: int) -> str:
    plan, radix = _apart(rows, "plan", seed), _apart(rows, "radix", seed)
    if plan["new_tokens"] != radix["new_tokens"]:
        raise AssertionError(f"trees differ: {plan['new_tokens']} {radix['new_tokens']}")
    return (
        f"| {rows:,} | {plan['tokens'] / 1e6:,.0f} M | {plan['seconds']:.1f} | "
        f"{plan['tree_s']:.1f} | {1e6 * plan['seconds'] / rows:.0f} | "
        f"{plan['peak_bytes'] / 2**30:.2f} | {plan['before_bytes'] / 2**30:.2f} | "
        f"{radix['seconds']:.1f} | {radix['peak_bytes'] / 2**30:.2f} |"
    )


def main(arguments: Sequence[str]) -> None:
    """Measure every size and print a table, or write it to docs/results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plan_scale")
    parser.add_argument("--sizes", nargs="*", type=int, default=SIZES)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--write", action="store_true", help=f"to {REPORT.name}")
    parser.add_argument("--one", choices=["plan", "radix"], help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one:
        found = measured(options.sizes[0], what=options.one, seed=options.seed)
        print(json.dumps(found))
        return
    lines = [
        "| requests | prompt tokens | plan, s | of it tree, s | µs a request | peak, GiB |"
        " before it, GiB | radix tree, s | its peak, GiB |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for rows in options.sizes:
        lines.append(_line(rows, options.seed))
        print(lines[-1], file=sys.stderr, flush=True)
    print("\n".join(lines))
    if options.write:
        REPORT.write_text(_report(lines, options.seed), encoding="utf-8")


def _report(lines: Sequence[str], seed: int) -> str:
    return (
        "# The time and memory of a plan\n\n"
        "Written by `make bench-plan`. Prefix tree, densities, sort, split and schedule of the "
        "policy `paper` for requests that share prefixes like the paper's traces, as token ids; "
        "without a sample, simulated runs, or a job to read and write. Beside it the same prompts "
        "inserted one after another into a plain radix tree in Python, as serving engines "
        "keep their prefix cache: edges compared by numpy, split where prompts part. Both find the "
        "same number of distinct prefix tokens.\n\n"
        f"*One core of a machine with two, seconds of the processor; seed {seed}; each figure is a "
        "process of its own. Beyond 400,000 requests prompts are shorter, for some 200 million "
        "tokens in all. Memory is the most that the process held, and before it what it "
        "held with the prompts alone.*\n\n" + "\n".join(lines) + "\n"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
