"""`blend simulate` predicts, on any device and under every policy, and changes nothing."""

import hashlib
import json
import re
from pathlib import Path

import numpy as np
import pytest

from blend.cli.app import main
from blend.cli.observing import known_lengths
from blend.core.errors import USAGE
from blend.core.planning.classes import find_classes
from blend.core.planning.compare import redrawn
from blend.core.planning.engine_model import engine_model
from blend.core.planning.hardware import Parallel, hardware_preset, model_preset, several
from blend.core.planning.lengths import Observations
from blend.core.planning.tree import build_tree
from blend.core.schedule import POLICIES
from blend.store.job import Job
from tests.batch_files import ingested, mixed
from tests.prompt_sets import prompts_of
from tests.simulated_job import large_model_job
from tests.test_json_docs import fields

DOCUMENT = Path(__file__).parent.parent / "docs" / "simulate.md"

compiles = pytest.mark.slow  # half a minute and more where the kernels are not compiled yet


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return large_model_job(tmp_path_factory.mktemp("large") / "batch.blend", rows=600)


def simulated(capsys: pytest.CaptureFixture[str], job: Path, *options: str) -> dict:
    capsys.readouterr()
    assert main(["simulate", str(job), "--hardware", "h200", "--json", *options]) == 0
    return json.loads(capsys.readouterr().out)


@compiles
def test_every_policy_has_a_time_with_a_range_and_the_fastest_is_first(job, capsys) -> None:
    found = simulated(capsys, job)
    policies = found["policies"]

    assert {one["policy"] for one in policies} == set(POLICIES)
    assert [one["seconds"] for one in policies] == sorted(one["seconds"] for one in policies)
    assert all(one["low_s"] <= one["seconds"] <= one["high_s"] for one in policies)
    assert policies[0]["behind"] == 0
    assert all(0 < one["bound_share"] <= 1 for one in policies)
    assert all(0 < one["sharing_kept"] <= 1 for one in policies)
    assert all(0 < one["peak_kv_share"] <= 1 for one in policies)


@compiles
def test_the_fields_of_the_json_are_those_of_the_document(job, capsys) -> None:
    options = ["--policy", "dfs", "--draws", "1", "--data-parallel-size", "2"]
    there = fields(simulated(capsys, job, *options))
    json_part = DOCUMENT.read_text().split("## The JSON")[1].split("\n## ")[0]
    told = set(re.findall(r"`(\w+)`", DOCUMENT.read_text()))
    first_column = re.findall(r"^\| (`.*?) \|", json_part, re.MULTILINE)
    promised = {name for cell in first_column for name in re.findall(r"`(\w+)`", cell)}
    # What the cost model sees of device, model and way stands with the settings of a plan.
    settings = set(re.findall(r"`(\w+)`", (DOCUMENT.parent / "json.md").read_text()))

    assert sorted(there - told - settings) == []
    assert sorted(promised - there) == []


@compiles
def test_card_and_kind_of_engine_have_two_names_each(job, capsys) -> None:
    said = []
    for card, kind in (("--hardware", "--mode"), ("--gpu", "--engine-model")):
        asked = [card, "h200", kind, "overlapped", "--policy", "dfs", "--draws", "1", "--json"]
        assert main(["simulate", str(job), *asked]) == 0
        said.append(capsys.readouterr().out)

    assert said[0] == said[1]
    assert json.loads(said[0])["engine"]["mode"] == "overlapped"


def test_nothing_in_the_job_changes(job, capsys) -> None:
    before = hashlib.sha256(job.read_bytes()).digest()
    simulated(capsys, job, "--policy", "dfs", "--draws", "1")

    assert hashlib.sha256(job.read_bytes()).digest() == before
    assert [path.name for path in job.parent.iterdir()] == [job.name]


@compiles
def test_the_same_seed_gives_the_same_figures(job, capsys) -> None:
    one, again, other = (
        simulated(capsys, job, "--policy", "fcfs,dfs", "--seed", seed) for seed in "112"
    )

    assert one == again
    assert one["policies"] != other["policies"]


@compiles
def test_more_devices_hold_more_and_take_less_time(job, capsys) -> None:
    one = simulated(capsys, job, "--policy", "dfs")
    two = simulated(capsys, job, "--policy", "dfs", "-tp", "2")

    assert two["engine"]["kv_tokens"] > 2 * one["engine"]["kv_tokens"]
    assert one["policies"][0]["seconds"] / 2 < two["policies"][0]["seconds"]
    assert two["policies"][0]["seconds"] < one["policies"][0]["seconds"]
    assert one["engine"]["network_token_s"] == 0 < two["engine"]["network_token_s"]
    assert any("they talk for" in line for line in two["assumes"])


@compiles
def test_stages_hold_as_much_and_read_their_weights_for_each_batch(job, capsys) -> None:
    two = simulated(capsys, job, "--policy", "dfs", "-tp", "2")
    stages = simulated(capsys, job, "--policy", "dfs", "-pp", "2")

    assert stages["hardware"]["devices"] == 2
    assert stages["engine"]["kv_tokens"] == two["engine"]["kv_tokens"]
    assert stages["engine"]["network_token_s"] < two["engine"]["network_token_s"]
    assert any("a round of 2 batches" in line for line in stages["assumes"])


def test_a_plan_counts_what_its_devices_say(tmp_path, tiny_tokenizer_dir) -> None:
    path = ingested(tmp_path / "batch.blend", mixed(20), model=tiny_tokenizer_dir)
    found = {}
    for devices in ("1", "2"):
        options = ["--no-sample", "--hardware", "h200", "-tp", devices]
        assert main(["plan", str(path), "--policy", "dfs", *options]) == 0
        with Job.open(path) as job:
            found[devices] = job.plan().predictions

    assert found["1"]["network_s"] == 0 < found["2"]["network_s"]
    parts = ("comp_s", "mem_s", "network_s")
    assert found["2"]["sequential_s"] >= sum(found["2"][part] for part in parts)


@compiles
def test_every_sequence_of_a_request_is_run(tmp_path, job, capsys) -> None:
    triple = large_model_job(tmp_path / "triple.blend", rows=600, sequences=3)
    one, three = (simulated(capsys, path, "--policy", "dfs") for path in (job, triple))

    assert three["requests"] == one["requests"]
    assert three["sequences"] == 3 * one["sequences"]
    assert three["output_tokens"] == pytest.approx(3 * one["output_tokens"], rel=0.5)


@compiles
def test_answers_that_are_known_keep_their_length(tmp_path, tiny_tokenizer_dir, capsys) -> None:
    path = ingested(tmp_path / "batch.blend", mixed(40), model=tiny_tokenizer_dir)
    assert main(["plan", str(path), "--no-sample", "--hardware", "h200"]) == 0
    assert main(["execute", str(path), "--engine", "sim"]) == 0
    found = simulated(capsys, path, "--policy", "dfs", "--draws", "3")
    with Job.open(path) as job:
        tokens = job.counts().output_tokens

    assert found["output_tokens"] == tokens
    assert found["policies"][0]["low_s"] == found["policies"][0]["high_s"]


@compiles
@pytest.mark.parametrize("mode", ["sequential", "overlapped"])
def test_the_table_fits_on_80_columns_and_says_what_it_assumes(job, capsys, mode: str) -> None:
    assert main(["simulate", str(job), "--hardware", "a100-80g", "--mode", mode]) == 0
    text = capsys.readouterr().out

    assert max(len(line) for line in text.splitlines()) <= 80
    assert "…" not in text
    assert "no answer is known" in text
    assert "datasheet" in text


@compiles
def test_one_draw_claims_no_range_and_a_plan_is_the_next_step(job, capsys) -> None:
    options = ["--hardware", "h200", "--policy", "fcfs", "--draws", "1"]
    assert main(["simulate", str(job), *options]) == 0
    shown = capsys.readouterr()

    assert "one draw" in shown.out
    assert f"`blend plan {job} --policy fcfs`" in shown.err


def test_a_device_that_is_too_small_is_refused_with_a_way_out(job, capsys) -> None:
    assert main(["simulate", str(job), "--hardware", "cpu"]) == USAGE
    assert "--tensor-parallel-size" in capsys.readouterr().err


def test_an_unknown_policy_is_refused_with_those_there_are(job, capsys) -> None:
    assert main(["simulate", str(job), "--hardware", "h200", "--policy", "fcfs,best"]) == USAGE
    assert "memory-first" in capsys.readouterr().err


def test_the_ages_of_a_cut_sample_are_known_as_such(tmp_path, tiny_tokenizer_dir) -> None:
    path = ingested(tmp_path / "batch.blend", mixed(40), model=tiny_tokenizer_dir)
    sample = ["--engine", "sim", "--hardware", "a100-80g", "--sample-seconds", "0"]
    assert main(["plan", str(path), *sample]) == 0
    with Job.open(path) as job:
        known, plan = known_lengths(job, job.prompts()), job.plan()

    assert plan is not None
    sampled = np.flatnonzero(~np.isnan(known.tokens))
    assert sampled.tolist() == plan.sample_rows.tolist()
    assert known.tokens[sampled].tolist() == plan.sample_tokens.tolist()
    assert known.finished[sampled].tolist() == plan.sample_finished.tolist()


def test_another_sample_moves_a_guess_by_a_factor_and_a_large_sample_hardly() -> None:
    prompts = prompts_of([[row] for row in range(900)], max_tokens=4096)
    tree = build_tree(prompts)
    lengths = np.random.default_rng(0).lognormal(4.0, 0.5, len(tree))
    guessed = find_classes(tree, prompts.max_tokens)
    sampled = find_classes(
        tree, prompts.max_tokens, Observations(lengths, np.ones(len(tree), np.bool_))
    )
    rng = np.random.default_rng(1)
    spread = [
        np.std([redrawn(one, rng).centre[0] for _ in range(100)]) for one in (guessed, sampled)
    ]

    assert spread[0] == pytest.approx(0.7, rel=0.3)
    assert spread[1] == pytest.approx(0.5 / 30, rel=0.3)


def test_prompts_by_sequence_repeat_each_prompt_in_place() -> None:
    prompts = prompts_of([[1, 2], [3], [4, 5, 6]], max_tokens=[7, 8, 9])
    prompts.sequences[:] = [2, 1, 3]
    each, rows = prompts.by_sequence()

    assert rows.tolist() == [0, 0, 1, 2, 2, 2]
    assert [each[one].tolist() for one in range(6)] == [prompts[row].tolist() for row in rows]
    assert each.max_tokens.tolist() == [7, 7, 8, 9, 9, 9]
    assert each.sequences.tolist() == [1] * 6


def test_tensor_parallel_devices_are_one_larger_device() -> None:
    one, model = hardware_preset("a100-80g"), model_preset("llama-3-70b")
    eight = several(one, Parallel(8))

    assert engine_model(one, model).capacity.kv_tokens == 0
    assert engine_model(eight, model).weights_s == pytest.approx(
        engine_model(one, model).weights_s / 8
    )
    assert engine_model(eight, model).capacity.kv_tokens > 1_000_000
    assert several(one, Parallel()) == one
