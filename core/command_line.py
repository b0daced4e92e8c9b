"""Commands for a person to copy, written so that a shell takes every word as it is."""

import re
import shlex
from pathlib import Path

# C0 and C1 controls, the marks that reorder text, bytes that are not UTF-8: what no terminal
# shows as it is, so that nobody could copy it.
_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def shell_word(word: str | Path) -> str:
    r"""Return *word* quoted where a shell would not take it as it is.

    What cannot be seen is written out, as in ``$'\x1b'``. A path is never taken for an option.
    """
    text = str(word)
    if isinstance(word, Path) and text.startswith("-"):
        text = f"./{text}"
    if not _UNSEEN.search(text):
        return shlex.quote(text)
    plain = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"$'{_UNSEEN.sub(_written_out, plain)}'"


def command_line(*words: str | Path) -> str:
    """Return the command of these words as a person types it."""
    return " ".join(map(shell_word, words))


def _written_out(match: re.Match[str]) -> str:
    # All of three or two digits: a shell reads on while digits follow.
    return "".join(f"\\{byte:03o}" for byte in match[0].encode("utf-8", "surrogateescape"))
