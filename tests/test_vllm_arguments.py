from blend.core.engines.vllm_arguments import command_line
from blend.core.engines.vllm_messages import Start


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
