"""A link is cut and a router killed among six SRv6 routers while records and messages pass: the network
controller moves trees and paths; nothing is lost, and the order stays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.network.conftest import StartLab

pytest.importorskip("kafka")

from tests.network.srv6_site import Site, end, needed, on_trees, quiet, told, under_load

CUT = ("r2", "r3")


def test_a_link_is_cut_and_a_router_is_killed_under_load(
    lab: StartLab,
    tmp_path: Path,
    require: Callable[[object, str], None],
    require_tool: Callable[[str], str],
) -> None:
    needed(require, require_tool)
    site = Site(lab, tmp_path, relayed=[CUT])
    with under_load(site) as load:
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
    end(site.controller)
