"""`make paper`: every cell of the paper has its figure, and a run that was stopped goes on."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.paper import __main__ as paper
from benchmarks.paper import grids, ledger, plots, published
from benchmarks.paper.cells import ENGINES, Cell, Outcome, available, measure
from benchmarks.paper.remarks import REMARKS
from benchmarks.paper.section import FULL, QUICK, Scale, speed_ups

TINY = Scale(traces=2_000, grid=2_000, seeds=(3,), every_row=99, every_column=99)
CELL = Cell(system="nanoflow-dfs", density=1.4, sharing=0.35, n=2_000, seed=3)


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    return measure(CELL)


def sections(*names: str) -> list[paper.Section]:
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

    assert len(figure.cells(FULL)) == 65 * 3
    assert len(figure.cells(QUICK)) == 6 * 3


def test_every_remark_stands_beside_a_figure() -> None:
    assert set(REMARKS) <= {section.name for section in paper.SECTIONS}


def test_a_cell_takes_no_less_than_its_bounds(outcome: Outcome) -> None:
    assert outcome.optimum_s <= outcome.bound_s <= outcome.seconds
    assert 0 < outcome.sharing <= outcome.best_sharing
    assert sum(outcome.line_compute_s) <= outcome.seconds
    assert outcome.line_s[-1] == pytest.approx(outcome.seconds)
    assert len(outcome.line_s) == len(outcome.line_compute_s) == len(outcome.line_memory_s) <= 100


def test_operators_one_after_another_take_longer(outcome: Outcome) -> None:
    assert measure(replace(CELL, system="vllm-dfs")).seconds > outcome.seconds


def test_devices_work_together(outcome: Outcome) -> None:
    assert measure(replace(CELL, devices=2)).seconds < outcome.seconds


def test_outcomes_come_back_as_they_were_saved_for_the_same_code_only(
    outcome: Outcome, tmp_path: Path
) -> None:
    ledger.save(tmp_path, CELL, outcome, code="now")

    other = replace(CELL, seed=4)
    assert ledger.load(tmp_path, [CELL, other], code="now") == {CELL: outcome}
    assert ledger.load(tmp_path, [CELL], code="later") == {}


def test_a_run_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = sections("fig-10")
    first = paper.run(wanted, TINY, folder=tmp_path, jobs=1)

    def never(_cell: Cell) -> Outcome:
        pytest.fail("measured again")

    monkeypatch.setattr(paper, "measure", never)

    assert first
    assert paper.run(wanted, TINY, folder=tmp_path, jobs=1) == first


def test_the_report_shows_every_section_and_says_what_is_missing(
    outcome: Outcome, tmp_path: Path
) -> None:
    some = [s for s in paper.SECTIONS if s.name != "table-2"]  # made at full size elsewhere

    text = paper.write(some, TINY, {CELL: outcome}, plots=tmp_path)

    assert text.count("\n## ") == len(some)
    assert "n/a" in text
    assert f"{outcome.tokens_s:,.0f}" in text


def test_a_speed_up_is_the_ratio_of_the_times(outcome: Outcome) -> None:
    blend = replace(CELL, system="blend")
    faster = replace(outcome, seconds=outcome.seconds / 2)

    assert speed_ups({CELL: outcome, blend: faster}, [blend], "nanoflow-dfs") == [2.0]
    assert speed_ups({CELL: outcome}, [blend], "nanoflow-dfs") == []


def test_only_policies_that_are_simulated_to_the_letter_count() -> None:
    runnable = {system for system in ENGINES if available(replace(CELL, system=system))}

    assert {"vllm-dfs", "nanoflow-dfs", "nanoflow-balance"} <= runnable
    assert not available(replace(CELL, replicas=2))


@pytest.mark.skipif(not plots.can_plot(), reason="matplotlib is not installed")
def test_plots_are_small_and_the_same_every_time(tmp_path: Path) -> None:
    cells = np.array([[1.0, 1.2], [np.nan, 1.4]])
    files = [tmp_path / name for name in ("one.svg", "two.svg")]

    for file in files:
        plots.grid(file, cells, np.ones((2, 2)), rows=(0.8, 0.9), columns=(0.1, 0.2))

    assert files[0].read_bytes() == files[1].read_bytes()
    assert files[0].stat().st_size < 50_000
