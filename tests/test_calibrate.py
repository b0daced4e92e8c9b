"""Calibration finds what was put in, says when it did not, and plans are made with it."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from blend.cli.app import main
from blend.cli.machine import device_name, this_hardware
from blend.cli.profile_store import keep_entry, read_section
from blend.cli.profiles import (
    TRUSTED_LINES,
    known_profile,
    profile_key,
    save_calibrated,
    save_profile,
)
from blend.core.engines.engine_probe import probe_batches, probed
from blend.core.engines.sim import SimEngine
from blend.core.errors import RESUMABLE, USAGE, BlendError
from blend.core.planning.calibration import (
    NOTHING,
    StepPoint,
    machine_figures,
    step_costs,
    step_points,
)
from blend.core.planning.engine_model import StepCosts, engine_model
from blend.core.planning.hardware import Hardware, hardware_preset, model_config, model_preset
from blend.core.planning.interference import Interference, read_interference
from blend.core.planning.parameters import layer_widths
from blend.core.planning.profile import Profile, validated, with_costs
from blend.store.job import Job
from tests.batch_files import ingested, mixed
from tests.measured_job import COSTS, job_that_ran

MACHINE = Hardware(
    "cpu", 1e11, 2e10, 8e9, step_overhead_s=0.004, interference=Interference(0.2, 0.1, 0.05)
)

BUSY_TRIES = 10


@pytest.fixture(autouse=True)
def _no_profiles(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BLEND_PROFILES", str(tmp_path / "profiles" / "profiles.json"))


def points_s(costs: StepCosts, *, many: bool) -> list[float]:
    engine = with_costs(engine_model(hardware_preset("cpu"), model_preset("llama-3-8b")), costs)
    return [
        engine.step_s(point.prefill, point.decodes, point.read_tokens)
        for point in step_points(many=many)
    ]


@pytest.mark.parametrize(
    ("costs", "knee"),
    [(COSTS, 0.0), (StepCosts(0.002, 5e-5, 5e-5, 6e-8, weights_s=128 * 5e-5), 153.0)],
)
def test_the_costs_of_steps_are_found_and_those_held_out_predicted(
    costs: StepCosts, knee: float
) -> None:
    many = knee > 0
    found = step_costs(step_points(many=many), points_s(costs, many=many), knee_tokens=knee)

    assert found.holds
    assert 0.2 < found.held_out.mean() < 0.5
    assert found.profile.lines == int((~found.held_out).sum())
    assert found.profile.costs.token_s == pytest.approx(costs.token_s, rel=0.05)
    assert found.profile.costs.read_s == pytest.approx(costs.read_s, rel=0.1)


def test_a_machine_that_was_disturbed_all_the_time_is_not_taken_for_measured() -> None:
    rng = np.random.default_rng(5)
    points = step_points(many=False)
    disturbed = np.array(points_s(COSTS, many=False)) * rng.lognormal(0.0, 0.7, len(points))
    found = step_costs(points, disturbed.tolist(), knee_tokens=0.0)

    assert not found.holds
    assert found.worst_error >= found.held_out_error > 0.1


def test_what_a_device_can_do_follows_from_the_steps_of_a_model() -> None:
    widths = layer_widths(model_config("llama-3-8b"), name="llama-3-8b")
    shape = model_preset("llama-3-8b")
    found = step_costs(step_points(many=False), points_s(COSTS, many=False), knee_tokens=0.0)
    figures = machine_figures(
        found,
        widths,
        kv_bytes_per_token=shape.kv_bytes_per_token,
        weight_bytes=shape.weight_bytes,
        one_token_s=0.022,
        nothing_s=0.001,
        interference=Interference(0.5),
        engine=None,
    )

    assert widths.layers * widths.layer_parameters == pytest.approx(6.98e9, rel=0.01)
    assert figures.flops == pytest.approx(2 * 6.98e9 / 2e-3, rel=0.1)
    assert figures.bandwidth_bytes_s == pytest.approx(shape.kv_bytes_per_token / 2e-6, rel=0.1)
    assert (figures.overhead_s, figures.interference) == (0.001, Interference(0.5))


def test_an_engine_that_is_probed_tells_what_its_steps_cost() -> None:
    model = engine_model(hardware_preset("cpu"), model_preset("smollm2-135m"))
    model = with_costs(replace(model, capacity=replace(model.capacity, max_sequences=64)), COSTS)
    engine = SimEngine(
        model.capacity,
        step_s=model.step_s,
        output_tokens=lambda request: request.max_tokens,
    )
    batches = probe_batches(many=False, context_tokens=2048)
    lines = probed(engine, batches, vocabulary=400, seconds=1e9, clock=lambda: engine.clock_s)
    found = validated(lines, knee_tokens=0.0, source="engine")

    assert found is not None
    assert found.holds
    assert found.profile.costs.token_s == pytest.approx(COSTS.token_s, rel=0.1)
    assert found.profile.costs.overhead_s == pytest.approx(COSTS.overhead_s, rel=0.2)
    assert NOTHING.read_tokens == 0


def test_enough_of_a_run_goes_before_an_earlier_calibration_and_that_before_little() -> None:
    calibrated = Profile(COSTS, 10, 100, 5.0, 0.0, source="engine")
    few = Profile(COSTS, TRUSTED_LINES - 1, 100, 5.0, 0.0)
    many = Profile(COSTS, TRUSTED_LINES, 100, 5.0, 0.0)

    assert known_profile("a") is None
    save_profile("a", few)
    assert known_profile("a") == few
    save_calibrated("a", calibrated)
    assert known_profile("a") == calibrated
    save_calibrated("a", replace(calibrated, source="torch"))
    assert known_profile("a") == calibrated
    save_profile("a", many)
    assert known_profile("a") == many
    save_calibrated("a", calibrated)
    assert known_profile("a") == calibrated
    save_profile("a", many)
    assert known_profile("a") == many


def test_of_runs_that_end_together_each_keeps_what_it_measured() -> None:
    with ThreadPoolExecutor(16) as pool:
        kept = list(pool.map(lambda n: keep_entry("profiles", f"{n}", {"n": n}), range(32)))

    assert all(kept)
    assert sorted(entry["n"] for entry in read_section("profiles").values()) == list(range(32))


def test_this_machine_is_as_it_was_calibrated(tmp_path: Path) -> None:
    with pytest.raises(BlendError, match="not calibrated"):
        this_hardware("calibrated")
    keep_entry("machines", device_name(), {"hardware": asdict(MACHINE)})
    found = this_hardware(None)
    elsewhere = this_hardware(str(tmp_path / "profiles" / "profiles.json"))

    assert found == replace(MACHINE, source="calibrated")
    assert this_hardware("calibrated") == elsewhere == found
    assert this_hardware("h200") == hardware_preset("h200")
    assert engine_model(found, model_preset("llama-3-8b")).overhead_s == 0.004
    assert engine_model(found, model_preset("llama-3-8b")).interference == MACHINE.interference
    with pytest.raises(BlendError, match="no machine"):
        this_hardware(str(tmp_path / "none.json"))


@pytest.mark.parametrize(
    "wrong",
    [-0.1, 1.1, "0.2", [0.2], {}, {"constant": float("nan")}, {"constant": 0.5, "linear": 0.5}],
)
def test_an_interference_that_no_engine_can_have_is_not_taken(wrong: Any) -> None:
    entry = asdict(MACHINE) | {"interference": wrong}
    keep_entry("machines", device_name(), {"hardware": entry})

    assert this_hardware(None).source != "calibrated"
    with pytest.raises(BlendError, match="cannot be used"):
        this_hardware("calibrated")


def test_a_constant_interference_is_a_polynomial_without_the_rest() -> None:
    entry = asdict(MACHINE) | {"interference": 0.9}
    keep_entry("machines", device_name(), {"hardware": entry})

    assert this_hardware("calibrated").interference == Interference(0.9)


def test_a_plan_is_made_for_the_machine_as_it_was_measured(tmp_path, tiny_tokenizer_dir) -> None:
    path = ingested(tmp_path / "batch.blend", mixed(12), model=tiny_tokenizer_dir)
    assert main(["plan", str(path), "--no-sample"]) == 0
    before = predictions(path)
    keep_profile_of(path, StepCosts(0.5, 1e-3, 1e-3, 0.0, weights_s=0.25))
    assert main(["plan", str(path), "--no-sample"]) == 0
    after = predictions(path)

    assert after["weights_s"] == pytest.approx(0.25 * after["steps"])
    assert after["sequential_s"] >= 0.75 * after["steps"] > before["sequential_s"]
    assert after["timeline"]["seconds"][-1] >= 0.75 * after["steps"]


def test_a_plan_without_a_sample_is_for_the_engine_that_its_options_start(
    tmp_path, tiny_tokenizer_dir
) -> None:
    path = ingested(tmp_path / "batch.blend", mixed(12), model=tiny_tokenizer_dir)
    assert main(["plan", str(path), "--no-sample", "--max-num-seqs", "2"]) == 0
    few = predictions(path)
    assert main(["plan", str(path), "--no-sample"]) == 0
    many = predictions(path)

    assert max(few["timeline"]["running"]) == 2 < max(many["timeline"]["running"])
    assert few["timeline"]["seconds"][-1] > many["timeline"]["seconds"][-1]


def predictions(path: Path) -> dict:
    with Job.open(path) as job:
        plan = job.plan()
    assert plan is not None
    return dict(plan.predictions)


def keep_profile_of(path: Path, costs: StepCosts) -> None:
    from blend.cli.job_model import shape_of

    with Job.open(path) as job:
        key = profile_key(shape_of(job, {}, on_cpu=True))
    save_profile(key, Profile(costs, 60, 600, 60.0, 0.0))


def test_a_job_that_ran_here_teaches_what_its_steps_cost(
    tmp_path, tiny_tokenizer_dir, capsys
) -> None:
    path = job_that_ran(tmp_path / "batch.blend", tiny_tokenizer_dir, disturbance=0.0)
    written = tmp_path / "profile.json"

    assert main(["calibrate", str(path), "-o", str(written)]) == 0
    shown = capsys.readouterr()
    assert "2.00 ms a token" in shown.out
    (entry,) = read_section("profiles").values()
    assert entry["source"] == "runs"
    assert entry["costs"]["token_s"] == pytest.approx(COSTS.token_s, rel=0.05)
    assert json.loads(written.read_text())["calibrated"]


def test_what_does_not_predict_is_not_kept_and_says_so(
    tmp_path, tiny_tokenizer_dir, capsys
) -> None:
    path = job_that_ran(tmp_path / "batch.blend", tiny_tokenizer_dir, disturbance=1.0)

    assert main(["calibrate", str(path)]) == RESUMABLE
    assert "not kept" in capsys.readouterr().err
    assert read_section("profiles") == {}


def test_a_job_that_never_ran_here_teaches_nothing(tmp_path, tiny_tokenizer_dir, capsys) -> None:
    path = ingested(tmp_path / "batch.blend", mixed(4), model=tiny_tokenizer_dir)

    assert main(["calibrate", str(path)]) == USAGE
    assert "--model" in capsys.readouterr().err
    assert main(["calibrate", str(path), "--model", "smollm2-135m"]) == USAGE


@pytest.mark.slow
def test_the_layers_of_a_model_are_measured_in_torch(tiny_tokenizer_dir, capsys) -> None:
    words = ["--device", "cpu", "--seconds", "1", "--json", "--model", str(tiny_tokenizer_dir)]
    for _ in range(BUSY_TRIES):
        code = main(["calibrate", *words])
        shown = capsys.readouterr()
        if "cannot be measured" not in shown.err:
            break
    assert shown.out, shown.err
    found = json.loads(shown.out)
    (fit,) = found["fits"]

    # Whether it holds is a matter of what else runs here; both ends are as they should be.
    assert code == (0 if fit["holds"] else RESUMABLE)
    assert bool(read_section("machines")) == bool(read_section("calibrated")) == fit["holds"]
    assert len(fit["stretches"]) == len(step_points(many=False))
    assert all(one["measured_s"] > 0 for one in fit["stretches"])
    assert found["hardware"]["flops"] > 0
    assert read_interference(found["hardware"]["interference"]) is not None
    assert 1 <= found["layers"] <= 4


def test_a_machine_on_which_tokens_take_no_time_is_not_believed(
    tiny_tokenizer_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class ShorterWithMore:
        layers, kv_bytes_per_token, weight_bytes = 1, 1024.0, 1e6

        def seconds(self, point: StepPoint, *, least_s: float = 0.0) -> float:
            return max(0.01 / (1 + point.prefill + point.decodes), least_s)

    monkeypatch.setattr("blend.cli.measured_layers._steps", lambda *_: ShorterWithMore())
    words = ["--device", "cpu", "--seconds", "1", "--model", str(tiny_tokenizer_dir)]

    assert main(["calibrate", *words]) == RESUMABLE
    assert "the machine cannot be measured" in capsys.readouterr().err
    assert not read_section("machines")
