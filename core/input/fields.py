"""Judge the sampling fields of a request body, one rule a field.

A field without a rule is accepted: the engine judges it. So is null, which means the default.
The bounds are those that the OpenAI API and vLLM share.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from blend.core.input.draft import Reason
from blend.core.input.problem import Problem, named, shown
from blend.core.request import Endpoint

_MAX_SEQUENCES = 16_384  # vLLM's bound


@dataclass(frozen=True, slots=True)
class Rule:
    """What a field must be, in words and as a test of its value."""

    words: str
    test: Callable[[Any], bool]
    reason: Reason = "bad field"


def check_fields(fields: Mapping[str, Any], endpoint: Endpoint) -> Problem | None:
    """Return the first field of a body that no engine would take."""
    rules = _RULES[endpoint]
    for name, value in fields.items():
        if value is None:
            continue
        rule = rules.get(name)
        if rule is not None and not rule.test(value):
            words = f"{named((name,))} must be {rule.words}: {shown(value)}"
            return Problem((name,), rule.reason, words)
    return _check_together(fields, endpoint)


def is_integer(value: Any) -> bool:
    """Whether a JSON value is a whole number; 8.0 is one, true is not."""
    return type(value) is int or (type(value) is float and value.is_integer())


def _is_number(value: Any) -> bool:
    return type(value) is int or type(value) is float


def _is_boolean(value: Any) -> bool:
    return type(value) is bool


def _is_string(value: Any) -> bool:
    return type(value) is str


def _is_object(value: Any) -> bool:
    return type(value) is dict


def _between(low: float, high: float) -> Rule:
    return Rule(
        f"a number from {low} to {high}", lambda value: _is_number(value) and low <= value <= high
    )


def _whole(words: str, least: int, reason: Reason = "bad field") -> Rule:
    return Rule(words, lambda value: is_integer(value) and value >= least, reason)


def _is_sequence_count(value: Any) -> bool:
    return is_integer(value) and 1 <= value <= _MAX_SEQUENCES


def _is_stop(value: Any) -> bool:
    stops = value if type(value) is list else [value]
    return all(type(stop) is str and stop != "" for stop in stops)


def _is_bias(value: Any) -> bool:
    return type(value) is dict and all(_is_number(bias) for bias in value.values())


def _is_token_list(value: Any) -> bool:
    return type(value) is list and all(is_integer(token) and token >= 0 for token in value)


def _is_function(value: Any) -> bool:
    if type(value) is not dict or value.get("type", "function") != "function":
        return False
    function = value.get("function")
    return type(function) is dict and type(function.get("name")) is str


def _is_tool_list(value: Any) -> bool:
    return type(value) is list and len(value) > 0 and all(_is_function(tool) for tool in value)


def _is_tool_choice(value: Any) -> bool:
    return _is_function(value) if type(value) is dict else value in ("none", "auto", "required")


def _is_typed_list(value: Any) -> bool:
    return type(value) is list and all(_has_type(one) for one in value)


def _has_type(value: Any) -> bool:
    return type(value) is dict and type(value.get("type")) is str


def _is_response_tool_choice(value: Any) -> bool:
    return _has_type(value) or value in ("none", "auto", "required")


def _is_response_format(value: Any) -> bool:
    if type(value) is not dict:
        return False
    if value.get("type") == "json_schema":
        return type(value.get("json_schema")) is dict
    return value.get("type") in ("text", "json_object", "structural_tag")


_BOOLEAN = Rule("true or false", _is_boolean)
_STRING = Rule("a string", _is_string)
_OBJECT = Rule("an object", _is_object)
_MAX_TOKENS = _whole("a positive integer", 1, "bad max_tokens")
_SEQUENCES = Rule(f"a positive integer, at most {_MAX_SEQUENCES:,}", _is_sequence_count, "bad n")
_COUNT = _whole("zero or a positive integer", 0)
_LOGPROBS = _whole("zero or a positive integer (-1: all)", -1)
_TOKENS = Rule("a list of token ids", _is_token_list)

_STATELESS = Rule("false or absent: a batch keeps no state", lambda value: value is False)
_ABSENT = Rule("absent: a batch keeps no state", lambda _: False)

_ALL: dict[str, Rule] = {
    "model": _STRING,
    "stream": Rule("false or absent in a batch", lambda value: value is False, "stream"),
    "truncate_prompt_tokens": _whole("a positive integer (-1: the context)", -1),
    "user": _STRING,
    "add_special_tokens": _BOOLEAN,
}

_SAMPLING: dict[str, Rule] = _ALL | {
    "temperature": _between(0, 2),
    "top_p": Rule("a number above 0, at most 1", lambda v: _is_number(v) and 0 < v <= 1),
    "min_p": _between(0, 1),
    "top_k": _whole("a positive integer (0 or -1: off)", -1),
    "presence_penalty": _between(-2, 2),
    "frequency_penalty": _between(-2, 2),
    "repetition_penalty": Rule("a positive number", lambda v: _is_number(v) and v > 0),
    "seed": Rule("a 64-bit integer", lambda v: is_integer(v) and -(2**63) <= v < 2**63),
    "stop": Rule("a string or a list of strings, none of them empty", _is_stop),
    "stop_token_ids": _TOKENS,
    "logit_bias": Rule("an object of numbers", _is_bias),
    "min_tokens": _COUNT,
    "ignore_eos": _BOOLEAN,
    "skip_special_tokens": _BOOLEAN,
    "include_stop_str_in_output": _BOOLEAN,
}

_COMPLETING: dict[str, Rule] = _SAMPLING | {
    "max_tokens": _MAX_TOKENS,
    "n": _SEQUENCES,
    "best_of": _SEQUENCES,
    "length_penalty": Rule("a number", _is_number),
    "allowed_token_ids": _TOKENS,
    "prompt_logprobs": _LOGPROBS,
    "response_format": Rule(
        'an object of type "text", "json_object" or "json_schema" (with a `json_schema` object)',
        _is_response_format,
    ),
    "echo": _BOOLEAN,
    "spaces_between_special_tokens": _BOOLEAN,
    "use_beam_search": _BOOLEAN,
}

_RULES: dict[Endpoint, dict[str, Rule]] = {
    "/v1/chat/completions": _COMPLETING
    | {
        "max_completion_tokens": _MAX_TOKENS,
        "logprobs": _BOOLEAN,
        "top_logprobs": _LOGPROBS,
        "tools": Rule(
            "a list of objects with `type` and `function.name`, not empty", _is_tool_list
        ),
        "tool_choice": Rule(
            '"none", "auto", "required" or an object that names a function', _is_tool_choice
        ),
        "parallel_tool_calls": _BOOLEAN,
        "add_generation_prompt": _BOOLEAN,
        "continue_final_message": _BOOLEAN,
        "chat_template": _STRING,
        "chat_template_kwargs": _OBJECT,
    },
    "/v1/completions": _COMPLETING | {"logprobs": _LOGPROBS, "suffix": _STRING},
    "/v1/responses": _SAMPLING
    | {
        "max_output_tokens": _MAX_TOKENS,
        "instructions": _STRING,
        "background": _STATELESS,
        "store": _STATELESS,
        "previous_response_id": _ABSENT,
        "conversation": _ABSENT,
        "prompt": Rule("absent: prompts are kept by OpenAI's platform alone", lambda _: False),
        "tools": Rule("a list of objects with a `type`", _is_typed_list),
        "tool_choice": Rule(
            '"none", "auto", "required" or an object with a `type`', _is_response_tool_choice
        ),
        "parallel_tool_calls": _BOOLEAN,
        "reasoning": _OBJECT,
        "text": _OBJECT,
        "metadata": _OBJECT,
        "truncation": Rule('"auto" or "disabled"', lambda v: v in ("auto", "disabled")),
        "top_logprobs": _COUNT,
        "chat_template_kwargs": _OBJECT,
    },
    "/v1/embeddings": _ALL
    | {
        "dimensions": _whole("a positive integer", 1),
        "encoding_format": Rule('"float" or "base64"', lambda v: v in ("float", "base64")),
        "truncation_side": Rule('"left" or "right"', lambda v: v in ("left", "right")),
    },
}


SHORT_FIELDS = frozenset(
    {*_RULES["/v1/chat/completions"], *_RULES["/v1/completions"], "metadata"} - {"stream"}
)
"""The fields that a short request may have beside its prompt or messages, as columns of a table."""


def _check_together(fields: Mapping[str, Any], endpoint: Endpoint) -> Problem | None:
    if fields.get("stream_options"):
        return Problem(("stream_options",), "stream", "`stream_options` has no place in a batch")
    if endpoint != "/v1/chat/completions":
        return None
    if fields.get("top_logprobs") and not fields.get("logprobs"):
        words = "`top_logprobs` needs `logprobs` to be true"
        return Problem(("top_logprobs",), "bad field", words)
    if fields.get("tool_choice", "none") not in (None, "none") and not fields.get("tools"):
        return Problem(("tool_choice",), "bad field", "`tool_choice` needs `tools`")
    if fields.get("continue_final_message") and fields.get("add_generation_prompt"):
        words = "`continue_final_message` and `add_generation_prompt` exclude each other"
        return Problem(("continue_final_message",), "bad field", words)
    return None
