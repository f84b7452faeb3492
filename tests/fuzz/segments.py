"""Segments of every kind with a valid tag, and with fields that no honest host would write.

`Attacked` is a fabric that sends and receives streams, by several carriers. Each step gives it some segments
as its sockets would, and lets it work. Nothing may raise, nothing may be isolated
(`FabricCounters.isolated`), memory stays below what the settings allow, and a stream that nobody attacks goes
on.
"""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Callable, Iterator
from typing import Any, Final

from treecast.middleware.fabric.core.log import Log
from treecast.middleware.fabric.core.reorder import Delivery, Progress
from treecast.middleware.fabric.core.settings import StreamSettings
from treecast.middleware.fabric.fabric import Fabric
from treecast.middleware.fabric.origin import JoinedStream, Origin
from treecast.middleware.fabric.settings import FabricSettings
from treecast.middleware.model.counters import FabricCounters
from treecast.middleware.wire.relay import MOST_HOPS, RelayHeader, RelayKind, encode_header
from treecast.middleware.wire.segment import KeyRing, Kind, Message, control, cut, encode
from treecast.middleware.wire.segment_bodies import (
    Announce,
    Beat,
    Close,
    Gap,
    Heartbeat,
    Mode,
    Nak,
    Probe,
    Report,
    Skip,
    Skipped,
    Totals,
)
from treecast.middleware.wire.segment_bodies import Expiry as Why

KEYS: Final = KeyRing({3: bytes(range(32))}, 3)
HOST: Final = 1  # the one that is attacked
OTHERS: Final = (2, 3, 4)
SPARED: Final = (4, 9, 1)  # a stream that no segment of an attacker names
STATE: Final = 300  # of a group that the host has joined
SETTINGS: Final = StreamSettings(
    buffer_bytes=200_000,
    assembly_bytes=200_000,
    message_bytes=400_000,
    buffer_messages=500,
    log_bytes=200_000,
    catch_up_after=2000,
    hold_bytes=100_000,
    rests=True,
)
MEMORY: Final = 4 << 20  # bytes that the attacked streams may hold together

_HEADER: Final = struct.Struct(">BBHIIIQIHHHBBI")
_EDGES: Final = (0, 1, 2, 255, 256, 1 << 14, 1 << 16, 1 << 22, 1 << 31, 1 << 32, 1 << 53, 1 << 63, 1 << 64)
_BODIES: Final = {  # the fixed fields of each body, for bodies that `encode` would refuse
    Kind.NAK: ">IHQQHH",
    Kind.HEARTBEAT: ">QQQIQI",
    Kind.REPORT: ">BQQIQQIIQIQQQQQBB",
    Kind.SKIP: ">HQQB",
    Kind.ANNOUNCE: ">QQHIH",
    Kind.CLOSE: ">Q",
    Kind.PROBE: ">IQ",
    Kind.BEAT: ">QQQQB",
}


class Counted:
    """A sink that counts."""

    def __init__(self) -> None:
        self.taken = 0
        self.failures = 0

    def deliver(self, deliveries: list[Delivery]) -> None:
        self.taken += len(deliveries)

    def failed(self, error: Exception) -> None:
        self.failures += 1


class Forger:
    """Writes segments, with the values that break ranges more often than others."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.near = 0  # a sequence that matters now

    def number(self, bits: int) -> int:
        """A number of so many bits: at an edge of some width, near the present sequence, or any."""
        rng, way = self._rng, self._rng.random()
        if way < 0.35:
            found = rng.choice(_EDGES) + rng.randint(-2, 2)
        elif way < 0.8:
            found = self.near + rng.randint(-4, 40)
        else:
            found = rng.getrandbits(rng.randint(1, bits))
        return found % (1 << bits)

    def body(self, kind: Kind) -> bytes:
        """A body of this kind: whole, with fields that contradict each other, cut or mixed up."""
        way = self._rng.random()
        if way < 0.15:
            return self._rng.randbytes(self._rng.randint(0, 120))
        found = self._sound(kind) if way < 0.6 else self._raw(kind)
        if way > 0.9 and found:
            at = self._rng.randrange(len(found))
            found = found[:at] + self._rng.randbytes(1) + found[at + 1 :]
        return found[: self._rng.randint(0, len(found))] if way > 0.97 else found

    def _raw(self, kind: Kind) -> bytes:
        layout = _BODIES[kind]
        widths = {"B": 8, "H": 16, "I": 32, "Q": 64}
        values = [self.number(widths[one]) for one in layout[1:]]
        if kind is Kind.REPORT:
            values[0] = self._rng.choice((1, 2, 3, 0x81, 0x82, 0x83))
            values[-2:] = [0, 0]
            values[-6] = (values[2] - values[1] - sum(values[-5:-2])) % (1 << 64)
        elif kind in (Kind.NAK, Kind.ANNOUNCE, Kind.SKIP):
            values[{Kind.NAK: 1, Kind.ANNOUNCE: 2, Kind.SKIP: 0}[kind]] = 1
            if kind is Kind.ANNOUNCE:
                values[-1] = 0
        return struct.pack(layout, *values)

    def _range(self) -> tuple[int, int]:
        first, end = sorted((self.number(64), self.number(64)))
        return first, max(end, first + 1) % (1 << 64)

    def _sound(self, kind: Kind) -> bytes:
        """A body that its codec writes, which needs no more than ranges that hold."""
        rng = self._rng
        first, end = self._range()
        whole: dict[Kind, Callable[[], bytes]] = {
            Kind.NAK: lambda: Nak(
                tuple(
                    Gap(*self._range(), self.number(16), self.number(16)) for _ in range(rng.randint(0, 48))
                ),
                self.number(32),
            ).encode(),
            Kind.HEARTBEAT: lambda: Heartbeat(
                end, first, self.number(64), self.number(32), self.number(64), self.number(32)
            ).encode(),
            Kind.REPORT: lambda: self._report(first, max(first, end)),
            Kind.SKIP: lambda: Skip(
                tuple(Skipped(*self._range(), rng.choice(list(Why))) for _ in range(rng.randint(0, 60)))
            ).encode(),
            Kind.ANNOUNCE: lambda: Announce(
                first,
                end,
                tuple(self.number(32) for _ in range(rng.randint(0, 200))),
                "n" * rng.randint(0, 255),
            ).encode(),
            Kind.CLOSE: lambda: Close(end).encode(),
            Kind.PROBE: lambda: Probe(self.number(32), self.number(64)).encode(),
            Kind.BEAT: lambda: Beat(*(self.number(64) for _ in range(4)), rng.random() < 0.5).encode(),
        }
        return whole[kind]()

    def _report(self, first: int, following: int) -> bytes:
        totals = (
            Totals(expired={Why.SIZE: following - first})
            if self._rng.random() < 0.3
            else Totals(following - first)
        )
        return Report(
            self._rng.choice(list(Mode)),
            first,
            following,
            self.number(32),
            self.number(64),
            totals,
            self.number(64),
            self.number(32),
            self.number(32),
            self._rng.random() < 0.5,
            self.number(64),
            self.number(32),
            self.number(64),
            self.number(32),
        ).encode()

    def data(self, kind: Kind, key: tuple[int, int, int], sender: int) -> bytes:
        """Part of a message, or one whose numbers may contradict each other."""
        rng = self._rng
        if rng.random() < 0.5:  # what an honest host would send next
            message = Message(
                self.near % (1 << 63), rng.randint(1, 3), rng.randbytes(rng.choice((0, 10, 3000)))
            )
            return encode(rng.choice(list(cut(message, 1400, key, sender, kind))), KEYS)
        total = rng.choice((1, 1, 1, 2, 3, 65535, self.number(16)))
        number = rng.choice((0, 0, 1, 2, max(0, total - 1), self.number(16)))
        records = rng.choice((1, 1, 2, 5, self.number(32)))
        payload = rng.randbytes(rng.choice((0, 1, 10, 100, 1200)))
        count = rng.choice((0, 0, 0, 1, 16, 17)) if not number else 0
        after = b"".join(
            struct.pack(">IIQ", self.number(32), self.number(32), self.number(64)) for _ in range(count)
        )
        content = rng.randbytes(4 * rng.choice((0, 0, 0, 1, 255)))
        sizes = (records, number, total, len(payload), len(content) // 4, count)
        return self.tagged(kind, key, self.number(64), sizes, sender, after + content + payload)

    def tagged(
        self,
        kind: Kind,
        key: tuple[int, int, int],
        sequence: int,
        sizes: tuple[int, int, int, int, int, int],
        sender: int,
        rest: bytes,
    ) -> bytes:
        """A segment with a valid tag, whatever its fields say."""
        header = _HEADER.pack(0x10 | kind, 1, 3, *key, sequence, *sizes, sender)
        return header + KEYS.tag(3, header, rest) + rest

    def segment(self, streams: list[tuple[int, int, int]]) -> bytes:
        """A segment of any kind, for one of these streams as a rule."""
        rng = self._rng
        kind = rng.choice(list(Kind))
        key = (
            rng.choice(streams)
            if rng.random() < 0.97
            else (self.number(32), self.number(32), self.number(32))
        )
        if key[:2] == SPARED[:2]:
            return b""
        sender = rng.choice((key[0], *OTHERS, self.number(32)))
        if kind in (Kind.DATA, Kind.REPAIR, Kind.REPLAY):
            return self.data(kind, key, sender)
        body = self.body(kind)
        if kind is Kind.PROBE and rng.random() < 0.5:
            key = (sender, 0, 0)
        return self.tagged(kind, key, 0, (0, 0, 1, len(body), 0, 0), sender, body)

    def relayed(self, segment: bytes) -> bytes:
        """The segment as a host would send it on."""
        rng = self._rng
        kind = rng.choice((RelayKind.FORWARD, RelayKind.FORWARD, RelayKind.HELLO, RelayKind.HERE))
        hosts = (
            sorted({HOST, *rng.sample(range(1, 200), rng.randint(0, 40))})
            if kind is RelayKind.FORWARD
            else ()
        )
        return encode_header(RelayHeader(kind, rng.randint(1, MOST_HOPS), tuple(hosts))) + segment


Step = list[Any]
Sizes = list[tuple[int, int]]  # of messages: records and bytes


class Attacked:
    """The fabric of one host, its streams, and a clock that steps set. A world of `tests.replay`."""

    def __init__(self, seed: int) -> None:
        """`seed`: of what the host and the attacker draw, each by itself."""
        self.raised: list[str] = []  # what reached the loop
        self.rng = random.Random(seed)
        self.forger = Forger(self.rng)
        self.now = 100.0
        self.counters = FabricCounters()
        own = random.Random(f"host {seed}")
        self._loop = loop = asyncio.new_event_loop()
        loop.set_exception_handler(self._reached)
        settings = FabricSettings(stream=SETTINGS, carriers=("relay", "ip-multicast"), assembly_bytes=400_000)
        self.fabric = Fabric(HOST, settings, KEYS, self.counters, own, clock=lambda: self.now)
        self.fabric.open(("127.0.0.1", 0), loop)
        self.fabric.on_probe = self._probed
        for host in OTHERS:
            self.fabric.set_host(host, ("127.0.0.1", 9))
            self.fabric.carriers.set_zone(host, f"z/{host % 2}")
        self.fabric.carriers.set_zone(HOST, "z/0")
        carrier = self.fabric.carriers.of_form("ip-multicast")
        if not carrier.refusal:
            carrier.join(STATE)
        self.probed: list[tuple[int, int]] = []
        self.sink = Counted()
        self.spared = Counted()
        self._spared_next = 0
        self._spared_stream = self.fabric.join(*SPARED, self.spared, progress=Progress(0, 0))
        self.origins: list[Origin] = []
        self.joined: list[JoinedStream] = []
        self._buffer = memoryview(bytearray(1 << 17))

    def _reached(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.raised.append(f"{context.get('message')}: {context.get('exception')!r}")

    def _probed(self, host: int, state: int, nonce: int) -> None:
        self.probed = [(state, nonce)]

    # --- what is drawn

    def round(self) -> Iterator[Step]:
        """Draws a few segments, now and then after other changes. Each step is given before the next is
        drawn, since what an attacker aims at depends on it."""
        rng = self.rng
        if not self.origins or rng.random() < 0.05:
            yield self._renewal()
        if rng.random() < 0.1:
            yield ["grow", rng.randrange(2), self._sizes()]
        if rng.random() < 0.5:
            self.forger.near = rng.choice(self.joined).next
        elif rng.random() < 0.5:
            self.forger.near = rng.choice(self.origins).sender.end
        packets = [self.forger.segment(self.streams) for _ in range(rng.randint(1, 8))]
        packets = [self.forger.relayed(one) if rng.random() < 0.1 else one for one in packets]
        yield ["attack", [one.hex() for one in packets], rng.choice((0.0, 0.0001, 0.01, 0.3, 2.0))]

    def look(self) -> Step:
        return ["check", self.rng.getrandbits(64)]

    def _renewal(self) -> Step:
        rng = self.rng
        first = rng.choice((0, 1000, (1 << 53) - 5, (1 << 64) - 3000))
        origins = [(rng.randint(1, 3), self._sizes()) for _ in range(2)]
        return ["renew", first, origins, rng.random() < 0.3, [rng.random() < 0.3 for _ in range(3)]]

    def _sizes(self) -> Sizes:
        rng = self.rng
        return [(rng.randint(1, 3), rng.choice((0, 10, 900, 5000))) for _ in range(rng.randint(1, 20))]

    # --- steps

    def step(self, what: str, *arguments: Any) -> None:
        getattr(self, what)(*arguments)

    def renew(self, first: int, origins: list[tuple[int, Sizes]], relays: bool, keeps: list[bool]) -> None:
        """Begins all attacked streams again, at another place. `origins`: of each the number of receivers,
        and its messages. `relays`: the first one goes by relay. `keeps`: of each joined stream."""
        for origin in self.origins:
            origin.forget()
        for joined in self.joined:
            joined.leave()
        self.forger.near = first
        self.origins = []
        for stream, (receivers, sizes) in enumerate(origins, 1):
            log = Log(first, SETTINGS.log_bytes, SETTINGS.log_age)
            self.origins.append(self.fabric.originate(stream, 1, log=log))
            for host in OTHERS[:receivers]:
                self.origins[-1].add_receiver(host, first)
            self.grow(stream - 1, sizes)
        if relays:
            self.origins[0].use_carrier("relay", OTHERS)
        self.joined = [
            self.fabric.join(2, stream, 1, self.sink, progress=Progress(first, first), keeps=kept)
            for stream, kept in enumerate(keeps, 5)
        ]

    def grow(self, which: int, sizes: Sizes) -> None:
        """Appends messages to an origin's log, some of several segments."""
        origin = self.origins[which]
        log = origin.sender.log
        assert isinstance(log, Log)
        for records, size in sizes:
            if log.end > (1 << 64) - 100:
                return
            log.append(Message(log.end, records, bytes(size)), self.now)
        origin.grown()

    def attack(self, packets: list[str], seconds: float) -> None:
        """Hands packets on, lets time pass, and lets the host work."""
        self.give([bytes.fromhex(one) for one in packets])
        self.now += seconds
        self.work()

    @property
    def streams(self) -> list[tuple[int, int, int]]:
        return [(HOST, 1, 1), (HOST, 2, 1), (2, 5, 1), (2, 6, 1), (2, 7, 1), (2, 5, 2)]

    def give(self, packets: list[bytes]) -> None:
        """Hands packets on as an inlet does that has read them from a socket."""
        relay = self.fabric.carriers.named("relay")
        for packet in packets:
            self._buffer[: len(packet)] = packet
            self.fabric._streams.wrapped(self._buffer, len(packet), len(packet), relay, self.now)

    def work(self) -> None:
        """A turn of the loop: what was scheduled, and the fabric's work."""
        self.fabric._work_soon()
        self._loop.run_until_complete(asyncio.sleep(0))

    def goes_on(self, nonce: int) -> bool:
        """Whether a message of the spared stream is delivered once it is here, and a probe is heard."""
        before = self.spared.taken
        message = Message(self._spared_next, 1, b"spared")
        self._spared_next += 1
        self.give([encode(one, KEYS) for one in cut(message, 1400, SPARED, SPARED[0])])
        self.give([encode(control(Kind.PROBE, 4, 0, 0, 4, Probe(0, nonce).encode()), KEYS)])
        for _ in range(3):
            self.work()
        return self.spared.taken == before + 1 and self.probed == [(0, nonce)]

    @property
    def memory(self) -> int:
        """Bytes that streams hold."""
        return sum([one.receiver.memory for one in self.joined]) + sum(
            [one.sender.log.bytes for one in self.origins if isinstance(one.sender.log, Log)]
        )

    def check(self, nonce: int) -> None:
        """Raises AssertionError if the host is not as well as before."""
        assert self.raised == [], self.raised[0]
        assert self.counters.isolated == {}, self.counters.isolated
        assert self.memory < MEMORY, self.memory
        assert self.goes_on(nonce), "a stream that nobody attacks has stopped"

    def said(self) -> object:
        """Returns what was taken, where streams are, and why packets were refused. Not what was sent: whether
        a new message goes at once, or with those after it, depends on the machine's clock.
        """
        places = [one.next for one in self.joined]
        return self.sink.taken, self.spared.taken, places, self.memory, self.counters.refused

    def end(self) -> None:
        """Each life ends with a check of its own."""

    def close(self) -> None:
        self.fabric.close()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()
