"""How a run is going, in words: what is done, how fast, how full the engine is, what fails."""

from blend.cli.progress import Moved, RunProgress
from blend.cli.wording import counted, percent, shortened, significant

LEAST_ENGINE_S = 0.01
"""What an engine has to have run before its speed is told."""


def about(seconds: float) -> str:
    """Return a time no more exactly than an estimate is: ``2 h 10 min``, ``55 min``, ``40 s``."""
    if seconds < 1.0:
        return "under 1 s"
    if seconds < 90.0:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60.0)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60:,} h {minutes % 60} min"


def rows_done(progress: RunProgress) -> str:
    """Say how many rows have results, and how many of them are failures."""
    said = f"{counted(progress.answered + progress.failed)}/{counted(progress.rows)} done"
    return f"{said}, {counted(progress.failed)} failed" if progress.failed else said


def time_left(progress: RunProgress) -> str | None:
    """Say how long the rest takes, with the range where there is one."""
    left = progress.left
    if left is None:
        return None
    said = f"{about(left.seconds)} left"
    low, high = about(left.low_s), about(left.high_s)
    return said if low == high else f"{said} ({low} to {high})"


def speed(moved: Moved) -> list[str]:
    """Say how many tokens a second moved, and how many of them came from the cache."""
    parts = []
    if moved.engine_s >= LEAST_ENGINE_S:
        parts.append(
            f"{counted(moved.input_tokens / moved.engine_s)} in + "
            f"{counted(moved.output_tokens / moved.engine_s)} out tokens/s"
        )
    if moved.input_tokens:
        parts.append(f"cache {percent(moved.cached_tokens / moved.input_tokens)}")
    return parts


def gauges(progress: RunProgress) -> list[str]:
    """Say how full the engine is, and how dense what ran lately was."""
    parts = []
    # Not every server tells how full it is.
    if progress.kv_tokens:
        parts.append(f"KV {percent(progress.kv_tokens / progress.kv_capacity_tokens)}")
    parts.append(f"{counted(progress.running)} running, {counted(progress.waiting)} waiting")
    lately, target = progress.lately, progress.workload.density
    if target and lately.memory_s > 0:
        density = significant(lately.compute_s / lately.memory_s)
        parts.append(f"density {density} of {significant(target)}")
    return parts


def replica_lines(progress: RunProgress) -> list[str]:
    """Say of each replica, where there are several, how far and how full it is."""
    kv_tokens = progress.kv_capacity_tokens / progress.replica_count
    return [
        f"replica {number}: {counted(one.rows)} done, {counted(one.running)} running, "
        f"{counted(one.waiting)} waiting, KV {percent(one.kv_tokens / kv_tokens)}"
        for number, one in enumerate(progress.by_replica, 1)
    ]


def worst_failure(progress: RunProgress, width: int = 200) -> str | None:
    """Say why most of the failed rows failed; None where none did."""
    if not progress.causes:
        return None
    (cause, rows), *others = progress.causes.most_common()
    message = shortened(" ".join(progress.examples[cause].split()), width)
    of = f" of {counted(progress.failed)}" if others else ""
    return f"{counted(rows)}{of} failed with {cause[0]}: {message}"


def result_line(progress: RunProgress) -> str:
    """Say in one line what a run that has ended did, and how fast."""
    return ", ".join([rows_done(progress), *speed(progress.moved)])


def progress_line(progress: RunProgress, *, causes: bool = True) -> str:
    """Say in one line how a run is going at this moment.

    With the most frequent of the *causes* of failures, where there are any.
    """
    share = f"{percent(progress.shown_share)} of the work"
    parts = [f"{rows_done(progress)} ({share})", time_left(progress)]
    parts += [*speed(progress.lately), *gauges(progress)]
    if replicas := progress.by_replica:
        parts.append("replicas " + " + ".join(counted(one.rows) for one in replicas))
    line = ", ".join(part for part in parts if part)
    worst = worst_failure(progress)
    return f"{line}; {worst}" if worst and causes else line
