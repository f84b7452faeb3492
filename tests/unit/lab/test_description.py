"""A lab's file: its contents, and messages about its mistakes."""

from __future__ import annotations

import pytest

from treecast.middleware.dataplane.lab.description import (
    Bridge,
    Description,
    DescriptionError,
    Host,
    Link,
    Switch,
    parse,
)
from treecast.middleware.dataplane.lab.impairment import Impairment

WHOLE = """
[hosts.alpha]
run = ["sleep '1 0'", ["sleep", "20"]]

[hosts.beta]

[routers.core]

[bridges.lan]
querier = false
hash_max = 16384

[[links]]
between = ["alpha", "lan"]
rate = "100mbit"
delay = "10ms"
loss = "1%"
reorder = 0.25
duplicate = "0.5%"
mtu = 9000

[[links]]
between = ["lan", "core"]
relay = true

[[links]]
between = ["core", "beta"]
"""


def test_a_whole_file() -> None:
    lab = parse(WHOLE, "lab.toml")
    assert lab.hosts == {"alpha": Host((("sleep", "1 0"), ("sleep", "20"))), "beta": Host()}
    assert lab.bridges == {"lan": Bridge(snooping=True, querier=False, hash_max=16384)}
    first, second, third = lab.links
    assert first == Link(
        ("alpha", "lan"), 100_000_000, 9000, Impairment(delay=0.01, loss=0.01, reorder=0.25, duplicate=0.005)
    )
    assert (first.relayed, second.relayed, third.relayed) == (True, True, False)
    assert list(lab.nodes) == ["alpha", "beta", "core", "lan"]


HOSTS = "[hosts.alpha]\n[hosts.beta]\n"
LINK = HOSTS + '[[links]]\nbetween = ["alpha", "beta"]\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[hosts.alpha", "x.toml: Expected ']'"),
        ("", "x.toml: no hosts"),
        ("[host.alpha]", "x.toml: host: unknown key; the nearest is 'hosts'"),
        ("hosts = 3", "x.toml: hosts: tables are expected, such as [hosts.alpha]"),
        ("[hosts.Alpha]", "x.toml: hosts.Alpha: a name is"),
        ("[hosts.a23456789-123456]", "x.toml: hosts.a23456789-123456: a name is"),
        ("[hosts.alpha]\n[routers.alpha]", "x.toml: routers.alpha: hosts.alpha has this name already"),
        ("[hosts.alpha]\nruns = []", "x.toml: hosts.alpha.runs: unknown key; the nearest is 'run'"),
        ("[hosts.alpha]\nrun = [1]", "x.toml: hosts.alpha.run[0]: Expected `str | array`, got `int`"),
        ('[hosts.alpha]\nrun = ["\'"]', "x.toml: hosts.alpha.run[0]: No closing quotation"),
        ("[hosts.alpha]\nrun = ['']", "x.toml: hosts.alpha.run[0]: an empty command"),
        (HOSTS + "[bridges.lan]\nhash_max = 5000", "x.toml: bridges.lan.hash_max: 5000 is no power of two"),
        (HOSTS + "links = 3\n", "x.toml: hosts.beta.links: unknown key"),
        ("links = 3\n" + HOSTS, "x.toml: links: an array of tables is expected"),
        (HOSTS + "[[links]]", "x.toml: links[0]: Object missing required field `between`"),
        (HOSTS + '[[links]]\nbetween=["alpha","bta"]', "no node is named 'bta'; the nearest is 'beta'"),
        (HOSTS + '[[links]]\nbetween=["alpha","alpha"]', "links[0].between: 'alpha' is linked to itself"),
        (LINK + "dealy = 1", "x.toml: links[0].dealy: unknown key; the nearest is 'delay'"),
        (
            LINK + "delay = '1 fortnight'",
            "links[0].delay: '1 fortnight' is no number with a unit of s, ms, us",
        ),
        (LINK + "rate = '1kbit'", "links[0].rate: '1kbit' is not from 8kbit to 10gbit"),
        (LINK + "loss = '101%'", "links[0].loss: '101%' is not from 0 to 1"),
        (LINK + "mtu = 576", "links[0].mtu: 576 is not from 1280"),
        (LINK + "mtu = true", "links[0].mtu: Expected `int`, got `bool`"),
    ],
)
def test_mistakes_are_named(text: str, message: str) -> None:
    with pytest.raises(DescriptionError) as refused:
        parse(text, "x.toml")
    assert message in str(refused.value)


def test_bridges_in_a_ring_are_refused() -> None:
    links = tuple(Link(pair) for pair in (("a", "b"), ("b", "c"), ("c", "a")))
    with pytest.raises(DescriptionError, match=r"links\[2\]: c and a are joined already"):
        Description(hosts={"h": Host()}, bridges=dict.fromkeys("abc", Bridge()), links=links)
    Description(hosts={"h": Host()}, bridges=dict.fromkeys("abc", Bridge()), links=links[:2])


def test_switches() -> None:
    lab = parse('[hosts.a]\n[switches.s1]\nprogram = "x.p4"\n[switches.s2]\ncpu_port = 64\n', "lab.toml")
    assert lab.switches == {"s1": Switch("x.p4"), "s2": Switch("", 64)}
    assert list(lab.nodes) == ["a", "s1", "s2"]
    with pytest.raises(
        DescriptionError, match=r"switches\.s1\.programme: unknown key; the nearest is 'program'"
    ):
        parse('[hosts.a]\n[switches.s1]\nprogramme = "x.p4"\n', "lab.toml")
    with pytest.raises(DescriptionError, match=r"switches\.a: hosts\.a has this name already"):
        parse("[hosts.a]\n[switches.a]\n", "lab.toml")
