"""A host that is expelled gets nothing new within a second, whatever still reaches it."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.network.conftest import StartLab
from tests.network.lan import switch
from tests.network.pulse import MARK
from tests.network.secured_hosts import HOSTS, SecuredHosts

from treecast.middleware.api.trust import Trust
from treecast.middleware.dataplane.lab.namespaces import open_socket
from treecast.middleware.fabric.sealing import sealing
from treecast.middleware.relay.segment_keys import ring_of
from treecast.middleware.wire.segment import decode
from treecast.middleware.wire.segment_faults import SegmentError
from treecast.middleware.wire.segment_keys import KeyRing

pytestmark = pytest.mark.slow

FACES = ("kafka", "mqtt", "amqp")
WITHIN_S = 1.0  # the bound is what the issue of a stolen host asks for, not a time of this machine
LOAD_S = 2.0  # of load before, and after
_ALL = 3  # ETH_P_ALL
_AT = re.compile(re.escape(MARK) + rb"(\d+\.\d{4})")


class Capture:
    """The datagrams that reach a host, each with the time of its arrival."""

    def __init__(self, packets: socket.socket, address: str) -> None:
        self._packets = packets
        self._own = socket.inet_aton(address)
        self.heard: list[tuple[float, bytes]] = []

    def run(self) -> None:
        while True:
            try:
                packet = self._packets.recv(65_535)
            except TimeoutError:
                continue
            except OSError:
                return
            ip = packet[12:14] == b"\x08\0" and packet[23] == socket.IPPROTO_UDP
            if ip and packet[26:30] != self._own:
                self.heard.append((time.time(), packet[14 + (packet[14] & 15) * 4 + 8 :]))


@contextmanager
def capture(hosts: SecuredHosts, host: str) -> Iterator[Capture]:
    with open_socket(hosts.lab.namespace(host), socket.AF_PACKET, socket.SOCK_RAW) as packets:
        packets.bind((hosts.lab.interface(host).name, _ALL))
        packets.settimeout(0.2)
        made = Capture(packets, hosts.lab.ipv4(host))
        threading.Thread(target=made.run, daemon=True).start()
        yield made


def opened(heard: list[tuple[float, bytes]], trust: Trust) -> tuple[list[float], int]:
    """Returns when datagrams came that the keys of a host open, and the number of those that they do not."""
    keys, found, others = KeyRing(ring_of(trust), trust.keys.current, sealing()), [], 0
    for at, data in heard:
        try:
            decode(data, keys, counted=False)
        except SegmentError:
            others += 1
        else:
            found.append(at)
    return found, others


def newest_below(folder: Path) -> float:
    """Returns when the newest message was sent that the files of a host hold."""
    files = (path.read_bytes() for path in folder.rglob("*") if path.is_file())
    return max(float(one) for data in files for one in _AT.findall(data))


def test_an_expelled_host_gets_nothing_new(lab: StartLab, tmp_path: Path) -> None:
    """By its clients, its disk, and by opening what still reaches it with all keys that it knows."""
    made = lab(switch(HOSTS))
    hosts = SecuredHosts(made, tmp_path)
    receivers = {host: hosts.pulse(host, "receive") for host in ("h3", "h2")}
    with capture(hosts, "h3") as packets:
        sender = hosts.pulse("h1", "send")
        for receiver in receivers.values():
            receiver.flows("kafka", "mqtt")  # both read one queue, which may leave one of them without
        time.sleep(LOAD_S)
        command = threading.Thread(target=hosts.run, args=("hosts", "expel", "h3"))
        command.start()
        expelled = hosts.heard("h1", "certificates are refused from now on")
        time.sleep(LOAD_S + WITHIN_S)
        command.join()
        acknowledged = sender.end()
        by_clients, others = receivers["h3"].end(), receivers["h2"].end()
    last = {face: max((sent for _, sent, _ in by_clients[face]), default=0.0) for face in FACES}
    times, _ = opened(packets.heard, Trust(tmp_path / "h3"))
    shown = {face: round(at - expelled, 3) for face, at in last.items() if at}
    shown |= {"disk": round(newest_below(tmp_path / "h3") - expelled, 3)}
    shown |= {"opened": round(max(times) - expelled, 3)}
    print("seconds after the expulsion, of the newest message:", shown)
    assert max(shown.values()) < WITHIN_S, shown
    for face in ("kafka", "mqtt"):  # the other host goes on, and misses nothing
        assert {number for number, _, _ in others[face]} >= set(acknowledged[face])
        assert max(sent for _, sent, _ in others[face]) > expelled + WITHIN_S
