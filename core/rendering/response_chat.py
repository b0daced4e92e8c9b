"""Which chat does the body of a response ask for?

Its instructions and input items become messages exactly as vLLM makes them (checked against vLLM
0.32 in tests/test_tokens_vllm.py). Items that vLLM shows to no template, such as past searches,
are left out. Pure: no template and no tokenizer here.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import orjson

from blend.core.rendering.chat import Message

_UNFINISHED = ("in_progress", "incomplete")


def as_chat(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of a chat that has the same prompt."""
    asked, effort = fields["input"], (fields.get("reasoning") or {}).get("effort")
    unfinished = _is_unfinished(asked)
    instructions = fields.get("instructions")
    system = [{"role": "system", "content": instructions}] if instructions else []
    return {
        "messages": [*system, *_messages(asked)],
        "tools": list(_tools(fields.get("tools") or ())) or None,
        "chat_template_kwargs": fields.get("chat_template_kwargs"),
        "reasoning_effort": effort,
        "add_generation_prompt": not unfinished,
        "continue_final_message": unfinished,
    }


def _messages(asked: str | list[dict[str, Any]]) -> list[Message]:
    if isinstance(asked, str):
        return [{"role": "user", "content": asked}]
    messages: list[Message] = []
    for item in asked:
        message = _message(item)
        if message is not None and not _joined(messages, message):
            messages.append(message)
    return messages


def _message(item: dict[str, Any]) -> Message | None:
    match item.get("type", "message"):
        case "function_call":
            name = "__".join(part for part in (item.get("namespace"), item["name"]) if part)
            return _call(item, name, item["arguments"])
        case "custom_tool_call":
            given = orjson.dumps({"input": item.get("input") or ""}).decode()
            return _call(item, str(item.get("name")), given)
        case "function_call_output" | "custom_tool_call_output":
            called = {"tool_call_id": item.get("call_id")}
            return {"role": "tool", "content": item.get("output"), **called}
        case "reasoning":
            return {"role": "assistant", "reasoning": _thoughts(item)}
        case "message" if item["role"] == "assistant":
            text = _first_text(item.get("content"))
            return item if text is None else {"role": "assistant", "content": text}
    return item if "role" in item else None


def _joined(messages: list[Message], message: Message) -> bool:
    """Add *message* to the assistant's before it, which does not say the same kind of thing yet."""
    last = messages[-1] if messages else {}
    if last.get("role") != "assistant" or message["role"] != "assistant":
        return False
    if "tool_calls" in message:
        last["tool_calls"] = [*last.get("tool_calls", ()), *message["tool_calls"]]
        return True
    kind = "reasoning" if "reasoning" in message else "content"
    if last.get(kind) is not None:
        return False
    last[kind] = message[kind]
    return True


def _call(item: dict[str, Any], name: str, arguments: str) -> Message:
    function = {"name": name, "arguments": arguments}
    call = {"id": item.get("call_id"), "function": function, "type": "function"}
    return {"role": "assistant", "tool_calls": [call]}


def _thoughts(item: dict[str, Any]) -> str:
    return _first_text(item.get("content")) or _first_text(item.get("summary")) or ""


def _first_text(content: Any) -> str | None:
    if isinstance(content, str):
        return content
    first = content[0] if isinstance(content, list) and content else None
    text = first.get("text") if isinstance(first, dict) else None
    return text if isinstance(text, str) else None


def _tools(tools: Iterable[Mapping[str, Any]], namespace: str = "") -> Iterator[dict[str, Any]]:
    """Yield the functions that a template is shown, those of a namespace under its name."""
    for tool in tools:
        if tool.get("type") == "namespace":
            yield from _tools(tool.get("tools") or (), f"{tool.get('name')}__")
        elif tool.get("type") == "function":
            function = {key: value for key, value in tool.items() if key != "type"}
            function["name"] = f"{namespace}{function.get('name')}"
            yield {"type": "function", "function": function}


def _is_unfinished(asked: Any) -> bool:
    """Whether the last item is a part of an answer that is to be continued."""
    last = asked[-1] if isinstance(asked, list) else {}
    said = last.get("type", "message") in ("message", "reasoning")
    return said and last.get("status") in _UNFINISHED
