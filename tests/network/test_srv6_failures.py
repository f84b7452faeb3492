"""A link is cut and a router killed among six SRv6 routers while records and messages pass: the network
controller moves trees and paths; nothing is lost, and the order stays."""

from __future__ import annotations

import importlib.util
import select
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.network.conftest import StartLab

pytest.importorskip("kafka")

from tests.network.srv6_site import HOSTS, PATIENCE, Site, end, heard, line, read, wait_until

BATCH = 100
READERS = HOSTS[1:]
CUT = ("r2", "r3")


class Load:
    """Records and messages from alpha, in a thread, until it is ended."""

    def __init__(self, site: Site) -> None:
        self.sent = 0
        self._site = site
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.is_set():
            self._site.produce(BATCH, self.sent)
            self._site.publish("a/b", BATCH, self.sent)
            self.sent += BATCH

    def more(self) -> None:
        """Returns when two more batches were acknowledged."""
        before = self.sent
        wait_until(lambda: self.sent >= before + 2 * BATCH, "nothing is acknowledged any more")

    def end(self) -> int:
        """Returns how many records, and as many messages, were acknowledged."""
        self._ended.set()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        return self.sent


def told(site: Site, beginning: str) -> str:
    """Returns the controller's next line that begins so."""
    found = ""
    while not found.startswith(beginning):
        found = line(site.controller)
        assert found, "the controller has ended"
    return found


def quiet(site: Site) -> None:
    """Reads what the controller has said until now."""
    assert site.controller.stdout is not None
    while select.select([site.controller.stdout], [], [], 0)[0]:
        assert line(site.controller)


def on_trees(site: Site) -> None:
    """Waits until records and messages to both readers go by trees."""
    wait_until(lambda: site.hosts_by_trees() >= 2 * len(READERS), "streams do not go by trees")


def test_a_link_is_cut_and_a_router_is_killed_under_load(
    lab: StartLab,
    tmp_path: Path,
    require: Callable[[object, str], None],
    require_tool: Callable[[str], str],
) -> None:
    require(importlib.util.find_spec("finsy"), "finsy is not installed")
    require_tool("mosquitto_sub")
    site = Site(lab, tmp_path, relayed=[CUT])
    site.create_topic()
    readers = [site.reader(host) for host in READERS]
    subscribers = [site.subscribe(host, "a/b") for host in READERS]
    load = Load(site)
    try:
        on_trees(site)
        quiet(site)
        site.lab.link(*CUT).cut()
        assert "r2->r3" in told(site, "down=")
        told(site, "version=")  # trees that all daemons use
        load.more()
        on_trees(site)
        site.lab.link(*CUT).heal()
        assert told(site, "down=") == "down=none\n"
        told(site, "version=")
        load.more()
        site.lab.kill_switch("r2")
        assert "r2" in told(site, "down=")
        told(site, "version=")
        load.more()
        on_trees(site)
        site.controller.kill()
        site.controller.wait()
        load.more()  # routers keep what they have
        site.lab.restart_switch("r2")
        site.controller = site.start_controller()
        told(site, "version=")
        load.more()
        on_trees(site)
    finally:
        sent = load.end()
    for one in readers:
        assert read(one, sent) == list(range(sent))
    for one in subscribers:
        assert heard(one, sent) == list(range(sent))
    end(site.controller)
