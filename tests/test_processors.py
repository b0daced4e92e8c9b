"""Who works around an engine that computes on processors keeps off those of its workers."""

import os
import subprocess
import sys

import pytest

from blend.core.engines.processors import GIVES_WAY

pytestmark = pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2,
    reason="needs two processors that a process can be bound to",
)

# Starts a child that is bound to the first processor, if it is to be, and one that is not.
AROUND = """
import os, subprocess, sys
from blend.core.engines.processors import keep_off_workers
ours = sorted(os.sched_getaffinity(0))
sleep = [sys.executable, "-c", "print(flush=True); input()"]
pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
bound, free = subprocess.Popen(sleep, **pipes), subprocess.Popen(sleep, **pipes)
if sys.argv[1] == "bound":
    os.sched_setaffinity(bound.pid, ours[:1])
left = keep_off_workers()
print(sorted(left) == ours[1:], sorted(left), ours)
for pid in (0, bound.pid, free.pid):
    print(sorted(os.sched_getaffinity(pid)))
bound.communicate(b"\\n"), free.communicate(b"\\n")
"""


def around(how: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", AROUND, how], capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def test_what_is_not_bound_is_kept_off_the_processors_of_what_is() -> None:
    ours = sorted(os.sched_getaffinity(0))
    told, us, bound, free = around("bound")

    assert told.startswith("True")
    assert (us, bound, free) == (str(ours[1:]), str(ours[:1]), str(ours[1:]))


def test_where_nothing_is_bound_all_stays_as_it_is() -> None:
    ours = str(sorted(os.sched_getaffinity(0)))
    told, *every = around("not bound")

    assert told.startswith("False []")
    assert every == [ours] * 3


def test_a_process_that_gives_way_goes_behind_what_it_has_started() -> None:
    asks = (
        "import os, subprocess, sys, threading\n"
        "from blend.core.engines.processors import give_way\n"
        "threading.Thread(target=input, daemon=True).start()\n"
        "child = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE)\n"
        "give_way()\n"
        "threads = map(int, os.listdir('/proc/self/task'))\n"
        "ours = [os.getpriority(os.PRIO_PROCESS, one) for one in threads]\n"
        "print(*ours, os.getpriority(os.PRIO_PROCESS, child.pid))\n"
        "child.communicate(b'')\n"
    )
    before = os.getpriority(os.PRIO_PROCESS, 0)
    done = subprocess.run(
        [sys.executable, "-c", asks], capture_output=True, text=True, check=True, input="\n"
    )
    *ours, child = map(int, done.stdout.split())

    assert len(ours) >= 1
    assert set(ours) == {min(before + GIVES_WAY, 19)}
    assert child == before
