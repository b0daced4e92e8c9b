"""Prompts are tokenised as vLLM's own rendering tokenises them; no engine runs here."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from blend.core.rendering.template import reads_parts
from blend.core.rendering.tokenizer import load_tokenizer
from blend.core.rendering.tokens import Rendered, render
from tests.chat_models import with_template
from tests.request_lines import accepted, chat, completion, response

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]

# Shows everything that a template is given, so that the token ids tell any difference.
SHOW = (
    "{{ messages | tojson }}{{ messages[-1].content if messages[-1].content is string }}"
    "{{ tools | tojson }}{{ [documents | default('-'), reasoning_effort | default('-'), "
    "enable_thinking | default('-'), add_generation_prompt, style | default('-')] | tojson }}"
)
# As templates read a past call; the order of its members is not that of a chat.
READ = (
    "{% for m in messages %}{{ [m.role, m.content, m.reasoning | default('-'), "
    "m.tool_call_id | default('-')] | tojson }}"
    "{% for c in m.tool_calls %}{{ [c.id, c.function.name, c.function.arguments] | tojson }}"
    "{% endfor %}{% endfor %}{{ tools | tojson }}{{ [reasoning_effort | default('-'), "
    "enable_thinking | default('-'), add_generation_prompt, style | default('-')] | tojson }}"
)
LOOP = "{% for m in messages %}{% for part in m.content %}{% endfor %}{% endfor %}"

USER = {"role": "user", "content": "hi"}
TOOL = {
    "type": "function",
    "function": {"parameters": {"type": "object"}, "name": "f", "description": "d", "extra": 1},
    "other": 2,
}
CALL = {
    "id": "1",
    "type": "function",
    "function": {"name": "f", "arguments": '{"b": 1, "a": [2]}'},
    "index": 0,
}
BODIES: list[dict[str, Any]] = [
    {"messages": [USER]},
    {"messages": [{"content": "hi", "role": "user", "name": "bob", "unknown": 1}]},
    {
        "messages": [
            {
                "role": "system",
                "content": [
                    {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}},
                    {"type": "text", "text": ""},
                    {"type": "text", "text": "b"},
                ],
            },
            USER,
        ]
    },
    {
        "messages": [
            USER,
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "1", "content": "r", "name": "f"},
        ]
    },
    {
        "messages": [
            USER,
            {"role": "assistant", "tool_calls": [CALL]},
            {
                "role": "tool",
                "tool_call_id": "1",
                "content": [{"type": "text", "text": "p"}, {"type": "text", "text": "q"}],
            },
        ]
    },
    {
        "messages": [
            USER,
            {"role": "assistant", "content": "x", "reasoning_content": "y", "tool_calls": []},
            USER,
        ]
    },
    {
        "messages": [
            USER,
            {
                "role": "assistant",
                "content": [{"type": "text", "text": "a"}, {"type": "refusal", "refusal": "no"}],
            },
            USER,
        ]
    },
    {"messages": [{"role": "developer", "content": "d"}, USER, {"role": "system", "content": "s"}]},
    {"messages": [{"role": "developer", "content": "d"}, USER]},
    {"messages": [USER], "tools": [TOOL, {"type": "function", "function": {"name": "g"}}]},
    {"messages": [USER], "tools": [TOOL], "tool_choice": "none"},
    {
        "messages": [USER],
        "reasoning_effort": "high",
        "chat_template_kwargs": {"style": "s", "enable_thinking": False},
    },
    {"messages": [USER], "reasoning_effort": "none", "documents": [{"title": "t", "text": "x"}]},
    {
        "messages": [USER, {"role": "assistant", "content": "begin "}],
        "add_generation_prompt": False,
        "continue_final_message": True,
    },
    {"messages": [USER], "add_special_tokens": True},
    {"messages": [USER], "truncate_prompt_tokens": 5},
    {"messages": [USER], "truncate_prompt_tokens": 5, "truncation_side": "right"},
    {"prompt": "one two"},
    {"prompt": ["one", "three"]},
    {"prompt": [1, 2, 3]},
    {"prompt": [[1, 2], [4]]},
    {"prompt": "one two three", "truncate_prompt_tokens": 3},
    {"prompt": "one two three", "truncate_prompt_tokens": -1},
    {"prompt": [1, 2, 3], "truncate_prompt_tokens": 2},
    {"prompt": "one <|im_end|>", "add_special_tokens": False},
]

RESPONSES: list[dict[str, Any]] = [
    {"input": "hi"},
    {"input": "hi", "instructions": "be kind", "reasoning": {"effort": "high"}},
    {
        "input": [
            {"role": "developer", "content": "d"},
            {"role": "user", "content": [{"type": "input_text", "text": "a"}]},
            {"type": "message", "role": "assistant", "content": "b"},
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "c"}],
            },
            USER,
        ]
    },
    {
        "input": [
            USER,
            {"type": "reasoning", "summary": [], "content": [], "id": "rs_1"},
            {
                "type": "reasoning",
                "id": "rs_2",
                "summary": [],
                "content": [{"type": "reasoning_text", "text": "thought"}],
            },
            {"type": "function_call", "call_id": "1", "name": "f", "arguments": '{"b": 1}'},
            {"type": "function_call", "call_id": "2", "name": "g", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "1", "output": "r"},
            {"type": "function_call_output", "call_id": "2", "output": "s"},
            {"role": "assistant", "content": "done"},
            USER,
        ],
        "tools": [
            {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": True},
            {"type": "function", "name": "g", "description": "d", "parameters": {}},
            {"type": "web_search_preview"},
        ],
    },
    {
        "input": [
            USER,
            {
                "type": "message",
                "role": "assistant",
                "status": "incomplete",
                "content": [{"type": "output_text", "text": "begin "}],
            },
        ],
        "chat_template_kwargs": {"style": "s"},
    },
    {"input": "one two three", "truncation": "auto", "max_output_tokens": 5},
]

VllmIds = Callable[[dict[str, Any]], list[list[int]]]


@pytest.fixture(scope="module")
def vllm_ids() -> Callable[[Path], VllmIds]:
    """Give vLLM's rendering of a model folder: from a body to the ids of each prompt."""
    pytest.importorskip("vllm")
    from vllm.config import ModelConfig, VllmConfig
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.entrypoints.openai.completion.protocol import CompletionRequest
    from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
    from vllm.renderers.online_renderer import OnlineRenderer
    from vllm.renderers.registry import renderer_from_config

    def of_model(folder: Path) -> VllmIds:
        model = ModelConfig(model=str(folder), dtype="float32")
        renderer = OnlineRenderer(
            model,
            renderer_from_config(VllmConfig(model_config=model)),
            request_logger=None,
            chat_template=None,
            chat_template_content_format="auto",
            enable_auto_tools=True,
            tool_parser="hermes",
        )

        def ids(body: dict[str, Any]) -> list[list[int]]:
            body = json.loads(json.dumps(body))
            if "input" in body:
                rendered = asyncio.run(renderer.render_responses(ResponsesRequest(**body)))
                inputs = [rendered.engine_input]
            elif "messages" in body:
                _, inputs = asyncio.run(renderer.render_chat(ChatCompletionRequest(**body)))
            else:
                inputs = asyncio.run(renderer.render_completion(CompletionRequest(**body)))
            return [list(prompt["prompt_token_ids"]) for prompt in inputs]

        return ids

    return of_model


@pytest.mark.parametrize("template", [SHOW, LOOP + SHOW, None], ids=["strings", "parts", "tiny"])
def test_every_body_has_the_ids_of_vllms_own_rendering(
    template: str | None,
    vllm_ids: Callable[[Path], VllmIds],
    tiny_tokenizer_dir: Path,
    tmp_path: Path,
) -> None:
    folder = tiny_tokenizer_dir
    if template is not None:
        folder = with_template(tiny_tokenizer_dir, tmp_path / "m", template)
    expected = vllm_ids(folder)
    tokenizer = load_tokenizer(str(folder))
    for body in BODIES:
        [result] = render(tokenizer, [accepted(line_of(body))])
        prompts = expected(body)

        assert isinstance(result, Rendered), (body, result)
        assert result.tokens.tolist() == [token for ids in prompts for token in ids], body
        assert list(result.lengths) == list(map(len, prompts)), body


@pytest.mark.parametrize("template", [READ, LOOP + READ], ids=["strings", "parts"])
def test_every_response_has_the_ids_of_vllms_own_rendering(
    template: str,
    vllm_ids: Callable[[Path], VllmIds],
    tiny_tokenizer_dir: Path,
    tmp_path: Path,
) -> None:
    folder = with_template(tiny_tokenizer_dir, tmp_path / "m", template)
    expected = vllm_ids(folder)
    tokenizer = load_tokenizer(str(folder))
    for body in RESPONSES:
        [result] = render(tokenizer, [accepted(line_of(body))])

        assert isinstance(result, Rendered), (body, result)
        assert [result.tokens.tolist()] == expected(body), body


def line_of(body: dict[str, Any]) -> str:
    if "input" in body:
        return response(**body)
    return chat(**body) if "messages" in body else completion(**body)


def test_templates_shipped_with_vllm_are_read_as_vllm_reads_them() -> None:
    vllm = pytest.importorskip("vllm")
    from vllm.renderers.hf import _detect_content_format

    folder = Path(vllm.__file__).parent
    templates = {path: path.read_text() for path in folder.rglob("*.jinja")}

    assert templates
    for path, text in templates.items():
        expected = _detect_content_format(text, default="string") == "openai"
        assert reads_parts(text) == expected, path
