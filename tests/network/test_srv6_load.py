"""Other traffic fills a link of a tree among six SRv6 routers: the network controller reads that from the
routers' counters and moves the tree, make before break; the tree returns when the traffic ends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.network.conftest import StartLab
from tests.network.traffic import PORT, datagrams

pytest.importorskip("kafka")

from tests.network.srv6_site import RECORD, Load, Site, end, needed, on_trees, under_load, wait_until

BESIDE = {"x2": "r2", "x3": "r3"}  # other traffic goes from one to the other, over the link between r2 and r3
FILLED, LAST = ("r2", "r3"), ("r3", "x3")
CAPACITY = 4_000_000  # bits per second; trees leave a link above 65 %, and return below 50 %
SIZE, SENT_EACH, EVERY = 1000, 8, 0.02  # at most 3.4 Mbit/s
BATCH, PAUSE, BATCHES = 20, 0.3, 5  # at most 1.2 Mbit/s
# Heartbeats, reports and calls between alpha and beta use the link as well.
ON, OFF = 1.0, 0.5


@contextmanager
def other_traffic(site: Site) -> Iterator[None]:
    """Has datagrams pass from x2 to x3 meanwhile; a socket at x3 takes them, so that nothing answers."""
    ended, target = threading.Event(), (site.lab.ipv6("x3"), PORT)

    def run() -> None:
        while not ended.wait(EVERY):
            for _ in range(SENT_EACH):
                sender.sendto(bytes(SIZE), target)

    with datagrams(site.lab, "x2", ipv6=True) as sender, datagrams(site.lab, "x3", ipv6=True):
        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


def share(site: Site, load: Load) -> float:
    """Returns what the tree brings over the link while some more is published, as a share of that.

    Other traffic on the link goes on to x3, and nothing else does.
    """
    before, sent = site.received([FILLED, LAST]), load.sent
    load.more(BATCHES)
    after = site.received([FILLED, LAST])
    all_bytes, others = (after[link][0] - before[link][0] for link in (FILLED, LAST))
    return (all_bytes - others) / (2 * (load.sent - sent) * len(RECORD))


def repaired(site: Site) -> int:
    """Returns the records that alpha has had to send to a receiver again."""
    with site.control("alpha") as client:
        accounts = [account for stream in client.list_streams() for account in stream.accounts]
    return sum(account.repaired + account.replayed for account in accounts)


def test_a_tree_leaves_a_link_that_other_traffic_fills(
    lab: StartLab,
    tmp_path: Path,
    require: Callable[[object, str], None],
    require_tool: Callable[[str], str],
) -> None:
    needed(require, require_tool)
    site = Site(lab, tmp_path, beside=BESIDE, capacity=CAPACITY)
    with under_load(site, BATCH, PAUSE) as load:
        on_trees(site)
        wait_until(lambda: share(site, load) > ON, "the tree does not use the shortest path")
        before = repaired(site)
        with other_traffic(site):
            wait_until(lambda: share(site, load) < OFF, "the tree stays on the full link")
        wait_until(lambda: share(site, load) > ON, "the tree does not return")
        load.more()
        assert repaired(site) == before, "a move has lost packets"
    end(site.controller)
