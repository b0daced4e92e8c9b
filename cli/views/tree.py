"""The prefix tree: the few subtrees that make the job."""

from typing import Any

from blend.cli.console import counted, inert, out, percent, shortened, significant, table
from blend.cli.job_plan import plan_of
from blend.store.job import Job

DRAWN_SHARE = 0.02


def document(job: Job) -> dict[str, object]:
    """Return the outline of the tree as JSON values, with an example's custom_id by node."""
    nodes = plan_of(job).outline
    examples = job.custom_ids(node["example_row"] for node in nodes)
    return {
        "nodes": [
            node | {"example": custom_id} for node, custom_id in zip(nodes, examples, strict=True)
        ]
    }


def draw(job: Job) -> None:
    """Print the outline as an indented table, but for subtrees that hardly matter."""
    outline = plan_of(job).outline
    nodes = [node for node in outline if _share(node, outline[0]) >= DRAWN_SHARE]
    examples = job.custom_ids(node["example_row"] for node in nodes)
    out.print(
        table(
            ("subtree", "rows", "prefix", "shared", "density", "answer", "sampled", "for example"),
            (
                (_name(node), *_cells(node), inert(shortened(custom_id, 16)))
                for node, custom_id in zip(nodes, examples, strict=True)
            ),
            numbers={1, 2, 3, 4, 5},
        )
    )
    if len(nodes) < len(outline):
        left_out = counted(len(outline) - len(nodes), "subtrees")
        out.print(f"\nnot drawn: {left_out} of less than {percent(DRAWN_SHARE)} of the work")
    out.print(
        "\nprefix: tokens that all its rows begin with"
        "\nshared: prompt tokens that are computed only once"
        "\nanswer: output tokens expected of a request; sampled: rows run, and their mean"
    )


def _share(node: dict[str, Any], job: dict[str, Any]) -> float:
    """Return a subtree's share of the seconds of the job."""
    return float((node["comp_s"] + node["mem_s"]) / (job["comp_s"] + job["mem_s"] or 1.0))


def _name(node: dict[str, Any]) -> str:
    return "job" if node["level"] == 0 else "  " * (node["level"] - 1) + "└ subtree"


def _cells(node: dict[str, Any]) -> tuple[str, ...]:
    sampled = node["sampled_rows"]
    return (
        counted(node["rows"]),
        counted(node["prefix_tokens"]),
        percent(node["sharing"]),
        significant(node["density"]),
        counted(node["expected_tokens"]),
        f"{counted(sampled)}: {counted(node['sampled_tokens'])}" if sampled else "none",
    )
