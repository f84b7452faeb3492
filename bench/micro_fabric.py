"""One stream between two processes over loopback, compared with a bare loop of the same UDP bursts.

The floor sends each message by one UDP_SEGMENT call in datagrams of the same size, receives with UDP_GRO, and
ignores the bytes. Both keep at most the same number of bytes in flight. CPU time is measured, because two
processes rarely have two cores for themselves: MB/s is published bytes per CPU second of origin and receiver
together, or of the busier one alone, which is the rate with two free cores.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from statistics import median
from typing import Any

MESSAGE = 16 * 1024
RECORDS = 16
PACKET = 1500
WINDOW = 2 << 20  # bytes on the way
CREDIT = 256 << 10  # bytes after which the floor's receiver grants credit
_UDP_SEGMENT, _UDP_GRO = 103, 104
VARIANTS = ("floor", "fabric", "fabric without tags", "fabric sealed")


def _loop_factory() -> Any:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def _fabric(host: int, variant: str) -> Any:
    from treecast.middleware.fabric.fabric import Fabric
    from treecast.middleware.fabric.sealing import sealing
    from treecast.middleware.fabric.settings import FabricSettings
    from treecast.middleware.model.counters import FabricCounters
    from treecast.middleware.wire.segment import NO_KEYS, KeyRing

    sealed = sealing() if variant == "fabric sealed" else None
    keys = KeyRing({1: b"k" * 32}, 1, sealed) if variant != "fabric without tags" else NO_KEYS
    settings = FabricSettings(mtu=PACKET, carriers=())
    return Fabric(host, settings, keys, FabricCounters(), random.Random(host))


class _Sink:
    def __init__(self, wanted: int) -> None:
        self.left = wanted
        self.done = asyncio.Event()
        self.began = 0.0

    def deliver(self, deliveries: list[Any]) -> None:
        self.left -= len(deliveries)
        if self.left <= 0:
            self.done.set()

    def failed(self, error: Exception) -> None:
        raise error


async def _receive(variant: str, count: int) -> dict[str, float]:
    from treecast.middleware.fabric.core.reorder import Progress

    fabric = _fabric(2, variant)
    await fabric.start(("127.0.0.1", 0))
    print(fabric.address[1], flush=True)
    port = int(sys.stdin.readline())
    fabric.set_host(1, ("127.0.0.1", port))
    sink = _Sink(count)
    joined = fabric.join(1, 7, 1, sink, progress=Progress(0, 0))
    print("joined", flush=True)
    began = time.process_time()
    await sink.done.wait()
    used = time.process_time() - began
    await asyncio.sleep(0.2)  # the last report
    totals = joined.progress.totals
    fabric.close()
    return {"cpu": used, "live": totals.live, "records": totals.delivered, **_form()}


def _form() -> dict[str, bool]:
    from treecast.middleware.fabric.core import sender

    return {"compiled": not str(sender.__file__).endswith(".py")}


async def _send(variant: str, count: int) -> dict[str, float]:
    fabric = _fabric(1, variant)
    await fabric.start(("127.0.0.1", 0))
    print(fabric.address[1], flush=True)
    fabric.set_host(2, ("127.0.0.1", int(sys.stdin.readline())))
    origin = fabric.originate(7, 1)
    origin.add_receiver(2, 0)
    payload = bytes(MESSAGE)
    began, cpu = time.monotonic(), time.process_time()
    sent = 0
    while sent < count:
        settled = origin.served.sender.peers.lowest(0) // RECORDS
        while (
            sent < count
            and (sent - settled) * MESSAGE < WINDOW
            and origin.publish(payload, RECORDS) is not None
        ):
            sent += 1
        await asyncio.sleep(0.002)
    while origin.served.sender.peers.lowest(0) < count * RECORDS:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    used, took = time.process_time() - cpu, time.monotonic() - began
    sent_again = origin.counters.sent
    repairs = sent_again.get("REPAIR", 0) + sent_again.get("REPLAY", 0)
    fabric.close()
    return {"cpu": used, "seconds": took, "repairs": repairs}


def _udp() -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for force in (32, 33):
        try:
            sock.setsockopt(socket.SOL_SOCKET, force, 8 << 20)
        except OSError:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF if force == 32 else socket.SO_RCVBUF, 8 << 20)
    sock.bind(("127.0.0.1", 0))
    print(sock.getsockname()[1], flush=True)
    return sock


def _floor_receive(count: int) -> dict[str, float]:
    sock = _udp()
    sock.setsockopt(socket.IPPROTO_UDP, _UDP_GRO, 1)
    origin = ("127.0.0.1", int(sys.stdin.readline()))
    print("joined", flush=True)
    buffer = memoryview(bytearray(1 << 16))
    left, since, space = count * MESSAGE, 0, socket.CMSG_SPACE(4)
    began = time.process_time()
    while left > 0:
        length, _, _, _ = sock.recvmsg_into([buffer], space)
        left -= length
        since += length
        if since >= CREDIT or left <= 0:
            sock.sendto(since.to_bytes(8), origin)
            since = 0
    return {"cpu": time.process_time() - began}


def _floor_send(count: int) -> dict[str, float]:
    sock = _udp()
    receiver = ("127.0.0.1", int(sys.stdin.readline()))
    size = [(socket.IPPROTO_UDP, _UDP_SEGMENT, struct.pack("=H", PACKET - 28))]
    payload, on_the_way = [bytes(MESSAGE)], 0
    began, cpu = time.monotonic(), time.process_time()
    for _ in range(count):
        while on_the_way + MESSAGE > WINDOW:
            on_the_way -= int.from_bytes(sock.recv(8))
        sock.sendmsg(payload, size, 0, receiver)
        on_the_way += MESSAGE
    return {"cpu": time.process_time() - cpu, "seconds": time.monotonic() - began}


def run_role(role: str, variant: str, count: int) -> dict[str, float]:
    """Runs one end of one run. The ends exchange their ports through the parent."""
    if variant == "floor":
        return _floor_receive(count) if role == "receive" else _floor_send(count)
    end = _receive if role == "receive" else _send
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(end(variant, count))


def _spawn(python: str, role: str, variant: str, count: int) -> subprocess.Popen[str]:
    command = [
        python,
        "-m",
        "bench.micro_fabric",
        "--role",
        role,
        "--variant",
        variant,
        "--count",
        str(count),
    ]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _line(end: subprocess.Popen[str]) -> str:
    assert end.stdout is not None
    return end.stdout.readline()


def _tell(end: subprocess.Popen[str], line: str) -> None:
    assert end.stdin is not None
    end.stdin.write(line)
    end.stdin.flush()


def measure(python: str, variant: str, count: int) -> dict[str, Any]:
    """Returns one run's megabytes per CPU second, and its repairs."""
    receive, send = _spawn(python, "receive", variant, count), _spawn(python, "send", variant, count)
    ports = [_line(receive), _line(send)]
    _tell(receive, ports[1])
    _line(receive)  # it has joined
    _tell(send, ports[0])
    sender, receiver = (json.loads(end.communicate()[0].splitlines()[-1]) for end in (send, receive))
    megabytes = count * MESSAGE / 1e6
    return {
        "together": megabytes / (sender["cpu"] + receiver["cpu"]),
        "busier": megabytes / max(sender["cpu"], receiver["cpu"]),
        "wall": megabytes / sender["seconds"],
        "origin": sender["cpu"],
        "receiver": receiver["cpu"],
        "repairs": sender.get("repairs", 0),
        "compiled": receiver.get("compiled", False),
    }


def rounds(python: str, count: int, times: int) -> Iterator[dict[str, dict[str, Any]]]:
    """Yields the results of all variants in turn, `times` times."""
    for _ in range(times):
        yield {variant: measure(python, variant, count) for variant in VARIANTS}


def table(found: list[dict[str, dict[str, Any]]]) -> list[tuple[str, float, float, float, float, int]]:
    """Returns (variant, MB per CPU second together, of the busier, floor / variant together, wall MB/s,
    repairs).
    """
    rows = []
    for variant in VARIANTS:
        runs = [one[variant] for one in found]
        ratio = median(one["floor"]["together"] / one[variant]["together"] for one in found)
        rows.append(
            (
                variant,
                median(run["together"] for run in runs),
                median(run["busier"] for run in runs),
                ratio,
                median(run["wall"] for run in runs),
                max(run["repairs"] for run in runs),
            )
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--role", choices=("receive", "send"), required=True)
    parser.add_argument("--variant", choices=VARIANTS, required=True)
    parser.add_argument("--count", type=int, required=True)
    chosen = parser.parse_args()
    print(json.dumps(run_role(chosen.role, chosen.variant, chosen.count)))


if __name__ == "__main__":
    main()
