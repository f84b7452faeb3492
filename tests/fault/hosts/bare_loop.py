"""The cost of a burst without a fabric: one process sends datagrams, others count their bytes and report.

`send` has one window for all receivers, which the slowest report opens; `receive` reports its byte count
whenever enough new bytes have arrived. Nothing is stored, checked or repeated. `burst_bare.py` runs it in a
host's namespace.
"""

from __future__ import annotations

import json
import resource
import select
import socket
import struct
import sys
import time

PORT = 7999
SEGMENT, AT_ONCE = 1400, 44  # bytes of a datagram, datagrams of one call
WINDOW, SAY_EVERY = 1 << 20, 128 * 1024  # bytes
BATCH_BURSTS = 17  # calls that send a batch of about 1 MB
UDP_SEGMENT, UDP_GRO = 103, 104
BUFFER = 8 << 20
SAID = struct.Struct(">Q")
PATIENCE_S = 10.0


def opened(address: str) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for force, plain in ((33, socket.SO_RCVBUF), (32, socket.SO_SNDBUF)):
        try:
            sock.setsockopt(socket.SOL_SOCKET, force, BUFFER)
        except PermissionError:
            sock.setsockopt(socket.SOL_SOCKET, plain, BUFFER)
    sock.bind((address, PORT))
    return sock


def spent() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def send(own: str, group: str, total: int, targets: list[str]) -> None:
    """Sends to `group`; if it is empty, sends each target its own copy."""
    sock = opened(own)
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(own))
    size = [(socket.IPPROTO_UDP, UDP_SEGMENT, struct.pack("=H", SEGMENT))]
    datagrams = [bytes(SEGMENT)] * AT_ONCE
    whole = SEGMENT * AT_ONCE
    said = dict.fromkeys(targets, 0)
    sys.stdin.readline()
    begun, sent = time.monotonic(), 0
    while min(said.values()) < total:
        while sent < total and sent - min(said.values()) < WINDOW:
            for address in [group] if group else targets:
                sock.sendmsg(datagrams, size, 0, (address, PORT))
            sent += whole
            if select.select([sock], [], [], 0)[0]:
                break
        if not select.select([sock], [], [], PATIENCE_S)[0]:
            raise SystemExit(f"lost: {said}")
        data, (address, _) = sock.recvfrom(64)
        said[address] = max(said[address], SAID.unpack(data)[0])
    print(json.dumps({"seconds": time.monotonic() - begun, "cpu": spent()}), flush=True)


def receive(own: str, group: str, total: int) -> None:
    sock = opened("" if group else own)
    sock.setsockopt(socket.IPPROTO_UDP, UDP_GRO, 1)
    if group:
        sock.setsockopt(
            socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(group) + socket.inet_aton(own)
        )
    buffer = memoryview(bytearray(1 << 16))
    got = told = 0
    print(json.dumps({"ready": True}), flush=True)
    while got < total:
        length, _, _, source = sock.recvmsg_into([buffer], 64)
        got += length
        if got - told >= SAY_EVERY or got >= total:
            told = got
            sock.sendto(SAID.pack(got), source)
    print(json.dumps({"cpu": spent()}), flush=True)


if __name__ == "__main__":
    what, own, group, total, *targets = sys.argv[1:]
    group = "" if group == "-" else group
    if what == "send":
        send(own, group, int(total), targets)
    else:
        receive(own, group, int(total))
