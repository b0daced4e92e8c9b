"""The sequences of the simulated engine and the step that computes some tokens of each."""

from dataclasses import dataclass, field

from blend.core.engines.blocks import Key
from blend.core.engines.sim_answers import Work


@dataclass(slots=True, eq=False)
class Sequence:
    """One sequence inside the simulated engine; token counts from the start of its prompt."""

    number: int
    work: Work
    leads: bool  # the first of the sequences that share a prompt
    keys: list[Key]
    prompt_tokens: int
    tokens: int  # prompt and output so far; the newest is not in the cache yet
    final_tokens: int
    computed: int = 0
    published: int = 0
    admitted: bool = False
    decoding: bool = False  # all but the newest token is in the cache
    blocks: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Step:
    """What one step computes, as it is put together.

    ``threshold``: the most prompt tokens of one sequence.
    """

    budget: int
    prefill_budget: int
    threshold: int
    prefill_tokens: int = 0
    decode_tokens: int = 0
    read_tokens: int = 0
    cached_tokens: int = 0
    preemptions: int = 0
    prefilled: int = 0
    sampling: list[Sequence] = field(default_factory=list)

    def prefill(self, sequence: Sequence, tokens: int) -> None:
        """Compute some tokens of a prompt, or of what a preemption lost."""
        self.budget -= tokens
        self.prefill_budget -= tokens
        self.prefill_tokens += tokens
        sequence.computed += tokens
        if sequence.computed == sequence.tokens:
            sequence.decoding = True
            self.sampling.append(sequence)

    def decode(self, sequence: Sequence) -> None:
        """Compute the newest token of an output."""
        self.budget -= 1
        self.decode_tokens += 1
        self.read_tokens += sequence.tokens
        sequence.computed += 1
        self.sampling.append(sequence)
