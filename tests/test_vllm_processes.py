"""No engine process outlives whoever started it, and its death is noticed: on real vLLM."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from blend.core.engines import EngineDiedError
from blend.core.engines.vllm import VllmEngine
from blend.core.errors import BlendError
from tests.tiny_engine import TEXT, engine_core, living, request, settings, text, wait_until
from tests.vllm_starts import let_vllm_spawn

pytestmark = pytest.mark.vllm


def step_forever(engine: VllmEngine, rows: list[int]) -> None:
    """Step until the engine dies; collect the rows that it has answered."""
    while True:
        rows += [completion.row for completion in engine.step().completions]


def shared_memory(group: int) -> set[Path]:
    """Return what the processes of the group share."""
    maps = "".join(Path(f"/proc/{pid}/maps").read_text() for pid in living(group))
    return {Path(name) for name in re.findall(r"/dev/shm/psm_\w+", maps)}


@pytest.mark.parametrize(
    ("victim", "by", "reason"),
    [
        ("host", signal.SIGKILL, "gone"),
        ("engine core", signal.SIGKILL, "gone"),
        ("engine core", signal.SIGSTOP, "hangs"),
    ],
)
def test_an_engine_that_is_killed_or_hangs_is_reported_and_leaves_nothing(
    tiny_model_dir: Path, tmp_path: Path, victim: str, by: signal.Signals, reason: str
) -> None:
    engine = VllmEngine.start(settings(tiny_model_dir, tmp_path / "engine.log"))
    engine.wait_ready()
    shared = shared_memory(engine.pid)
    for row in range(400):
        engine.submit(request(row, TEXT, text(max_tokens=900 if row else 1, ignore_eos=True)))
    answered: list[int] = []
    while 0 not in answered:
        answered += [completion.row for completion in engine.step().completions]
    os.kill(engine.pid if victim == "host" else engine_core(engine.pid), by)
    if by == signal.SIGSTOP:
        # Not before: a loaded machine is slow, and does not hang.
        engine._stall_s = 5.0
    with pytest.raises(EngineDiedError, match=reason):
        step_forever(engine, answered)

    assert 0 in answered
    assert len(answered) < 400
    assert living(engine.pid) == set()
    assert [path for path in shared if path.exists()] == []
    engine.close()


# Starts an engine on which it works forever, and says which process group it has.
DRIVER = """
import sys
from pathlib import Path
from tests.tiny_engine import TEXT, VllmEngine, request, settings, text
engine = VllmEngine.start(settings(Path(sys.argv[1]), Path(sys.argv[2])))
print(engine.pid, flush=True)
if sys.argv[3] == "at work":
    engine.wait_ready()
    for row in range(1000):
        engine.submit(request(row, TEXT, text(max_tokens=900, ignore_eos=True)))
    engine.step()
    print("at work", flush=True)
while True:
    engine.step()
"""


@pytest.mark.parametrize(
    ("victims", "moment", "way"),
    [
        ("parent", "at work", "forked"),
        ("parent and host", "at work", "spawned"),
        ("parent and host", "starting", "spawned"),
    ],
)
def test_no_engine_process_survives_its_killed_parent(
    tiny_model_dir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    victims: str,
    moment: str,
    way: str,
) -> None:
    if way == "spawned":
        let_vllm_spawn(monkeypatch)
    command = [sys.executable, "-c", DRIVER, tiny_model_dir, tmp_path / "engine.log", moment]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, cwd=Path(__file__).parent.parent
    ) as driver:
        assert driver.stdout is not None
        group = int(driver.stdout.readline())
        if moment == "at work":
            driver.stdout.readline()
        # The host, the tracker of its shared memory, and the engine core at least.
        assert wait_until(lambda: len(living(group)) >= 3)
        if victims == "parent and host":
            os.kill(group, signal.SIGSTOP)
            driver.kill()
            os.kill(group, signal.SIGKILL)
        else:
            driver.kill()
        assert wait_until(lambda: not living(group))


def test_an_argument_that_vllm_refuses_is_named(tiny_model_dir: Path, tmp_path: Path) -> None:
    engine = VllmEngine.start(settings(tiny_model_dir, tmp_path / "engine.log", no_such_flag="1"))
    with pytest.raises(BlendError, match="no-such-flag"):
        engine.wait_ready()

    assert living(engine.pid) == set()
    engine.close()


def test_an_engine_that_cannot_start_says_why(tiny_model_dir: Path, tmp_path: Path) -> None:
    engine = VllmEngine.start(
        settings(tiny_model_dir, tmp_path / "engine.log", kv_cache_memory_bytes="70000")
    )
    with pytest.raises(BlendError, match="KV cache") as caught:
        engine.wait_ready()

    assert "engine.log" in (caught.value.hint or "")
    assert living(engine.pid) == set()
    engine.close()
