"""What is wrong with the words of a command line, or with values set elsewhere, in our own words.

Click and pydantic find it; what they say of it is neither alike nor always to the point.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

import typer
from typer.exceptions import TyperException

_REQUIRED: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "int_parsing": lambda _: "must be a whole number",
    "int_from_float": lambda _: "must be a whole number",
    "float_parsing": lambda _: "must be a number",
    "bool_parsing": lambda _: "must be true or false",
    "greater_than_equal": lambda limit: f"must be at least {limit['ge']:g}",
    "less_than_equal": lambda limit: f"must be at most {limit['le']:g}",
}
_CHOICE = re.compile(r"Value error, '.*' is not one of (.*)", re.DOTALL)
_REWORDED = (
    (re.compile(r"^(no such option: )(\S+)$"), r"\1`\2`"),
    (re.compile(r"^no such command '(.*?)'"), r"no such command: `blend \1`"),
    (re.compile(r"^got unexpected extra argument\(s\) \((.*)\)"), r"one word too many: `\1`"),
    (re.compile(r" requires an argument$"), " needs a value behind it"),
    (re.compile(r"^missing (option|argument) ('.*)"), r"\1 missing: \2"),
    (re.compile(r"'(-{0,2}[\w-]+)'"), r"`\1`"),
)
_DID_YOU_MEAN = re.compile(r"\s*did you mean '(.*?)'\?$", re.IGNORECASE)


def misuse(error: TyperException, *, subject: str | None = None) -> tuple[str, str | None]:
    """Return what is wrong, and what is meant where that is known.

    ``subject``: what holds a bad value, where that is not the command line.
    """
    if isinstance(error, typer.BadParameter) and error.message:
        option = error.param
        named = f"`{option.opts[0]}`" if option and option.opts[0][:1] == "-" else None
        named = named or f"`{option.display_name_raw}`" if option else "the value"
        return _bad_value(error, subject or named), None
    if like := getattr(error, "possibilities", None):
        meant = " or ".join(f"`{one}`" for one in like[:2])
        return f"no such option: `{getattr(error, 'option_name', '')}`", f"did you mean {meant}?"
    message = _lower(error.format_message())
    found = _DID_YOU_MEAN.search(message)
    message = _DID_YOU_MEAN.sub("", message).rstrip(".")
    for pattern, words in _REWORDED:
        message = pattern.sub(words, message)
    return message, f"did you mean `blend {found[1]}`?" if found else None


def _bad_value(error: typer.BadParameter, subject: str) -> str:
    wrong: Any = error.__cause__
    first = wrong.errors()[0] if hasattr(wrong, "errors") else None
    if first is None:
        return f"{subject}: {_lower(error.message).rstrip('.')}"
    if first["type"] in _REQUIRED:
        required = _REQUIRED[first["type"]](first.get("ctx", {}))
    elif found := _CHOICE.fullmatch(first["msg"]):
        required = f"must be one of {found[1].rstrip('.').replace(chr(39), '')}"
    else:
        return f"{subject}: {_lower(error.message).rstrip('.')}"
    return f"{subject} {required}: {first['input']}"


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
