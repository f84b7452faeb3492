"""Three STARE switches in a ring, with a host each: a link of their tree is cut and a switch restarted, and
states go on by another way."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.network.conftest import StartLab
from tests.network.test_stare import HOSTS, PROGRAMS, start_daemons, until_value, vnfs

from treecast.middleware.dataplane.lab.description import Description, Host, Link, Switch
from treecast.middleware.dataplane.lab.lab import Lab

pytest.importorskip("kafka")

from tests.network.srv6_site import line

SWITCHES = ("s1", "s2", "s3")
RING = (("s1", "s2"), ("s2", "s3"), ("s1", "s3"))
LINKS = (*zip(HOSTS, SWITCHES, strict=True), *RING)


def built(lab: StartLab, file: Path) -> tuple[Lab, subprocess.Popen[bytes]]:
    made = lab(
        Description(
            hosts=dict.fromkeys(HOSTS, Host()),
            switches=dict.fromkeys(SWITCHES, Switch(str(PROGRAMS / "stare_embedded.p4"))),
            links=tuple([Link(pair, relay=pair in RING) for pair in LINKS]),
        )
    )
    file.write_text(described(made, LINKS))
    module = "treecast.middleware.control.stare_switch.network"
    controller = made.start("s1", sys.executable, "-m", module, str(file))
    assert line(controller) == "ready tree=s1-s2,s2-s3\n"
    return made, controller


def described(made: Lab, links: tuple[tuple[str, str], ...]) -> str:
    lines = [f"links = {json.dumps(links)}", "probe = 1.0"]
    network = made.interface(HOSTS[0]).ipv4.network
    for number, name in enumerate(SWITCHES, 1):
        lines += [f"[switches.{name}]", f'p4runtime = "{made.p4runtime(name)}"']
        lines += [f'mac = "02:00:00:00:00:f{number}"', f'ip = "{network[-1 - number]}"']
    for host in HOSTS:
        lines += [f"[hosts.{host}]", f'mac = "{made.interface(host).mac}"']
        lines += [f'addresses = ["{made.ipv4(host)}", "{made.ipv6(host)}"]']
    return "\n".join(lines)


def said(controller: subprocess.Popen[bytes], beginning: str) -> str:
    """Returns the controller's next line that begins so."""
    found = ""
    while not found.startswith(beginning):
        found = line(controller)
        assert found, "the controller has ended"
    return found


def test_states_go_by_another_way(
    lab: StartLab, tmp_path: Path, require: Callable[[object, str], None]
) -> None:
    require(importlib.util.find_spec("finsy"), "finsy is not installed")
    made, controller = built(lab, tmp_path / "network.toml")
    start_daemons(made, tmp_path)
    with vnfs(made, *HOSTS) as (one, two, three):
        state = one.state("shared/x")
        assert two.subscribe(state)
        assert three.subscribe(state)

        def all_get(value: bytes) -> None:
            one.publish(state, value)
            for vnf in (two, three):
                until_value(vnf, one.id, value)

        all_get(b"by the tree")
        made.link("s1", "s2").cut()
        assert "s1->s2" in said(controller, "down=")
        assert said(controller, "tree=") == "tree=s2-s3,s1-s3\n"
        all_get(b"by another way")
        made.link("s1", "s2").heal()
        assert said(controller, "down=") == "down=none\n"
        all_get(b"still by the other way")
        made.kill_switch("s2")
        assert "s2" in said(controller, "down=")
        one.publish(state, b"to three alone")
        until_value(three, one.id, b"to three alone")
        made.restart_switch("s2")
        while "none" not in said(controller, "down="):
            pass
        all_get(b"to both again")
        (tmp_path / "network.toml").write_text(described(made, tuple(one for one in LINKS if one != RING[1])))
        os.kill(controller.pid, signal.SIGHUP)
        assert said(controller, "tree=") == "tree=s1-s2,s1-s3\n"
        all_get(b"without a link")
