"""mosquitto_pub and mosquitto_sub as Debian packages them, and MQTT.js from the npm registry."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from treecast.middleware.daemon.process import DaemonFailed, DaemonProcess

pytestmark = pytest.mark.clients

ROOT = Path(__file__).resolve().parents[3]
HERE = Path(__file__).resolve().parent
MQTT_JS = "5.16.0"
PATIENCE_S = 60


@pytest.mark.parametrize("version", ["mqttv311", "mqttv5"])
def test_mosquitto_pub_and_sub(mqtt: DaemonProcess, require_tool: Callable[[str], str], version: str) -> None:
    pub, sub = require_tool("mosquitto_pub"), require_tool("mosquitto_sub")
    host, port = mqtt.address("mqtt")
    where = ["-h", host, "-p", str(port), "-V", version]
    prefix = f"tools/{version}"
    subscriber = subprocess.Popen(
        [
            "stdbuf",
            "-oL",
            sub,
            *where,
            "-t",
            f"{prefix}/#",
            "-q",
            "2",
            "-C",
            "4",
            "-W",
            str(PATIENCE_S),
            "-d",
            "-F",
            "%t %q %p",
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert subscriber.stdout is not None
    lines = []
    for line in subscriber.stdout:  # until it reports its subscription
        lines.append(line)
        if line.startswith("Subscribed"):
            break
    for qos in (0, 1, 2):
        subprocess.run([pub, *where, "-t", f"{prefix}/{qos}", "-q", str(qos), "-m", "hello"], check=True)
    subprocess.run([pub, *where, "-t", f"{prefix}/big", "-q", "1", "-s"], input=b"y" * 300_000, check=True)
    rest, _ = subscriber.communicate(timeout=PATIENCE_S)
    shown = [line for line in rest.splitlines() if line.startswith(prefix)]
    expected = [f"{prefix}/{qos} {qos} hello" for qos in (0, 1, 2)]
    assert shown == [*expected, f"{prefix}/big 1 " + "y" * 300_000]
    assert subscriber.returncode == 0


@pytest.fixture(scope="session")
def mqtt_js(require_tool: Callable[[str], str], require: Callable[[object, str], None]) -> Path:
    """MQTT.js, fetched once into the repository's cache."""
    node, npm = require_tool("node"), require_tool("npm")
    folder = ROOT / ".cache" / f"mqtt-js-{MQTT_JS}"
    if not (folder / "node_modules" / "mqtt" / "package.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        command = [npm, "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(folder)]
        done = subprocess.run([*command, f"mqtt@{MQTT_JS}"], capture_output=True, text=True, check=False)
        require(done.returncode == 0, f"npm cannot fetch MQTT.js: {done.stderr[-300:]}")
    assert node
    return folder / "node_modules"


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("scheme", ["mqtt", "ws"])
def test_mqtt_js(mqtt: DaemonProcess, mqtt_js: Path, version: int, scheme: str) -> None:
    url = f"{scheme}://{mqtt.ready['mqtt']}"
    done = subprocess.run(
        ["node", str(HERE / "exchange.cjs"), url, str(version), f"js/{scheme}/{version}"],
        env=os.environ | {"NODE_PATH": str(mqtt_js)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    got = json.loads(done.stdout)
    prefix = f"js/{scheme}/{version}"
    assert got == [[f"{prefix}/{qos}", "hello", qos] for qos in (0, 1, 2)]


def test_a_password_file(
    start_daemon: Callable[..., DaemonProcess], require_tool: Callable[[str], str], tmp_path: Path
) -> None:
    pub, passwd, file = require_tool("mosquitto_pub"), require_tool("mosquitto_passwd"), tmp_path / "users"
    subprocess.run([passwd, "-c", "-b", str(file), "anna", "secret"], check=True, capture_output=True)
    daemon = start_daemon("--kafka", "off", "--mqtt-password-file", str(file))
    host, port = daemon.address("mqtt")
    command = [pub, "-h", host, "-p", str(port), "-t", "t", "-m", "x"]
    assert subprocess.run([*command, "-u", "anna", "-P", "secret"], check=False).returncode == 0
    for wrong in (["-u", "anna", "-P", "other"], []):
        assert subprocess.run([*command, *wrong], check=False, capture_output=True).returncode != 0
    file.write_text("anna:secret\n")
    refused = start_daemon("--mqtt-password-file", str(file), start=False)
    with pytest.raises(DaemonFailed):
        refused.start()
    assert f"--mqtt-password-file {file}: line 1 is none that mosquitto_passwd writes" in refused.log()
