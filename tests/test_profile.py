"""What a step costs is found in what runs measured, whatever held them up in between."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from blend.cli.profile_store import keep_entry, profiles_path, read_section
from blend.cli.profiles import KEPT_RUNS, keep_run, load_profile, save_profile
from blend.core.planning.engine_model import StepCosts, engine_model
from blend.core.planning.hardware import hardware_preset, model_preset
from blend.core.planning.optimum import bound_s, work_of
from blend.core.planning.profile import (
    KEPT_LINES,
    LEAST_LINES,
    Measured,
    Profile,
    _least_squares,
    columns_of,
    fit,
    measured_of,
    predicted_s,
    with_costs,
)
from blend.core.planning.tree import build_tree
from tests.prompt_sets import prompts_of

CPU = StepCosts(0.085, 3.2e-3, 2.9e-3, 0.0, weights_s=0.0)
GPU = StepCosts(0.002, 5.2e-5, 5.2e-5, 6e-8, weights_s=153 * 5.2e-5)
PROFILE = Profile(CPU, lines=20, steps=400, seconds=50.0, error=0.01)


@pytest.fixture(autouse=True)
def _own_profiles(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BLEND_PROFILES", str(tmp_path / "deep" / "profiles.json"))


def lines(
    costs: StepCosts, rng: np.random.Generator, *, step_tokens: int, steps: int = 400
) -> list[list[float]]:
    """Return the timeline of a run: prompts in bursts of steps, decodes in all of them."""
    made, seconds = [], 0.0
    sums, held, running = np.zeros(3), 0.0, 0
    for step in range(steps):
        prefill = int(rng.integers(1, step_tokens)) if step % 20 < 2 else 0
        running = int(rng.integers(1, 40))
        held = running * 300.0
        compute = costs.token_s * prefill + costs.decode_s * running
        seconds += max(compute, costs.weights_s) + costs.read_s * held + costs.overhead_s
        sums += (1, prefill, running)
        if step % 10 == 9:
            made.append([seconds, *sums.tolist(), held])
            sums[:] = 0.0
    return made


@pytest.mark.parametrize("knee", [0, 153])
def test_the_costs_of_a_machine_on_which_nothing_rides_free_are_found(knee: float) -> None:
    found = fit(
        measured_of(lines(CPU, np.random.default_rng(1), step_tokens=400)), knee_tokens=knee
    )

    assert found is not None
    assert found.costs.weights_s == 0.0
    assert found.costs.overhead_s == pytest.approx(CPU.overhead_s, rel=0.1)
    assert found.costs.token_s == pytest.approx(CPU.token_s, rel=0.05)
    assert found.costs.decode_s == pytest.approx(CPU.decode_s, rel=0.2)
    assert found.error < 0.02


def test_the_costs_of_a_gpu_are_found_with_what_its_datasheet_says_rides_free() -> None:
    run = lines(GPU, np.random.default_rng(2), step_tokens=8192, steps=4000)
    found = fit(measured_of(run), knee_tokens=153)

    assert found is not None
    assert found.costs.weights_s / found.costs.token_s == pytest.approx(153)
    assert found.costs.token_s == pytest.approx(GPU.token_s, rel=0.1)
    fixed = found.costs.overhead_s + found.costs.weights_s
    assert fixed == pytest.approx(GPU.overhead_s + GPU.weights_s, rel=0.1)
    assert found.error < 0.02


def test_pauses_of_the_machine_do_not_count() -> None:
    run = np.array(lines(CPU, np.random.default_rng(3), step_tokens=400))
    paused = run.copy()
    for line in (7, 23):
        paused[line:, 0] += 60.0
    clean, found = (fit(measured_of(one), knee_tokens=0) for one in (run, paused))

    assert clean is not None
    assert found is not None
    assert found.costs.overhead_s == pytest.approx(clean.costs.overhead_s, rel=0.15)
    assert found.costs.token_s == pytest.approx(clean.costs.token_s, rel=0.15)


def test_a_few_lines_tell_nothing_and_neither_do_runs_without_prefill() -> None:
    run = lines(CPU, np.random.default_rng(4), step_tokens=400)
    without = [[seconds, steps, 0.0, decode, held] for seconds, steps, _, decode, held in run]

    assert fit(measured_of(run[: LEAST_LINES - 1]), knee_tokens=0) is None
    assert fit(measured_of([]), knee_tokens=0) is None
    assert fit(measured_of(without), knee_tokens=0) is None


@given(
    arrays(np.float64, (12, 4), elements=st.floats(0.0, 10.0)),
    arrays(np.float64, 12, elements=st.floats(0.0, 10.0)),
)
def test_no_cost_is_negative_and_none_could_be_left_out_for_less(columns, values) -> None:
    found = _least_squares(columns, values)

    assert (found >= 0).all()
    # At the least, the error falls in no direction that is open.
    slope = columns.T @ (columns @ found - values)
    size = 1e-6 * (1.0 + np.abs(columns).sum() * np.abs(values).sum())
    assert (slope >= -size).all()
    assert (np.abs(slope[found > 1e-9]) <= size).all()


def test_a_measured_engine_has_the_measured_steps_and_a_bound_to_match() -> None:
    engine = with_costs(engine_model(hardware_preset("cpu"), model_preset("llama-3-8b")), CPU)
    prompts = prompts_of([[row] * 50 for row in range(4)])
    work = work_of(
        build_tree(prompts), np.full(4, 10), hardware=engine.hardware, model=engine.model
    )

    assert engine.step_s(100, 5, 999) == pytest.approx(0.085 + 0.32 + 5 * 2.9e-3)
    assert work.comp_s >= 200 * CPU.token_s
    assert bound_s(work, engine) >= 10 * CPU.overhead_s


def test_profiles_are_kept_by_what_they_are_of() -> None:
    assert load_profile("a") is None
    save_profile("a", PROFILE)
    save_profile("b", Profile(GPU, 9, 900, 5.0, 0.0))

    assert load_profile("a") == PROFILE
    assert load_profile("b") == Profile(GPU, 9, 900, 5.0, 0.0)
    left = {path.name for path in profiles_path().parent.iterdir()}
    assert left == {"profiles.json", "profiles.json.lock"}


def test_several_runs_are_kept_and_tell_together_what_a_step_costs() -> None:
    rng = np.random.default_rng(5)
    runs = [measured_of(lines(CPU, rng, step_tokens=400, steps=40)) for _ in range(KEPT_RUNS + 2)]
    # The first would not be forgotten: it is of another machine.
    runs[0] = measured_of(lines(GPU, rng, step_tokens=8192))
    for number, run in enumerate(runs):
        keep_run("a", f"{number}", run, knee_tokens=0)

    found = load_profile("a")
    assert found is not None
    assert found == fit(*runs[-KEPT_RUNS:], knee_tokens=0)
    assert found.lines == sum(len(run) for run in runs[-KEPT_RUNS:])


def test_a_run_that_goes_on_counts_once() -> None:
    run = measured_of(lines(CPU, np.random.default_rng(6), step_tokens=400))
    so_far = Measured(*(column[: len(run) // 2] for column in columns_of(run)))
    for began, some in (("2", so_far), ("1", so_far), ("2", run)):
        keep_run("a", began, some, knee_tokens=0)

    assert load_profile("a") == fit(so_far, run, knee_tokens=0)


def test_an_older_run_that_is_kept_later_does_not_say_how_fast_the_machine_is() -> None:
    rng = np.random.default_rng(11)
    older, later = (measured_of(lines(CPU, rng, step_tokens=400)) for _ in range(2))
    keep_run("a", "2", later.faster(2.0), knee_tokens=0)
    keep_run("a", "1", older, knee_tokens=0)

    assert load_profile("a") == fit(older, later.faster(2.0), knee_tokens=0)


def test_a_run_too_short_to_tell_anything_counts_with_others() -> None:
    run = measured_of(lines(CPU, np.random.default_rng(6), step_tokens=400))
    short = measured_of(lines(CPU, np.random.default_rng(7), step_tokens=400, steps=20))
    assert len(short) < LEAST_LINES

    keep_run("a", "short", short, knee_tokens=0)
    assert load_profile("a") is None
    keep_run("a", "long", run, knee_tokens=0)
    keep_run("a", "short", short, knee_tokens=0)
    found = load_profile("a")
    assert found is not None
    assert found.lines == len(run) + len(short)


def test_of_a_long_run_no_more_is_kept_than_tells_enough() -> None:
    run = measured_of(lines(CPU, np.random.default_rng(8), step_tokens=400, steps=4000))
    keep_run("a", "run", run, knee_tokens=0)

    (kept,) = read_section("profiles")["a"]["runs"].values()
    assert len(run) / 4 < len(kept) <= KEPT_LINES


@pytest.mark.parametrize("runs", [None, "none", [[1.0]], {"one": [1.0]}, {"one": [["a"] * 5]}, 7])
def test_runs_that_cannot_be_read_are_forgotten(runs: object) -> None:
    run = measured_of(lines(CPU, np.random.default_rng(6), step_tokens=400))
    keep_entry("profiles", "a", asdict(PROFILE) | {"runs": runs})
    keep_run("a", "run", run, knee_tokens=0)

    assert load_profile("a") == fit(run, knee_tokens=0)


@pytest.mark.parametrize("speed", [0.7, 1.4])
def test_costs_are_at_the_speed_of_the_last_run(speed: float) -> None:
    rng = np.random.default_rng(9)
    before, later = (measured_of(lines(CPU, rng, step_tokens=400)) for _ in range(2))
    found = fit(before, before, later.faster(speed), knee_tokens=0)

    assert found is not None
    assert found.costs.overhead_s == pytest.approx(CPU.overhead_s / speed, rel=0.1)
    assert found.costs.token_s == pytest.approx(CPU.token_s / speed, rel=0.1)


def test_what_one_noisy_run_seems_to_say_is_not_believed_against_others() -> None:
    rng = np.random.default_rng(10)
    runs = [measured_of(lines(CPU, rng, step_tokens=100, steps=300)) for _ in range(8)]
    noisy = [replace(run, seconds=run.seconds * rng.lognormal(0, 0.15, len(run))) for run in runs]
    others = measured_of(lines(CPU, rng, step_tokens=600, steps=300))

    def off(*some: Measured) -> float:
        found = fit(*some, knee_tokens=0)
        assert found is not None
        told = predicted_s(others, found.costs, evenly=False).sum()
        return abs(float(told / others.seconds.sum()) - 1.0)

    assert off(*noisy) < np.mean([off(one) for one in noisy])
    assert off(*noisy) < 0.1


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"format": 99, "profiles": {"a": 1}}', '{"format": 1, "profiles": {"a": {}}}'],
)
def test_a_file_of_profiles_that_cannot_be_read_counts_as_none(
    monkeypatch, tmp_path: Path, text: str
) -> None:
    path = tmp_path / "profiles.json"
    monkeypatch.setenv("BLEND_PROFILES", str(path))
    path.write_text(text)

    assert load_profile("a") is None
    save_profile("a", PROFILE)
    assert load_profile("a") == PROFILE


def test_a_user_without_a_home_and_a_folder_that_cannot_be_made_are_borne_with(
    monkeypatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("BLEND_PROFILES", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "expanduser", _no_home)
    assert profiles_path().parent.is_dir()

    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv("BLEND_PROFILES", str(file / "profiles.json"))
    save_profile("a", PROFILE)
    assert load_profile("a") is None


def _no_home(_path: Path) -> Path:
    raise RuntimeError("Could not determine home directory.")


def test_profiles_lie_in_the_cache_folder_unless_told(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.delenv("BLEND_PROFILES")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    save_profile("a", PROFILE)

    assert json.loads((tmp_path / "blend" / "profiles.json").read_text())["format"] == 1
