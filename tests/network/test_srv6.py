"""Three daemons on six SRv6 routers: Kafka topics and MQTT messages travel by replication segments that the
network controller programs over P4Runtime, with one copy on each link of their trees."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv6Address, IPv6Network
from pathlib import Path

import pytest
from tests.network.conftest import StartLab

pytest.importorskip("kafka")

from tests.network.srv6_site import BLOCK, HOSTS, LINKS, READERS, RECORD, Site, needed, read, wait_until

BATCH, MEASURED = 100, 1000
# Heartbeats, probes, reports and calls between the daemons may add this to a link, as a share of what was
# published. A second copy would add all of it.
TOLERANCE = 0.1
HEADERS = 0.25  # of all headers, beside the records
OUTER = 40  # the outer header of IPv6, which goes off before a host


@pytest.fixture
def site(
    lab: StartLab,
    tmp_path: Path,
    require: Callable[[object, str], None],
    require_tool: Callable[[str], str],
) -> Site:
    needed(require, require_tool)
    return Site(lab, tmp_path)


def carried(site: Site, publish: Callable[[int, int], None]) -> int:
    """Publishes until one more stream goes to both readers by trees; returns how many messages that took."""
    before, sent = site.hosts_by_trees(), 0

    def by_trees() -> bool:
        nonlocal sent
        publish(BATCH, sent)
        sent += BATCH
        return site.hosts_by_trees() >= before + len(READERS)

    wait_until(by_trees, "the stream stayed on unicast")
    return sent


def one_copy_per_link(site: Site, work: Callable[[], None]) -> None:
    """Checks that all links with traffic carried the same bytes while `work` sent MEASURED messages and all
    of them arrived, that these are one copy, and that the links are a tree from alpha to the readers.
    """
    links = [pair for link in LINKS for pair in (link, link[::-1])]
    before = site.received(links)
    work()
    after = site.received(links)
    published = MEASURED * len(RECORD)
    carried, spread = {}, published * TOLERANCE
    for link in links:
        grown, packets = (now - then for then, now in zip(before[link], after[link], strict=True))
        if grown > spread:
            carried[link] = grown + (OUTER * packets if link[1] in HOSTS else 0)
    is_tree(list(carried))
    assert max(carried.values()) - min(carried.values()) < spread, carried
    assert published < min(carried.values()) < (1 + HEADERS) * published, carried


def is_tree(links: list[tuple[str, str]]) -> None:
    """Checks that copies go by these links from alpha to all readers, to no node twice, and end at them."""
    heads = [head for _, head in links]
    tails = {tail for tail, _ in links}
    assert len(heads) == len(set(heads)), links
    assert tails - set(heads) == {HOSTS[0]}, links
    assert set(heads) - tails == set(READERS), links


def test_topics_and_messages_travel_by_replication_segments(site: Site) -> None:
    site.create_topic()
    readers = [site.reader(host) for host in READERS]
    sent = carried(site, site.produce)
    for one in readers:
        assert read(one, sent) == list(range(sent))
    by_its_sid(site, topic="readings")

    def work() -> None:
        site.produce(MEASURED, sent)
        for one in readers:
            assert read(one, MEASURED) == list(range(sent, sent + MEASURED))

    one_copy_per_link(site, work)
    one_copy_of_messages(site)


def by_its_sid(site: Site, **message: str) -> None:
    """Checks that the listing of a message's ways comes to have one packet, to the SID of a tree."""

    def alone() -> bool:
        ways = site.ways(**message)
        return [(set(way.hosts), way.carrier, way.why) for way in ways] == [(set(READERS), "srv6", "")]

    wait_until(alone, "other ways than one tree are listed")
    (way,) = site.ways(**message)
    assert IPv6Address(way.address) in IPv6Network(f"{BLOCK}/32")


def one_copy_of_messages(site: Site) -> None:
    """The same by MQTT."""

    def publish(count: int, first: int) -> None:
        site.publish("a/b", count, first)

    subscribers = [site.subscribe(host, "a/b") for host in READERS]
    sent = carried(site, publish)
    for one in subscribers:
        assert one.heard(sent) == list(range(sent))
    by_its_sid(site, mqtt="a/b")

    def work() -> None:
        publish(MEASURED, sent)
        for one in subscribers:
            assert one.heard(MEASURED) == list(range(sent, sent + MEASURED))

    one_copy_per_link(site, work)
