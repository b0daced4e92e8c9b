"""The warm-up of `blend run`: its plan is made while the engine is at work.

The sample runs first, and others behind it. Once enough of its answers have ended, or its bound has
passed, the plan is made of what has been seen, with the ages of the answers that go on; what is
inside the engine when it is ready is handed on to the execution. So nothing runs twice, and no time
is lost waiting.
"""

import logging
import threading
from concurrent.futures import Future, wait
from functools import partial

from blend.cli.made_plan import MadePlan, Planned
from blend.cli.observing import observations_of
from blend.cli.planning import PlanOptions, WarmUp, make_plan, warm_up_of
from blend.cli.running import POLL_S
from blend.cli.sampled_plan import PlanInputs, as_measured, plan_inputs, save_and_say
from blend.cli.session import Ran, Session, run_sample
from blend.cli.wording import counted, duration
from blend.core.engines import StepReport
from blend.core.planning.wanted import WantedAnswers
from blend.core.running.carried import Carried

logger = logging.getLogger(__name__)


def warm_up_and_plan(session: Session, settings: PlanOptions) -> Carried | None:
    """Run the sample and what may run beside it, make the plan meanwhile, and say what to expect.

    Returns what runs on, for the execution to carry. When a person has asked to stop before, the
    job has no plan.
    """
    job = session.job
    inputs = plan_inputs(job, settings)
    warm_up = warm_up_of(job, inputs.prompts, inputs.tree, settings)
    making = _PlanInTheMaking(session, inputs, settings, warm_up.wanted)
    ran = run_sample(session, warm_up.schedule, until=making.observe)
    made = making.result()
    if ran:
        _say_how_it_went(ran, warm_up)
    if made is None:
        return None
    save_and_say(job, made, inputs.followers, engine=session.options.name)
    return ran.left.carried if ran else None


def _say_how_it_went(ran: Ran, warm_up: WarmUp) -> None:
    progress, carried, dropped = ran.progress, ran.left.carried, ran.left.dropped
    parts = [f"{counted(progress.answered + progress.failed)} have results"]
    if carried and carried.ages:
        parts.append(f"{counted(len(carried.ages))} go on")
    if dropped:
        parts.append(f"{counted(len(dropped))} cut off and given back")
    logger.info(f"ran {_in_words(warm_up)} for {duration(progress.elapsed_s)}: " + ", ".join(parts))


def _in_words(warm_up: WarmUp) -> str:
    if not len(warm_up.sampled):
        return "requests ahead of the plan, none of them sampled,"
    sample = f"a sample of {counted(len(warm_up.sampled), 'requests')}"
    behind = len(warm_up.schedule) > len(warm_up.sampled)
    return f"{sample} and others behind it" if behind else sample


class _PlanInTheMaking:
    """Begins to plan when enough has been seen of a run, in a thread, and says when it is done."""

    def __init__(
        self,
        session: Session,
        inputs: PlanInputs,
        settings: PlanOptions,
        wanted: WantedAnswers,
    ):
        self._session = session
        self._inputs = inputs
        self._settings = settings
        self._wanted = wanted
        self._answered: dict[int, int] = {}
        self._engine_s = 0.0
        self._future: Future[MadePlan] | None = None

    def observe(self, report: StepReport) -> bool:
        """Take in a report of the run, and tell whether the plan is ready."""
        self._engine_s += report.seconds
        for completion in report.completions:
            self._wanted.see(completion.row)
            if not completion.failed:
                self._answered[completion.row] = completion.completion_tokens
        if self._future is None:
            too_early = self._wanted and self._engine_s < self._settings.sample_s
            # What runs is finished when a person has asked to stop, and not planned for.
            if too_early or self._session.interrupt.asked:
                return False
            self._future = self._begin()
        return self._future.done()

    def result(self) -> MadePlan | None:
        """Wait for the plan; None when a person asks to stop before it is ready."""
        interrupt = self._session.interrupt
        if self._future is None:
            if interrupt.asked:
                return None
            self._future = self._begin()
        while not wait([self._future], POLL_S).done:
            if interrupt.asked:
                return None
        return self._future.result()

    def _begin(self) -> "Future[MadePlan]":
        session, inputs = self._session, self._inputs
        job, engine = session.job, session.engine
        seen = observations_of(job, inputs.prompts, engine.ages(), unsaved=self._answered)
        make = partial(
            make_plan,
            inputs.prompts,
            inputs.tree,
            as_measured(job, self._settings, session.options, engine.capacity),
            seen,
            Planned.of(job),
            capacity=engine.capacity,
            spent_s=inputs.spent_s,
        )
        future: Future[MadePlan] = Future()

        def work() -> None:
            try:
                future.set_result(make())
            except BaseException as error:  # noqa: BLE001 - raised where the plan is asked for
                future.set_exception(error)

        if session.options.name == "sim":
            # In virtual time, planning takes none.
            work()
        else:
            threading.Thread(target=work, name="blend-plan", daemon=True).start()
        return future
