"""One request: what it asks, where the plan puts it and why, and its result."""

from typing import Any

import orjson

from blend.cli.console import counted, inert, out, percent, shortened, significant
from blend.core.command_line import command_line
from blend.core.completion import Completion
from blend.core.errors import BlendError
from blend.core.planning.lengths import KNOWN, SOURCES
from blend.core.schedule import LEFT
from blend.store.job import Job, Place

TEXT_WIDTH = 600


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
        "attempts": job.attempts(row),
        "result": _result(result) if result else None,
        "earlier_results": [_result(earlier) for earlier in job.earlier_results(row)],
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
        out.print(_why(place, len(request.prompt)))
    if earlier := job.earlier_results(row):
        out.print(f"taken back by `blend retry`: {counted(len(earlier), 'earlier results')}")
    if result is None:
        out.print("no result yet" + ("; the last one was" if earlier else ""))
        if not earlier:
            return
        result = earlier[-1]
    out.print(
        f"status {result.status_code}, {result.finish_reason or 'not finished'}: "
        f"{counted(result.completion_tokens)} output tokens, "
        f"{counted(result.cached_tokens)} prompt tokens from the cache"
    )
    out.print("")
    for paragraph in answer_text(result).splitlines():
        out.print(inert(shortened(paragraph, TEXT_WIDTH)))


def _why(place: Place, prompt_tokens: int) -> str:
    shared = 1 - place.uncached_tokens / max(prompt_tokens, 1)
    bound = "compute-bound" if place.side == LEFT else "memory-bound"
    end = "left" if place.side == LEFT else "right"
    certain = "known" if place.length_source == KNOWN else "expected"
    return (
        f"position {counted(place.position)} on the {end}, {bound} side: "
        f"density {significant(place.density)}\n{percent(shared)} of the prompt shared with rows "
        f"before it, {counted(place.expected_tokens)} output tokens {certain}"
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
