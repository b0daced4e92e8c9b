"""Where does a line break that is wider than the terminal? Between words, never within a command.

The invariant: what is to be typed stays on one line, so that it can be copied.
"""

import re

from rich.cells import cell_len
from rich.text import Text

# A word with the space behind it; a command is one, and so is a number with its unit.
_WORD = re.compile(r"(?:`[^`]*`|[^\s`]|`|(?<=\d) (?=(?:%|[mµ]?s|min|h|[GM]B)(?!\w)))+\s*|\s+")
_COLUMN = re.compile(r" {2,}")

CONTINUED = 2
DEEPEST_SHARE = 0.5
"""Of the width, what continued lines are indented at most."""


def folded(text: Text, width: int) -> Text:
    """Return *text* in lines of at most *width* cells, where no word of it is longer."""
    lines = [piece for line in text.split("\n", allow_blank=True) for piece in _pieces(line, width)]
    return Text("\n").join(lines)


def _pieces(line: Text, width: int) -> list[Text]:
    if line.cell_len <= width:
        return [line]
    indent = _indent(line.plain, width)
    breaks: list[int] = []
    begun, used = 0, 0
    for word in _WORD.finditer(line.plain):
        if word.start() > begun and used + cell_len(word[0].rstrip()) > width:
            breaks.append(word.start())
            begun, used = word.start(), indent
        used += cell_len(word[0])
    first, *others = line.divide(breaks)
    pieces = [first, *(Text(" " * indent) + piece for piece in others)]
    for piece in pieces:
        piece.rstrip()
    return pieces


def _indent(line: str, width: int) -> int:
    """Return where a continued line begins: below the last column, or a little further in."""
    lead = len(line) - len(line.lstrip())
    columns = [gap.end() for gap in _COLUMN.finditer(line) if gap.end() > lead]
    indent = cell_len(line[: columns[-1]]) if columns else lead + CONTINUED
    return indent if indent <= DEEPEST_SHARE * width else CONTINUED
