"""How does a run begin in the job, and how does it say that it has ended?"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from blend.cli.run_context import RunContext
from blend.core.engines import Engine, EngineDiedError
from blend.core.errors import BlendError
from blend.core.running.suspects import Mask
from blend.store.job import Job, Outcome


@contextmanager
def opened_run(
    job: Job, engine: Engine, context: RunContext, rows: Mask, inside: set[int]
) -> Iterator[int]:
    """Open a run of *rows* and yield its number; it ends with the context, saying how.

    The rows *inside* at its beginning, or at its end, stay in flight.
    """
    run = job.begin_run(
        purpose=context.purpose,
        engine=context.engine_name,
        engine_pid=engine.pid,
        settings=dict(context.settings),
    )
    try:
        job.carry_on(run, inside)
        yield run
    except BaseException as error:
        # A second error, of a full disk again, must not hide the first.
        with suppress(BlendError):
            job.release()
            job.end_run(run, _outcome_of(error), cause=_cause_of(error))
        raise
    if inside:
        job.end_run(run, "handed on")
        return
    job.release()
    job.end_run(run, _outcome(context, left=bool((rows & job.pending()).any())))


def _outcome(context: RunContext, *, left: bool) -> Outcome:
    """Return how a run ended: a limit that is reached with the last row has ended nothing."""
    if not left:
        return "finished"
    if context.breaker.tripped:
        return "gave up"
    # Where nobody asked to stop, rows were passed over for want of time.
    return "stopped" if context.stopping() and not context.cut_off else "cut off"


def _outcome_of(error: BaseException) -> Outcome:
    match error:
        case EngineDiedError():
            return "engine died"
        case KeyboardInterrupt():
            return "interrupted"
        case _:
            return "failed"


def _cause_of(error: BaseException) -> str | None:
    match error:
        case EngineDiedError():
            return error.reason
        case BlendError():
            return error.message
        case _:
            return None
