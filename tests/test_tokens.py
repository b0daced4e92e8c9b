"""What a request's prompt becomes, seen through a real tokenizer."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from blend.core.input.draft import Rejection
from blend.core.rendering.tokenizer import Tokenizer, load_tokenizer
from blend.core.rendering.tokens import PIECE_CHARACTERS, Rendered, render
from tests.chat_models import with_template
from tests.request_lines import accepted, chat, completion


@pytest.fixture(scope="module")
def tokenizer(tiny_tokenizer_dir: Path) -> Tokenizer:
    return load_tokenizer(str(tiny_tokenizer_dir))


def rendered(tokenizer: Tokenizer, line: str) -> Rendered:
    [result] = render(tokenizer, [accepted(line)])
    assert isinstance(result, Rendered), result
    return result


def refused(tokenizer: Tokenizer, line: str) -> Rejection:
    [result] = render(tokenizer, [accepted(line)])
    assert isinstance(result, Rejection), result
    return result


def text(tokenizer: Tokenizer, result: Rendered) -> str:
    return str(tokenizer.hf.decode(result.tokens.tolist()))


def ids(tokenizer: Tokenizer, plain: str) -> list[int]:
    return list(tokenizer.hf(plain, add_special_tokens=False)["input_ids"])


def test_a_chat_goes_through_the_models_template(tokenizer: Tokenizer) -> None:
    result = rendered(tokenizer, chat(messages=[{"role": "user", "content": "hello"}]))

    assert text(tokenizer, result) == ("<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n")


def test_the_final_message_can_be_continued(tokenizer: Tokenizer) -> None:
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b "}]
    line = chat(messages=messages, add_generation_prompt=False, continue_final_message=True)

    assert text(tokenizer, rendered(tokenizer, line)).endswith("<|im_start|>assistant\nb ")


@pytest.mark.parametrize(
    ("prompt", "lengths"),
    [("hi", (2,)), (["hi", "you"], (2, 3)), ([1, 2, 3], (3,)), ([[1, 2], [4]], (2, 1))],
)
def test_a_completion_is_strings_or_ids_alone_or_listed(
    tokenizer: Tokenizer, prompt: str | Sequence[Any], lengths: tuple[int, ...]
) -> None:
    result = rendered(tokenizer, completion(prompt=prompt))

    assert result.lengths == lengths
    assert len(result.tokens) == sum(lengths)


def test_a_batch_gives_what_its_lines_give_alone(tokenizer: Tokenizer) -> None:
    lines = [chat(), completion(prompt=["a", "b"]), completion(prompt=[5]), chat(), completion()]
    together = render(tokenizer, [accepted(line) for line in lines])

    for line, result in zip(lines, together, strict=True):
        assert isinstance(result, Rendered)
        assert result.tokens.tolist() == rendered(tokenizer, line).tokens.tolist()


def test_a_prompt_is_cut_where_the_body_asks_for_it(tokenizer: Tokenizer) -> None:
    whole = ids(tokenizer, "one two three")
    last = completion(prompt="one two three", truncate_prompt_tokens=3)
    first = completion(prompt="one two three", truncate_prompt_tokens=3, truncation_side="right")

    assert rendered(tokenizer, last).tokens.tolist() == whole[-3:]
    assert rendered(tokenizer, first).tokens.tolist() == whole[:3]


def test_an_unknown_token_id_is_named(tokenizer: Tokenizer) -> None:
    rejection = refused(tokenizer, completion(prompt=[1, 100_000]))

    assert rejection.reason == "bad prompt"
    assert "100000" in rejection.message


def test_what_the_template_refuses_is_one_lines_rejection(
    tiny_tokenizer_dir: Path, tmp_path: Path
) -> None:
    template = (
        "{% for m in messages %}{% if m.role == 'tool' %}"
        "{{ raise_exception('no tools\\nhere') }}{% endif %}{{ m.content }}{% endfor %}"
    )
    tokenizer = load_tokenizer(str(with_template(tiny_tokenizer_dir, tmp_path / "m", template)))
    bad = chat(
        messages=[
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": "b"},
            {"role": "tool", "tool_call_id": "1", "content": "c"},
        ]
    )
    first, second = render(tokenizer, [accepted(bad), accepted(chat())])

    assert isinstance(second, Rendered)
    assert isinstance(first, Rejection)
    assert (first.reason, first.message) == ("template refused", "no tools here")
    assert first.column > 1


def test_a_model_without_a_template_runs_completions_only(
    tiny_tokenizer_dir: Path, tmp_path: Path
) -> None:
    tokenizer = load_tokenizer(str(with_template(tiny_tokenizer_dir, tmp_path / "m", None)))

    assert refused(tokenizer, chat()).message == "the model has no chat template"
    assert rendered(tokenizer, completion()).lengths


def test_a_template_brought_by_a_request_is_not_run(tokenizer: Tokenizer) -> None:
    line = chat(chat_template="{{ messages[0].content.__class__ }}")

    assert refused(tokenizer, line).reason == "template refused"


def test_a_template_cannot_leave_its_sandbox(tiny_tokenizer_dir: Path, tmp_path: Path) -> None:
    escape = "{{ messages.__class__.__mro__[1].__subclasses__() }}"
    tokenizer = load_tokenizer(str(with_template(tiny_tokenizer_dir, tmp_path / "m", escape)))

    assert refused(tokenizer, chat()).reason == "template refused"


@pytest.mark.parametrize("word", ["a", "the sea, the wind "])
def test_a_text_far_beyond_the_context_is_refused_without_encoding_all_of_it(
    tokenizer: Tokenizer, word: str
) -> None:
    rejection = refused(tokenizer, completion(prompt=word * (3 * PIECE_CHARACTERS // len(word))))

    assert rejection.reason == "prompt too long"
    assert f"the context has {tokenizer.context_tokens:,}" in rejection.message


def test_text_that_looks_like_a_special_token_is_encoded_as_the_engine_does(
    tokenizer: Tokenizer,
) -> None:
    assert rendered(tokenizer, completion(prompt="<|im_end|>")).lengths == (1,)


def test_unpaired_characters_do_not_stop_the_batch(tokenizer: Tokenizer) -> None:
    odd = json.dumps("\u2028 \x00 \ufffd é 漢字 🙂")
    line = f'{{"custom_id": "a", "prompt": {odd}}}'

    assert text(tokenizer, rendered(tokenizer, line)) == "\u2028 \x00 \ufffd é 漢字 🙂"
