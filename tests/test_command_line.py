"""A command that is printed can be copied into a shell, whatever the names in it."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blend.cli.console import inert
from blend.core.command_line import command_line, shell_word

BASH = shutil.which("bash")
TRICKY = st.sampled_from(["'", '"', "\\", "\n", "\x1b", "1", "7", "$", "`", " ", "é"])
WORDS = st.one_of(
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8),
    st.lists(TRICKY, max_size=6).map("".join),
    st.binary(max_size=6).map(lambda some: os.fsdecode(some.replace(b"\0", b""))),
)


@pytest.mark.skipif(BASH is None, reason="needs bash")
@settings(max_examples=40, deadline=None)
@given(words=st.lists(WORDS, min_size=1, max_size=8))
def test_a_shell_reads_back_the_same_words(words: list[str]) -> None:
    script = command_line("printf", r"%s\0", *words)
    printed = subprocess.run([str(BASH), "-c", script], capture_output=True, check=True).stdout

    assert printed.split(b"\0")[:-1] == [os.fsencode(word) for word in words]


@given(word=WORDS)
def test_nothing_in_a_command_acts_on_a_terminal(word: str) -> None:
    line = shell_word(word)

    assert inert(line).replace("\\[", "[") == line


def test_a_path_is_never_an_option() -> None:
    assert shell_word(Path("-j.blend")) == "./-j.blend"
    assert shell_word(Path("a b.blend")) == "'a b.blend'"
