"""`make paper`: every cell of the paper has its figure, and a run that was stopped goes on."""

import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.paper import __main__ as paper
from benchmarks.paper import cells, grids, ledger, plots, published
from benchmarks.paper.cells import SYSTEMS, Cell, Outcome, System, available, measure
from benchmarks.paper.remarks import REMARKS
from benchmarks.paper.section import FULL, QUICK, Scale, Section, speed_ups
from blend.cli.planning import DRAWS
from blend.core.planning.guard import guarded_plan
from blend.core.planning.plan import Plan

TINY = Scale(traces=2_000, grid=2_000, seeds=(3,), every_row=99, every_column=99)
CELL = Cell(system="nanoflow-dfs", density=1.4, sharing=0.35, n=2_000, seed=3)


OUTCOME = Outcome(
    seconds=20.0,
    optimum_s=10.0,
    bound_s=15.0,
    tokens=1_234_560,
    steps=900,
    sharing=0.3,
    best_sharing=0.35,
    density=1.39,
    preemptions=0,
    refused=0,
    sampled=30,
    sampled_output=0.2,
    sample_s=1.5,
    chosen="",
    plan_s=0.1,
    wall_s=0.2,
    line_s=[10.0, 20.0],
    line_compute_s=[4.0, 3.0],
    line_memory_s=[2.0, 6.0],
)


@pytest.fixture(scope="module")
def measured() -> Callable[[System], Outcome]:
    """What came of the cell on a system: each is simulated once."""
    return functools.cache(lambda system: measure(replace(CELL, system=system)))


@pytest.fixture(scope="module")
def outcome(measured: Callable[[System], Outcome]) -> Outcome:
    return measured(CELL.system)


def sections(*names: str) -> list[Section]:
    return [section for section in paper.SECTIONS if section.name in names]


def test_the_papers_cells_have_the_summary_that_the_paper_gives() -> None:
    cells = published.FIG_11

    assert cells.shape == (13, 5)
    assert cells.mean() == pytest.approx(1.2253, abs=0.01)
    assert (cells.min(), cells.max()) == (1.14, 1.34)
    others = (published.FIG_13, published.FIG_14, published.FIG_15)
    assert [cells.max() for cells in others] == [1.31, 1.17, 1.16]
    assert min(cells.min() for cells in others) == 1.07


def test_every_grid_has_a_workload_for_every_cell_of_the_paper() -> None:
    for grid in grids.GRIDS:
        assert grid.theirs.shape == (len(grid.densities), len(grid.sharings))


def test_the_full_run_has_all_cells_and_the_quick_one_a_few() -> None:
    (figure,) = sections("fig-11")

    assert len(figure.cells(FULL)) == 65 * 4
    assert len(figure.cells(QUICK)) == 6 * 4


def test_every_remark_stands_beside_a_figure() -> None:
    assert set(REMARKS) <= {section.name for section in paper.SECTIONS}


@pytest.mark.slow  # like all that simulate: compiles the kernels where that has not been done
def test_a_cell_takes_no_less_than_its_bounds(outcome: Outcome) -> None:
    assert outcome.optimum_s <= outcome.bound_s <= outcome.seconds
    assert 0 < outcome.sharing <= outcome.best_sharing
    assert sum(outcome.line_compute_s) <= outcome.seconds
    assert outcome.line_s[-1] == pytest.approx(outcome.seconds)
    assert len(outcome.line_s) == len(outcome.line_compute_s) == len(outcome.line_memory_s) <= 100


@pytest.mark.slow
def test_operators_one_after_another_take_longer(
    measured: Callable[[System], Outcome], outcome: Outcome
) -> None:
    assert measured("vllm-dfs").seconds > outcome.seconds


@pytest.mark.slow
@pytest.mark.parametrize("system", SYSTEMS)
def test_no_system_beats_the_bound_or_learns_more_than_a_sample(
    measured: Callable[[System], Outcome], system: System
) -> None:
    found = measured(system)

    assert found.bound_s <= found.seconds
    assert 0 < found.sampled < 0.05 * CELL.n
    assert 0 < found.sampled_output < 1
    assert found.refused == 0
    assert bool(found.chosen) == (system == "auto")


@pytest.mark.slow
@pytest.mark.parametrize("system", ["paper", "blend", "memory-first"])
def test_orders_by_length_beat_a_depth_first_order(
    measured: Callable[[System], Outcome], system: System, outcome: Outcome
) -> None:
    assert measured(system).seconds < outcome.seconds


@pytest.mark.slow
def test_all_lengths_can_be_known() -> None:
    found = measure(replace(CELL, system="paper", sample=1.0))

    assert found.sampled == CELL.n
    assert found.sampled_output == pytest.approx(1.0)
    assert found.sample_s == 0.0


@pytest.mark.slow
def test_what_every_request_says_needs_no_sample() -> None:
    found = measure(replace(CELL, system="blend", known=True))

    assert found.sampled == found.sample_s == found.sampled_output == 0
    assert found.bound_s <= found.seconds


@pytest.mark.slow
def test_a_warm_up_is_part_of_the_run_and_every_row_runs_once() -> None:
    found = measure(replace(CELL, system="blend", warm_up=True))
    without = measure(replace(CELL, system="blend"))

    assert found.bound_s <= found.seconds
    assert (found.tokens, found.refused) == (without.tokens, 0)
    assert 0 < found.sampled < CELL.n
    assert found.sample_s == 0.0


@pytest.mark.slow
def test_auto_draws_lengths_as_often_as_a_plan_does(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []

    def plan(*arguments: Any, draws: int, **options: Any) -> Plan:
        found = guarded_plan(*arguments, draws=draws, **options)
        drawn.append(found.outlook.draws if found.outlook else 0)
        return found

    monkeypatch.setattr(cells, "guarded_plan", plan)
    measure(replace(CELL, system="auto"))

    assert drawn == [DRAWS]


@pytest.mark.slow
def test_devices_work_together(outcome: Outcome) -> None:
    assert measure(replace(CELL, devices=2)).seconds < outcome.seconds


def test_outcomes_come_back_as_they_were_saved_for_the_same_code_only(tmp_path: Path) -> None:
    ledger.save(tmp_path, CELL, OUTCOME, code="now")

    other = replace(CELL, seed=4)
    assert ledger.load(tmp_path, [CELL, other], code="now") == {CELL: OUTCOME}
    assert ledger.load(tmp_path, [CELL], code="later") == {}


@pytest.mark.slow
def test_a_run_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = sections("fig-10")
    first = paper.run(wanted, TINY, folder=tmp_path, jobs=1)

    def never(_cell: Cell) -> Outcome:
        pytest.fail("measured again")

    monkeypatch.setattr(paper, "measure", never)

    assert first
    assert paper.run(wanted, TINY, folder=tmp_path, jobs=1) == first


def test_the_report_shows_what_ran_and_names_what_did_not(tmp_path: Path) -> None:
    some = sections("fig-7", "fig-7-70b", "sampling", "table-3")

    text = paper.write(some, TINY, {CELL: OUTCOME}, plots=tmp_path)

    assert text.count("\n## ") == 1
    assert f"{OUTCOME.tokens_s:,.0f}" in text
    assert "n/a" in text
    missing = text.partition("Not run, and so not here: ")[2].partition("\n")[0]
    assert {"fig-7-70b", "sampling", "table-3", "fig-9"} <= set(missing.strip(".").split(", "))


def test_conditions_stand_above_every_table_of_simulated_runs(tmp_path: Path) -> None:
    simulated = [s for s in paper.SECTIONS if s.cells(TINY)]
    cells = [cell for section in simulated for cell in section.cells(TINY)]

    text = paper.write(simulated, TINY, dict.fromkeys(cells, OUTCOME), plots=tmp_path)

    parts = text.split("\n## ")[1:]
    assert len(parts) == len(simulated)
    for part in parts:
        assert part.count("|---|") == part.count("stand-in lengths, seed")


def test_a_speed_up_is_the_ratio_of_the_times() -> None:
    blend = replace(CELL, system="blend")
    faster = replace(OUTCOME, seconds=OUTCOME.seconds / 2)

    assert speed_ups({CELL: OUTCOME, blend: faster}, [blend], "nanoflow-dfs") == [2.0]
    assert speed_ups({CELL: OUTCOME}, [blend], "nanoflow-dfs") == []


def test_every_system_is_simulated_and_so_are_replicas() -> None:
    assert all(available(replace(CELL, system=system)) for system in SYSTEMS)
    assert available(replace(CELL, replicas=2))


def test_plots_are_small_and_the_same_every_time(tmp_path: Path) -> None:
    cells = np.array([[1.0, 1.2], [np.nan, 1.4]])
    files = [tmp_path / name for name in ("one.svg", "two.svg")]

    for file in files:
        plots.grid(file, cells, np.ones((2, 2)), rows=(0.8, 0.9), columns=(0.1, 0.2))

    assert files[0].read_bytes() == files[1].read_bytes()
    assert files[0].stat().st_size < 50_000
