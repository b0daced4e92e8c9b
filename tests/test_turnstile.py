import asyncio

from hypothesis import given
from hypothesis import strategies as st

from blend.core.engines.turnstile import Turnstile

# Event-loop turns spent rendering, prompts of the request, and whether rendering fails.
requests = st.lists(st.tuples(st.integers(0, 6), st.integers(1, 3), st.booleans()), max_size=12)


async def admitted(specs: list[tuple[int, int, bool]]) -> list[tuple[int, int]]:
    """Return (request, prompt) in the order in which they entered."""
    turnstile = Turnstile()
    entered: list[tuple[int, int]] = []

    async def enter(number: int, prompt: int) -> None:
        await ticket_of[number].turn()
        entered.append((number, prompt))
        await asyncio.sleep(0)
        ticket_of[number].enter()

    async def request(number: int, spec: tuple[int, int, bool]) -> None:
        rendering, prompts, fails = spec
        for _ in range(rendering):
            await asyncio.sleep(0)
        if not fails:
            for _ in range(prompts):
                ticket_of[number].announce()
            await asyncio.gather(*(enter(number, prompt) for prompt in range(prompts)))
        ticket_of[number].leave()

    ticket_of = [turnstile.draw(1) for _ in specs]
    await asyncio.wait_for(asyncio.gather(*(request(i, s) for i, s in enumerate(specs))), 5)
    assert turnstile.outside == 0
    return entered


@given(requests)
def test_requests_enter_in_the_order_they_were_drawn(specs: list[tuple[int, int, bool]]) -> None:
    entered = asyncio.run(admitted(specs))

    assert entered == [
        (number, prompt)
        for number, (_, prompts, fails) in enumerate(specs)
        if not fails
        for prompt in range(prompts)
    ]


def test_sequences_outside_are_those_whose_request_has_not_entered() -> None:
    async def outside() -> list[int]:
        turnstile = Turnstile()
        first, second = turnstile.draw(3), turnstile.draw(2)
        counts = [turnstile.outside]
        first.announce()
        first.enter()
        counts.append(turnstile.outside)
        second.leave()
        return [*counts, turnstile.outside]

    assert asyncio.run(outside()) == [5, 2, 0]
