"""How long the steps of an engine take (paper §3.3, §4.2).

t_c: seconds to compute a step's tokens; t_m: seconds to read the KV cache of its decodes;
t_n: seconds that devices which share the model talk to each other (`communication`);
W: seconds to read the weights, which every step does; o: overhead of a step; a: interference.

    sequential   max(t_c, W) + t_m + t_n + o                operators one after another
    overlapped   the longest of t_c, W + t_m and t_n, a of what the others take, and o;
                 a may depend on their ratio (`interference`)

A sum over the devices stands between two products that need each other: where operators follow one
another it hides behind neither products nor weights. An engine that overlaps has the links as a
third thing at work at a time: NanoFlow cuts a step into batches that use them in turn.

Without ``shared_bandwidth`` an overlapped step takes max(t_c, W) beside t_m, as if the weights did
not slow the cache's reads down.

Differs from the paper: it has neither W nor t_n nor o.
"""

from dataclasses import dataclass, fields, replace

from blend.core.engines import UNKNOWN_TOKENS, Capacity
from blend.core.planning.classes import Mode as Mode  # part of what an engine model is
from blend.core.planning.communication import network_step_s, network_token_s
from blend.core.planning.cost import weights_s
from blend.core.planning.hardware import Hardware, ModelShape, kv_capacity_tokens
from blend.core.planning.interference import TURNS, Interference, at_once_s

MODES: tuple[Mode, ...] = ("sequential", "overlapped")

INTERFERENCE = Interference(0.15)

REPORT_LAG = 2
"""Steps that vLLM begins before the report of one is heard, where it schedules ahead of them."""


@dataclass(frozen=True, slots=True)
class StepCosts:
    """Seconds that a step takes: itself, a prefill and a decode token, a token read, the weights.

    Computing tokens hides behind reading the weights. What devices say to each other is in them.
    """

    overhead_s: float
    token_s: float
    decode_s: float
    read_s: float
    weights_s: float

    def of_round(self, stages: int) -> "StepCosts":
        """Return what a round of a pipeline costs, where a step has run one of its batches.

        A step was taken to read all that the cache holds, of which it reads the batch's part.
        """
        return replace(
            self,
            overhead_s=stages * self.overhead_s,
            read_s=stages * self.read_s,
            weights_s=stages * self.weights_s,
        )

    def times(self, factor: float) -> "StepCosts":
        """Return the costs on a machine that takes so many times as long."""
        return StepCosts(*(factor * getattr(self, field.name) for field in fields(self)))


@dataclass(frozen=True, slots=True)
class EngineModel:
    """An engine on a device: what it holds and how long its steps take.

    ``attention=False`` drops the p² term as the paper does. ``measured`` goes before what hardware
    and model imply.
    """

    capacity: Capacity
    hardware: Hardware
    model: ModelShape
    mode: Mode = "sequential"
    interference: Interference = INTERFERENCE
    overhead_s: float = 0.0
    attention: bool = True
    shared_bandwidth: bool = True
    measured: StepCosts | None = None

    def holding(self, capacity: Capacity) -> "EngineModel":
        """Return this engine with what a running one can hold, as far as that is known."""
        known = {
            name: getattr(self.capacity, name)
            for name in ("kv_tokens", "context_tokens")
            if getattr(capacity, name) == UNKNOWN_TOKENS
        }
        return replace(self, capacity=replace(capacity, **known))

    @property
    def token_s(self) -> float:
        """Return the seconds that the matrix products of one prompt token take."""
        if self.measured:
            return self.measured.token_s
        return 2.0 * self.model.active_parameters / self.hardware.flops

    @property
    def decode_s(self) -> float:
        """Return the seconds that the matrix products of one decode take."""
        return self.measured.decode_s if self.measured else self.token_s

    @property
    def pair_s(self) -> float:
        """Return the seconds of prefill attention for each unit of depth squared."""
        if not self.attention:
            return 0.0
        return 4.0 * self.model.hidden * self.model.layers / self.hardware.flops

    @property
    def read_s(self) -> float:
        """Return the seconds to read the KV cache of one token."""
        if self.measured:
            return self.measured.read_s
        return self.model.kv_bytes_per_token / self.hardware.bandwidth_bytes_s

    @property
    def weights_s(self) -> float:
        """Return the seconds to read all weights once."""
        if self.measured:
            return self.measured.weights_s
        return weights_s(hardware=self.hardware, model=self.model)

    @property
    def network_token_s(self) -> float:
        """Return the seconds that devices talk for each token of a step; measured tokens do."""
        return 0.0 if self.measured else network_token_s(self.hardware, self.model)

    @property
    def network_step_s(self) -> float:
        """Return the seconds that devices talk in a step, however few its tokens."""
        return 0.0 if self.measured else network_step_s(self.hardware, self.model)

    @property
    def mode_interference(self) -> Interference:
        """Return the interference of an engine of its mode: where none overlap, all take turns."""
        return TURNS if self.mode == "sequential" else self.interference

    def step_s(self, prefill_tokens: int, decode_tokens: int, read_tokens: int) -> float:
        """Return the seconds of a step, without prefill attention."""
        compute = self.token_s * prefill_tokens + self.decode_s * decode_tokens
        memory = self.read_s * read_tokens
        network = self.network_token_s * (prefill_tokens + decode_tokens) + self.network_step_s
        if self.mode == "overlapped" and self.shared_bandwidth:
            memory += self.weights_s
        else:
            compute = max(compute, self.weights_s)
        seconds = at_once_s(compute, memory, network, interference=self.mode_interference)
        return seconds + self.overhead_s


def engine_model(
    hardware: Hardware,
    model: ModelShape,
    *,
    mode: Mode = "sequential",
    max_sequences: int = 1024,
    step_tokens: int = 8192,
    context_tokens: int = 131_072,
    overhead_s: float | None = None,
    attention: bool = True,
    memory_fraction: float = 0.9,
    report_lag: int = REPORT_LAG,
) -> EngineModel:
    """Return the engine that vLLM would start on this device, the cache filling what is free.

    ``overhead_s`` of a step, of each of a pipeline's batches, is the device's where it is None.
    """
    capacity = Capacity(
        kv_tokens=kv_capacity_tokens(hardware, model, memory_fraction=memory_fraction),
        max_sequences=max_sequences,
        step_tokens=step_tokens,
        context_tokens=context_tokens,
        block_tokens=16,
        pacing="step budget",
        report_lag=report_lag,
    )
    overhead_s = hardware.step_overhead_s if overhead_s is None else hardware.stages * overhead_s
    return EngineModel(
        capacity,
        hardware,
        model,
        mode,
        interference=INTERFERENCE if hardware.interference is None else hardware.interference,
        overhead_s=overhead_s,
        attention=attention,
    )
