"""Stand-ins for the traces of the paper's evaluation, fitted to what is published about them.

BurstGPT, OpenVid, ShareGPT, WildChat and Azure are known here only by their mean lengths, compute
density and sharing (paper Table 4, Fig. 2, A.3). Each stand-in draws lengths of a plain shape and
bends them until mean input, mean output and density are the published ones. Requests of a trace
share its system prompt; some of them share a longer prefix within their group besides.

Invariant: the lengths drawn have the trace's mean input and output, and its density wherever a
power of the drawn shape can reach it, whatever the seed and the number of requests. So a handful
of very long answers weighs as much in a small workload as in a large one.

Assumed, not published: the shapes (lognormal, exponential), their spread, the correlation of input
and output, and that the questions of a benchmark never repeat.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from blend.core.planning.cost import comp_s, mem_s
from blend.core.planning.hardware import hardware_preset, model_preset

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
TraceName = Literal["burstgpt", "azure", "sharegpt", "wildchat", "mmlu", "openvid"]
Shape = Literal["lognormal", "exponential", "constant"]

# The device and model that the published densities are for.
PAPER_HARDWARE = hardware_preset("a100-80g")
PAPER_MODEL = model_preset("llama-3-8b")

GROUP_SPREAD = 0.5  # of the logarithm of group prefixes, as in the five-shot prompts of MMLU
LEAST_POWER, GREATEST_POWER = 0.25, 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """What is published of a trace, and the shapes assumed for the rest.

    ``density`` and ``sharing`` are those of Table 4. Tokens are means a request, the prompt with
    all that it shares. ``prompt_spread`` is the standard deviation of the logarithm of a request's
    own part, ``correlation`` that of it with the logarithm of the answer. ``grouped`` is the part
    of the requests that belong to one of ``groups`` and share ``group_tokens`` on average with it.
    """

    name: TraceName
    prompt_tokens: float
    output_tokens: float
    density: float
    sharing: float
    system_tokens: int
    prompt_spread: float
    prompt_limit: int
    output_shape: Shape
    output_limit: int
    output_step: int = 1
    correlation: float = 0.0
    groups: int = 0
    grouped: float = 0.0
    group_tokens: float = 0.0


# System prompts are as long as the published sharing allows; OpenVid's .00 leaves one token.
# Means that nobody published are assumed: both of ShareGPT, the input of WildChat; the input of
# Azure is that of the public code trace of 2023, its output what the density then asks for.
TRACES: dict[TraceName, Trace] = {
    trace.name: trace
    for trace in (
        Trace(
            name="burstgpt",
            prompt_tokens=244,
            output_tokens=27,
            density=17.78,
            sharing=0.02,
            system_tokens=5,
            prompt_spread=1.0,
            prompt_limit=8_192,
            output_shape="lognormal",
            output_limit=4_096,
            correlation=0.3,
        ),
        Trace(
            name="azure",
            prompt_tokens=2_048,
            output_tokens=23.5,
            density=33.2,
            sharing=0.01,
            system_tokens=20,
            prompt_spread=1.2,
            prompt_limit=8_192,
            output_shape="lognormal",
            output_limit=2_048,
        ),
        Trace(
            name="sharegpt",
            prompt_tokens=246,
            output_tokens=322,
            density=3.12,
            sharing=0.02,
            system_tokens=5,
            prompt_spread=1.2,
            prompt_limit=8_192,
            output_shape="lognormal",
            output_limit=4_096,
            correlation=-0.2,
        ),
        Trace(
            name="wildchat",
            prompt_tokens=296,
            output_tokens=256,
            density=2.13,
            sharing=0.19,
            system_tokens=5,
            prompt_spread=1.2,
            prompt_limit=8_192,
            output_shape="lognormal",
            output_limit=4_096,
            groups=100,
            grouped=0.25,
            group_tokens=206,
        ),
        Trace(
            name="mmlu",
            prompt_tokens=804,
            output_tokens=2,
            density=54.91,
            sharing=0.86,
            system_tokens=5,
            prompt_spread=0.65,
            prompt_limit=8_192,
            output_shape="constant",
            output_limit=2,
            groups=57,
            grouped=1.0,
            group_tokens=690,
        ),
        Trace(
            name="openvid",
            prompt_tokens=121,
            output_tokens=16_384,
            density=0.05,
            sharing=0.0,
            system_tokens=1,
            prompt_spread=0.3,
            prompt_limit=512,
            output_shape="exponential",
            output_limit=131_072,
            output_step=256,
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Requests:
    """Drawn requests of one trace: tokens and group of each, (n,), and the groups' prefixes, (g,).

    ``group`` is -1 outside any group; a group's prefix comes after the system prompt.
    """

    prompt_tokens: Ints
    output_tokens: Ints
    group: Ints
    group_tokens: Ints


def draw(trace: Trace, n: int, *, seed: int) -> Requests:
    """Return *n* requests of *trace*, in no particular order."""
    rng = np.random.default_rng([seed, *trace.name.encode()])
    group_tokens = _group_prefixes(trace, rng)
    group = np.full(n, -1, dtype=np.int64)
    shared = np.full(n, trace.system_tokens, dtype=np.int64)
    if trace.groups:
        group = np.where(rng.random(n) < trace.grouped, rng.integers(0, trace.groups, n), -1)
        shared += np.where(group >= 0, group_tokens[group], 0)
    normal = rng.standard_normal(n)
    prompt = _prompt_tokens(trace, normal, shared)
    first = trace.system_tokens + int(group_tokens[np.unique(group[group >= 0])].sum())
    sharing = max(int(shared.sum()) - first, 0) / max(int(prompt.sum()), 1)
    shape = _answer_shape(trace, normal, rng)
    return Requests(prompt, _bent(trace, shape, prompt, sharing=sharing), group, group_tokens)


def density_of(prompt_tokens: Ints, output_tokens: Ints, *, sharing: float) -> float:
    """Return the paper's density: (1 - s)·ΣComp / ΣMem, without the attention term."""
    comp = comp_s(
        prompt_tokens, output_tokens, attention=False, hardware=PAPER_HARDWARE, model=PAPER_MODEL
    )
    memory = mem_s(prompt_tokens, output_tokens, hardware=PAPER_HARDWARE, model=PAPER_MODEL)
    return (1.0 - sharing) * float(comp.sum()) / float(memory.sum())


def _group_prefixes(trace: Trace, rng: np.random.Generator) -> Ints:
    spread = np.exp(GROUP_SPREAD * rng.standard_normal(trace.groups))
    mean = float(spread.mean()) if trace.groups else 1.0
    tokens: Ints = np.maximum(np.rint(spread * trace.group_tokens / mean), 1).astype(np.int64)
    return tokens


def _prompt_tokens(trace: Trace, normal: Floats, shared: Ints) -> Ints:
    """Return prompt lengths of the trace's mean, each at least a token beyond what it shares."""
    own = np.exp(trace.prompt_spread * normal)
    limit = np.maximum(trace.prompt_limit - shared, 1)
    mean = trace.prompt_tokens - (float(shared.mean()) if len(shared) else 0.0)
    return shared + _scaled(own, mean, limit=limit)


def _answer_shape(trace: Trace, normal: Floats, rng: np.random.Generator) -> Floats:
    """Return positive numbers of the trace's shape and of any mean, one an answer."""
    if trace.output_shape == "exponential":
        return rng.exponential(size=len(normal))
    if trace.output_shape == "constant":
        return np.ones(len(normal))
    r = trace.correlation
    shape: Floats = np.exp(r * normal + np.sqrt(1.0 - r * r) * rng.standard_normal(len(normal)))
    return shape


def _bent(trace: Trace, shape: Floats, prompt: Ints, *, sharing: float) -> Ints:
    """Return answers of the trace's mean and density: a power of *shape*, scaled."""

    def at(power: float) -> Ints:
        return _scaled(
            shape**power,
            trace.output_tokens,
            limit=np.asarray(trace.output_limit),
            step=trace.output_step,
        )

    if trace.output_shape == "constant" or len(shape) < 2:
        return at(1.0)
    return at(_root(lambda power: trace.density / density_of(prompt, at(power), sharing=sharing)))


def _scaled(shape: Floats, mean: float, *, limit: Ints, step: int = 1) -> Ints:
    """Return *shape* scaled to *mean*, in whole steps, at least one, and at most *limit*."""
    found = np.full(len(shape), step, dtype=np.int64)
    scale = mean / float(shape.mean()) if len(shape) else 1.0
    for _ in range(4):  # rounding and limits move the mean: correct for what they did
        steps = np.maximum(np.rint(scale / step * shape), 1.0)
        found = np.minimum(steps * step, limit).astype(np.int64)
        scale *= mean / float(found.mean()) if len(shape) else 1.0
    return found


def _root(ratio: Callable[[float], float]) -> float:
    """Return the power at which *ratio*, which grows with it, is one; the nearest end if none."""
    low, high = LEAST_POWER, GREATEST_POWER
    below, above = np.log(ratio(low)), np.log(ratio(high))
    if below >= 0.0 or above <= 0.0:
        return low if below >= 0.0 else high
    middle = 1.0
    for _ in range(30):  # false position with halving (Illinois): about eight rounds are needed
        found = np.log(ratio(middle))
        if abs(found) < 1e-4:
            break
        if found < 0.0:
            low, below, above = middle, found, above / 2.0
        else:
            high, above, below = middle, found, below / 2.0
        middle = (low * above - high * below) / (above - below)
    return float(middle)
