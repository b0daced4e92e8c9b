"""One request: what it asks, where the plan puts it and why, and its result."""

from typing import Any

import numpy as np
import orjson

from blend.cli.console import inert, out
from blend.cli.job_plan import plan_of
from blend.cli.job_run import planned_engine
from blend.cli.wording import counted, duration, percent, shortened, significant
from blend.core.command_line import command_line
from blend.core.completion import Completion
from blend.core.errors import BlendError
from blend.core.planning.cost import decode_comp_s, mem_s, segment_comp_s
from blend.core.planning.lengths import SOURCES
from blend.core.schedule import LEFT
from blend.store.job import Job, Place

TEXT_WIDTH = 600

_KNOWN_BY = {
    "observed": "its answer is known",
    "subtree": "from samples that share its prefix",
    "sibling": "from samples of its relatives",
    "prior": "guessed from max_tokens",
    "known": "the request itself says so",
}


def _row(job: Job, custom_id: str) -> int:
    row = job.find(custom_id)
    if row is None:
        raise BlendError(
            f"no request of this job has the custom_id: {custom_id}",
            hint=f"`{command_line('blend', 'show', job.path, 'schedule')}` names some",
        )
    return row


def document(job: Job, custom_id: str) -> dict[str, object]:
    """Return the request, its place and its result as JSON values."""
    row = _row(job, custom_id)
    request, place, result = job.request(row), job.place(row), job.result(row)
    source, line = job.origin(row)
    leader = job.leader(row)
    return {
        "custom_id": custom_id,
        "row": row,
        "source": source,
        "line": line,
        "endpoint": request.endpoint,
        "body": _parsed(request.body),
        "prompt_tokens": len(request.prompt),
        "max_tokens": request.max_tokens,
        "max_tokens_raised": job.raised_limit(row) is not None,
        "sequences": request.sequences,
        "place": _place(place) if place else None,
        "follows": job.custom_ids([leader])[0] if leader is not None else None,
        "path": [_node(*pair) for pair in _path(job, row)],
        "cost": _cost(job, place, len(request.prompt), request.sequences) if place else None,
        "attempts": job.attempts(row),
        "result": _result(result) if result else None,
        "earlier_results": [_result(earlier) for earlier in job.earlier_results(row)],
    }


def _path(job: Job, row: int) -> list[tuple[int, dict[str, Any]]]:
    """Return the subtrees of the outline that hold a row, from the whole job down."""
    plan, subtree = job.plan(), job.subtrees()
    if plan is None or subtree is None or row >= len(subtree):
        return []
    path = [int(subtree[row])]
    while path[-1]:
        path.append(plan.outline[path[-1]]["parent"])
    return [(node, plan.outline[node]) for node in reversed(path)]


def _node(number: int, node: dict[str, Any]) -> dict[str, Any]:
    return {
        "node": number,
        "rows": node["rows"],
        "prefix_tokens": node["prefix_tokens"],
        "density": node["density"],
    }


def _cost(job: Job, place: Place, prompt_tokens: int, sequences: int) -> dict[str, float | str]:
    """Return what the plan expects a request to take on its device, the cached prefix left out."""
    engine = planned_engine(plan_of(job))
    hardware, model = engine.hardware, engine.model
    tokens = np.array([place.expected_tokens])
    start, end = np.array([prompt_tokens - place.uncached_tokens]), np.array([prompt_tokens])
    return {
        "hardware": hardware.name,
        "prefill_s": float(segment_comp_s(start, end, hardware=hardware, model=model)[0]),
        "decode_s": float(sequences * decode_comp_s(tokens, hardware=hardware, model=model)[0]),
        "memory_s": float(sequences * mem_s(end, tokens, hardware=hardware, model=model)[0]),
    }


def _place(place: Place) -> dict[str, object]:
    source = place.length_source
    return place._asdict() | {
        "side": "left" if place.side == LEFT else "right",
        "length_source": None if source is None else SOURCES[source],
    }


def _result(result: Completion) -> dict[str, object]:
    return {
        "status_code": result.status_code,
        "finish_reason": result.finish_reason,
        "prompt_tokens": result.prompt_tokens,
        "completion_tokens": result.completion_tokens,
        "cached_tokens": result.cached_tokens,
        "body": _parsed(result.body),
    }


def _parsed(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return body.decode(errors="replace")


def draw(job: Job, custom_id: str) -> None:
    """Print the request's figures, its place with the reason, and its answer."""
    row = _row(job, custom_id)
    request, place, result = job.request(row), job.place(row), job.result(row)
    source, line = job.origin(row)
    out.print(f"[bold]{inert(custom_id)}[/], row {counted(row)}, {inert(f'{source}:{line}')}")
    raised = ", raised for a retry" if job.raised_limit(row) else ""
    sequences = f", {request.sequences} sequences" if request.sequences > 1 else ""
    out.print(
        f"{request.endpoint}, {counted(len(request.prompt))} prompt tokens, "
        f"at most {counted(request.max_tokens)} output tokens{raised}{sequences}"
    )
    leader = job.leader(row)
    if leader is not None:
        name = inert(job.custom_ids([leader])[0])
        out.print(f"identical to {name}, which runs for both")
    if place:
        _draw_place(job, row, place, len(request.prompt), request.sequences)
    if earlier := job.earlier_results(row):
        out.print(f"taken back by `blend retry`: {counted(len(earlier), 'earlier results')}")
    if result is None:
        out.print("no result yet" + ("; the last one was" if earlier else ""))
        if not earlier:
            return
        result = earlier[-1]
    out.print(_ending(result))
    out.print("")
    for paragraph in answer_text(result).splitlines():
        out.print(inert(shortened(paragraph, TEXT_WIDTH)))


def _ending(result: Completion) -> str:
    """Say how a request ended, and the tokens of its answer where there is one."""
    if result.failed:
        return f"status {result.status_code}: failed"
    return (
        f"status {result.status_code}, {result.finish_reason or 'not finished'}: "
        f"{counted(result.completion_tokens)} output tokens, "
        f"{counted(result.cached_tokens)} prompt tokens from the cache"
    )


def _draw_place(job: Job, row: int, place: Place, prompt_tokens: int, sequences: int) -> None:
    cost = _cost(job, place, prompt_tokens, sequences)
    shared = 1 - place.uncached_tokens / max(prompt_tokens, 1)
    out.print(_why(place, plan_of(job).predictions["density"]))
    source = place.length_source
    known = "" if source is None else f": {_KNOWN_BY[SOURCES[source]]}"
    out.print(f"{percent(shared)} of the prompt shared with rows before it")
    out.print(f"{counted(place.expected_tokens)} output tokens expected{known}")
    out.print(
        f"takes {duration(float(cost['prefill_s']))} of prefill, "
        f"{duration(float(cost['decode_s']))} of decoding, "
        f"{duration(float(cost['memory_s']))} of reading the cache on {cost['hardware']}"
    )
    path = _path(job, row)
    if path:
        steps, deepest = " > ".join(str(number) for number, _ in path), path[-1][1]
        out.print(
            f"nodes of the tree: {steps}, whose {counted(deepest['rows'], 'rows')} "
            f"share {counted(deepest['prefix_tokens'], 'tokens')}"
        )


def _why(place: Place, root: float) -> str:
    bound = "compute-bound" if place.side == LEFT else "memory-bound"
    end = "left" if place.side == LEFT else "right"
    beside = "above" if place.density >= root else "below"
    return (
        f"position {counted(place.position)} on the {end}, {bound} side\n"
        f"density {significant(place.density)}, {beside} the job's {significant(root)}"
    )


def answer_text(result: Completion) -> str:
    """Return the text of a result's first choice, or its error message."""
    body = _parsed(result.body)
    match body:
        case {"choices": [{"message": {"content": str(text)}}, *_]}:
            return text
        case {"choices": [{"text": str(text)}, *_]}:
            return text
        case {"output": [*items]}:
            return "\n".join(
                str(part["text"])
                for item in items
                for part in item.get("content") or ()
                if "text" in part
            )
        case {"error": {"message": str(text)}} | {"message": str(text)}:
            return text
    return result.body.decode(errors="replace")
