import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux only")

# Prints the pid of a child that would sleep for a minute, then sleeps.
FORKED = """
import os, sys, time
from blend.core.engines.lifeline import tie_forked_children
read, write = os.pipe()
tie_forked_children(close_fd=write)
child = os.fork()
if child == 0:
    try:
        os.fstat(write)
    except OSError:
        time.sleep(60)
    os._exit(1)
print(child, flush=True)
time.sleep(60)
"""

# The same, for a process that ties itself after it has been started.
STARTED = """
import os, subprocess, sys, time
os.setpgid(0, 0)
tie = "import time; from blend.core.engines.lifeline import tie_to_group as tie"
tie += "; tie(); print(0, flush=True); time.sleep(60)"
child = subprocess.Popen([sys.executable, "-c", tie], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(60)
"""


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


# The same, for one that watches its parent in a thread.
WATCHED = """
import os, subprocess, sys, time
code = "import os, sys, time; from blend.core.engines.lifeline import watch_parent"
code += "; watch_parent(int(sys.argv[1]), lambda: os._exit(1))"
code += "; print(0, flush=True); time.sleep(60)"
child = subprocess.Popen([sys.executable, "-c", code, str(os.getpid())], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("script", [FORKED, STARTED, WATCHED])
def test_a_tied_process_dies_with_its_killed_parent(script: str) -> None:
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        time.sleep(0.1)
        assert alive(child)

        parent.send_signal(signal.SIGKILL)
        deadline = time.monotonic() + 30
        while alive(child) and time.monotonic() < deadline:
            time.sleep(0.01)

        assert not alive(child)


@pytest.mark.parametrize("tie", ["tie_to_parent(1)", "tie_to_group()"])
def test_a_process_whose_parent_is_already_gone_dies_at_once(tie: str) -> None:
    code = f"from blend.core.engines.lifeline import *; {tie}"
    process = subprocess.run([sys.executable, "-c", code], check=False, start_new_session=True)

    assert process.returncode == -signal.SIGKILL


@pytest.mark.parametrize("parent_pid", ["1", "2**22 + 1"])
def test_a_parent_that_is_already_gone_is_noticed_by_who_watches_it(parent_pid: str) -> None:
    code = "import os, time; from blend.core.engines.lifeline import watch_parent"
    code += f"; watch_parent({parent_pid}, lambda: os._exit(7)); time.sleep(60)"
    process = subprocess.run([sys.executable, "-c", code], check=False, timeout=60)

    assert process.returncode == 7
