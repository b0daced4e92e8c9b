"""Which rows enter which replica next? A scanner for each, and what none has admitted is dealt.

Each replica's scanner has its part of the schedule in front of it and sees its engine alone. After
every few per cent of the work, and when a replica has nothing left to admit, what is left is looked
over and dealt anew (`planning.dealing`). Rows that a replica has lost are given to another, once:
a row that is lost again may be what kills them, and is left for a run of its own.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from blend.core.engines import Capacity, StepReport
from blend.core.engines.replicas import ReplicaSet
from blend.core.planning.dealing import Dealer, Standing
from blend.core.planning.hardware import Hardware, ModelShape
from blend.core.planning.interference import TURNS
from blend.core.planning.parts import CutName, cut, part_of, walk_of
from blend.core.planning.tree import Ints
from blend.core.running.carried import Carried, open_carrying
from blend.core.running.scan import DealtScanner
from blend.core.schedule import Schedule

LOOK_SHARE = 0.05
"""Of the work that nobody had admitted at the last look, what goes by until the next."""


@dataclass(slots=True)
class _Post:
    """One replica: its positions, how many are left, and since which step rows run in it.

    ``carried`` ran in it before there was a scanner.
    """

    positions: Ints
    left: int = 0
    scanner: DealtScanner | None = None
    carried: Carried | None = None
    since: dict[int, int] = field(default_factory=dict)
    steps: int = 0


class ReplicaScanner:
    """A Scanner of all replicas of a set."""

    pace = None

    def __init__(
        self,
        schedule: Schedule,
        *,
        prompt_tokens: npt.NDArray[np.integer],
        sequences: npt.NDArray[np.integer],
        replicas: ReplicaSet,
        hardware: Hardware,
        model: ModelShape,
        how: CutName = "subtrees",
        carried: Carried | None = None,
    ):
        self._schedule = schedule
        self._sizes = (prompt_tokens, sequences)
        self._replicas = replicas
        self._walk = walk_of(
            schedule,
            prompt_tokens=prompt_tokens.astype(np.int64),
            sequences=sequences,
            hardware=hardware,
            model=model,
        )
        self._dealer = Dealer(self._walk, parts=len(replicas), interference=TURNS)
        self._work = self._walk.comp_s(np.arange(len(schedule))) + self._walk.mem_s
        self._place = dict(zip(schedule.order.tolist(), range(len(schedule)), strict=True))
        self._open = np.ones(len(schedule), np.bool_)
        self._lost: set[int] = set()
        self._open_s = float(self._work.sum())
        self._look_at_s = np.inf
        self._moved = False
        self._living: list[int] = []
        part = cut(self._walk, len(replicas), how=how)
        self._posts = [_Post(np.flatnonzero(part == one)) for one in range(len(replicas))]
        if carried:
            self._carry(carried)
        for number, post in enumerate(self._posts):
            post.positions = self._left(number)
            post.left = len(post.positions)

    def _carry(self, carried: Carried) -> None:
        """Leave the rows that run where they run: they are nobody's to admit, or to be dealt."""
        sequences, of_row = self._sizes[1], self._replicas.placement.of_row
        for number, post in enumerate(self._posts):
            ages = {row: age for row, age in carried.ages.items() if of_row[row] == number}
            post.carried = replace(carried, ages=ages, last=self._replicas.last_of(number))
            post.since = {row: -age // int(sequences[row]) for row, age in ages.items()}
            self._shut(ages)

    @property
    def done(self) -> bool:
        """Whether every row has been admitted."""
        return not any(post.left for post in self._posts)

    def admit(self) -> list[int]:
        """Return the rows that the replicas have room for, and say to which each goes."""
        self._staff()
        if self._due():
            self._deal()
        rows: list[int] = []
        for number in self._living:
            post = self._posts[number]
            assert post.scanner is not None
            admitted = list(post.scanner.admit())
            self._replicas.placement.pace[number] = post.scanner.pace
            for row in admitted:
                self._replicas.placement.of_row[row] = number
                post.since[row] = post.steps
            self._close(post, admitted)
            rows += admitted
        return rows

    def _shut(self, rows: Iterable[int]) -> None:
        positions = [self._place[row] for row in rows]
        self._open[positions] = False
        self._open_s -= float(self._work[positions].sum())

    def _close(self, post: _Post, rows: Sequence[int]) -> None:
        self._shut(rows)
        post.left -= len(rows)
        self._moved |= bool(rows)

    def withdraw(self, rows: Sequence[int]) -> None:
        """Take rows back that were admitted last and not submitted."""
        for row in rows:
            post = self._posts[self._replicas.placement.of_row[row]]
            post.since.pop(row)
            if post.scanner is not None:
                post.scanner.withdraw([row])

    def observe(self, report: StepReport) -> None:
        """Tell each replica's scanner what its engine has reported, and take lost rows back."""
        for part in report.parts:
            post = self._posts[part.replica]
            post.steps += part.report.steps
            for completion in part.report.completions:
                post.since.pop(completion.row, None)
                self._moved = True
            if post.scanner is not None:
                post.scanner.observe(part.report)
        for lost in report.lost:
            self._take_back(lost.replica, lost.rows)

    def _staff(self) -> None:
        """See to it that every replica that runs has a scanner, and no other has rows to admit."""
        living = self._replicas.living
        if living == self._living and all(self._posts[one].scanner for one in living):
            return
        self._living = living
        for number in living:
            post = self._posts[number]
            if post.scanner is None:
                ages = post.carried.ages if post.carried else {}
                inside = np.array([self._place[row] for row in ages], np.int64)
                post.scanner = open_carrying(
                    part_of(self._schedule, self._walk, np.union1d(inside, self._left(number))),
                    prompt_tokens=self._sizes[0],
                    sequences=self._sizes[1],
                    capacity=self._replicas.capacity_of(number),
                    carried=post.carried,
                )
        for number, post in enumerate(self._posts):
            if number not in living and post.left and living:
                left, post.positions, post.left = self._left(number), np.zeros(0, np.int64), 0
                self._give(living[0], np.concatenate([self._left(living[0]), left]))
        self._look_at_s, self._moved = np.inf, True

    def _take_back(self, number: int, rows: Iterable[int]) -> None:
        """Open the rows again that a dead replica has lost, for the first time."""
        post = self._posts[number]
        post.scanner, post.carried, post.steps = None, None, 0
        post.since.clear()
        again = [row for row in rows if row not in self._lost]
        self._lost.update(again)
        positions = np.array([self._place[row] for row in again], np.int64)
        self._open[positions] = True
        self._open_s += float(self._work[positions].sum())
        post.positions = np.union1d(self._left(number), positions)
        post.left = len(post.positions)

    def _due(self) -> bool:
        """Tell whether it is time for a look: work has gone by, or a replica has none left."""
        if len(self._living) < 2 or not self._moved or self.done:
            return False
        dry = any(not self._posts[number].left for number in self._living)
        return dry or self._open_s <= self._look_at_s

    def _deal(self) -> None:
        self._moved = False
        self._look_at_s = (1.0 - LOOK_SHARE) * self._open_s
        living = self._living
        standings = [self._standing(number) for number in living]
        for index, positions in self._dealer.deal(standings).items():
            self._give(living[index], positions)

    def _standing(self, number: int) -> Standing:
        post = self._posts[number]
        inside = np.array([self._place[row] for row in post.since], np.int64)
        ages = post.steps - np.array(list(post.since.values()), np.float64)
        return self._dealer.standing(self._left(number), inside, ages)

    def _give(self, number: int, positions: Ints) -> None:
        post = self._posts[number]
        post.positions, post.left = np.sort(positions), len(positions)
        if post.scanner is not None:
            post.scanner.deal(part_of(self._schedule, self._walk, post.positions))

    def _left(self, number: int) -> Ints:
        positions = self._posts[number].positions
        left: Ints = positions[self._open[positions]]
        return left


def open_replica_scanner(
    schedule: Schedule,
    *,
    prompt_tokens: npt.NDArray[np.integer],
    sequences: npt.NDArray[np.integer],
    capacity: Capacity,  # noqa: ARG001 - each replica has its own
    carried: Carried | None,
    replicas: ReplicaSet,
    hardware: Hardware,
    model: ModelShape,
) -> ReplicaScanner:
    """Return what scans *schedule* for a set of replicas of *model* on *hardware* each."""
    return ReplicaScanner(
        schedule,
        prompt_tokens=prompt_tokens,
        sequences=sequences,
        replicas=replicas,
        hardware=hardware,
        model=model,
        carried=carried,
    )
