from pathlib import Path

from blend.core.engines.vllm_log import EngineLog

CAUSE = "To serve at least one request, 4 GiB KV cache is needed"


def test_the_cause_is_the_last_error_that_says_more_than_look_above(tmp_path: Path) -> None:
    path = tmp_path / "engine.log"
    path.write_text("ValueError: of an earlier engine\n")
    log = EngineLog.after(path)
    with path.open("a") as file:
        file.write(f"(EngineCore pid=1) ERROR [core.py:1] ValueError: {CAUSE}\n")
        file.write("Exception: WorkerProc initialization failed due to an exception.\n")
        file.write("RuntimeError: Engine core initialization failed. See root cause above.\n")

    assert log.cause() == CAUSE


def test_a_log_without_errors_has_no_cause(tmp_path: Path) -> None:
    path = tmp_path / "engine.log"
    log = EngineLog.after(path)
    path.write_text("INFO all is well\n")

    assert log.cause() is None


def test_the_tail_is_of_this_engine_alone_and_safe_to_print(tmp_path: Path) -> None:
    path = tmp_path / "engine.log"
    path.write_text("earlier\n")
    log = EngineLog.after(path)
    with path.open("a") as file:
        file.write("".join(f"line {i}\n" for i in range(100)) + "\x1b[31mred\n")

    lines = log.tail().splitlines()

    assert len(lines) == 15
    assert lines[-2:] == ["line 99", " [31mred"]
