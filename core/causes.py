"""Which failures have one cause, and which cause does a person mean?

Messages that differ in numbers and identifiers alone say the same.
"""

import re
from collections.abc import Sequence

import orjson

Group = tuple[int, str]
"""The HTTP status of failures and what they have in common, or one of their messages."""

_VARIES = re.compile(r"\w*\d\w*")
_STATUS = re.compile(r"([1-5]\d\d)(?:: ?(.*))?", re.DOTALL)


def cause_of(message: str) -> str:
    """Return what the messages of one cause have in common."""
    return _VARIES.sub("#", message)


def message_of(body: bytes) -> str:
    """Return the message of an error body, whatever its form."""
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        found = body.decode("utf-8", "replace")
    while isinstance(found, dict):
        found = found.get("message") or found.get("error") or found.get("detail") or str(found)
    return str(found)


def may_pass_later(status: int) -> bool:
    """Return whether the same request may be answered another time: the fault was not in it."""
    return status >= 500 or status in (401, 403, 404, 408, 409, 425, 429)


def meant(reason: str, groups: Sequence[Group]) -> list[Group]:
    """Return those *groups* that *reason* names; none when it names no group.

    A reason is a status, a whole cause, or both with a colon between; or a part of causes, perhaps
    cut off with an ellipsis, as a table shows it.
    """
    status = _STATUS.fullmatch(reason)
    if status is not None and status[2] is None:
        return [group for group in groups if group[0] == int(status[1])]
    exact = [
        group
        for group in groups
        if _same(group[1], reason)
        or (status is not None and group[0] == int(status[1]) and _same(group[1], status[2]))
    ]
    part = cause_of(reason.removesuffix("…"))
    # A number, such as half a status, has a place in most causes.
    says_something = any(map(str.isalpha, part))
    return exact or [group for group in groups if says_something and part in cause_of(group[1])]


def name_of(group: Group, groups: Sequence[Group]) -> str:
    """Return the shortest reason that names *group* alone among *groups*."""
    status, message = group
    shortest = (str(status), message, f"{status}: {message}")
    return next((one for one in shortest if meant(one, groups) == [group]), shortest[-1])


def _same(message: str, reason: str) -> bool:
    return cause_of(message) == cause_of(reason)
