"""SIGTERM ends what has nothing to drain as Ctrl-C does: plainly, leaving nothing behind."""

import os
import signal
import tempfile
import threading
from pathlib import Path

import pytest

from blend.cli.app import main
from tests.broken_lines import GOOD


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("command", ["check", "ingest"])
def test_a_signal_while_input_is_read_ends_the_command_and_says_so(
    tmp_path: Path,
    tiny_tokenizer_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    command: str,
    sent: signal.Signals,
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    def write() -> None:
        # More than a pipe holds: what follows waits for the command to read.
        with pipe.open("wb") as stream:
            stream.write(b"\n" * (1 << 18))
            os.kill(os.getpid(), sent)

    argv = [command, str(pipe)]
    if command == "ingest":
        argv += ["--job", str(tmp_path / "job"), "--model", str(tiny_tokenizer_dir)]
    writer = threading.Thread(target=write)
    writer.start()
    code = main(argv)
    writer.join()

    assert code == 130
    assert "interrupted" in capfd.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_a_command_leaves_sigterm_to_whoever_has_taken_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    heard = []
    before = signal.signal(signal.SIGTERM, lambda number, _frame: heard.append(number))
    try:
        source = tmp_path / "in.jsonl"
        source.write_text(GOOD % "a")
        assert main(["check", str(source)]) == 0
        os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)

    assert heard == [signal.SIGTERM]
    assert "interrupted" not in capfd.readouterr().err
