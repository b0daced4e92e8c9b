"""The step of a model, as torch computes it here: what is measured where no engine has run.

A step is what an engine does with a batch: the matrix products of all its tokens layer by layer,
attention of its prompts, and attention of its decodes over a KV cache. The values are random; the
shapes are the model's. Where memory or time do not allow for all layers some are measured, for all.
"""

import os
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Literal

from blend.core.planning.calibration import StepPoint
from blend.core.planning.parameters import LayerWidths

DeviceName = Literal["cpu", "cuda"]
Clock = Callable[[], float]

PROMPT_TOKENS = 256
"""Prompts that a prefill of more tokens is made of."""

_MEMORY_SHARE = 0.4
_TRIES, _ONCE_S = 8, 0.05
_PARTS = 4  # how often at least the lesser is done beside the greater, where all of it is
_DRAWN = 1 << 18  # values, repeated: drawing them all would take longer than measuring


class TorchSteps:
    """Random weights and a KV cache on a device, and the steps that are computed with them.

    ``cache_tokens``: the most that a step reads. ``scale``: by how much the layers that are there
    stand for all. Raises RuntimeError of torch where the device has no room for one layer.
    """

    def __init__(
        self,
        widths: LayerWidths,
        device: DeviceName,
        *,
        cache_tokens: int,
        most_layers: int,
        clock: Clock,
    ):
        import torch

        self._torch, self._clock = torch, clock
        self._widths, self._device = widths, torch.device(device)
        self._dtype = torch.float32 if device == "cpu" else torch.bfloat16
        self._kv_width = widths.kv_heads * widths.head_size
        self.layers = max(1, min(widths.layers, most_layers, self._layers_in_memory(cache_tokens)))
        self.scale = widths.layers / self.layers
        torch.manual_seed(0)
        self._layers = [self._layer() for _ in range(self.layers)]
        self._caches = [self._random(2, cache_tokens, self._kv_width) for _ in range(self.layers)]
        self._head = self._random(widths.vocabulary, widths.hidden)

    @property
    def weight_bytes(self) -> float:
        """Return the bytes of the weights that a step of the whole model reads."""
        values = self._widths.layers * self._widths.layer_parameters
        values += self._widths.vocabulary * self._widths.hidden
        return float(values * self._dtype.itemsize)

    @property
    def kv_bytes_per_token(self) -> float:
        """Return the bytes that one token has in the KV cache, over all layers."""
        return float(2 * self._kv_width * self._widths.layers * self._dtype.itemsize)

    def seconds(self, point: StepPoint, *, least_s: float = 0.02) -> float:
        """Return how long a step takes: the fastest of those in *least_s*, at least one.

        On a CPU that of the fastest layer, for all: few whole steps go by without a disturbance.
        """
        if self._device.type == "cpu":
            layers = self._widths.layers * self._fastest_layer(point, least_s)
        else:
            layers = self.scale * self._fastest(self._step(point), least_s)
        return layers + self._fastest(self._answer(point), least_s / 4)

    def at_once(self, point: StepPoint, shares: Sequence[float]) -> list[tuple[float, ...]]:
        """Return the seconds of the longer of computing and reading, the other, both at once.

        The other goes on for about these *shares* of the longer; it may come out as the longer.
        """
        compute = self._step(StepPoint(point.prefill, 0, 0))
        read = self._step(StepPoint(0, point.decodes, point.context), products=False)
        alone_s = [self._fastest(one, _ONCE_S) for one in (compute, read)]
        longer, shorter = (compute, read) if alone_s[0] >= alone_s[1] else (read, compute)
        ratio = max(alone_s) / min(alone_s)
        times = max(1, round(_PARTS / ratio))
        often = [max(1, round(share * times * ratio)) for share in shares]

        def beside(count: int) -> Callable[[], None]:
            return lambda: self._at_once(longer, times, shorter, count)

        works = [longer, shorter, *map(beside, often)]
        least_s = [float("inf")] * len(works)
        for _ in range(_TRIES):
            tried = [self._fastest(one, _ONCE_S) for one in works]
            least_s = [min(pair) for pair in zip(least_s, tried, strict=True)]
        longer_s, shorter_s, *both_s = least_s
        alone = [(times * longer_s, count * shorter_s) for count in often]
        return [(max(pair), min(pair), both) for pair, both in zip(alone, both_s, strict=True)]

    def _layers_in_memory(self, cache_tokens: int) -> int:
        values = self._widths.layer_parameters + 2 * cache_tokens * self._kv_width
        return int(_MEMORY_SHARE * self._free_bytes() / (values * self._dtype.itemsize))

    def _free_bytes(self) -> float:
        if self._device.type == "cuda":
            return float(self._torch.cuda.mem_get_info()[0])
        return float(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))

    def _random(self, *size: int) -> Any:
        count = prod(size)
        some = self._torch.randn(min(count, _DRAWN), device=self._device, dtype=self._dtype)
        times = -(-count // len(some))
        return some.mul_(size[-1] ** -0.5).repeat(times)[:count].view(*size)

    def _layer(self) -> tuple[Any, ...]:
        one = self._widths
        queries = one.heads * one.head_size
        return (
            self._random(queries + 2 * self._kv_width, one.hidden),
            self._random(one.hidden, queries),
            self._random(2 * one.inner, one.hidden),
            self._random(one.hidden, one.inner),
        )

    def _step(self, point: StepPoint, *, products: bool = True) -> Callable[[], None]:
        """Return what computes the layers of a step, the first time already behind it."""
        tokens = self._random(max(point.prefill + point.decodes, 1), self._widths.hidden)

        def step() -> None:
            x = tokens
            for weights, cache in zip(self._layers, self._caches, strict=True):
                x = self._compute(x, weights, cache, point, products=products)

        return self._ready(step)

    def _answer(self, point: StepPoint) -> Callable[[], None]:
        """Return what computes the next token of every sequence of a step."""
        prompts = -(-point.prefill // PROMPT_TOKENS)
        ends = self._random(max(prompts + point.decodes, 1), self._widths.hidden)

        def answer() -> None:
            self._torch.nn.functional.linear(ends, self._head).argmax(-1)

        return self._ready(answer)

    def _compute(
        self, x: Any, weights: tuple[Any, ...], cache: Any, point: StepPoint, *, products: bool
    ) -> Any:
        torch, linear = self._torch, self._torch.nn.functional.linear
        width = (self._widths.hidden,)
        if not products:
            queries = x.new_ones(point.decodes, self._widths.heads * self._widths.head_size)
            self._attend_decodes(queries, cache, point)
            return x
        in_weights, out_weights, up_weights, down_weights = weights
        mixed = linear(torch.nn.functional.layer_norm(x, width), in_weights)
        attended = []
        if point.prefill:
            attended.append(self._attend_prompts(mixed[: point.prefill]))
        if point.decodes and point.context:
            queries = self._widths.heads * self._widths.head_size
            attended.append(self._attend_decodes(mixed[point.prefill :, :queries], cache, point))
        x = x + linear(torch.cat(attended), out_weights)
        gate, up = linear(torch.nn.functional.layer_norm(x, width), up_weights).chunk(2, -1)
        return x + linear(torch.nn.functional.silu(gate) * up, down_weights)

    def _attend_prompts(self, mixed: Any) -> Any:
        one, torch = self._widths, self._torch
        length = min(len(mixed), PROMPT_TOKENS)
        heads = mixed.view(-1, length, one.heads + 2 * one.kv_heads, one.head_size).transpose(1, 2)
        queries, keys, values = heads.split([one.heads, one.kv_heads, one.kv_heads], dim=1)
        group = one.heads // one.kv_heads
        keys, values = (part.repeat_interleave(group, dim=1) for part in (keys, values))
        found = torch.nn.functional.scaled_dot_product_attention(
            queries, keys, values, is_causal=True
        )
        return found.transpose(1, 2).reshape(len(mixed), -1)

    def _attend_decodes(self, queries: Any, cache: Any, point: StepPoint) -> Any:
        """Attend over the cache: the queries that share a head of it stand in for a sequence."""
        one = self._widths
        grouped = queries.reshape(point.decodes, one.kv_heads, -1, one.head_size)
        held = cache[:, : point.read_tokens].view(
            2, point.decodes, point.context, one.kv_heads, one.head_size
        )
        keys, values = held.transpose(2, 3)
        found = self._torch.nn.functional.scaled_dot_product_attention(grouped, keys, values)
        return found.reshape(point.decodes, -1)

    def _ready(self, step: Callable[[], None]) -> Callable[[], None]:
        """Return *step* after it ran, on a GPU as a graph, which is how engines run small steps."""
        torch = self._torch

        def quiet() -> None:
            with torch.inference_mode():
                step()

        if self._device.type == "cpu":
            quiet()
            return quiet
        beside = torch.cuda.Stream()
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside), torch.no_grad():
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(beside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph), torch.no_grad():
            step()
        replay: Callable[[], None] = graph.replay
        return replay

    def _fastest(self, work: Callable[[], None], least_s: float) -> float:
        """Return the seconds of *work* at its fastest, done as often as fits into *least_s*."""
        began_s = before_s = self._now()
        fastest_s = float("inf")
        while before_s - began_s < least_s:
            work()
            after_s = self._now()
            fastest_s = min(fastest_s, after_s - before_s)
            before_s = after_s
        return fastest_s

    def _fastest_layer(self, point: StepPoint, least_s: float) -> float:
        """Return the seconds of the fastest layer of steps that go through all of them."""
        tokens = self._random(max(point.prefill + point.decodes, 1), self._widths.hidden)
        seconds: list[float] = []
        with self._torch.inference_mode():
            while sum(seconds) < least_s:
                x = tokens
                for weights, cache in zip(self._layers, self._caches, strict=True):
                    began_s = self._clock()
                    x = self._compute(x, weights, cache, point, products=True)
                    seconds.append(self._clock() - began_s)
        return min(seconds)

    def _now(self) -> float:
        if self._device.type == "cuda":
            self._torch.cuda.synchronize()
        return self._clock()

    def _at_once(
        self, longer: Callable[[], None], times: int, shorter: Callable[[], None], often: int
    ) -> None:
        if self._device.type == "cuda":
            self._in_streams(longer, times, shorter, often)
            return
        from threading import Thread

        beside = Thread(target=_repeat, args=(shorter, often))
        beside.start()
        _repeat(longer, times)
        beside.join()

    def _in_streams(
        self, longer: Callable[[], None], times: int, shorter: Callable[[], None], often: int
    ) -> None:
        torch = self._torch
        one, other = torch.cuda.Stream(), torch.cuda.Stream()
        for stream in (one, other):
            stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(one):
            _repeat(longer, times)
        with torch.cuda.stream(other):
            _repeat(shorter, often)
        for stream in (one, other):
            torch.cuda.current_stream().wait_stream(stream)


def _repeat(work: Callable[[], None], times: int) -> None:
    for _ in range(times):
        work()
