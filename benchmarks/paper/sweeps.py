"""What sample, split threshold and step budget are worth: each varied alone on the four traces."""

from dataclasses import replace
from pathlib import Path

from benchmarks.paper.cells import Cell, System
from benchmarks.paper.markdown import number, spread, table
from benchmarks.paper.section import Results, Scale, Section, conditions, speed_ups, trace_cell
from benchmarks.workloads import TABLE_2

SAMPLES = (0.01, 1.0)
KEPT = (0.9, 0.95, 0.98, 0.99, 0.995, 1.0)
BUDGETS = (128, 256, 512, 1024, 2048, 8192)
SAMPLED: tuple[System, ...] = ("paper", "blend")


def _sample_cells(scale: Scale) -> list[Cell]:
    return [
        replace(trace_cell(name, system, scale), sample=sample)
        for name in TABLE_2
        for system in SAMPLED
        for sample in SAMPLES
    ]


def _sample(scale: Scale, results: Results, _plots: Path) -> str:
    rows = []
    for name in TABLE_2:
        for system in SAMPLED:
            cells = [replace(trace_cell(name, system, scale), sample=s) for s in SAMPLES]
            found = [results.get(cell) for cell in cells]
            little, every = found
            rows.append(
                [
                    f"{name}, {system}",
                    *(number(one.tokens_s if one else None, 0) for one in found),
                    number(little.tokens_s / every.tokens_s if little and every else None, 3),
                    number(little.sampled if little else None, 0),
                    f"{little.sampled_output:.1%}" if little else number(None),
                    f"{little.sample_s / little.seconds:.1%}" if little else number(None),
                ]
            )
    header = ["tokens/s", *(f"{x:.0%} known" for x in SAMPLES), "ratio", "requests sampled",
              "of the output", "alone they take, of the run"]  # fmt: skip
    return (
        "## Sampling: 1 % against 100 %\n\nThe paper finds both comparable end to end. The last "
        "column is what the sample would take as a run of its own to its last answer, at most; "
        "it is in none of the figures of this report. With all lengths known `blend` is still told "
        "those of its classes, and not of each request.\n\n"
        + conditions(scale.traces, scale.seeds[:1], sample="1 % or all")
        + table(header, rows)
    )


def _split_cells(scale: Scale) -> list[Cell]:
    return [
        replace(trace_cell(name, "paper", scale), kept_sharing=kept)
        for name in TABLE_2
        for kept in KEPT
    ]


def _split(scale: Scale, results: Results, _plots: Path) -> str:
    rows = []
    for name in TABLE_2:
        cells = [replace(trace_cell(name, "paper", scale), kept_sharing=kept) for kept in KEPT]
        rows.append(
            [name, *(number(results[c].tokens_s if c in results else None, 0) for c in cells)]
        )
    return (
        "## Split threshold\n\nThe paper's policy, by the part of the sharing that splits must "
        "leave.\n\n"
        + conditions(scale.traces, scale.seeds[:1])
        + table(["tokens/s", *map(str, KEPT)], rows)
    )


def _budgeted(name: str, system: System, scale: Scale) -> list[Cell]:
    return [replace(trace_cell(name, system, scale), step_tokens=step) for step in BUDGETS]


def _budget_cells(scale: Scale) -> list[Cell]:
    systems: tuple[System, ...] = ("nanoflow-dfs", "paper")
    return [cell for name in TABLE_2 for one in systems for cell in _budgeted(name, one, scale)]


def _budget(scale: Scale, results: Results, _plots: Path) -> str:
    gains = {
        name: [
            speed_ups(results, [cell], "nanoflow-dfs") for cell in _budgeted(name, "paper", scale)
        ]
        for name in TABLE_2
    }
    rows = [
        [name, *(number(one[0] if one else None, 3) for one in found)]
        for name, found in gains.items()
    ]
    columns = zip(*gains.values(), strict=True)
    rows.append(["all", *(spread([x for one in column for x in one]) for column in columns)])
    return (
        "## Step budget: how much a step may compute\n\nThe paper's policy over NanoFlow-DFS, both "
        "with steps of at most so many tokens. Paper: 1.19 to 1.23; its engine runs batches of "
        "multiples of 128 tokens, and does not say of how many.\n\n"
        + conditions(scale.traces, scale.seeds[:1], step_tokens="so many")
        + table(["over NanoFlow-DFS", *(f"{step:,}" for step in BUDGETS)], rows)
    )


SECTIONS = (
    Section("budget", _budget_cells, _budget),
    Section("sampling", _sample_cells, _sample),
    Section("split", _split_cells, _split),
)
