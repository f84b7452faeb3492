"""A link is cut and a switch killed among five label switches while records and messages pass, and links are
taken out of the manager's file: trees and unicast go another way; nothing is lost, and the order stays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.network.conftest import StartLab

pytest.importorskip("kafka")

from tests.network.label_site import LINKS, LabelSite
from tests.network.srv6_site import end, needed, on_trees, quiet, told, under_load

CUT = ("s2", "s4")
LAST = ("s3", "s5")


def test_a_link_is_cut_and_a_switch_is_killed_under_load(
    lab: StartLab,
    tmp_path: Path,
    require: Callable[[object, str], None],
    require_tool: Callable[[str], str],
) -> None:
    needed(require, require_tool)
    site = LabelSite(lab, tmp_path, relayed=[CUT])
    with under_load(site, batch=50, pause=0.2) as load:
        on_trees(site)
        quiet(site)
        site.lab.link(*CUT).cut()
        assert "s2->s4" in told(site, "down=")
        told(site, "ready ")  # trees that all daemons use
        load.more()
        on_trees(site)
        site.lab.link(*CUT).heal()
        assert told(site, "down=") == "down=none\n"
        told(site, "ready ")
        load.more()
        site.lab.kill_switch("s4")
        assert "s4" in told(site, "down=")
        told(site, "ready ")
        load.more()
        on_trees(site)
        site.lab.restart_switch("s4")
        assert told(site, "down=") == "down=none\n"
        told(site, "ready ")
        load.more()
        on_trees(site)
    end(site.controller)


def test_links_are_taken_out_of_the_file(
    lab: StartLab,
    tmp_path: Path,
    require: Callable[[object, str], None],
    require_tool: Callable[[str], str],
) -> None:
    """By SIGHUP, by a manager that is started again, and by one that has lost its store."""
    needed(require, require_tool)
    site = LabelSite(lab, tmp_path)
    with under_load(site, batch=50, pause=0.2) as load:
        on_trees(site)
        quiet(site)
        site.list([one for one in LINKS if one != CUT])  # s4-s5 stays at the second port of s4
        told(site, "ready ")
        load.more()
        on_trees(site)
        assert not [one for one in quiet(site) if one.startswith("down=")]
        site.list(LINKS)
        told(site, "ready ")
        site.controller.kill()
        site.controller.wait()
        site.listed = [one for one in LINKS if one != LAST]
        site.controller = site.start_manager()
        told(site, "ready ")
        load.more()
        on_trees(site)
        site.controller.kill()
        site.controller.wait()
        (tmp_path / "trees.json").unlink()
        site.controller = site.start_manager()
        told(site, "ready ")
        load.more()
        on_trees(site)
        quiet(site)
    end(site.controller)
