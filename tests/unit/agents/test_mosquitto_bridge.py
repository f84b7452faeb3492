"""A bridge section of mosquitto.conf becomes a table of an agent's file, and each line is accounted for."""

from __future__ import annotations

from pathlib import Path

import msgspec
from typer.testing import CliRunner

from treecast.agents.mosquitto.bridge import read_bridges
from treecast.agents.mosquitto.settings import MosquittoSettings
from treecast.agents.mosquitto.topics import Rule
from treecast.middleware.cli.app import app

CONFIG = """\
# the broker itself
listener 1883
allow_anonymous true

connection to-centre
address broker.example.org:8883
topic sensors/# out 1 "" site7/
topic # in 2 from/ site7/orders/
topic "" both 1 state site7/state
remote_username site7
remote_password geheim
local_username bridge
local_password "se cret
bridge_cafile /etc/ssl/ca.pem
cleansession false

connection other
topic a/#/b out
bridge_colour blue
"""


def test_a_bridge_becomes_a_table() -> None:
    first, other = read_bridges(CONFIG)
    assert (first.name, other.name) == ("to-centre", "other")
    assert first.rules == [
        Rule("sensors/#", "out", 1, "", "site7/"),
        Rule("#", "in", 2, "from/", "site7/orders/"),
        Rule("", "both", 1, "state", "site7/state"),
    ]
    read = msgspec.toml.decode(first.toml(), type=dict[str, MosquittoSettings])["mosquitto"]
    assert read.rules == first.rules
    assert (read.user, read.password, read.password_file) == (
        "bridge",
        "",
        "/etc/treecast/mosquitto-password",
    )


def test_each_line_is_accounted_for_and_no_secret_is_shown() -> None:
    first, other = read_bridges(CONFIG)
    assert [remark.number for remark in first.remarks] == list(range(6, 16))
    assert not any(remark.fault for remark in first.remarks)
    assert not any("geheim" in remark.line for remark in first.remarks)
    assert [(remark.number, remark.fault) for remark in other.remarks] == [(18, True), (19, True)]


def test_a_file_without_a_bridge_has_none() -> None:
    assert read_bridges("listener 1883\n\n# connection x\n") == []


def test_the_command_prints_the_table_and_fails_for_what_cannot_be_kept(tmp_path: Path) -> None:
    config = tmp_path / "mosquitto.conf"
    config.write_text(CONFIG)
    kept = CliRunner().invoke(app, ["agent", "bridge", str(config), "--name", "to-centre"])
    assert kept.exit_code == 0
    assert "geheim" not in kept.output
    assert "se cret" not in kept.output
    table = "".join(line for line in kept.output.splitlines(keepends=True) if not line.startswith("#"))
    read = msgspec.toml.decode(table, type=dict[str, MosquittoSettings])["mosquitto"]
    assert len(read.rules) == 3
    assert CliRunner().invoke(app, ["agent", "bridge", str(config)]).exit_code == 1
    none = CliRunner().invoke(app, ["agent", "bridge", str(config), "--name", "nobody"])
    assert none.exit_code == 1
