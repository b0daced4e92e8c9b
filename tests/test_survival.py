"""The length estimator gives what closed forms say it must."""

import math

import numpy as np
import pytest

from blend.core.kernels import survival as kernels
from blend.core.kernels.survival import BINS, EDGE, Beliefs


def binned(tokens: np.ndarray) -> np.ndarray:
    return np.bincount([kernels.bin_of(float(one)) for one in tokens], minlength=BINS)


def lognormal(mu: float, sigma: float) -> np.ndarray:
    upper = [math.erfc((math.log(max(edge, 1e-9)) - mu) / (sigma * 2**0.5)) / 2 for edge in EDGE]
    upper[0], upper[-1] = 1.0, 0.0
    return np.array(upper)


def beliefs_of(
    ended: np.ndarray,
    running: np.ndarray | None = None,
    *,
    limit: float = 1e9,
    prior: np.ndarray | None = None,
    known: float = 0.0,
) -> Beliefs:
    """Return the beliefs of one class with one row."""
    ages = np.zeros(BINS) if running is None else binned(running)
    return kernels.new_beliefs(
        label=np.zeros(1),
        known=np.array([known]),
        prior=(lognormal(5.0, 1.0) if prior is None else prior)[None],
        events=binned(ended)[None],
        censored=ages[None],
        limit=np.array([limit]),
    )


def test_bins_hold_what_their_edges_say() -> None:
    for tokens in (0, 1, 2, 3, 10, 1000, 16384, 131072):
        b = kernels.bin_of(float(tokens))

        assert EDGE[b] <= tokens + 1e-6
        assert tokens <= EDGE[b + 1] + 1e-6


def test_moments_of_an_exponential() -> None:
    drawn = np.random.default_rng(1).exponential(1000, 200_000)
    found = beliefs_of(drawn)

    assert found.moments[0, 0] == pytest.approx(1000, rel=0.02)
    assert found.moments[0, 1] == pytest.approx(2 * 1000**2, rel=0.04)


@pytest.mark.parametrize("age", [0.0, 300.0, 1000.0, 3000.0])
def test_an_exponential_does_not_age(age: float) -> None:
    found = beliefs_of(np.random.default_rng(2).exponential(1000, 200_000))

    assert kernels.residual(found, 0, age) == pytest.approx(1000, rel=0.06)
    assert kernels.alive_after(found, 0, age, 700.0) == pytest.approx(math.exp(-0.7), rel=0.04)


def test_answers_cut_off_count_for_as_long_as_they_ran() -> None:
    rng = np.random.default_rng(3)
    lengths, cut = rng.exponential(1000, 100_000), rng.exponential(800, 100_000)
    found = beliefs_of(lengths[lengths <= cut], cut[lengths > cut])

    assert found.moments[0, 0] == pytest.approx(1000, rel=0.05)


def test_a_point_mass_ends_within_its_bin() -> None:
    found = beliefs_of(np.full(10_000, 500.0))
    b = kernels.bin_of(500.0)

    assert found.moments[0, 0] == pytest.approx(500, rel=0.1)
    assert kernels.alive_at(found, 0, EDGE[b] - 1) == pytest.approx(1.0, abs=1e-3)
    assert kernels.alive_at(found, 0, EDGE[b + 1] + 1) == pytest.approx(0.0, abs=1e-3)


def test_without_observations_the_prior_speaks() -> None:
    prior = lognormal(6.0, 0.5)
    found = beliefs_of(np.empty(0), prior=prior)

    assert found.survival[0] == pytest.approx(prior, abs=1e-9)
    assert found.moments[0, 0] == pytest.approx(math.exp(6.0 + 0.5**2 / 2), rel=0.02)


def test_no_answer_is_expected_beyond_the_limit() -> None:
    found = beliefs_of(np.random.default_rng(4).exponential(1000, 1000), limit=1024.0)
    edge = EDGE[np.searchsorted(EDGE, 1024.0)]

    assert kernels.alive_at(found, 0, edge) == 0.0
    assert found.moments[0, 0] < 1024


@pytest.mark.parametrize("age", [0.0, 10.0, 99.0])
def test_a_known_length_is_certain(age: float) -> None:
    found = beliefs_of(np.full(100, 500.0), known=100.0)

    assert kernels.expected(found, 0) == 100.0
    assert kernels.residual(found, 0, age) == 100.0 - age
    assert kernels.alive_after(found, 0, age, 99.5 - age) == 1.0
    assert kernels.alive_after(found, 0, age, 100.0 - age) == 0.0


def test_a_running_answer_beyond_all_that_was_seen_goes_on_for_a_while() -> None:
    found = beliefs_of(np.full(10_000, 50.0), limit=64.0)

    assert kernels.residual(found, 0, 1000.0) == pytest.approx(154.0)
    assert 0 < kernels.alive_after(found, 0, 1000.0, 100.0) < 1


def test_an_answer_that_goes_on_is_no_longer_taken_as_cut_off_at_its_age_then() -> None:
    ages = np.array([100.0, 100.0, 900.0])
    beliefs = beliefs_of(np.array([50.0]), ages)

    # It has grown since, into a bin where nothing was cut off.
    kernels.forget(beliefs, 0, 300.0)
    assert beliefs.censored[0].tolist() == binned(np.array([100.0, 900.0])).tolist()
    kernels.forget(beliefs, 0, 100.0)
    kernels.forget(beliefs, 0, 100.0)
    assert beliefs.censored[0].tolist() == binned(np.array([900.0])).tolist()
