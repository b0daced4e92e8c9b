"""Which rows of a job does a plan take in, and what do the results so far tell of lengths?"""

from collections.abc import Mapping

import numpy as np

from blend.core.planning.identical import Followers
from blend.core.planning.lengths import Observations
from blend.core.prompts import Prompts
from blend.store.job import Job

NOTHING: Mapping[int, int] = {}


def find_followers(job: Job, *, fan_out: bool) -> Followers:
    """Return the rows that a plan leaves out, because they get the answer of another one."""
    return job.identical_rows() if fan_out else job.settled_followers()


def observations_of(
    job: Job, prompts: Prompts, ages: Mapping[int, int], *, unsaved: Mapping[int, int] = NOTHING
) -> Observations:
    """Return what the job's results tell of lengths, and rows that have only some tokens yet.

    ``ages``: output tokens of rows that go on or were dropped; ``unsaved``: of rows with results
    that may not be in the job yet.
    """
    tokens = np.full(len(job), np.nan)
    rows, output_tokens = job.output_tokens()
    tokens[rows] = output_tokens
    tokens[list(unsaved)] = list(unsaved.values())
    finished = ~np.isnan(tokens)
    for row, age in ages.items():
        # An age of 0 tells nothing: not every engine says how old its answers are.
        if age and not finished[row]:
            tokens[row] = age
    return Observations(tokens[prompts.job_rows] / prompts.sequences, finished[prompts.job_rows])


def known_lengths(job: Job, prompts: Prompts) -> Observations:
    """Return what the results tell of lengths, and the ages at which the plan's sample was cut."""
    seen, plan = observations_of(job, prompts, {}), job.plan()
    if plan is not None:
        ages = np.full(len(job), np.nan)
        cut = ~plan.sample_finished
        ages[plan.sample_rows[cut]] = plan.sample_tokens[cut]
        ages = ages[prompts.job_rows]
        new = np.isnan(seen.tokens) & ~np.isnan(ages)
        seen.tokens[new] = ages[new]
    return seen
