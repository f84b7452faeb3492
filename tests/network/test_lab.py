"""Labs deliver: addresses, routes, names, real processes."""

from __future__ import annotations

import select
import subprocess
import sys

import pytest
from tests.network.conftest import StartLab
from tests.network.traffic import collect, datagrams, reaches, send

from treecast.middleware.daemon.process import parse_ready
from treecast.middleware.dataplane.lab.description import Description, Host, Link, Router
from treecast.middleware.dataplane.lab.lab import LabError

PAIR = """
[hosts.alpha]
[hosts.beta]
[[links]]
between = ["alpha", "beta"]
"""

ROUTED = Description(
    hosts={"alpha": Host(), "beta": Host()},
    routers={"north": Router(), "south": Router()},
    links=(Link(("alpha", "north")), Link(("north", "south")), Link(("south", "beta"))),
)


@pytest.mark.parametrize("ipv6", [False, True])
def test_all_that_is_sent_arrives_in_order(lab: StartLab, ipv6: bool) -> None:
    made = lab(PAIR)
    # while a neighbour is resolved, the kernel drops some packets
    assert reaches(made, "alpha", "beta", ipv6=ipv6)
    with datagrams(made, "alpha", ipv6=ipv6) as alpha, datagrams(made, "beta", ipv6=ipv6) as beta:
        send(alpha, made.ipv6("beta") if ipv6 else made.ipv4("beta"), 500)
        assert collect(beta, 500) == list(range(500))


def test_routers_forward_both_ways(lab: StartLab) -> None:
    made = lab(ROUTED)
    assert reaches(made, "alpha", "beta")
    assert reaches(made, "beta", "alpha", ipv6=True)


def test_bytes_are_counted_where_they_pass(lab: StartLab) -> None:
    made = lab(ROUTED)
    assert reaches(made, "alpha", "beta")
    before = made.counters("north", "eth1")["tx_bytes"]
    with datagrams(made, "alpha") as alpha, datagrams(made, "beta") as beta:
        send(alpha, made.ipv4("beta"), 200, size=1000)
        assert len(collect(beta, 200)) == 200
    passed = made.counters("north", "eth1")["tx_bytes"] - before
    headers = 14 + 20 + 8  # Ethernet, IPv4, UDP
    assert 200 * (1000 + headers) <= passed < 200 * (1000 + headers) + 2000  # the rest is neighbour discovery


def test_a_slow_link_drops_what_it_has_no_room_for(lab: StartLab) -> None:
    made = lab(PAIR + 'rate = "10mbit"')
    with datagrams(made, "alpha") as alpha, datagrams(made, "beta") as beta:
        send(alpha, made.ipv4("beta"), 2000, size=1000)  # 2 MB at once; bucket and queue hold 80 KB
        arrived = collect(beta)
    assert arrived == sorted(arrived)
    assert 50 < len(arrived) < 2000


def test_hosts_have_names_and_directories_of_their_own(lab: StartLab) -> None:
    made = lab(PAIR)
    script = "import os, socket; print(socket.gethostname(), socket.gethostbyname('beta'))"
    assert made.run("alpha", sys.executable, "-c", script).stdout.split() == ["alpha", made.ipv4("beta")]
    runtime = [made.run(host, "printenv", "TREECAST_RUNTIME_DIR").stdout for host in ("alpha", "beta")]
    assert runtime[0] != runtime[1]


def test_commands_fail_as_they_do_elsewhere(lab: StartLab) -> None:
    made = lab(PAIR)
    assert made.run("alpha", "sh", "-c", "exit 3", check=False).returncode == 3
    with pytest.raises(subprocess.CalledProcessError) as missing:
        made.run("alpha", "no-such-command")
    assert missing.value.returncode == 127
    with pytest.raises(LabError, match="there is no 'gamma' in the lab, but alpha, beta"):
        made.run("gamma", "true")


def test_a_daemon_in_one_host_serves_another(lab: StartLab) -> None:
    made = lab(PAIR)
    faces = [
        f
        for face in ("kafka", "amqp", "mqtt", "stare", "admin", "control")
        for f in (f"--{face}", f"{made.ipv4('alpha')}:0")
    ]
    module = [sys.executable, "-m", "treecast.middleware.cli"]
    daemon = made.start(
        "alpha", *module, "up", "--data", str(made.folder / "data"), *faces, stderr=subprocess.DEVNULL
    )
    assert daemon.stdout is not None
    assert select.select([daemon.stdout], [], [], 60.0)[0]
    ready = parse_ready(daemon.stdout.readline().decode())
    assert ready["name"] == "alpha"
    token = f"@{made.folder / 'data' / 'control-token'}"
    made.run("beta", *module, "topics", "create", "orders", "--control", ready["control"], "--token", token)
    listed = made.run("alpha", *module, "topics", "list", "--json", "--control", ready["control"])
    assert '"orders"' in listed.stdout
