"""Judge what a request asks the model: the messages of a chat, the prompt of a completion."""

from collections.abc import Mapping
from typing import Any

from blend.core.input.problem import Problem, named, shown

ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})

# Who may be silent: an assistant that only called tools, a tool that returned nothing.
_SILENT_ROLES = frozenset({"assistant", "tool", "function"})

# The type of a content part -> the member that carries it and the types that it may have.
_PARTS: dict[str, tuple[str, tuple[type, ...]]] = {
    "text": ("text", (str,)),
    "input_text": ("text", (str,)),
    "output_text": ("text", (str,)),
    "thinking": ("thinking", (str,)),
    "refusal": ("refusal", (str,)),
    "image_url": ("image_url", (str, dict)),
    "input_image": ("image_url", (str, dict)),
    "image_embeds": ("image_embeds", (str, dict)),
    "input_audio": ("input_audio", (dict,)),
    "audio_url": ("audio_url", (str, dict)),
    "audio_embeds": ("audio_embeds", (str, dict)),
    "video_url": ("video_url", (str, dict)),
    "video_embeds": ("video_embeds", (str, dict)),
    "prompt_embeds": ("data", (str,)),
    "tool_reference": ("name", (str,)),
    "file": ("file", (dict,)),
}


def check_messages(fields: Mapping[str, Any]) -> Problem | None:
    """Return what is wrong with the ``messages`` of a chat body, if anything."""
    messages = fields.get("messages")
    path = ("messages",)
    if messages is None:
        hint = "; with a `prompt` the url is /v1/completions" if "prompt" in fields else ""
        return Problem(path, "missing messages", f"`messages` is missing{hint}")
    if type(messages) is not list or not messages:
        words = f"`messages` must be a list of messages, not empty: {shown(messages)}"
        return Problem(path, "bad messages", words)
    for index, message in enumerate(messages):
        problem = check_message(message, ("messages", index))
        if problem is not None:
            return problem
    return None


def check_prompt(fields: Mapping[str, Any], name: str = "prompt") -> Problem | None:
    """Return what is wrong with the prompts of a body, the member *name*, if anything."""
    prompt = fields.get(name)
    if prompt is None:
        hint = "; with `messages` the url is /v1/chat/completions" if "messages" in fields else ""
        return Problem((name,), "missing prompt", f"`{name}` is missing{hint}")
    if not _is_prompt(prompt):
        words = (
            f"`{name}` must be a string, a list of strings, a list of token ids or a list of "
            f"those, none of them empty: {shown(prompt)}"
        )
        return Problem((name,), "bad prompt", words)
    return None


def prompts_in(prompt: Any) -> int:
    """Return how many prompts a well-formed ``prompt`` holds: a list of token ids is one."""
    if type(prompt) is list and type(prompt[0]) is not int:
        return len(prompt)
    return 1


def check_message(message: Any, path: tuple[str | int, ...]) -> Problem | None:
    """Return what is wrong with the message at *path*, if anything."""
    if type(message) is not dict:
        return Problem(path, "bad messages", f"{named(path)} must be an object: {shown(message)}")
    role = message.get("role")
    if type(role) is not str or role not in ROLES:
        words = "is missing" if role is None else f"must be one of {_ROLES_TEXT}: {shown(role)}"
        return Problem((*path, "role"), "unknown role", f"{named((*path, 'role'))} {words}")
    if "tool_calls" in message:
        problem = _check_tool_calls(message["tool_calls"], (*path, "tool_calls"))
        if problem is not None:
            return problem
    content = message.get("content")
    if type(content) is str or (content is None and role in _SILENT_ROLES):
        return None
    return _check_content(content, role, (*path, "content"))


def _check_content(content: Any, role: str, path: tuple[str | int, ...]) -> Problem | None:
    if type(content) is not list:
        words = f"of role {shown(role)} must be a string or a list of parts: {shown(content)}"
        return Problem(path, "bad messages", f"{named(path)} {words}")
    for index, part in enumerate(content):
        words = _wrong_with_part(part)
        if words:
            part_path = (*path, index)
            return Problem(part_path, "bad messages", f"{named(part_path)} {words}")
    return None


def _wrong_with_part(part: Any) -> str:
    if type(part) is str:
        return ""
    if type(part) is not dict:
        return f"must be an object: {shown(part)}"
    kind = part.get("type")
    if kind is None:
        if any(name in part for name in _PARTS):
            return ""
        return f"needs a `type`: {shown(part)}"
    if type(kind) is not str or kind not in _PARTS:
        return f"has a `type` that is not known: {shown(kind)}"
    member, types = _PARTS[kind]
    if type(part.get(member)) not in types:
        return f"of type {shown(kind)} needs `{member}`: {shown(part.get(member))}"
    return ""


def _check_tool_calls(calls: Any, path: tuple[str | int, ...]) -> Problem | None:
    if calls is None:
        return None
    if type(calls) is not list:
        return Problem(path, "bad messages", f"{named(path)} must be a list: {shown(calls)}")
    for index, call in enumerate(calls):
        function = call.get("function") if type(call) is dict else None
        if type(function) is not dict or type(function.get("name")) is not str:
            call_path = (*path, index)
            words = f"{named(call_path)} needs a `function` with a `name`: {shown(call)}"
            return Problem(call_path, "bad messages", words)
    return None


def _is_prompt(prompt: Any) -> bool:
    if type(prompt) is str:
        return prompt != ""
    if type(prompt) is not list or not prompt:
        return False
    if type(prompt[0]) is list:
        return all(_is_token_ids(ids) for ids in prompt)
    if type(prompt[0]) is str:
        return all(type(text) is str and text != "" for text in prompt)
    return _is_token_ids(prompt)


def _is_token_ids(ids: Any) -> bool:
    return (
        type(ids) is list
        # A set of types, because a prompt may be a million ids.
        and set(map(type, ids)) == {int}
        and min(ids) >= 0
        and max(ids) < 2**32
    )


_ROLES_TEXT = ", ".join(sorted(ROLES))
