"""SRv6 trees at a host: those that it has, requests and sends by. No socket is needed."""

from __future__ import annotations

import pytest
from tests.unit.fabric.edges import STREAM, fabrics

from treecast.middleware.fabric.carriers import srv6
from treecast.middleware.fabric.carriers.carrier import Copy
from treecast.middleware.fabric.carriers.srv6 import NAME, ReplicationTree, Srv6, Srv6Rules
from treecast.middleware.fabric.fabric import Fabric
from treecast.middleware.fabric.settings import FabricSettings
from treecast.middleware.model.tally import Tally

SETTINGS = FabricSettings(stream=STREAM, carriers=(NAME,))
ONE, TWO, THREE = bytes(15) + b"\1", bytes(15) + b"\2", bytes(15) + b"\3"


def tree(sid: bytes, *hosts: str) -> ReplicationTree:
    return ReplicationTree(frozenset(hosts), sid)


def carrier_of(fabric: Fabric) -> Srv6:
    found = fabric.carriers.named(NAME)
    assert isinstance(found, Srv6)
    for host, name in ((1, "one"), (2, "two"), (3, "three"), (4, "four")):
        fabric.carriers.set_name(host, name)
    return found


async def test_what_is_reached_is_what_trees_have() -> None:
    async with fabrics(1, settings=SETTINGS) as (fabric,):
        carrier = carrier_of(fabric)
        told: list[int] = []
        fabric.on_reach = lambda: told.append(carrier.version)
        assert carrier.reach([2, 3]).hosts == frozenset()
        carrier.learn(Srv6Rules(5, (tree(ONE, "two"), tree(TWO, "two", "three"), tree(THREE, "nobody"))))
        assert told == [5]
        assert carrier.reach([2, 3]).hosts == {2, 3}
        assert carrier.reach([1, 2, 3, 4]).hosts == {2, 3}
        assert carrier.reach([2]).hosts == {2}
        assert carrier.reach([3, 4]).hosts == frozenset()
        assert carrier.reach([2]).mtu <= fabric.stream_settings.mtu + srv6.OVERHEAD
        assert (carrier._route((2,)), carrier._route((3,)), carrier._route((3, 4))) == (ONE, TWO, b"")
        key = (1, 7, 1)
        assert carrier.copies(key, 0, [2, 3]) == [Copy("::2", (2, 3))]
        assert carrier.copies(key, 0, [3, 4]) == [Copy("", (3, 4))]
        carrier.learn(Srv6Rules(6, ()))
        assert carrier._route((2,)) == b""
        assert carrier.reach([2, 3]).hosts == frozenset()


async def test_trees_are_asked_for_as_long_as_streams_have_the_receivers() -> None:
    async with fabrics(1, settings=SETTINGS) as (fabric,):
        carrier = carrier_of(fabric)
        now = [100.0]
        fabric._edge.now = lambda: now[0]
        carrier.reach([2, 3])
        carrier.reach([1, 4])
        carrier.reach([99])
        assert carrier.observed() == {("three", "two"): 0, ("four",): 0}
        for _ in range(4):
            now[0] += srv6.WANTED_SECONDS / 2
            carrier.reach([4])
        assert carrier.observed() == {("four",): 0}
        for host in range(1000, 1000 + 2 * srv6.MOST_SETS):
            fabric.carriers.set_name(host, str(host))
            carrier.reach([host])
        assert len(carrier.observed()) == srv6.MOST_SETS


async def test_rules_that_are_refused() -> None:
    async with fabrics(1, settings=SETTINGS) as (fabric,):
        carrier = carrier_of(fabric)
        carrier.learn(Srv6Rules(5, ()))
        with pytest.raises(ValueError, match="version 4"):
            carrier.learn(Srv6Rules(4, ()))
        for wrong in (tree(b"short", "two"), tree(ONE)):
            with pytest.raises(ValueError, match="rules"):
                carrier.learn(Srv6Rules(6, (wrong,)))
        assert carrier.version == 5


async def test_telemetry_counts_what_goes_to_each_set_of_hosts() -> None:
    async with fabrics(1, settings=SETTINGS) as (fabric,):
        carrier = carrier_of(fabric)
        if carrier._raw is not None:
            carrier._raw.close()
        sink = carrier._raw = Sink()  # type: ignore[assignment]  # a raw socket needs root
        carrier._source = bytes(16)
        carrier.learn(Srv6Rules(5, (tree(TWO, "two", "three"),)))
        carrier.send(0, [b"12345"], [2, 3])
        carrier.tally = Tally()
        carrier.send(0, [b"12345", b"123"], [3, 2])
        carrier.send(0, [b"1"], [4])  # no tree leads there, so nothing is sent
        taken = carrier.tally.take()
        assert (taken.packets, taken.size) == (2, 8)
        ((hosts, count),) = taken.sets
        assert (carrier.names(hosts), count.packets, count.size) == (["three", "two"], 2, 8)
        assert count.header.size == len(sink.sent[0]) - 5 + 40
        carrier._raw = None


class Sink:
    """A raw socket that keeps what it gets."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def sendto(self, data: bytes, address: object) -> int:
        self.sent.append(data)
        return len(data)
