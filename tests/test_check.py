"""`blend check`: request files judged without a model."""

import gzip
import io
import json
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from blend.cli.app import main
from blend.cli.check import CheckCounts, check_inputs
from blend.cli.inputs import expand_inputs
from blend.core.errors import BlendError
from blend.core.input import words
from tests.broken_lines import BROKEN, GOOD


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """40 good lines with 14 differently broken ones between them."""
    lines = [GOOD % f"good-{n}" for n in range(40)]
    for index, line in enumerate(BROKEN.values()):
        lines.insert(5 + 3 * index, line)
    path = tmp_path / "mixed.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_good_lines_are_counted_and_each_broken_one_named_with_line_column_and_reason(
    mixed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["check", str(mixed)])
    printed = capsys.readouterr()

    assert code == 3
    assert "accepted: 40" in printed.out
    assert "rejected: 14" in printed.out
    lines = mixed.read_text().splitlines()
    for reason, text in BROKEN.items():
        number = len(lines) - lines[::-1].index(text)
        assert f"{mixed}:{number}:" in printed.err
        assert f": {reason}: " in printed.err
    assert f"first used at {mixed}:{lines.index(GOOD % 'good-3') + 1}" in printed.err


def test_a_file_without_faults_exits_zero(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(GOOD % "a" + "\n\n" + GOOD % "b")

    assert main(["check", str(path)]) == 0

    printed = capsys.readouterr()
    assert "accepted: 2" in printed.out
    assert printed.err == ""


def test_json_holds_counts_and_rejections(mixed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["check", "--json", str(mixed)])

    document = json.loads(capsys.readouterr().out)
    assert code == 3
    assert (document["accepted"], document["rejected"]) == (40, 14)
    assert {entry["reason"] for entry in document["rejections"]} == set(BROKEN)
    (example,) = document["rejections"][0]["examples"]
    assert set(example) == {"file", "line", "column", "message", "custom_id"}


def test_strict_stops_at_the_first_rejection(
    mixed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["check", "--strict", str(mixed)])

    assert code == 3
    assert "rejected: 1\n" in capsys.readouterr().out


def test_many_rejections_of_one_kind_are_counted_not_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("nonsense\n" * 5000)

    main(["check", str(path)])

    printed = capsys.readouterr()
    assert "rejected: 5,000" in printed.out
    assert printed.err.count("\n") == 6
    assert "4,995 more" in printed.err


def test_duplicates_are_found_across_files_globs_and_compressions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.jsonl").write_text(GOOD % "a" + "\n")
    with gzip.open(tmp_path / "b.jsonl.gz", "wt") as stream:
        stream.write(GOOD % "b" + "\n" + GOOD % "a" + "\n")

    code = main(["check", str(tmp_path / "*.jsonl*")])

    printed = capsys.readouterr()
    assert code == 3
    assert "accepted: 2" in printed.out
    assert f"{tmp_path / 'b.jsonl.gz'}:2:15: duplicate custom_id" in printed.err
    assert f"first used at {tmp_path / 'a.jsonl'}:1" in printed.err


def test_lines_without_an_id_are_no_duplicates_of_each_other_and_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").write_text('{"prompt": "x"}\n')

    code = main(["check", str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")])

    assert code == 0
    assert "warning: 2 lines had no custom_id" in capsys.readouterr().err


def test_stdin_is_read(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    content = (GOOD % "a" + "\nnonsense\n").encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))

    assert main(["check", "-"]) == 3

    assert "stdin:2:1: not JSON" in capsys.readouterr().err


def test_text_of_the_user_is_shown_inert(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"prompt": "x", "temperature": "[red]\x1b[31m\u202e[/red]"}))

    main(["check", str(path)])

    shown = capsys.readouterr().err
    assert "[red]" in shown
    assert "\x1b" not in shown
    assert "\u202e" not in shown


@pytest.mark.parametrize("name", ["absent.jsonl", "absent*.jsonl", "."])
def test_inputs_that_name_no_file_are_a_usage_error(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["check", str(tmp_path / name)])

    assert code == 2
    assert str(tmp_path) in capsys.readouterr().err


def test_what_precedes_the_damage_of_a_compressed_file_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.jsonl.gz"
    content = "".join(GOOD % n + "\n" for n in range(20_000)).encode()
    path.write_bytes(gzip.compress(b"nonsense\n" + content)[:-100])

    code = main(["check", str(path)])

    printed = capsys.readouterr()
    assert code == 2
    assert "truncated or corrupt" in printed.err
    assert f"{path}:1:1: not JSON" in printed.err
    assert "accepted: 1" in printed.out


def test_a_file_named_twice_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(GOOD % "a")
    monkeypatch.chdir(tmp_path)

    assert expand_inputs([str(path), "a.jsonl", "*.jsonl", "-"]) == [str(path), "-"]


def test_a_name_that_exists_is_no_glob(tmp_path: Path) -> None:
    path = tmp_path / "a[1].jsonl"
    path.touch()

    assert expand_inputs([str(path)]) == [str(path)]
    with pytest.raises(BlendError, match="no file matches"):
        expand_inputs([str(tmp_path / "b[1].jsonl")])


def test_memory_does_not_grow_with_the_file(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(words, "PROMPTS_KEPT", 100)
    monkeypatch.setattr(words, "BODIES_KEPT", 100)

    def peak_bytes(lines: int) -> int:
        path = tmp_path / f"{lines}.jsonl"
        with path.open("w") as stream:
            stream.writelines(GOOD % ("x" * 500 + str(n)) + "\n" for n in range(lines))
        tracemalloc.start()
        check_inputs([str(path)], CheckCounts())
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    peak_bytes(10)
    assert peak_bytes(5_000) < peak_bytes(500) + 100_000


def test_check_loads_no_model_library() -> None:
    code = (
        "import sys; from blend.cli.app import main; main(['check', '/dev/null']);"
        "print(*({'torch', 'transformers', 'vllm', 'numba'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)

    assert done.stdout.splitlines()[-1] == ""
