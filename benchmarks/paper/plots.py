"""Plots as small SVG files, the same bytes for the same numbers; none where matplotlib is missing.

pip install -e '.[paper]'
"""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def can_plot() -> bool:
    """Whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def bars(path: Path, groups: Sequence[str], series: Mapping[str, Sequence[float]]) -> None:
    """Draw one group of bars for each of *groups*, one bar of it for each of *series*."""
    figure, axes = _figure(7.0, 3.0)
    width = 0.8 / max(len(series), 1)
    for index, (name, values) in enumerate(series.items()):
        axes.bar(np.arange(len(groups)) + index * width, values, width, label=name)
    axes.set_xticks(np.arange(len(groups)) + 0.4 - width / 2, groups)
    axes.set_ylabel("tokens/s")
    axes.legend(fontsize=7, ncols=3)
    _save(figure, path)


def grid(path: Path, ours: Floats, theirs: Floats, *, rows: Sequence[float],
         columns: Sequence[float]) -> None:  # fmt: skip
    """Draw two maps of speed-ups side by side, ours and the paper's, on one scale."""
    figure, (left, right) = _figure(7.0, 4.0, columns=2)
    both = np.concatenate([ours[np.isfinite(ours)], theirs.ravel(), [1.0]])
    for axes, cells, title in ((left, ours, "ours"), (right, theirs, "paper")):
        axes.imshow(cells, vmin=both.min(), vmax=both.max(), cmap="viridis", aspect="auto")
        axes.set_xticks(range(len(columns)), columns)
        axes.set_yticks(range(len(rows)), rows)
        axes.set(title=title, xlabel="sharing", ylabel="density")
        for (row, column), value in np.ndenumerate(cells):
            if np.isfinite(value):
                axes.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=6,
                          color="white" if value < np.mean([both.min(), both.max()]) else "black",
                          )  # fmt: skip
    _save(figure, path)


def lines(path: Path, series: Mapping[str, tuple[Floats, Floats, Floats]]) -> None:
    """Draw seconds of compute and of memory over the run, one panel for each of *series*."""
    figure, panels = _figure(7.0, 2.0 * len(series), rows=len(series))
    for axes, (name, (at, compute, memory)) in zip(np.atleast_1d(panels), series.items(),
                                                   strict=True):  # fmt: skip
        axes.plot(at, compute, label="compute", linewidth=0.9)
        axes.plot(at, memory, label="memory", linewidth=0.9)
        axes.set_title(name, fontsize=8)
        axes.set_ylabel("s a second of run", fontsize=7)
    np.atleast_1d(panels)[-1].set_xlabel("s")
    np.atleast_1d(panels)[0].legend(fontsize=7)
    _save(figure, path)


def _figure(width: float, height: float, *, rows: int = 1, columns: int = 1) -> Any:
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "blend", "font.size": 8})
    from matplotlib import pyplot as plt

    return plt.subplots(rows, columns, figsize=(width, height), layout="constrained")


def _save(figure: Any, path: Path) -> None:
    from matplotlib import pyplot as plt

    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="svg", metadata={"Date": None})
    plt.close(figure)
