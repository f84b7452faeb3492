"""Content headers, and the rules of switches that match filters with them, on the embedded P4 target."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treecast.middleware.dataplane.p4 import Switch, load_program
from treecast.middleware.dataplane.subscriptions.entries import install
from treecast.middleware.dataplane.subscriptions.header_file import read_header_file
from treecast.middleware.filters.compiler.compile import compile_rules
from treecast.middleware.filters.compiler.program import program_text
from treecast.middleware.filters.content_header import PORT, description
from treecast.middleware.filters.evaluate import evaluate
from treecast.middleware.filters.parse import parse
from treecast.middleware.filters.tree import Field, Filter
from treecast.middleware.routing.content import ContentHost, ContentNetwork, TopicWish
from treecast.middleware.wire.content import ContentError, Layout, number_of

LAYOUT = Layout("stock:8s,price:u32")
SCHEMA = read_header_file(description(LAYOUT), "content.p4")
ORDER = tuple(range(len(SCHEMA.fields)))
PROGRAM = load_program(program_text(SCHEMA, ORDER), "generated.p4")
TOPIC = number_of(b"orders")
# A tree of four switches with four hosts, and a link that closes a circle.
SWITCHES = ("s1", "s2", "s3", "s4")
HOSTS = ("alpha", "beta", "gamma", "delta")
LINKS = (
    *(("alpha", "s2"), ("beta", "s3"), ("gamma", "s3"), ("delta", "s4")),
    *(("s1", "s2"), ("s1", "s3"), ("s1", "s4"), ("s2", "s3")),
)
MACS = {name: 0x0200_0000_0001 + place for place, name in enumerate(HOSTS)}


@dataclass
class Copies:
    """The outcome of one packet: the hosts that it reached, and the links that it passed."""

    hosts: list[str]
    links: set[tuple[str, str]]


class Site:
    """Switches that hold the rules for what hosts want."""

    def __init__(self, wanted: dict[str, list[tuple[str, str]]]) -> None:
        network = ContentNetwork(SWITCHES, HOSTS, LINKS)
        hosts = {
            name: ContentHost(
                mac,
                tuple(
                    TopicWish(topic, parse(text) if text else None) for topic, text in wanted.get(name, [])
                ),
            )
            for name, mac in MACS.items()
        }
        self.switches: dict[str, Switch] = {}
        for name, rules in network.rules(hosts, LAYOUT).items():
            self.switches[name] = Switch(PROGRAM, ports=range(8))
            install(compile_rules(SCHEMA, rules, ORDER), self.switches[name])
        self.ends: dict[tuple[str, int], tuple[str, int]] = {}
        used = dict.fromkeys((*SWITCHES, *HOSTS), 0)
        for one, other in LINKS:
            used[one] += 1
            used[other] += 1
            self.ends[one, used[one]] = other, used[other]
            self.ends[other, used[other]] = one, used[one]

    def send(self, source: str, packet: bytes) -> Copies:
        found = Copies([], set())
        left = [self.ends[source, 1]]
        while left:
            node, port = left.pop()
            if node in HOSTS:
                found.hosts.append(node)
                continue
            for copy in self.switches[node].receive(port, packet, 0):
                there = self.ends[node, copy.port]
                found.links.add((node, there[0]))
                left.append(there)
        return found


def packet(header: bytes, destination: int = 0x0100_5E7F_999A) -> bytes:
    """Returns a frame with a content header and a segment behind it."""
    body = header + b"segment" * 10
    udp = struct.pack(">HHHH", 40000, PORT, 8 + len(body), 0)
    ip = struct.pack(">BBHHHBBHII", 0x45, 0, 28 + len(body), 0, 0, 1, 17, 0, 0x0A000001, 0xEFFF999A)
    return struct.pack(">HIHIH", destination >> 32, destination & 0xFFFF_FFFF, 0, 1, 0x0800) + ip + udp + body


VALUES = st.fixed_dictionaries(
    {},
    optional={
        "stock": st.sampled_from(["GOOGL", "MSFT", "A", "", "A\0", "too long a name", 7]),
        "price": st.sampled_from([0, 1, 49, 50, 51, 2**32 - 1, 2**32, -1, 50.5, 50.0, "50", True]),
    },
)
ATOMS = st.sampled_from(
    [
        *("price > 50", "price <= 50", "price == 50", "price != 50", "price > 50.5", "price < 5000000000"),
        *("stock == GOOGL", "stock != A", 'stock prefix "G"', 'stock == "too long a name"'),
        *("price == abc", "value.price >= 1", "headers.unit == EUR", 'topic == "orders"'),
    ]
)
FILTERS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.builds("({} and {})".format, inner, inner),
        st.builds("({} or {})".format, inner, inner),
        st.builds("not ({})".format, inner),
    ),
    max_leaves=4,
)


def passes(tree: Filter, values: dict[str, object]) -> bool:
    def look_up(field: Field) -> object:
        name = field.path[-1]
        return "orders" if name == "topic" else values.get(name)

    return evaluate(tree, look_up)  # type: ignore[arg-type]


@settings(max_examples=40, deadline=None)
@given(
    filters=st.lists(st.tuples(st.sampled_from(HOSTS[1:]), FILTERS), min_size=1, max_size=4), values=VALUES
)
def test_no_switch_drops_what_a_filter_passes(
    filters: list[tuple[str, str]], values: dict[str, object]
) -> None:
    wanted: dict[str, list[tuple[str, str]]] = {}
    for name, text in filters:
        wanted.setdefault(name, []).append(("orders", text))
    header = LAYOUT.encode(TOPIC, [values.get("stock"), values.get("price")])  # type: ignore[list-item]
    got = Site(wanted).send("alpha", packet(header)).hosts
    want = {name for name, text in filters if passes(parse(text), values)}
    assert want <= set(got)
    assert len(got) == len(set(got))
    read = LAYOUT.decode(header)
    if not read.loose and not any(word in text for _, text in filters for word in ("too", "abc", "headers")):
        plain = {name for name, text in filters if "topic" not in text}
        assert plain & set(got) <= want | {name for name, text in filters if "topic" in text}


def test_links_carry_only_what_somebody_behind_them_wants() -> None:
    site = Site(
        {
            "beta": [("orders", "stock == GOOGL")],
            "gamma": [("orders", "price > 50")],
            "delta": [("orders", "")],
        }
    )
    cheap = site.send("alpha", packet(LAYOUT.encode(TOPIC, ["GOOGL", 10])))
    assert (sorted(cheap.hosts), ("s3", "gamma") in cheap.links) == (["beta", "delta"], False)
    nobody = site.send("alpha", packet(LAYOUT.encode(TOPIC, ["MSFT", 10])))
    assert nobody.hosts == ["delta"]
    assert not {("s1", "s3"), ("s2", "s3"), ("s3", "beta"), ("s3", "gamma")} & nobody.links
    assert site.send("alpha", packet(LAYOUT.encode(number_of(b"other"), ["GOOGL", 99]))).hosts == []


def test_packets_for_one_host_and_plain_traffic_follow_the_tree() -> None:
    site = Site({})
    assert site.send("alpha", packet(LAYOUT.directed(number_of(b"gamma")))).hosts == ["gamma"]
    assert site.send("beta", packet(LAYOUT.directed(number_of(b"alpha")))).hosts == ["alpha"]
    plain = struct.pack(">HIHIH", 0x0200, 0x0000_0004, 0, 1, 0x86DD) + bytes(50)
    assert site.send("alpha", plain).hosts == ["delta"]
    everybody = bytes([0xFF] * 6) + plain[6:]
    assert sorted(site.send("gamma", everybody).hosts) == ["alpha", "beta", "delta"]


def test_a_header_is_read_back_or_refused() -> None:
    header = LAYOUT.encode(TOPIC, ["GOOGL", 50])
    assert header.hex() == f"{TOPIC:08x}00000000" + "6000" + "0000" + b"GOOGL\0\0\0".hex() + "00000032"
    assert LAYOUT.decode(header + b"more").values == ("GOOGL", 50)
    assert LAYOUT.decode(LAYOUT.encode(TOPIC, [None, None])).values == (None, None)
    assert LAYOUT.decode(LAYOUT.encode(TOPIC, ["GOOGL", -1])).loose
    for wrong in (b"", header[:-1], bytes(24), header[:8] + b"\xff\xff" + header[10:]):
        with pytest.raises(ContentError):
            LAYOUT.decode(wrong)
    for text in ("price:i32", "price:f64", "stock:s", "stock:17s", "ok:bool"):
        with pytest.raises(ValueError, match="cannot hold"):
            Layout(text)
