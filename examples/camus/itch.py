"""Packets of a market data feed: ITCH 5.0 messages in MoldUDP64, in UDP, IPv4 and Ethernet.

Sources: Nasdaq TotalView-ITCH 5.0 (2020), sections 4.3.1, 4.3.2 and 4.4; MoldUDP64 1.00, section 2.

    add order   type(8) locate(16) tracking(16) timestamp(48) reference(64) side(8) shares(32) stock(64)
                price(32)
    packet      session(80) sequence(64) count(16), then count times length(16) message
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from random import Random

from msgspec import Struct

GROUP = "233.54.12.111"
PORT = 26477
SESSION = b"000011111A"
MOST = 12  # messages of a packet

_ADD = struct.Struct("!cHH6sQcI8sI")
_EXECUTED = struct.Struct("!cHH6sQIQ")
_SYMBOLS = ("AAPL", "MSFT", "AMZN", "GOOGL", "TSLA", "TXN", "NVDA", "META", "ORCL", "INTC", "T", "CSCO")


class Order(Struct, frozen=True):
    """An Add Order message. `price` in units of 0.0001; `side` is B or S."""

    stock: str
    side: str
    shares: int
    price: int
    attributed: bool = False

    def encode(self, number: int) -> bytes:
        kind = b"F" if self.attributed else b"A"
        time = (34_200_000_000_000 + number * 1000).to_bytes(6)
        stock = self.stock.ljust(8).encode()
        head = _ADD.pack(kind, 1, 0, time, number, self.side.encode(), self.shares, stock, self.price)
        return head + (b"LEHM" if self.attributed else b"")


class Executed(Struct, frozen=True):
    """An Order Executed message, which names its order by number: no stock, no price."""

    shares: int

    def encode(self, number: int) -> bytes:
        return _EXECUTED.pack(b"E", 1, 0, bytes(6), number, self.shares, number)


Message = Order | Executed


def feed(packets: int, rng: Random, most: int = MOST) -> Iterator[list[Message]]:
    """Yields the messages of each packet: their number, and their stocks, by Zipf's law."""
    prices = {symbol: rng.randrange(200_000, 3_000_000) for symbol in _SYMBOLS}
    for _ in range(packets):
        yield [_message(prices, rng) for _ in range(_zipf(most, rng))]


def _zipf(most: int, rng: Random) -> int:
    """Returns 1 to `most`; n is drawn in proportion to 1 / n."""
    return rng.choices(range(1, most + 1), [1 / n for n in range(1, most + 1)])[0]


def _message(prices: dict[str, int], rng: Random) -> Message:
    if rng.random() < 0.3:
        return Executed(rng.randrange(1, 1000))
    symbol = _SYMBOLS[_zipf(len(_SYMBOLS), rng) - 1]
    prices[symbol] = max(100, prices[symbol] + rng.randrange(-20_000, 20_001))
    return Order(symbol, rng.choice("BS"), rng.randrange(1, 1201), prices[symbol], rng.random() < 0.1)


def packet(messages: list[Message], sequence: int) -> bytes:
    """Returns a whole frame."""
    blocks = b""
    for number, message in enumerate(messages):
        data = message.encode(sequence + number)
        blocks += struct.pack("!H", len(data)) + data
    payload = SESSION + struct.pack("!QH", sequence, len(messages)) + blocks
    group = bytes(map(int, GROUP.split(".")))
    udp = struct.pack("!HHHH", PORT, PORT, 8 + len(payload), 0) + payload
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 0, 0, 16, 17, 0, bytes((10, 0, 0, 9)), group)
    checked = ip[:10] + struct.pack("!H", _checksum(ip)) + ip[12:]
    mac = b"\x01\x00\x5e" + bytes((group[1] & 0x7F, group[2], group[3]))
    return mac + bytes.fromhex("020000000009") + b"\x08\x00" + checked + udp


def _checksum(data: bytes) -> int:
    """Returns the internet checksum (RFC 1071)."""
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF
