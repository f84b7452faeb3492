"""Linux as the second implementation: its seg6 encapsulation and seg6local behaviors, our codec, and our P4
router read each other's packets.

    alpha, gamma -- p1 (our P4 router) -- k1 (the kernel) -- beta

It needs a kernel with CONFIG_IPV6_SEG6_LWTUNNEL; without it the tests are skipped with the kernel's answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import ipaddress
import os
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from scapy.layers.inet6 import IPv6, IPv6ExtHdrSegmentRouting
from scapy.layers.l2 import Ether

from treecast.middleware.control.switches import SwitchSession, SwitchState
from treecast.middleware.dataplane.lab.description import Description, Host, Link, Router, Switch
from treecast.middleware.dataplane.lab.lab import Lab
from treecast.middleware.dataplane.lab.namespaces import open_socket
from treecast.middleware.dataplane.p4 import ActionCall, Entry, ExactMatch, LpmMatch, MulticastGroup, Replica
from treecast.middleware.wire.srv6 import Srh, decode_srh, encode_srh, path_header
from treecast.middleware.wire.srv6_packets import ENCAPSULATED
from treecast.middleware.wire.srv6_sids import Layout, Sid
from treecast.middleware.wire.srv6_tlvs import ContentLabels, content_tlv, encode_tlvs

PROGRAM = Path(__file__).resolve().parents[2] / "p4" / "srv6_replication.p4"
LAYOUT = Layout(ipaddress.ip_address("fcbb:bb00::").packed).check()
LINKS = (("alpha", "p1"), ("gamma", "p1"), ("k1", "p1"), ("k1", "beta"))
PORTS = {"alpha": 1, "gamma": 2, "k1": 3}  # of p1
SERVICE, BACK = "fd99::1", "fd97::1"  # addresses of beta and gamma, and of alpha and gamma
UDP_PORT = 5000
PATIENCE = 200.0  # seconds until a test gives up; nothing is asserted about it
_RAW_NUMBER = socket.IPPROTO_RAW


def sid(node: int, function: int) -> str:
    return str(ipaddress.ip_address(LAYOUT.encode(Sid(node, function))))


def packed(address: str) -> bytes:
    return ipaddress.ip_address(address).packed


# Functions of both nodes; node 1 is p1, node 2 is k1.
P_END, P_DX6_ALPHA, P_DX6_GAMMA, P_COPY = (sid(1, number) for number in (1, 2, 3, 4))
K_END, K_DX6, K_DT6 = (sid(2, number) for number in (1, 2, 3))
ENCAPSULATES, ENCAPSULATES_BY = "fd98::1", "fd98::2"  # addresses of p1's policies


class Site:
    """The lab, with routes and SIDs on both routers."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        beta = str(lab.interface("beta").ipv6.ip)
        for host, address in (("beta", SERVICE), ("gamma", SERVICE), ("alpha", BACK), ("gamma", BACK)):
            self.ip(host, "-6", "addr", "add", f"{address}/128", "dev", "lo")
        for host in ("alpha", "gamma"):
            self.route(host, "fcbb:bb00::/32")
            self.route(host, "fd98::/64")
        for setting in ("all", "eth0", "eth1"):
            lab.run("k1", "sysctl", "-qw", f"net.ipv6.conf.{setting}.seg6_enabled=1")
        for segment, action in (
            (K_END, ["End"]),
            (K_DX6, ["End.DX6", "nh6", beta]),
            (K_DT6, ["End.DT6", "table", "254"]),
        ):
            local = ["encap", "seg6local", "action", *action]
            self.ip("k1", "-6", "route", "add", segment, *local, "dev", "eth1")
        self.route("k1", "fcbb:bb00:1::/48")
        self.ip("k1", "-6", "route", "add", SERVICE, "via", beta, "dev", "eth1")
        asyncio.run(self.program())

    def ip(self, node: str, *words: str) -> None:
        self.lab.run(node, "ip", *words)

    def neighbour(self, node: str) -> str:
        """The address of any: p1 accepts every frame."""
        return str(self.lab.interface("gamma" if node == "alpha" else "alpha").ipv6.ip)

    def route(self, node: str, prefix: str) -> None:
        self.ip(node, "-6", "route", "add", prefix, "via", self.neighbour(node), "dev", "eth0")

    async def program(self) -> None:
        async with SwitchSession(self.lab.p4runtime("p1")) as session:
            await session.learn_program()
            await session.bring_to(self.state())

    def macs(self, host: str) -> dict[str, int]:
        return {"own": 0x025E00000001, "next_hop": int(self.lab.interface(host).mac.replace(":", ""), 16)}

    def over(self, host: str) -> dict[str, int]:
        return {"port": PORTS[host], **self.macs(host)}

    def state(self) -> SwitchState:
        """Returns the state of p1."""
        entries = [
            route("fcbb:bb00:1::", 48, "local", {}),
            route("fcbb:bb00:2::", 48, "leave", self.over("k1")),
            local(P_END, "end", {}),
            local(P_DX6_ALPHA, "end_dx6", self.over("alpha")),
            local(P_DX6_GAMMA, "end_dx6", self.over("gamma")),
            local(P_COPY, "end_replicate", {"group": 1}),
            branch(1, "deliver", self.macs("gamma")),
            branch(2, "onward", {**self.macs("k1"), "sid": number(K_DT6)}),
            policy(ENCAPSULATES, "encapsulate", {"source": number(P_END), "sid": number(K_DT6)}),
            policy(
                ENCAPSULATES_BY,
                "encapsulate_by",
                {"source": number(P_END), "via": number(K_END), "sid": number(K_DX6)},
            ),
        ]
        for host in ("alpha", "gamma", "k1"):
            entries.append(route(str(self.lab.interface(host).ipv6.ip), 128, "leave", self.over(host)))
        replicas = (Replica(PORTS["gamma"], 1), Replica(PORTS["k1"], 2))
        return SwitchState.of(entries=entries, groups=[MulticastGroup(1, replicas)])

    # --- packets

    @contextlib.contextmanager
    def listening(self, *hosts: str) -> Iterator[dict[str, socket.socket]]:
        """Sockets of hosts that take datagrams for any address of theirs."""
        with contextlib.ExitStack() as opened:
            found = {}
            for host in hosts:
                end = opened.enter_context(
                    open_socket(self.lab.namespace(host), socket.AF_INET6, socket.SOCK_DGRAM)
                )
                end.bind(("::", UDP_PORT))
                end.settimeout(PATIENCE)
                found[host] = end
            yield found

    def encapsulating(self, node: str, to: str, mode: str, *segments: str) -> None:
        """Has the kernel of a node put packets to an address into an outer header."""
        words = ["encap", "seg6", "mode", mode, "segs", ",".join(segments)]
        self.ip(node, "-6", "route", "replace", to, *words, "via", self.neighbour(node), "dev", "eth0")

    def send(self, host: str, to: str, text: bytes) -> None:
        with open_socket(self.lab.namespace(host), socket.AF_INET6, socket.SOCK_DGRAM) as end:
            end.sendto(text, (to, UDP_PORT))

    def send_raw(self, packet: bytes) -> None:
        """Sends a whole packet of alpha's."""
        to = str(ipaddress.ip_address(packet[24:40]))
        with open_socket(self.lab.namespace("alpha"), socket.AF_INET6, socket.SOCK_RAW, _RAW_NUMBER) as end:
            end.setsockopt(socket.IPPROTO_IPV6, 36, 1)  # IPV6_HDRINCL
            end.sendto(packet, (to, 0))


def number(address: str) -> int:
    return int(ipaddress.ip_address(address))


def route(address: str, bits: int, action: str, given: dict[str, int]) -> tuple[str, Entry]:
    call = ActionCall(f"Srv6Ingress.{action}", given)
    return "Srv6Ingress.routes", Entry({"meta.destination": LpmMatch(number(address), bits)}, call)


def local(address: str, action: str, given: dict[str, int]) -> tuple[str, Entry]:
    call = ActionCall(f"Srv6Ingress.{action}", given)
    return "Srv6Ingress.sids", Entry({"hdr.ipv6.dst": ExactMatch(number(address))}, call)


def policy(address: str, action: str, given: dict[str, int]) -> tuple[str, Entry]:
    call = ActionCall(f"Srv6Ingress.{action}", given)
    return "Srv6Ingress.policies", Entry({"hdr.ipv6.dst": ExactMatch(number(address))}, call)


def branch(replica: int, action: str, given: dict[str, int]) -> tuple[str, Entry]:
    call = ActionCall(f"Srv6Egress.{action}", given)
    return "Srv6Egress.branches", Entry({"standard.egress_rid": ExactMatch(replica)}, call)


@pytest.fixture(scope="module")
def site(require: Callable[[object, str], None]) -> Iterator[Site]:
    """One lab for all tests: they do not undo each other's routes."""
    require(sys.platform == "linux" and os.geteuid() == 0, "network namespaces need root")
    for package in ("pyroute2", "finsy"):
        require(importlib.util.find_spec(package), f"{package} is not installed")
    described = Description(
        hosts=dict.fromkeys(("alpha", "beta", "gamma"), Host()),
        routers={"k1": Router()},
        switches={"p1": Switch(str(PROGRAM))},
        links=tuple([Link(pair) for pair in LINKS]),
    )
    with Lab.up(described) as made:
        action = ("encap", "seg6local", "action", "End", "dev", "eth1")
        tried = made.run("k1", "ip", "-6", "route", "add", K_END, *action, check=False)
        require(not tried.returncode, f"the kernel has no seg6 (CONFIG_IPV6_SEG6_LWTUNNEL): {tried.stderr}")
        made.run("k1", "ip", "-6", "route", "del", K_END)
        yield Site(made)


def datagram(source: str, text: bytes) -> bytes:
    """An IPv6 packet to SERVICE, by scapy."""
    from scapy.layers.inet import UDP

    return bytes(IPv6(src=source, dst=SERVICE, hlim=64) / UDP(sport=7, dport=UDP_PORT) / text)


def outer(source: str, to: str, header: Srh, inner: bytes, *, data: bytes = b"") -> bytes:
    """A packet with an SRH by our codec (`data`: other bytes in its place)."""
    body = (data or encode_srh(header)) + inner
    return b"\x60\0\0\0" + len(body).to_bytes(2) + b"\x2b\x40" + packed(source) + packed(to) + body


@pytest.mark.parametrize("mode", ["encap", "encap.red"])
def test_what_the_kernel_encapsulates_is_copied_and_delivered(site: Site, mode: str) -> None:
    """H.Encaps of the kernel -> End and End.Replicate of ours -> End.DT6 of the kernel, and a host."""
    with site.listening("gamma", "beta") as ends:
        site.encapsulating("alpha", SERVICE, mode, P_COPY)
        site.send("alpha", SERVICE, b"one segment")
        assert ends["gamma"].recv(100) == b"one segment"
        assert ends["beta"].recv(100) == b"one segment"
        site.encapsulating("alpha", SERVICE, mode, P_END, P_COPY)
        site.send("alpha", SERVICE, b"two segments")
        assert ends["gamma"].recv(100) == b"two segments"
        assert ends["beta"].recv(100) == b"two segments"
        site.encapsulating("alpha", SERVICE, mode, P_END, K_END, K_DX6)
        site.send("alpha", SERVICE, b"by the kernel's End to its End.DX6")
        assert ends["beta"].recv(100) == b"by the kernel's End to its End.DX6"


def test_what_the_kernel_sends_back_is_delivered(site: Site) -> None:
    """H.Encaps of the kernel as a router -> End.DX6 of ours."""
    router = str(site.lab.interface("k1", 1).ipv6.ip)
    site.ip("beta", "-6", "route", "add", BACK, "via", router, "dev", "eth0")
    with site.listening("alpha", "gamma") as ends:
        for mode, segments, host in (
            ("encap", (P_DX6_ALPHA,), "alpha"),
            ("encap", (P_END, P_DX6_GAMMA), "gamma"),
            ("encap.red", (P_END, P_DX6_ALPHA), "alpha"),
            ("encap.red", (P_DX6_GAMMA,), "gamma"),
        ):
            site.encapsulating("k1", BACK, mode, *segments)
            text = f"{mode} {' '.join(segments)}".encode()
            site.send("beta", BACK, text)
            assert ends[host].recv(200) == text


def test_what_our_router_encapsulates_is_delivered_by_the_kernel(site: Site) -> None:
    """H.Encaps.Red of ours -> End.DT6 of the kernel, and its End and End.DX6."""
    for address in (ENCAPSULATES, ENCAPSULATES_BY):
        site.ip("beta", "-6", "addr", "add", f"{address}/128", "dev", "lo")
        site.ip(
            "k1", "-6", "route", "add", address, "via", str(site.lab.interface("beta").ipv6.ip), "dev", "eth1"
        )
        with site.listening("beta") as ends:
            site.send("alpha", address, address.encode())
            assert ends["beta"].recv(100) == address.encode()


@pytest.mark.parametrize("reduced", [False, True])
@pytest.mark.parametrize("labels", [0, 3])
def test_the_kernel_follows_lists_of_our_codec(site: Site, reduced: bool, labels: int) -> None:
    """A list of ours -> End of ours, End of the kernel, End.DX6 of ours; TLVs of content do not matter."""
    source = str(site.lab.interface("alpha").ipv6.ip)
    tlvs = encode_tlvs([content_tlv(ContentLabels(tuple(range(labels))))]) if labels else b""
    path = [packed(one) for one in (P_END, K_END, P_DX6_GAMMA)]
    with site.listening("gamma") as ends:
        header = path_header(path, ENCAPSULATED, tlvs=tlvs, reduced=reduced)
        site.send_raw(outer(source, P_END, header, datagram(source, b"around")))
        assert ends["gamma"].recv(100) == b"around"


def test_the_kernel_and_our_router_refuse_the_same_headers(site: Site) -> None:
    """Each node gets headers that break a rule, and a good one after each: only the good ones arrive."""
    source = str(site.lab.interface("alpha").ipv6.ip)
    with site.listening("gamma") as ends:
        for first, second in ((K_END, P_DX6_GAMMA), (P_END, P_DX6_GAMMA)):
            header = path_header([packed(first), packed(second)], ENCAPSULATED)
            good = bytearray(encode_srh(header))
            for at, value in (
                (2, 3),  # another routing type
                (3, 3),  # segments left beyond the list
                (3, 255),
                (4, 2),  # more entries than there is room for
                (4, 255),
                (1, 1),  # a length that ends within the list
            ):
                bad = bytearray(good)
                bad[at] = value
                with pytest.raises(ValueError, match=r"."):
                    decode_srh(bad)
                inner = datagram(source, f"bad {first} {at} {value}".encode())
                site.send_raw(outer(source, first, header, inner, data=bytes(bad)))
                mark = f"good {first} {at} {value}".encode()
                site.send_raw(outer(source, first, header, datagram(source, mark)))
                assert ends["gamma"].recv(100) == mark


def test_our_codec_and_scapy_read_what_the_kernel_writes(site: Site) -> None:
    for mode, segments in (
        ("encap", (P_COPY,)),
        ("encap", (P_END, K_END, K_DX6)),
        ("encap.red", (P_END, K_END, K_DX6)),
    ):
        site.encapsulating("alpha", SERVICE, mode, *segments)
        with captured(site, "alpha") as seen:
            site.send("alpha", SERVICE, b"captured")
            frame = next(one for one in iter(lambda: seen.recv(2000), b"") if one[20] == 43)
        header = decode_srh(frame, 14 + 40)
        wanted = path_header([packed(one) for one in segments], ENCAPSULATED, reduced=mode == "encap.red")
        assert header == wanted
        assert frame[14 + 24 : 14 + 40] == packed(segments[0])
        read = Ether(frame)[IPv6ExtHdrSegmentRouting]
        assert [packed(str(one)) for one in read.addresses] == list(header.segments)
        assert (read.segleft, read.lastentry) == (header.segments_left, len(header.segments) - 1)
        assert frame.endswith(b"captured")


@contextlib.contextmanager
def captured(site: Site, host: str) -> Iterator[socket.socket]:
    """Yields a socket that reads the frames of a host."""
    with open_socket(site.lab.namespace(host), socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as end:
        end.bind(("eth0", 3))
        end.settimeout(PATIENCE)
        yield end
