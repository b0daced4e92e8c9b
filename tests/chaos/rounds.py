"""One round: a job is disturbed at random, taken to its end, and every promise checked."""

import random
import shutil
import time
from pathlib import Path

from tests.chaos.autopsy import Found, examine, share_done
from tests.chaos.commands import Command, marked
from tests.chaos.subject import IN_FLIGHT, STAGES, Stage, Subject, outcome
from tests.tiny_engine import wait_until

POLL_S = 0.005
LEAVE_S = 60.0


class Round:
    """A folder of its own with a job, what accidents have cost so far, and how to end well.

    ``lost`` are the rows that the job says were in flight at the accidents, and those whose results
    a full disk did not take; None once an accident took committed rows, so that nothing bounds what
    is computed again. ``tidy`` until an accident leaves nobody to remove scratch files; ``full``
    while the disk is.
    """

    def __init__(self, subject: Subject, folder: Path, *, name: str, seed: str):
        self.subject = subject
        self.folder = folder
        self.rng = random.Random(seed)
        self.mark = f"{name}-{folder}"
        self.requests = subject.requests
        self.job = folder / "job.blend"
        self.lost: int | None = 0
        self.tidy = True
        self.full = False
        self._answered: frozenset[int] = frozenset()
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)

    def begin(self, stage: Stage) -> None:
        """Put the job there as it is before *stage*."""
        self.job = self.subject.begin(stage, self.job.parent)

    def start(self, stage: Stage, *, file_bytes: int | None = None) -> Command:
        words = self.subject.words(stage, self.job, self.requests)
        return Command(words, mark=self.mark, folder=self.folder, file_bytes=file_bytes)

    def at_random(self, command: Command, stage: Stage) -> None:
        """Wait for a random moment of the command: of its time, or of what it has done."""
        if self.rng.random() < 0.3:
            end = time.monotonic() + self.rng.uniform(0, self.subject.stage_s[stage])
            while command.running and time.monotonic() < end:
                time.sleep(POLL_S)
            return
        self.at_share(command, stage, self.rng.random())

    def at_share(self, command: Command, stage: Stage, share: float) -> None:
        """Wait until so much of the stage is done."""
        while command.running and share_done(self.job, stage, self.subject.rows) <= share:
            time.sleep(POLL_S)

    def after(self, command: Command) -> int:
        """Wait for the end of a command and of all it started; look at what it left."""
        code = command.wait()
        self.nobody_left()
        found = examine(self.job, self.folder / "autopsy")
        assert self._answered <= found.answered, "results that were saved are lost"
        self._answered = frozenset(found.answered)
        self._count_lost(found)
        if code != -9:
            assert self.full or not found.in_flight, "a command that ended left rows in flight"
            self.no_scratch(command)
        assert code != 1, command.said
        assert "Traceback" not in command.said, command.said
        return code

    def _count_lost(self, found: Found) -> None:
        # What a full disk did not take may have been given back since, in the room that is left.
        lost = found.unsaved if self.full else found.in_flight
        assert lost <= IN_FLIGHT[self.subject.engine], lost
        if self.lost is not None:
            self.lost += lost

    def forget_saved(self) -> None:
        """An accident took what the last transaction had saved: no promise is broken by that."""
        self.lost = None
        self._answered = frozenset()

    def nobody_left(self) -> None:
        assert wait_until(lambda: not marked(self.mark), timeout_s=LEAVE_S), (
            f"processes left: {marked(self.mark)}"
        )

    def no_scratch(self, command: Command) -> None:
        if self.tidy:
            # What torch compiles stays, for the next start.
            left = [path.name for path in command.scratch.glob("blend-*")]
            assert not left, f"scratch files left: {left}"

    def finish(self, stage: Stage) -> None:
        """Take the job from *stage* to its end, undisturbed, and check what came of it."""
        stages = ("run",) if stage == "run" else STAGES[STAGES.index(stage) :]
        for one in stages:
            command = self.start(one)
            code = self.after(command)
            allowed = {0, 3} if one == "ingest" and self.requests != self.subject.requests else {0}
            assert code in allowed, f"{one}: exit code {code}: {command.said}"
        self.check()

    def check(self) -> None:
        """See that every promise was kept."""
        assert outcome(self.job.with_name("out.jsonl")) == self.subject.outcome
        found = examine(self.job, self.folder / "autopsy")
        assert len(found.answered) == self.subject.rows
        assert not found.in_flight
        if self.lost is not None:
            assert found.again <= self.lost, (
                f"{found.again} rows ran again, {self.lost} were in flight"
            )
        partial = list(self.job.parent.glob("*.partial-*"))
        assert not partial, f"half-written outputs left: {partial}"
        self.nobody_left()
