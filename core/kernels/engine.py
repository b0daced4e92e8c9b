"""The step of the simulated engine in compiled form: `blend.core.engines.sim` over arrays.

The cost of a step grows with what changes in it, not with what runs: a row that decodes moves one
token a step, so its age, its next block and its end are known from the step at which it began.
Rows that decode stand in one ring for each position inside a block (``phase``) and in one for the
step at which they end (``wheel``).

Differs from the object engine: where the token budget runs out before every running row has its
tokens, rows that decode come first whatever their place.
"""

from typing import Any, NamedTuple

import numpy as np

from blend.core.kernels.blocks import (
    NONE,
    PRIVATE,
    hold,
    new_blocks,
    publish,
    release,
    take,
)
from blend.core.kernels.compiled import compiled

NEW, WAITING, PREFILL, DECODE, DONE = range(5)

ROW = np.dtype(
    [
        ("prompt", np.int32),
        ("final", np.int32),  # tokens at the end of the answer
        ("tokens", np.int32),  # prompt and answer so far; lags while the row decodes
        ("computed", np.int32),
        ("blocks", np.int32),
        ("hits", np.int32),  # leading blocks of the prompt that another row took
        ("newest", np.int32),  # the last block of the chain
        ("private", np.int32),  # the block behind the last full block of the prompt
        ("left", np.int32),  # running order
        ("right", np.int32),
        ("phase_left", np.int32),
        ("phase_right", np.int32),
        ("wheel_left", np.int32),
        ("wheel_right", np.int32),
        ("state", np.int8),
        ("admitted", np.int8),
        ("lost", np.int32),  # tokens computed before it was preempted
        ("entered", np.int64),
        ("since", np.int64),  # the step at whose end `computed` and `tokens` were right
        ("key", np.int64),  # where its prefix numbers start
    ]
)

NOW = np.dtype(
    [
        ("step", np.int64),
        ("free", np.int64),
        ("running", np.int64),
        ("decoders", np.int64),
        ("prefilling", np.int64),
        ("stacked", np.int64),  # preempted rows, which wait before all others
        ("first", np.int64),  # of the queue
        ("behind", np.int64),
        ("entered", np.int64),
        ("reading", np.int64),  # tokens of the rows that decode
        ("ended", np.int64),
        ("threshold", np.int64),  # the rest: of this step
        ("prefill", np.int64),
        ("decode", np.int64),
        ("prefilled", np.int64),  # prompts computed to their end
        ("cached", np.int64),
        ("recomputed", np.int64),
        ("preempted", np.int64),
        ("squares", np.float64),
    ]
)


class Limits(NamedTuple):
    """What the engine can hold and do in one step; ``threshold`` 0 is none.

    ``lag``: steps that begin before the report of one is heard.
    """

    blocks: int
    block_tokens: int
    max_sequences: int
    step_tokens: int
    threshold: int
    lag: int


class Engine(NamedTuple):
    """The state of one engine; ``now`` has one element."""

    rows: Any
    blocks: Any
    keys: Any  # prefix numbers of the full blocks of all prompts
    served: Any  # by prefix number: the first block that holds it
    wheel: Any
    phase: Any
    phase_size: Any
    stack: Any
    queue: Any
    prefilling: Any
    ended: Any
    now: Any
    limits: Limits


def new_engine(
    limits: Limits, *, prompt_tokens: Any, output_tokens: Any, keys: Any, key_starts: Any
) -> Engine:
    """Return an engine with nothing inside."""
    n = len(prompt_tokens)
    rows = np.zeros(n + 1, ROW)
    rows["prompt"][:n] = prompt_tokens
    rows["tokens"][:n] = prompt_tokens
    rows["final"][:n] = prompt_tokens + output_tokens
    rows["key"][:n] = key_starts[:n]
    rows["newest"] = rows["private"] = NONE
    rows["left"][n] = rows["right"][n] = n
    now = np.zeros(1, NOW)
    now["free"] = limits.blocks
    longest = int(output_tokens.max(initial=1))
    return Engine(
        rows,
        new_blocks(limits.blocks),
        keys,
        np.full(int(keys.max(initial=-1)) + 1, NONE, np.int32),
        np.full(1 << (longest + 1).bit_length(), NONE, np.int32),
        np.full(limits.block_tokens, NONE, np.int32),
        np.zeros(limits.block_tokens, np.int64),
        np.empty(n + 1, np.int32),
        np.empty(n + 1, np.int32),
        np.empty(limits.max_sequences + 1, np.int32),
        np.empty(limits.max_sequences + 1, np.int32),
        now,
        limits,
    )


@compiled
def submit(engine: Engine, row: int) -> bool:
    """Queue a row; False for one that the cache could never hold, which is refused."""
    size = engine.limits.block_tokens
    if -(-engine.rows[row].final // size) > engine.limits.blocks:
        engine.rows[row].state = DONE
        return False
    engine.rows[row].state = WAITING
    engine.queue[engine.now[0].behind] = row
    engine.now[0].behind += 1
    return True


@compiled
def waiting(engine: Engine) -> int:
    """Return how many rows wait inside."""
    now = engine.now[0]
    return now.stacked + now.behind - now.first


@compiled
def step(engine: Engine, pace: int) -> None:
    """Compute one step, with at most *pace* prefill tokens; ``now`` says what moved."""
    now = engine.now[0]
    now.step += 1
    now.prefill = now.cached = now.recomputed = now.preempted = 0
    now.squares = 0.0
    # A row alone in the engine is starved by nobody.
    alone = now.running + waiting(engine) == 1
    now.threshold = 0 if alone else engine.limits.threshold
    budget = max(min(engine.limits.step_tokens - now.decoders, pace), 0)
    if _wanted(engine, budget) <= now.free:
        budget = _run_all(engine, budget)
    else:
        budget = _run_in_order(engine, budget)
    now.decode = now.decoders
    if not now.preempted:
        _admit_waiting(engine, budget)


@compiled
def finish_step(engine: Engine) -> None:
    """Give every row that was computed to its end a token; ``ended`` holds those that are done."""
    now = engine.now[0]
    now.ended = 0
    now.reading += now.decoders
    _end_decoders(engine)
    _end_prefills(engine)
    _in_order_of_entry(engine)
    for i in range(now.ended):
        row = engine.ended[i]
        _release_all(engine, row)
        _leave(engine, row)
        engine.rows[row].state = DONE


@compiled
def _in_order_of_entry(engine: Engine) -> None:
    for i in range(1, engine.now[0].ended):
        row, j = engine.ended[i], i
        while j and engine.rows[engine.ended[j - 1]].entered > engine.rows[row].entered:
            engine.ended[j] = engine.ended[j - 1]
            j -= 1
        engine.ended[j] = row


@compiled
def _end_decoders(engine: Engine) -> None:
    now = engine.now[0]
    slot = now.step & (len(engine.wheel) - 1)
    row = engine.wheel[slot]
    while row != NONE:
        after = engine.rows[row].wheel_right
        computed = _computed(engine, row)
        _stop_decoding(engine, row)
        now.reading -= engine.rows[row].final
        engine.rows[row].computed = computed
        engine.ended[now.ended] = row
        now.ended += 1
        row = after


@compiled
def _end_prefills(engine: Engine) -> None:
    now, kept = engine.now[0], 0
    now.prefilled = 0
    for i in range(now.prefilling):
        row = engine.prefilling[i]
        record = engine.rows[row]
        if record.computed < record.tokens:
            engine.prefilling[kept] = row
            kept += 1
            continue
        now.prefilled += record.tokens == record.prompt
        record.tokens += 1
        if record.tokens == record.final:
            engine.ended[now.ended] = row
            now.ended += 1
        else:
            _start_decoding(engine, row)
    now.prefilling = kept


@compiled
def _computed(engine: Engine, row: int) -> int:
    """Return the tokens of a decoding row in the cache at the end of this step."""
    return engine.rows[row].computed + engine.now[0].step - engine.rows[row].since


@compiled
def _start_decoding(engine: Engine, row: int) -> None:
    now, record = engine.now[0], engine.rows[row]
    record.state = DECODE
    record.since = now.step
    now.decoders += 1
    now.reading += record.tokens
    phase = (now.step + 1 - record.computed) % engine.limits.block_tokens
    record.phase_left, record.phase_right = NONE, engine.phase[phase]
    if engine.phase[phase] != NONE:
        engine.rows[engine.phase[phase]].phase_left = row
    engine.phase[phase] = row
    engine.phase_size[phase] += 1
    slot = (now.step + record.final - record.tokens) & (len(engine.wheel) - 1)
    record.wheel_left, record.wheel_right = NONE, engine.wheel[slot]
    if engine.wheel[slot] != NONE:
        engine.rows[engine.wheel[slot]].wheel_left = row
    engine.wheel[slot] = row


@compiled
def _stop_decoding(engine: Engine, row: int) -> None:
    now, record = engine.now[0], engine.rows[row]
    now.decoders -= 1
    phase = (record.since + 1 - record.computed) % engine.limits.block_tokens
    engine.phase_size[phase] -= 1
    if record.phase_left == NONE:
        engine.phase[phase] = record.phase_right
    else:
        engine.rows[record.phase_left].phase_right = record.phase_right
    if record.phase_right != NONE:
        engine.rows[record.phase_right].phase_left = record.phase_left
    if record.wheel_left == NONE:
        slot = (record.since + record.final - record.tokens) & (len(engine.wheel) - 1)
        engine.wheel[slot] = record.wheel_right
    else:
        engine.rows[record.wheel_left].wheel_right = record.wheel_right
    if record.wheel_right != NONE:
        engine.rows[record.wheel_right].wheel_left = record.wheel_left


@compiled
def _leave(engine: Engine, row: int) -> None:
    left, right = engine.rows[row].left, engine.rows[row].right
    engine.rows[left].right = right
    engine.rows[right].left = left
    engine.now[0].running -= 1


@compiled
def _enter(engine: Engine, row: int) -> None:
    end = len(engine.rows) - 1
    last = engine.rows[end].left
    engine.rows[row].left, engine.rows[row].right = last, end
    engine.rows[last].right = row
    engine.rows[end].left = row
    now = engine.now[0]
    now.running += 1
    now.entered += 1
    engine.rows[row].entered = now.entered
    engine.rows[row].state = PREFILL
    engine.prefilling[now.prefilling] = row
    now.prefilling += 1


@compiled
def _share(engine: Engine, row: int, budget: int) -> int:
    """Return the tokens of a row's prompt that this step computes."""
    tokens = min(engine.rows[row].tokens - engine.rows[row].computed, budget)
    if engine.now[0].threshold > 0:
        tokens = min(tokens, engine.now[0].threshold)
    return tokens


@compiled
def _lacking(engine: Engine, row: int, tokens: int) -> int:
    end = engine.rows[row].computed + tokens
    return -(-end // engine.limits.block_tokens) - engine.rows[row].blocks


@compiled
def _wanted(engine: Engine, budget: int) -> int:
    """Return the blocks that all running rows take in this step."""
    now = engine.now[0]
    wanted = engine.phase_size[now.step % engine.limits.block_tokens]
    for i in range(now.prefilling):
        row = engine.prefilling[i]
        tokens = _share(engine, row, budget)
        wanted += _lacking(engine, row, tokens)
        budget -= tokens
    return wanted


@compiled
def _run_all(engine: Engine, budget: int) -> int:
    now = engine.now[0]
    row = engine.phase[now.step % engine.limits.block_tokens]
    while row != NONE:
        _grow(engine, row)
        row = engine.rows[row].phase_right
    for i in range(now.prefilling):
        row = engine.prefilling[i]
        tokens = _share(engine, row, budget)
        _prefill(engine, row, tokens)
        budget -= tokens
    return budget


@compiled
def _run_in_order(engine: Engine, budget: int) -> int:
    """Run what is running while the newest rows give way to the older ones."""
    end = len(engine.rows) - 1
    row = engine.rows[end].right
    while row != end:
        decoding = engine.rows[row].state == DECODE
        tokens = 0 if decoding else _share(engine, row, budget)
        lacking = _grows(engine, row) if decoding else _lacking(engine, row, tokens)
        if not _make_room(engine, row, lacking):
            break
        if decoding and lacking:
            _grow(engine, row)
        elif not decoding:
            _prefill(engine, row, tokens)
            budget -= tokens
        row = engine.rows[row].right
    return budget


@compiled
def _grows(engine: Engine, row: int) -> int:
    record, size = engine.rows[row], engine.limits.block_tokens
    phase = (record.since + 1 - record.computed) % size
    return 1 if phase == engine.now[0].step % size else 0


@compiled
def _make_room(engine: Engine, row: int, lacking: int) -> bool:
    end = len(engine.rows) - 1
    while lacking > engine.now[0].free:
        newest = engine.rows[end].left
        _preempt(engine, newest)
        if newest == row:
            return False
    return True


@compiled
def _preempt(engine: Engine, row: int) -> None:
    now, record = engine.now[0], engine.rows[row]
    if record.state == DECODE:
        age = now.step - 1 - record.since
        now.reading -= record.tokens + age
        _stop_decoding(engine, row)
        record.tokens += age
        record.computed += age
    else:
        now.prefilling -= 1  # the newest row is the last of those that prefill
    _release_all(engine, row)
    _leave(engine, row)
    record.lost = record.computed
    record.computed = record.blocks = record.hits = 0
    record.newest = NONE
    record.state = WAITING
    engine.stack[now.stacked] = row
    now.stacked += 1
    now.preempted += 1


@compiled
def _release_all(engine: Engine, row: int) -> None:
    """Release the blocks of a row, the last one first."""
    record, now, size = engine.rows[row], engine.now[0], engine.limits.block_tokens
    block = record.newest
    full = record.prompt // size
    for index in range(record.blocks - 1, record.hits - 1, -1):
        if index >= full and (index + 1) * size <= record.computed:
            # No other row goes on like this one does, but it may itself after a preemption.
            engine.blocks[block].key = PRIVATE
        before = engine.blocks[block].previous
        now.free += release(engine.blocks, block)
        block = before
    for index in range(record.hits - 1, -1, -1):
        now.free += release(engine.blocks, engine.served[engine.keys[record.key + index]])


@compiled
def _grow(engine: Engine, row: int) -> None:
    """Take one more block for a row."""
    record, blocks = engine.rows[row], engine.blocks
    block = take(blocks, engine.served)
    engine.now[0].free -= 1
    blocks[block].owner = row
    blocks[block].index = record.blocks
    blocks[block].previous = record.newest
    blocks[block].following = NONE
    if record.newest != NONE:
        blocks[record.newest].following = block
    record.newest = block
    if record.blocks == record.prompt // engine.limits.block_tokens:
        record.private = block
    record.blocks += 1


@compiled
def _prefill(engine: Engine, row: int, tokens: int) -> None:
    """Compute some tokens of a prompt, or of what a preemption lost."""
    record, now, size = engine.rows[row], engine.now[0], engine.limits.block_tokens
    start, end = record.computed, record.computed + tokens
    full = record.prompt // size
    index = start // size
    while index * size < end:
        if index == record.blocks:
            _grow(engine, row)
        if index < full and (index + 1) * size <= end:
            publish(engine.blocks, engine.served, record.newest, engine.keys[record.key + index])
        index += 1
    record.computed = end
    now.prefill += tokens
    now.squares += float(end) * end - float(start) * start


@compiled
def _shared_hits(engine: Engine, row: int, usable: int) -> int:
    record = engine.rows[row]
    most = min(usable, record.prompt // engine.limits.block_tokens)
    hits = 0
    while hits < most and engine.served[engine.keys[record.key + hits]] != NONE:
        hits += 1
    return hits


@compiled
def _kept(engine: Engine, row: int, block: int, index: int) -> bool:
    """Tell whether a block still holds what a preempted row once computed."""
    if block == NONE:
        return False
    record = engine.blocks[block]
    return record.owner == row and record.index == index and record.key == PRIVATE


@compiled
def _admit_waiting(engine: Engine, budget: int) -> None:
    now, limits = engine.now[0], engine.limits
    while budget > 0 and now.running < limits.max_sequences:
        if now.stacked:
            row = engine.stack[now.stacked - 1]
        elif now.first < now.behind:
            row = engine.queue[now.first]
        else:
            return
        tokens = _try_admit(engine, row, budget)
        if tokens == 0:
            return
        budget -= tokens


@compiled
def _try_admit(engine: Engine, row: int, budget: int) -> int:
    """Admit a row if its whole prompt fits, and return the tokens it computes; 0 if not."""
    now, record, size = engine.now[0], engine.rows[row], engine.limits.block_tokens
    usable = (record.tokens - 1) // size
    shared = _shared_hits(engine, row, usable)
    unheld = 0
    for index in range(shared):
        unheld += engine.blocks[engine.served[engine.keys[record.key + index]]].holders == 0
    hits, newest, block = shared, NONE, record.private
    if shared == record.prompt // size:
        while hits < usable and _kept(engine, row, block, hits):
            newest, block = block, engine.blocks[block].following
            hits += 1
    # A private block is held by nobody while its row waits.
    if -(-record.tokens // size) - hits + unheld + hits - shared > now.free:
        return 0
    if now.stacked:
        now.stacked -= 1
    else:
        now.first += 1
    _hold_hits(engine, row, shared, hits, newest)
    if record.admitted:
        now.recomputed += record.lost - record.computed
    else:
        now.cached += record.computed
    record.admitted = 1
    _enter(engine, row)
    tokens = _share(engine, row, budget)
    _prefill(engine, row, tokens)
    return tokens


@compiled
def _hold_hits(engine: Engine, row: int, shared: int, hits: int, newest: int) -> None:
    now, record = engine.now[0], engine.rows[row]
    for index in range(shared):
        now.free -= hold(engine.blocks, engine.served[engine.keys[record.key + index]])
    block = record.private
    for _ in range(shared, hits):
        now.free -= hold(engine.blocks, block)
        block = engine.blocks[block].following
    record.hits, record.blocks = shared, hits
    record.newest = newest
    record.computed = hits * engine.limits.block_tokens
