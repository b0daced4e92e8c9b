"""The options that say how much of a job to run now: so many rows, so long, until a time of day."""

import re
from datetime import datetime, timedelta
from typing import Annotated

import typer

from blend.cli.limits import RunLimits
from blend.core.errors import BlendError

_LIMITS = "How much to run"
_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?")
_UNITS_S = (86_400, 3600, 60, 1)
_TIME_OF_DAY = re.compile(r"\d?\d:\d\d(?::\d\d)?")


def run_limits(
    limit: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Run at most N of the requests left, a plan's sample aside.",
            rich_help_panel=_LIMITS,
        ),
    ] = None,
    max_time: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="End after this time, such as 90s, 30m or 1h30m; what would not be finished by "
            "then is left for another run.",
            rich_help_panel=_LIMITS,
        ),
    ] = None,
    deadline: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="End at this time, 07:30 or ISO 8601, and finish as many requests as possible by "
            "then: the cheap ones first.",
            rich_help_panel=_LIMITS,
        ),
    ] = None,
) -> RunLimits:
    """Collect how much of the job to run; of two times the earlier one counts."""
    times = []
    if max_time is not None:
        times.append(seconds_of(max_time))
    if deadline is not None:
        times.append(seconds_until(deadline, now=datetime.now().astimezone()))
    return RunLimits(limit, min(times, default=None), most_rows=deadline is not None)


def seconds_of(duration: str) -> float:
    """Return the seconds of a duration such as ``1h30m``; BlendError for anything else."""
    found = _DURATION.fullmatch(duration.strip())
    parts = found.groups() if found else ()
    total_s = sum(float(part or 0) * unit_s for part, unit_s in zip(parts, _UNITS_S, strict=False))
    if not total_s:
        raise BlendError(
            f"`--max-time` is no duration: {duration}",
            hint="write days, hours, minutes and seconds with their letters: 90s, 30m, 8h, 1h30m",
        )
    return total_s


def seconds_until(deadline: str, *, now: datetime) -> float:
    """Return the seconds from *now* to a time: ISO 8601, or the next time a clock here shows it.

    A time without a zone is local, by the rules that hold here then. BlendError for the past and
    for anything else.
    """
    text = deadline.strip()
    try:
        if _TIME_OF_DAY.fullmatch(text):
            at = _next_shown(text, now=now)
        else:
            at = datetime.fromisoformat(text)
            at = at if at.tzinfo else at.astimezone()
    except (ValueError, OverflowError):
        raise BlendError(
            f"`--deadline` is no time: {deadline}",
            hint="write 07:30, or ISO 8601: 2030-01-31T07:30, with a zone if it is another",
        ) from None
    left_s = (at - now).total_seconds()
    if left_s <= 0:
        raise BlendError(
            f"`--deadline` is past: {deadline}", hint=f"it is {now:%Y-%m-%d %H:%M} now"
        )
    return left_s


def _next_shown(time_of_day: str, *, now: datetime) -> datetime:
    """Return when a local clock next shows a time; ValueError when none ever does."""
    hour, minute, second = (*map(int, time_of_day.split(":")), 0)[:3]
    here = now.astimezone().replace(tzinfo=None)
    today = here.replace(hour=hour, minute=minute, second=second, microsecond=0)
    # Where clocks are set back they show an hour twice.
    shown = (today, today.replace(fold=1), today + timedelta(days=1))
    return next(at for at in (wall.astimezone() for wall in shown) if at > now)
