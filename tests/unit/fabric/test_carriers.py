"""Carriers plug in: rules for all of them, an additional one, and several at once."""

from __future__ import annotations

import pkgutil
import random
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.unit.fabric import broadcast
from tests.unit.fabric.edges import IP_MULTICAST, STREAM, Collected, fabrics, join, until

from treecast.middleware.fabric import carriers as package
from treecast.middleware.fabric.carriers.carrier import Carrier, Place
from treecast.middleware.fabric.carriers.registry import Carriers, maker_of, register
from treecast.middleware.fabric.core.reorder import Progress
from treecast.middleware.fabric.fabric import Fabric
from treecast.middleware.fabric.settings import FabricSettings

START = Progress(0, 0)
STATE = 300_100  # other tests on this machine may use its neighbours at the same time
OURS = {"unicast", "ip-multicast", "stare", "labels", "relay", "srv6", "content"}
OPTIONS = {"labels": "127.0.9.98", "content": "price:u32"}  # an address without a switch; fields


@pytest.fixture(autouse=True)
def registered() -> None:
    register(broadcast.NAME, broadcast.make)


@pytest.fixture
def port() -> Iterator[str]:
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as sock:
        sock.bind(("127.0.0.1", 0))
        yield str(sock.getsockname()[1])


def one_of(name: str, options: dict[str, str]) -> Carrier:
    return maker_of(name)(FabricSettings(carriers=(name,), options=options))


# --- all carriers


def test_each_has_a_file_of_its_name() -> None:
    files = {module.name for module in pkgutil.iter_modules(package.__path__)}
    assert files == {name.replace("-", "_") for name in OURS} | {"carrier", "registry"}


@pytest.mark.parametrize("name", [*sorted(OURS), broadcast.NAME])
def test_what_they_do_before_they_are_open(name: str, port: str) -> None:
    carrier = one_of(name, {**OPTIONS, broadcast.NAME: port})
    assert carrier.name == name
    carrier.set_host(7, Place(("127.0.0.1", 1), "seven"))
    carrier.set_host(7, None)
    with pytest.raises(ValueError, match=r"rules|labels"):
        carrier.learn("no rules of anybody")
    if not carrier.group_form:
        with pytest.raises(ValueError, match="group"):
            carrier.join(STATE)
        assert not carrier.is_member(STATE)
    assert carrier.observed() == {}
    carrier.close()


@pytest.mark.parametrize("name", [*sorted(OURS - {"unicast", "srv6"}), broadcast.NAME])  # srv6 needs root
async def test_what_they_do_when_they_are_open(name: str, port: str) -> None:
    settings = FabricSettings(stream=STREAM, carriers=(name,), options={**OPTIONS, broadcast.NAME: port})
    async with fabrics(1, settings=settings) as (one,):
        carrier = one.carriers.named(name)
        state = one.state().carriers[1]
        assert (state.name, state.refusal, carrier.refusal) == (name, "", "")
        assert carrier.reach([]).hosts == frozenset()
        assert carrier.reach([1, 2, 3]).mtu >= one.stream_settings.mtu > 1000
        with pytest.raises(ValueError, match=r"group|state id"):
            carrier.check(7)
        rng = random.Random(1)
        for length in range(200):  # strangers' packets
            buffer = memoryview(rng.randbytes(length) + bytes(100))
            at = carrier.unwrap(buffer, 3, 3 + length)
            assert at == -1 or 3 <= at <= 3 + length
        carrier.leave(STATE)


def test_settings_that_name_no_carrier() -> None:
    for name in ("", "teleport", "carrier", "registry", "..unicast", "ip multicast"):
        with pytest.raises(ValueError, match="no carrier"):
            Carriers(FabricSettings(carriers=(name,)))
    for names in (("stare", "ip-multicast"), ("labels", "labels"), ("unicast",)):
        with pytest.raises(ValueError, match="for the same"):
            Carriers(FabricSettings(carriers=names))


# --- an additional carrier


def test_a_carrier_takes_less_than_a_hundred_lines() -> None:
    assert len(Path(broadcast.__file__).read_text().splitlines()) < 100


async def test_streams_of_one_host_go_by_several_carriers_at_once(port: str) -> None:
    """One goes by names without a group, one by a group, one by unicast; each host by one that reaches it."""
    settings = FabricSettings(
        stream=STREAM, mtu=1500, carriers=(broadcast.NAME, IP_MULTICAST), options={broadcast.NAME: port}
    )
    async with fabrics(1, 2, 3, 4, settings=settings) as made:
        one = made[0]
        heard: set[tuple[int, int]] = set()
        for fabric in made[1:]:
            fabric.on_probe = lambda _, state, nonce, host=fabric.host: heard.add((host, state))
        for fabric in made[1:3]:
            join(fabric, STATE)
        one.send_probe(broadcast.NAME, 0, 5, [2, 3])
        one.send_probe(IP_MULTICAST, STATE, 6, [2, 3])
        await until(lambda: len(heard) == 4)
        assert heard == {(2, 0), (3, 0), (2, STATE), (3, STATE)}

        origins = [one.originate(stream, 1) for stream in (7, 8, 9)]
        sinks = [[Collected() for _ in made[1:]] for _ in origins]
        for origin, of_stream in zip(origins, sinks, strict=True):
            for fabric, sink in zip(made[1:], of_stream, strict=True):
                origin.add_receiver(fabric.host, 0)
                fabric.join(1, origin.key[1], 1, sink, progress=START)
        origins[0].use_carrier(broadcast.NAME, {2, 4})
        origins[1].use_carrier(IP_MULTICAST, {2, 3}, STATE)
        payloads = [bytes([number]) * 5000 for number in range(20)]
        for payload in payloads:
            for origin in origins:
                origin.publish(payload, 1)
        await until(lambda: all(sink.payloads == payloads for of_stream in sinks for sink in of_stream))
        assert [{peer.host: peer.carrier for peer in origin.peers()} for origin in origins] == [
            {2: broadcast.NAME, 3: "unicast", 4: broadcast.NAME},
            {2: IP_MULTICAST, 3: IP_MULTICAST, 4: "unicast"},
            {2: "unicast", 3: "unicast", 4: "unicast"},
        ]
        await until(lambda: all(row.closed for origin in origins for row in origin.rows().values()))
        by = [{sent.carrier for sent in origin.sent() if sent.purpose == "data"} for origin in origins]
        assert by == [{broadcast.NAME, "unicast"}, {IP_MULTICAST, "unicast"}, {"unicast"}]
        assert _sent(one)[1:] == [(2, 4)] * (len(_sent(one)) - 1)  # later packets name only host 4


def _sent(fabric: Fabric) -> list[tuple[int, ...]]:
    carrier = fabric.carriers.named(broadcast.NAME)
    assert isinstance(carrier, broadcast.Broadcast)
    return carrier.sent


async def test_the_first_that_reaches_enough_is_picked(port: str) -> None:
    settings = FabricSettings(
        stream=STREAM, carriers=(broadcast.NAME, IP_MULTICAST), options={broadcast.NAME: port}
    )
    async with fabrics(1, 2, settings=settings) as (one, _):
        mtu, pick = one.stream_settings.mtu, one.carriers.pick
        names, group = one.carriers.named(broadcast.NAME), one.carriers.named(IP_MULTICAST)
        assert pick([2], mtu, 2) is names
        assert pick([2, 9], mtu, 2) is names
        assert pick([8, 9], mtu, 2) is group  # broadcast does not know them
        assert pick([8], mtu, 2) is pick([8, 9], mtu, 0) is None
        assert pick([2], 100_000, 2) is pick([8, 9], 100_000, 2) is None  # longer than the path's MTU
        assert one.carriers.of_form(IP_MULTICAST) is group
        with pytest.raises(ValueError, match="knows groups of trees"):
            one.carriers.of_form("trees")


def test_rules_are_for_the_carriers_that_read_them(port: str) -> None:
    options = {**OPTIONS, broadcast.NAME: port}
    carriers = Carriers(
        FabricSettings(carriers=(*sorted(OURS - {"unicast", "stare"}), broadcast.NAME), options=options)
    )
    ruled = {one.name: one for one in carriers.ruled()}
    assert set(ruled) == {"labels", "srv6", broadcast.NAME}
    for host in (2, 3):
        carriers.set_name(host, f"h{host}")
    own = ruled[broadcast.NAME]
    own.learn(own.read_rules(1, bytes([3])))
    assert isinstance(own, broadcast.Broadcast)
    assert own.hosts == {3}
