"""A device that runs the program with one of everything, served on loopback, and controllers.

| fixture  | what it is                                                                              |
| -------- | --------------------------------------------------------------------------------------- |
| `switch` | a served device: `Served` with its address, and what went out at links                   |
| `planes` | makes controllers that have done nothing yet                                             |
| `plane`  | a controller that is primary and has set the program                                     |
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest
from tests.unit.p4.p4runtime.planes import Plane, Served


@pytest.fixture
async def switch() -> AsyncIterator[Served]:
    served = Served()
    served.address = await served.server.start("127.0.0.1:0")
    yield served
    await served.server.close()


@pytest.fixture
async def planes(switch: Served) -> AsyncIterator[Any]:
    """Makes controllers and closes them at the end."""
    made: list[Plane] = []

    def make() -> Plane:
        made.append(Plane(switch.address))
        return made[-1]

    yield make
    await close(made)


async def close(planes: Iterable[Plane]) -> None:
    for plane in planes:
        if plane.stream is not None:
            plane.stream.cancel()
        await plane.channel.close()


@pytest.fixture
async def plane(planes: Any) -> Plane:
    found: Plane = planes()
    await found.arbitrate()
    assert (await found.heard()).arbitration.status.code == 0
    await found.set_pipeline()
    return found
