"""When the Kafka agents look at a cluster again."""

from __future__ import annotations

import asyncio

from treecast.agents.kafka.looks import Looks

LONG = 3600.0


async def test_a_hint_during_a_look_is_not_lost() -> None:
    looks = Looks(LONG)
    looks.soon()  # the look has made a topic, whose leaders the cluster names a moment later
    await asyncio.wait_for(looks.next(), LONG / 60)


async def test_a_hint_between_looks_ends_the_pause() -> None:
    looks = Looks(LONG)
    waiting = asyncio.create_task(looks.next())
    await asyncio.sleep(0)
    looks.soon()
    await asyncio.wait_for(waiting, LONG / 60)
    assert looks.wait() == LONG, "the look that follows answers the hint"


async def test_looks_that_are_hinted_at_one_after_the_other_get_rarer() -> None:
    looks, waits = Looks(1.0), []
    for _ in range(6):
        looks.soon()
        waits.append(looks.wait())
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert looks.wait() == 1.0
    looks.soon()
    assert looks.wait() == 0.1, "a look without a hint ends the row"
