"""A link is cut and a router killed among six SRv6 routers while records and messages pass: the network
controller moves trees and paths; nothing is lost, and the order stays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.network.conftest import StartLab

pytest.importorskip("kafka")

from tests.network.srv6_site import READERS, Load, Site, end, needed, on_trees, quiet, read, told

CUT = ("r2", "r3")


def test_a_link_is_cut_and_a_router_is_killed_under_load(
    lab: StartLab,
    tmp_path: Path,
    require: Callable[[object, str], None],
    require_tool: Callable[[str], str],
) -> None:
    needed(require, require_tool)
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
        assert one.heard(sent) == list(range(sent))
    end(site.controller)
