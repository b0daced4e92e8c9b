from dataclasses import replace

import pytest

from blend.core.engines.vllm_arguments import command_line, flag_name
from blend.core.engines.vllm_messages import Start

PACED = "--scheduler-cls=blend.core.engines.vllm_pace.paced_scheduler"
WHOLE = "--no-enable-chunked-prefill"


def start(seed: int | None = None, **arguments: str | None) -> Start:
    return Start("org/model", "served", tuple(arguments.items()), seed)


def test_what_the_user_asks_for_replaces_our_default() -> None:
    line = command_line(start(block_size="64", **{"--max-num-seqs": "7"}), on_cpu=True)

    assert "--block-size=64" in line
    assert "--max-num-seqs=7" in line
    assert not {"--block-size=32", "--max-num-seqs=64"} & set(line)


def test_a_negated_flag_replaces_our_default() -> None:
    line = command_line(start(no_enforce_eager=None), on_cpu=True)

    assert "--no-enforce-eager" in line
    assert "--enforce-eager" not in line


def test_a_gpu_keeps_the_defaults_of_vllm_but_for_the_batch() -> None:
    line = command_line(start(seed=3), on_cpu=False)

    assert {"--max-num-seqs=1024", "--max-num-batched-tokens=8192", "--seed=3"} <= set(line)
    assert not any(word.startswith(("--dtype", "--block-size", "--enforce")) for word in line)


def test_what_reports_need_cannot_be_taken_away() -> None:
    line = command_line(start(model="other", enable_prompt_tokens_details="x"), on_cpu=True)

    assert "--model=org/model" in line
    assert "--enable-prompt-tokens-details" in line


def test_on_a_cpu_prompts_are_computed_whole_unless_the_user_says_otherwise() -> None:
    length = {"max-model-len": "4096"}
    whole = {"--no-enable-chunked-prefill", "--max-num-batched-tokens=4096"}

    assert whole <= set(command_line(start(**length), on_cpu=True))
    assert not whole & set(command_line(start(**length), on_cpu=False))
    for asked in ("max-num-batched-tokens", "enable-chunked-prefill"):
        line = command_line(start(**length, **{asked: "512"}), on_cpu=True)
        assert not whole & set(line)


@pytest.mark.parametrize("on_cpu", [True, False])
def test_a_pace_step_by_step_comes_with_a_scheduler_and_prompts_in_parts(on_cpu: bool) -> None:
    asked = replace(start(max_model_len="4096"), pacing="step budget", seeded=False)
    line = command_line(asked, on_cpu=on_cpu)

    assert PACED in line
    assert WHOLE not in line
    assert PACED not in command_line(replace(asked, pacing="none"), on_cpu=on_cpu)


@pytest.mark.parametrize("name", ["long-prefill-token-threshold", "max_num_scheduled_tokens"])
def test_parts_of_prompts_are_computed_on_a_cpu_where_they_are_asked_for(name: str) -> None:
    asked = replace(start(max_model_len="4096", **{name: "64"}), seeded=False)

    assert {f"--{flag_name(name)}=64", "--max-num-batched-tokens=2048"} <= set(
        command_line(asked, on_cpu=True)
    )
    assert WHOLE not in command_line(asked, on_cpu=True)


def test_no_prompt_with_a_seed_is_computed_in_parts_on_a_cpu(
    caplog: pytest.LogCaptureFixture,
) -> None:
    asked = start(max_model_len="4096", long_prefill_token_threshold="64")
    asked = replace(asked, pacing="step budget", seeded=True)
    line = command_line(asked, on_cpu=True)

    assert WHOLE in line
    assert not [word for word in line if "scheduler-cls" in word or "threshold" in word]
    assert "--long-prefill-token-threshold, --scheduler-cls" in caplog.text
    assert {PACED, "--long-prefill-token-threshold=64"} <= set(command_line(asked, on_cpu=False))


def test_a_scheduler_that_the_user_brings_stays() -> None:
    asked = replace(start(scheduler_cls="their.own"), pacing="step budget", seeded=True)

    for on_cpu in (True, False):
        line = command_line(asked, on_cpu=on_cpu)
        assert [word for word in line if "scheduler-cls" in word] == ["--scheduler-cls=their.own"]
