"""Lines wider than the terminal break between words, and tables keep their figures."""

import io

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from blend.cli import console
from blend.cli.console import table
from blend.cli.folding import folded
from blend.cli.views.tree import branches
from blend.cli.wording import shortened


def lines(text: str, width: int) -> list[str]:
    return folded(Text.from_markup(text), width).plain.split("\n")


def drawn(headers: tuple[str, ...], row: tuple[str, ...], width: int) -> str:
    screen = Console(width=width, file=io.StringIO())
    screen.print(table(headers, [row], numbers={0}))
    return screen.file.getvalue()  # type: ignore[attr-defined]


def test_a_line_breaks_between_words_and_goes_on_further_in() -> None:
    assert lines("one two three four", 10) == ["one two", "  three", "  four"]
    assert lines("short", 10) == ["short"]
    assert lines("a\n\nb", 10) == ["a", "", "b"]


def test_what_is_to_be_typed_stays_whole() -> None:
    command = "`blend show a.blend tree --depth 2`"

    assert lines(f"see {command}, now", 20) == ["see", f"  {command},", "  now"]


def test_a_number_keeps_its_unit() -> None:
    assert lines("cached were 93.6 %", 16) == ["cached were", "  93.6 %"]
    assert lines("after all 3 min 12 s", 14) == ["after all", "  3 min 12 s"]


def test_a_line_goes_on_below_its_last_column() -> None:
    assert lines("from      a file of some lines", 24) == [
        "from      a file of some",
        " " * 10 + "lines",
    ]
    assert lines("  node 1: some rows", 14) == ["  node 1: some", "    rows"]


def test_no_line_is_wider_than_the_terminal_whatever_the_script() -> None:
    text = "顧客 の 要約 は 四半期 報告書 で す 🙂 und noch ein Wort"

    assert all(cell_len(line) <= 12 for line in lines(text, 12))
    assert "".join(lines(text, 12)).replace(" ", "") == text.replace(" ", "")


def test_styles_stay_where_they_were() -> None:
    text = folded(Text.from_markup("one two [red]three[/] four"), 10)

    assert [text.plain[span.start : span.end] for span in text.spans] == ["three"]


@pytest.mark.parametrize("width", [30, 50, 200])
def test_a_narrow_table_cuts_text_and_never_a_figure(monkeypatch, width: int) -> None:
    monkeypatch.setattr(console.out, "_width", width)
    text = drawn(("rows", "why they failed", "as"), ("1,234,567", "because " * 9, "顧" * 9), width)

    assert "1,234,567" in text
    assert all(cell_len(line) <= width for line in text.splitlines())
    assert ("…" in text) == (width < 100)


def test_text_is_cut_by_the_places_that_it_takes() -> None:
    assert shortened("顧客の要約", 10) == "顧客の要約"
    assert cell_len(shortened("顧客の要約", 8)) <= 8
    assert shortened("abcdef", 4) == "abc…"


def test_the_branches_of_a_tree_lead_to_the_last_of_each_parent() -> None:
    levels = [0, 1, 2, 2, 1, 2]
    nodes = [{"node": number, "level": level} for number, level in enumerate(levels)]

    assert branches(nodes) == ["0", "├ 1", "│ ├ 2", "│ └ 3", "└ 4", "  └ 5"]
