"""The process in which vLLM lives: it answers the requests that a VllmEngine sends it.

Started by VllmEngine in a process group of its own, with the number of its end of a pipe. It ends
with its engine, with its parent, or when it is told to; whichever way, everything it started ends
too.
"""

import asyncio
import logging
import multiprocessing
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from typing import NoReturn

from blend.core.engines import vllm_compat
from blend.core.engines.lifeline import tie_forked_children, tie_to_group, watch_parent
from blend.core.engines.outbox import Outbox
from blend.core.engines.vllm_arguments import command_line
from blend.core.engines.vllm_messages import Abort, Ask, Close, Died, Refused, Start, Work
from blend.core.engines.vllm_service import Service

Message = Start | Work | Ask | Abort | Close

logger = logging.getLogger(__name__)


def listen(
    pipe: Connection, take: Callable[[list[Message]], None], *, on_broken: Callable[[], NoReturn]
) -> None:
    """Hand what has come of the parent's messages to *take*."""
    while True:
        try:
            messages = pipe.recv()
        except (EOFError, OSError):
            on_broken()
        take(messages)


def end_everything(scratch: str) -> NoReturn:
    """Kill this process and every process it started: the parent is gone."""
    shutil.rmtree(scratch, ignore_errors=True)
    os.killpg(os.getpgid(0), signal.SIGKILL)
    os._exit(1)


def leave(outbox: Outbox, last_word: Died | Refused | None) -> NoReturn:
    """Kill the engine and end, so that multiprocessing's tracker removes its shared memory.

    vLLM's own shutdown takes five seconds and ends with a kill too.
    """
    if last_word is not None:
        outbox.put(last_word)
    outbox.flush()
    for child in multiprocessing.active_children():
        child.kill()
    os._exit(0)


async def serve(pipe: Connection, outbox: Outbox, *, on_broken: Callable[[], NoReturn]) -> NoReturn:
    """Build the engine that the parent asks for, and run it until told to close."""
    loop = asyncio.get_running_loop()
    inbox: asyncio.Queue[Message] = asyncio.Queue()

    def put(messages: list[Message]) -> None:
        for message in messages:
            inbox.put_nowait(message)

    def take(messages: list[Message]) -> None:
        loop.call_soon_threadsafe(put, messages)

    # From here on the death of the parent is noticed, in the long minute of building too.
    listener = partial(listen, pipe, take, on_broken=on_broken)
    threading.Thread(target=listener, daemon=True).start()
    start = await inbox.get()
    assert isinstance(start, Start)
    service = await build(start, outbox)
    watch = asyncio.create_task(service.watch())
    while not isinstance(message := await inbox.get(), Close):
        if isinstance(message, Work):
            service.accept(message)
        elif isinstance(message, Ask):
            service.tell_ages()
        elif isinstance(message, Abort):
            await service.abort()
    watch.cancel()
    leave(outbox, None)


async def build(start: Start, outbox: Outbox) -> Service:
    """Open the service, or tell the parent why not and leave."""
    on_cpu = vllm_compat.on_cpu()
    try:
        args = vllm_compat.parse_command_line(command_line(start, on_cpu=on_cpu))
    except ValueError as error:
        leave(outbox, Refused(str(error), by_arguments=True))
    if on_cpu and args.enforce_eager:
        # The sampler's few compiled functions cost the first request for logprobs 15 to 25 s.
        os.environ.setdefault("TORCH_COMPILE_DISABLE", "1")
    service = Service(send=outbox.put, die=lambda reason: leave(outbox, Died(reason)))
    try:
        await service.open(args, served_model_name=start.served_model_name)
    except Exception as error:  # whatever it is, the parent has to say it
        logger.exception("the engine could not be built")
        leave(outbox, Refused(f"{type(error).__name__}: {error}", by_arguments=False))
    return service


def main(pipe_number: int, parent_pid: int, scratch: str) -> None:
    """Serve the parent at the other end of the pipe; *scratch* is this engine's own folder."""
    # Ctrl-C is for the parent, which drains.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.set_inheritable(pipe_number, False)
    tie_forked_children(close_fd=pipe_number)
    pipe = Connection(pipe_number)
    on_broken = partial(end_everything, scratch)
    watch_parent(parent_pid, on_broken)
    outbox = Outbox(pipe, on_broken=on_broken)
    try:
        vllm_compat.run_loop(serve(pipe, outbox, on_broken=on_broken))
    except BaseException:
        logger.exception("the host failed")
        leave(outbox, Died("its host failed"))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
elif __name__ == "__mp_main__":
    # multiprocessing's spawn runs this module first in each process that the host, or a process
    # of its engine, starts; os.register_at_fork does not reach those.
    tie_to_group()
