"""How long do devices that share a model talk to each other? Tensor and pipeline parallel engines.

    a sum over n devices     2(n-1)/n · bytes / link + start + 2(n-1)·hop          a ring
    tensor parallel          two of them a layer, of the step's tokens, activation bytes each
    pipeline parallel        one boundary for each token, with its residual: 2 · activation bytes

A step of g pipeline stages is a *round*: each sequence inside gets one token. vLLM keeps g batches
in flight, in each a part of the sequences; a stage works on another batch than its neighbours and
passes all g of them in a round. So compute, reads and sums of a round are a g-th on each stage, all
stages at a time; but each batch reads the weights of its stage, so that a round takes as long for
them as one stage group would for all layers, and it has g overheads. The same holds where one
sequence is left, which passes the stages one after another. A hand-over is in the way of the stage
that waits for it; those of other stages go on at the same time.

The link is that of one device in one direction, as published, and the latency what NCCL itself
(src/graph/tuning.cc) reckons with for a ring of small messages, RCCL on AMD. All devices stand in
one machine.

Not counted: the sum behind the embedding and the logits' gathering, once a step; experts that are
spread over devices; sums that an engine overlaps with its own products.

Differs from the paper: its §5.5 scales compute, bandwidth and memory with the devices and leaves
this out.
"""

from blend.core.planning.hardware import Hardware, ModelShape

SUMS_A_LAYER = 2
"""Behind attention, and behind the feed-forward layers."""


def network_token_s(hardware: Hardware, model: ModelShape) -> float:
    """Return the seconds on the links for each token of a step, of several devices as one."""
    if hardware.link_bytes_s is None:
        return 0.0
    seconds = model.activation_bytes / hardware.link_bytes_s
    handed = 2.0 * seconds if hardware.stages > 1 else 0.0
    return _summed(hardware) * seconds * SUMS_A_LAYER * model.layers / hardware.stages + handed


def network_step_s(hardware: Hardware, model: ModelShape) -> float:
    """Return the seconds that the links take for a step, however few its tokens."""
    if hardware.link_bytes_s is None:
        return 0.0
    start, hop = hardware.link_start_s, hardware.link_hop_s
    others = hardware.tensor - 1
    sums = SUMS_A_LAYER * model.layers * (start + 2 * others * hop) if others else 0.0
    return sums + (hardware.stages - 1) * (start + hop)


def _summed(hardware: Hardware) -> float:
    """Return how often the bytes of a sum pass the link of a device."""
    n, peers = hardware.tensor, hardware.link_peers
    if n == 1:
        return 0.0
    # Where each pair has a link of its own, fewer devices have fewer of them.
    share = min(1.0, (n - 1) / peers) if peers else 1.0
    return 2.0 * (n - 1) / n / share
