"""Tie a process to its parent, so that no engine process outlives whoever started it.

Linux can kill a process the moment its parent dies, even by SIGKILL and even while the process
is stuck in native code. The tie is to the parent's *thread*: only a process started by a thread
that lives as long as its parent, the main thread, may be tied. Other systems have no such tie.
"""

import contextlib
import ctypes
import os
import select
import signal
import sys
import threading
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1


def tie_to_parent(parent_pid: int) -> None:
    """Die by SIGKILL when the process *parent_pid*, our parent, dies; at once if it already has."""
    _die_with_parent()
    # The parent may have died before the tie was made.
    if os.getppid() != parent_pid:
        os.kill(os.getpid(), signal.SIGKILL)


def tie_to_group() -> None:
    """Die by SIGKILL when our parent dies, which is of our process group; at once if it has.

    For a process that does not know its parent's pid: an orphan's parent is of another group.
    """
    _die_with_parent()
    if os.getpgid(os.getppid()) != os.getpgid(0):
        os.kill(os.getpid(), signal.SIGKILL)


def _die_with_parent() -> None:
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def watch_parent(parent_pid: int, then: Callable[[], object]) -> None:
    """Call *then*, in a thread, when the process *parent_pid*, our parent, dies; where Linux is.

    The end of a pipe is read behind everything that was sent before; this is not.
    """
    if not sys.platform.startswith("linux"):
        return
    threading.Thread(target=_wait_for_end, args=(parent_pid, then), daemon=True).start()


def _wait_for_end(parent_pid: int, then: Callable[[], object]) -> None:
    ended = select.poll()
    try:
        ended.register(os.pidfd_open(parent_pid))
    except ProcessLookupError:
        then()
    except OSError:  # a kernel that has no such thing
        return
    # The pid may be another's since our parent died.
    if os.getppid() == parent_pid:
        ended.poll()
    then()


def tie_forked_children(close_fd: int) -> None:
    """Tie every process that the main thread forks from now on, and close *close_fd* in it.

    A copy of our end of the pipe in a child would keep the other end from seeing us die.
    """
    forker: list[int] = []

    def before() -> None:
        is_main = threading.current_thread() is threading.main_thread()
        forker[:] = [os.getpid()] if is_main else []

    def after_in_child() -> None:
        with contextlib.suppress(OSError):
            os.close(close_fd)
        if forker:
            tie_to_parent(forker[0])

    os.register_at_fork(before=before, after_in_child=after_in_child)
