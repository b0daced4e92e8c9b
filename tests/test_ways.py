"""The plan chooses how the engine is run; a person's word goes before it."""

from dataclasses import replace
from pathlib import Path

import pytest

from blend.cli.app import main
from blend.cli.engine_options import EngineOptions, PacingName
from blend.cli.ways import paced_as_asked, reach_of, ready_to_gate, with_way
from blend.core.engines import Capacity
from blend.core.planning.engine_model import StepCosts, engine_model
from blend.core.planning.hardware import hardware_preset, model_preset
from blend.core.planning.profile import with_costs
from blend.core.planning.ways import ANY, Reach, Way, paced_ways, small_step_ways
from blend.store.job import Job, PlanRecord
from tests.batch_files import ingested, mixed
from tests.simulated_job import large_model_job
from tests.small_jobs import request, schedule

GATE = Way("gate", prefill_threshold=48)
H200, LLAMA = hardware_preset("h200"), model_preset("llama-3-8b")
BUDGETED = Capacity(1000, 8, 256, 512, 16, pacing="step budget")
UNBUDGETED = replace(BUDGETED, pacing="none")


def options(name: str = "vllm", pacing: PacingName | None = None, **arguments: str):
    return EngineOptions(name, {k.replace("_", "-"): v for k, v in arguments.items()}, 0, pacing)


def plan(way: Way) -> PlanRecord:
    return PlanRecord(
        "blend",
        settings={
            "way": {
                "pacing": way.pacing,
                "step_tokens": way.step_tokens,
                "prefill_threshold": way.prefill_threshold,
                "max_sequences": way.max_sequences,
            }
        },
    )


def test_vllm_is_paced_by_a_gate_unless_it_keeps_a_budget_or_is_told_not_to() -> None:
    gate = ("gate", "none")

    assert reach_of(options(), None, started=False).pacings == gate
    assert reach_of(options(), BUDGETED, started=True).pacings == ("step-budget", "none")
    assert reach_of(options(), UNBUDGETED, started=True).pacings == gate
    assert reach_of(options(pacing="none"), BUDGETED, started=True).pacings == ("none",)
    assert reach_of(options(pacing="gate"), BUDGETED, started=False).pacings == gate
    asked = reach_of(options(pacing="step-budget"), None, started=False).pacings
    assert asked[0] == "step-budget"
    # It was asked for, and the engine that ran did not keep it.
    assert reach_of(options(pacing="step-budget"), UNBUDGETED, started=False).pacings == gate


def test_a_server_is_neither_paced_nor_given_options() -> None:
    assert reach_of(options("openai"), None, started=False) == Reach(("none",), started=True)
    assert with_way(options("openai"), plan(GATE)) == options("openai")
    rows = [request(row, [1, 2]) for row in range(2)]
    blended = schedule(rows, policy="blend")
    assert blended.blending is not None
    unpaced = paced_as_asked(blended, options("openai")).blending
    assert unpaced is not None
    assert not unpaced.paced
    assert paced_as_asked(blended, options()) == blended


def test_an_engine_starts_as_planned_unless_a_person_says_otherwise() -> None:
    planned = with_way(options(dtype="auto"), plan(replace(GATE, max_sequences=4096)))
    assert planned.arguments == {
        "dtype": "auto",
        "long-prefill-token-threshold": "48",
        "max-num-seqs": "4096",
    }
    assert planned.pacing == "gate"

    own = with_way(options(pacing="none", long_prefill_token_threshold="16"), plan(GATE))
    assert own.arguments == {"long-prefill-token-threshold": "16"}
    assert own.pacing == "none"

    # A threshold without its gate would only cut prompts into small pieces.
    assert with_way(options(pacing="none"), plan(GATE)).arguments == {}


def test_a_persons_size_of_steps_goes_before_the_plans_under_either_name() -> None:
    small = plan(Way(step_tokens=256))

    assert with_way(options(), small).arguments == {"max-num-scheduled-tokens": "256"}
    for name in ("max_num_batched_tokens", "max_num_scheduled_tokens"):
        given = options(**{name: "4096"})
        assert with_way(given, small).arguments == given.arguments


def test_plans_without_a_way_leave_the_engine_alone() -> None:
    for one in (None, PlanRecord("dfs"), plan(Way())):
        assert with_way(options(), one) == options()


def test_an_engine_that_starts_before_its_plan_can_be_gated_where_that_may_pay() -> None:
    def ready(given: EngineOptions, policy, hardware=H200):
        return ready_to_gate(given, policy, hardware=hardware, model=LLAMA).arguments

    assert ready(options(), "auto") == {"long-prefill-token-threshold": "48"}
    assert ready(options(), "dfs") == {}
    assert ready(options(pacing="step-budget"), "auto") == {}
    # A CPU's steps compute whole prompts.
    assert ready(options(), "auto", hardware_preset("cpu")) == {}
    own = options(long_prefill_token_threshold="8")
    assert ready(own, "auto") == own.arguments


def test_what_rides_free_on_a_step_sets_the_pieces_and_the_small_steps() -> None:
    engine = engine_model(H200, LLAMA)
    costs = StepCosts(0.085, 3.2e-3, 3.2e-3, 0.0, weights_s=0.0)
    busy = with_costs(engine, costs)

    assert [way.prefill_threshold for way in paced_ways(engine, ANY)] == [0, 48]
    assert [way.step_tokens for way in small_step_ways(engine, ANY)] == [256, 1024]
    assert [way.prefill_threshold for way in paced_ways(busy, ANY)] == [0, 0]
    assert small_step_ways(busy, ANY) == ()
    running = Reach(("gate",), started=True)
    assert [way.arguments for way in paced_ways(engine, running)] == [{}]
    assert small_step_ways(engine, running) == ()


def test_what_a_person_has_set_is_not_the_plans_to_choose() -> None:
    engine = engine_model(H200, LLAMA)
    asked = options(max_num_seqs="64", max_num_batched_tokens="2048")
    reach = reach_of(asked, None, started=False)

    assert not reach.may_set("max-num-seqs")
    assert reach.may_set("long-prefill-token-threshold")
    assert small_step_ways(engine, reach) == ()
    assert not reach_of(options(), None, started=True).may_set("max-num-seqs")


compiles = pytest.mark.slow  # half a minute and more where the kernels are not compiled yet


@compiles
def test_the_way_of_a_plan_is_stored_shown_and_executed(
    tmp_path: Path, tiny_tokenizer_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = ingested(tmp_path / "a.blend", mixed(30), model=tiny_tokenizer_dir)
    sim = ["--engine", "sim", "--pacing", "gate"]
    assert main(["plan", str(job), "--policy", "blend", "--no-sample", *sim]) == 0
    assert "paced by a gate" in capsys.readouterr().err
    assert main(["show", str(job)]) == 0
    assert "paced by a gate" in capsys.readouterr().out
    assert main(["execute", str(job), "--engine", "sim"]) == 0
    assert "as planned: prefill paced by a gate" in capsys.readouterr().err

    with Job.open(job) as opened:
        stored = opened.plan()
        (run,) = opened.runs()
    assert stored is not None
    assert stored.settings["way"]["pacing"] == "gate"
    threshold = stored.settings["way"]["prefill_threshold"]
    assert threshold > 0
    assert run.settings["long-prefill-token-threshold"] == str(threshold)
    assert run.settings["pacing"] == "none"


@compiles
@pytest.mark.parametrize("pacing", ["step-budget", "gate", "none"])
def test_every_way_runs_every_row(tmp_path: Path, tiny_tokenizer_dir: Path, pacing: str) -> None:
    job = ingested(tmp_path / "a.blend", mixed(30), model=tiny_tokenizer_dir)
    sim = ["--engine", "sim", "--pacing", pacing, "--engine-arg", "report-lag=1"]
    assert main(["plan", str(job), "--policy", "blend", *sim]) == 0
    assert main(["execute", str(job), *sim]) == 0

    with Job.open(job) as opened:
        assert not opened.pending().any()


@compiles
def test_the_simulated_gpu_is_paced_by_what_its_own_first_steps_cost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = large_model_job(tmp_path / "a.blend", rows=1500)
    auto = ["--policy", "auto", "--plan-time", "100"]
    assert main(["plan", str(job), "--engine", "sim", *auto]) == 0
    said = capsys.readouterr().err
    assert "steps as measured in" in said
    assert "first 153 tokens free" in said

    with Job.open(job) as opened:
        planned = opened.plan()
    assert planned is not None
    assert planned.policy == "blend"
    assert planned.settings["way"]["pacing"] == "step-budget"
    assert planned.settings["candidate"].startswith("blend")
