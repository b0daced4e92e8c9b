"""The prefix tree: the few subtrees that make the job, what each costs, and how long it answers."""

from typing import Any

import orjson

from blend.cli.console import inert, out, print_csv, table
from blend.cli.job_plan import plan_of
from blend.cli.job_run import judgement
from blend.cli.views.strip import density_style
from blend.cli.wording import abbreviated, counted, percent, shortened, significant
from blend.core.command_line import command_line
from blend.core.errors import BlendError
from blend.store.job import Job, PlanRecord

DRAWN_SHARE = 0.02
TEXT_WIDTH = 200
WIDEST_EXAMPLE = 60

Node = dict[str, Any]


def nodes(
    job: Job, plan: PlanRecord, *, node: int = 0, depth: int | None = None
) -> list[dict[str, Any]]:
    """Return the outline from *node* down to *depth* levels below it, with numbers and examples.

    Adds to each what its answers came to, None before an execution. BlendError for a node that the
    outline does not have.
    """
    outline = plan.outline
    if not 0 <= node < max(len(outline), 1):
        raise BlendError(
            f"the tree has no node {node}",
            hint=f"`{command_line('blend', 'show', job.path, 'tree')}` shows their numbers",
        )
    judged = judgement(job)
    kept = _below(outline, node, depth)
    examples = job.custom_ids(outline[one]["example_row"] for one in kept)
    return [
        {"node": one}
        | outline[one]
        | {
            "example": example,
            "answered_rows": judged.subtrees[one].rows if judged else None,
            "answered_tokens": judged.subtrees[one].output_tokens
            if judged and judged.subtrees[one].rows
            else None,
            "misjudged_s": judged.subtrees[one].misjudged_s if judged else None,
        }
        for one, example in zip(kept, examples, strict=True)
    ]


def _below(outline: list[Node], node: int, depth: int | None) -> list[int]:
    """Return *node* and what is below it, which stands right behind it."""
    if not outline:
        return []
    level = outline[node]["level"]
    kept = [node]
    for one in range(node + 1, len(outline)):
        if outline[one]["level"] <= level:
            break
        if depth is None or outline[one]["level"] - level <= depth:
            kept.append(one)
    return kept


def document(job: Job, *, node: int = 0, depth: int | None = None) -> dict[str, object]:
    """Return the outline of the tree as JSON values."""
    return {"nodes": nodes(job, plan_of(job), node=node, depth=depth)}


def write_csv(job: Job, *, node: int = 0, depth: int | None = None) -> None:
    """Write a record for every subtree of the outline."""
    found = nodes(job, plan_of(job), node=node, depth=depth)
    headers = list(found[0]) if found else ["node"]
    print_csv(headers, (list(one.values()) for one in found))


def draw(job: Job, *, node: int = 0, depth: int | None = None) -> None:
    """Print the outline as an indented table, but for subtrees that hardly matter."""
    plan = plan_of(job)
    found = nodes(job, plan, node=node, depth=depth)
    if not found:
        out.print("the tree is empty")
        return
    # What hardly matters to the job may be what a subtree consists of.
    drawn = [one for one in found if node or _share(one, plan.outline[0]) >= DRAWN_SHARE]
    if node:
        _draw_beginning(job, plan.outline[node])
    root = plan.outline[0]["density"]
    names = branches(drawn)
    out.print(
        table(
            (
                "node",
                "rows",
                "tokens",
                "prefix",
                "shared",
                "density",
                "answer",
                "sampled",
                "real",
                "like",
            ),
            ((name, *_cells(one, root)) for name, one in zip(names, drawn, strict=True)),
            numbers=set(range(1, 9)),
            gap=1,
        )
    )
    if len(drawn) < len(found):
        left_out = counted(len(found) - len(drawn), "subtrees")
        out.print(f"\nnot drawn: {left_out} of less than {percent(DRAWN_SHARE)} of the work")
    out.print(
        "\nprefix: tokens that all its rows begin with; tokens: of its prompts"
        "\nshared: prompt tokens that are computed only once"
        "\nanswer: output tokens expected of a request"
        "\nsampled, real: mean of those that ran in the sample, and since"
        "\n`--node N` shows what is below a node, `--depth` how far"
    )


def _draw_beginning(job: Job, node: Node) -> None:
    text = _first_text(job.request(node["example_row"]).body)
    if text:
        out.print(f"begins like: {inert(shortened(text, TEXT_WIDTH))}\n")


def _first_text(body: bytes) -> str:
    """Return the first words that a request says to the model."""
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        return ""
    match parsed:
        case {"messages": [{"content": str(text)}, *_]} | {"prompt": str(text)}:
            return text
        case {"messages": [{"content": [{"text": str(text)}, *_]}, *_]}:
            return text
    return ""


def _share(node: Node, job: Node) -> float:
    """Return a subtree's share of the seconds of the job."""
    return float((node["comp_s"] + node["mem_s"]) / (job["comp_s"] + job["mem_s"] or 1.0))


def _cells(node: Node, root: float) -> tuple[str, ...]:
    sampled, real = node["sampled_tokens"], node["answered_tokens"]
    style = density_style(node["density"], root)
    return (
        counted(node["rows"]),
        abbreviated(node["prompt_tokens"]),
        counted(node["prefix_tokens"]),
        f"{node['sharing']:.0%}",
        f"[{style}]{significant(node['density'])}[/]",
        counted(node["expected_tokens"]),
        "-" if sampled is None else counted(sampled),
        "-" if real is None else counted(real),
        inert(shortened(node["example"], WIDEST_EXAMPLE)),
    )


def branches(drawn: list[Node]) -> list[str]:
    """Return the number of each node behind the branch that it stands on."""
    names: list[str] = []
    below: set[int] = set()
    """Levels at which another node of the same parent follows."""
    for node in reversed(drawn):
        level = node["level"] - drawn[0]["level"]
        stems = "".join("│ " if one in below else "  " for one in range(1, level))
        branch = ("├ " if level in below else "└ ") if level else ""
        names.append(f"{stems}{branch}{node['node']}")
        below = {one for one in below if one < level} | {level}
    return names[::-1]
