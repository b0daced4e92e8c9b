"""Judge the `input` of a response: a text, or the items of a conversation."""

from collections.abc import Mapping
from typing import Any

from blend.core.input.messages import check_message
from blend.core.input.problem import Problem, named, shown

# The type of an item that is no message -> the members without which it says nothing.
_ITEMS: dict[str, dict[str, tuple[type, ...]]] = {
    "function_call": {"call_id": (str,), "name": (str,), "arguments": (str,)},
    "function_call_output": {"call_id": (str,), "output": (str, list)},
}


def check_response_input(fields: Mapping[str, Any]) -> Problem | None:
    """Return what is wrong with the ``input`` of a response body, if anything."""
    given = fields.get("input")
    path = ("input",)
    if given is None:
        hint = "; with `messages` the url is /v1/chat/completions" if "messages" in fields else ""
        return Problem(path, "missing prompt", f"`input` is missing{hint}")
    if type(given) is str:
        return None
    if type(given) is not list or not given:
        words = f"`input` must be a string or a list of items, not empty: {shown(given)}"
        return Problem(path, "bad prompt", words)
    found = (_check_item(item, ("input", index)) for index, item in enumerate(given))
    return next((problem for problem in found if problem), None)


def _check_item(item: Any, path: tuple[str | int, ...]) -> Problem | None:
    if type(item) is not dict or item.get("type", "message") == "message":
        return check_message(item, path)
    kind = item["type"]
    if kind == "item_reference":
        words = "refers to an item that a server keeps; a batch keeps no state"
        return Problem(path, "bad messages", f"{named(path)} {words}")
    for name, types in _ITEMS.get(kind, {}).items() if type(kind) is str else ():
        if type(item.get(name)) not in types:
            words = f"of type {shown(kind)} needs `{name}`: {shown(item.get(name))}"
            return Problem(path, "bad messages", f"{named(path)} {words}")
    return None
