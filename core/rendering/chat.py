"""What is a chat template given for one request?

The conversation, tools and arguments exactly as vLLM's own rendering prepares them from the body
(checked against vLLM 0.32 in tests/test_tokens_vllm.py). Pure: no template and no tokenizer here.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

Message = dict[str, Any]

# The type of a content part -> the key that holds its text.
_TEXT_KEYS = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "refusal": "refusal",
    "thinking": "thinking",
}
_MEDIA = {
    "image_url": "image",
    "input_image": "image",
    "image_embeds": "image",
    "audio_url": "audio",
    "input_audio": "audio",
    "audio_embeds": "audio",
    "video_url": "video",
    "video_embeds": "video",
}
# What a client adds to a part beside its own keys (such as `cache_control`) reaches the template.
_PART_KEYS = {*_TEXT_KEYS.values(), *_MEDIA, "type", "uuid", "detail", "file", "name"}

# These steer the tokenizer's method, not the template.
_NOT_FOR_TEMPLATE = frozenset(
    {
        "tokenize",
        "chat_template",
        "padding",
        "truncation",
        "max_length",
        "return_tensors",
        "return_dict",
        "return_assistant_tokens_mask",
        "tokenizer_kwargs",
    }
)


def conversation(messages: Sequence[Message], *, as_parts: bool, media: bool) -> list[Message]:
    """Return the messages as a template expects them; raise ValueError for what it cannot show.

    With *as_parts* content is a list of parts, otherwise one string. Without *media* (a model that
    takes text only) a part with an image, sound or film is refused; with it, such a part stands for
    tokens that only the model's processor could count.
    """
    return [_message(message, as_parts=as_parts, media=media) for message in messages]


def developer_as_system(messages: list[Message]) -> list[Message]:
    """Return the messages for a template that knows no developer role: one system message first."""
    turned = [
        {**{k: v for k, v in message.items() if k != "tools"}, "role": "system"}
        if message["role"] == "developer"
        else message
        for message in messages
    ]
    system = [message for message in turned if message["role"] == "system"]
    if len(system) == 1 and turned[0] is system[0]:
        return turned
    texts = [_joined(message["content"]) for message in system]
    merged = {"role": "system", "content": "\n\n".join(text for text in texts if text)}
    return [merged, *(message for message in turned if message["role"] != "system")]


def tools(fields: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Return the body's tools with the members that vLLM keeps, in its order."""
    given = fields.get("tools")
    return None if given is None else [_tool(tool) for tool in given]


def template_arguments(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the template is given beside conversation and tools."""
    given = fields.get("chat_template_kwargs") or {}
    effort = fields.get("reasoning_effort")
    asked = {
        "add_generation_prompt": fields.get("add_generation_prompt", True),
        "continue_final_message": fields.get("continue_final_message", False),
        "documents": fields.get("documents"),
        "reasoning_effort": effort,
    }
    if effort is not None and "enable_thinking" not in given:
        asked["enable_thinking"] = effort != "none"
    arguments = given | {k: v for k, v in asked.items() if v not in (None, "auto")}
    return {k: v for k, v in arguments.items() if k not in _NOT_FOR_TEMPLATE}


def _message(message: Message, *, as_parts: bool, media: bool) -> Message:
    role = message["role"]
    parts = _parts(message.get("content"), media=media)
    result: Message = {"role": role, "content": parts if as_parts else _joined(parts)}
    if role == "assistant":
        result |= _assistant_members(message)
    elif role == "tool":
        if "tool_call_id" in message:
            result["tool_call_id"] = message["tool_call_id"]
        if all(part["type"] == "text" for part in parts):
            # Most templates handle nothing but a string here.
            result["content"] = "\n".join(part["text"] for part in parts)
    if isinstance(message.get("name"), str):
        result["name"] = message["name"]
    if role == "developer":
        result["tools"] = message.get("tools")
    return result


def _parts(content: Any, *, media: bool) -> list[dict[str, Any]]:
    if content is None:
        return []
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [shown for part in content if (shown := _part(part, media=media)) is not None]


def _part(part: Any, *, media: bool) -> dict[str, Any] | None:
    if not isinstance(part, dict):
        raise ValueError(f"a content part must be an object: {part!r:.60}")  # noqa: TRY004
    kind = part.get("type") or next((key for key in _MEDIA if key in part), None)
    extra = {key: value for key, value in part.items() if key not in _PART_KEYS}
    if kind in _TEXT_KEYS:
        text = part.get(_TEXT_KEYS[kind])
        return None if text is None else {"type": "text", "text": text, **extra}
    if kind == "tool_reference":
        return {"type": kind, "name": part.get("name")}
    if kind not in _MEDIA:
        raise ValueError(f"unknown content part: {kind}")
    if not media:
        raise ValueError(f"content part `{kind}`: the model takes text only")
    return {"type": _MEDIA[kind], **extra}


def _joined(content: str | list[dict[str, Any]]) -> str:
    """Return the text of parts, one a line; empty ones and media leave no line."""
    if isinstance(content, str):
        return content
    texts = (part.get("text") or part.get("name") for part in content)
    return "\n".join(text for text in texts if text)


def _assistant_members(message: Message) -> Message:
    members: Message = {}
    if message.get("tool_calls"):
        members["tool_calls"] = [_tool_call(call) for call in message["tool_calls"]]
    reasoning = message.get("reasoning")
    if reasoning is None:
        reasoning = message.get("reasoning_content")
    if reasoning is not None:
        members |= {"reasoning": reasoning, "reasoning_content": reasoning}
    return members


def _tool_call(call: dict[str, Any]) -> dict[str, Any]:
    """Return a past call with its arguments as an object, members in vLLM's order."""
    function = call["function"]
    ordered = {"arguments": _arguments(function.get("arguments")), "name": function.get("name")}
    rest = {key: value for key, value in call.items() if key not in ("id", "function", "type")}
    head = {"id": call["id"]} if "id" in call else {}
    return {
        **head,
        "function": {**ordered, **{k: v for k, v in function.items() if k not in ordered}},
        "type": call.get("type", "function"),
        **rest,
    }


def _arguments(text: Any) -> dict[str, Any]:
    """Return a past call's arguments; what is no JSON object counts as none, as in vLLM."""
    if not isinstance(text, str):
        raise ValueError("the arguments of a tool call must be a string")  # noqa: TRY004
    try:
        parsed = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    function = tool["function"]
    kept = {key: function.get(key) for key in ("name", "description", "parameters")}
    if function.get("strict") is not None:
        kept["strict"] = function["strict"]
    return {"type": tool.get("type", "function"), "function": kept}
