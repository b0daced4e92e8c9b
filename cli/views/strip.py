"""Values along a line, one block character each."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from blend.cli.console import out

_LEVELS = "▁▂▃▄▅▆▇█"
LABEL_WIDTH = 10
WIDEST = 160

Values = npt.NDArray[np.float64]


def strip_width(label_width: int = LABEL_WIDTH) -> int:
    """Return how many characters a strip beside a label may have on this terminal."""
    return max(16, min(out.width - label_width - 2, WIDEST))


def parts(values: npt.ArrayLike, width: int) -> list[npt.NDArray[np.float64]]:
    """Return the values in at most *width* runs of about equal length."""
    column = np.asarray(values, np.float64)
    return np.array_split(column, min(width, len(column))) if len(column) else []


def means(values: npt.ArrayLike, width: int) -> Values:
    """Return the mean of each run of values."""
    return np.array([part.mean() for part in parts(values, width)])


def log_means(values: npt.ArrayLike, width: int) -> Values:
    """Return the geometric mean of each run of values, such as densities."""
    logs = np.log(np.clip(np.asarray(values, np.float64), 1e-6, 1e6))
    return np.exp(means(logs, width))


def bars(values: npt.ArrayLike, *, low: float | None = None, high: float | None = None) -> str:
    """Return a block for each value, the lowest for *low* and the highest for *high*."""
    column = np.asarray(values, np.float64)
    if not len(column):
        return ""
    low = float(column.min()) if low is None else low
    high = float(column.max()) if high is None else high
    scaled = (column - low) / (high - low) if high > low else np.zeros_like(column)
    scaled = np.clip(scaled, 0.0, 1.0)
    return "".join(_LEVELS[round(level * (len(_LEVELS) - 1))] for level in scaled)


def density_style(density: float, root: float) -> str:
    """Return the colour of a density: warm where it is above that of the whole job, else cold."""
    ratio = density / root if root > 0 else 1.0
    if ratio >= 4.0:
        return "red"
    if ratio >= 1.0:
        return "yellow"
    return "cyan" if ratio >= 0.25 else "blue"


def density_bars(densities: Values, root: float) -> str:
    """Return the blocks of densities along the schedule, coloured by side of the root's."""
    blocks = bars(np.log(np.clip(densities, 1e-6, 1e6)))
    return "".join(_coloured(blocks, [density_style(one, root) for one in densities.tolist()]))


def _coloured(blocks: str, styles: list[str]) -> Iterator[str]:
    start = 0
    for end in range(1, len(blocks) + 1):
        if end == len(blocks) or styles[end] != styles[start]:
            yield f"[{styles[start]}]{blocks[start:end]}[/]"
            start = end
