"""Numbers, times and shares in words, and text cut to a width or made harmless."""

import math
import re
import unicodedata

# C0 and C1 controls, and the marks that reorder text: what could act on a terminal. And what
# cannot be written to one: the bytes of a file name that is not UTF-8.
_ACTIVE = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def plain(text: str) -> str:
    """Return *text* with what could act on a terminal written out."""
    return _ACTIVE.sub(lambda m: m[0].encode("unicode_escape").decode(), text)


def shortened(text: str, width: int) -> str:
    """Return *text* cut to *width* places of a terminal, an ellipsis last where it was cut."""
    if len(text) <= width and (text.isascii() or sum(map(_places, text)) <= width):
        return text
    used = 0
    for at, character in enumerate(text):
        used += _places(character)
        if used >= width:
            return text[:at] + "…"
    return text


def _places(character: str) -> int:
    """Return how many places of a terminal a character takes."""
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def end_of(text: str, width: int) -> str:
    """Return the last *width* characters of *text*, an ellipsis first where it was cut."""
    return text if len(text) <= width else "…" + text[len(text) - width + 1 :]


_PLURAL_S = re.compile(r"(?<=ss)es\b|(?<=\w)s\b")


def counted(number: float, noun: str = "") -> str:
    """Return a count with thousands separators, of a plural: ``12,345 requests``, ``1 request``."""
    text = f"{number:,.0f}"
    if not noun:
        return text
    return f"{text} {_PLURAL_S.sub('', noun, count=1) if text == '1' else noun}"


def abbreviated(number: float) -> str:
    """Return a count in at most five characters: ``9,876``, ``48.1k``, ``164M``."""
    if number < 9_999.5:
        return f"{number:,.0f}"
    scales = (("k", 1e3), ("M", 1e6), ("G", 1e9))
    unit, scale = next((one for one in scales if number < 999.5 * one[1]), scales[-1])
    number /= scale
    return f"{number:.1f}{unit}" if number < 99.95 else f"{number:,.0f}{unit}"


def duration(seconds: float) -> str:
    """Return a time in its two largest units: ``2 h 5 min``, ``0.4 s``, ``7 ms``, ``30 µs``."""
    if 0 < seconds < 0.001:
        return f"{1e6 * seconds:.0f} µs"
    if seconds < 0.1:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600:,} h {whole % 3600 // 60} min"


def duration_range(seconds: float, low_s: float, high_s: float) -> str:
    """Return a time with its 10 % and 90 % quantiles, where they are others."""
    said, low, high = duration(seconds), duration(low_s), duration(high_s)
    return said if low == high == said else f"{said} (10-90 %: {low} to {high})"


def time_unit(seconds: float) -> tuple[str, float]:
    """Return the unit that suits a time, and its seconds."""
    units = (("h", 3600.0), ("min", 60.0), ("s", 1.0))
    return next((unit for unit in units if seconds >= 2 * unit[1]), ("ms", 1e-3))


def percent(share: float) -> str:
    """Return a share of one as a percentage."""
    return f"{100 * share:.1f} %"


def significant(value: float) -> str:
    """Return a number, such as a density, with three significant digits."""
    if not math.isfinite(value):
        return "∞"
    digits = max(0, 2 - math.floor(math.log10(value))) if value > 0 else 0
    return f"{value:,.{min(digits, 6)}f}"
