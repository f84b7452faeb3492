"""RabbitMQ's management calls at a running daemon: over plain HTTP, and by rabbitmqadmin, unmodified."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from treecast.middleware.daemon.process import DaemonProcess

pytestmark = pytest.mark.clients

EXPORTED = Path(__file__).parents[1] / "unit" / "amqp" / "definitions-3.10.json"


def call(
    daemon: DaemonProcess, method: str, path: str, body: bytes = b"", user: str = "guest:guest"
) -> tuple[int, Any]:
    given = {"Authorization": f"Basic {base64.b64encode(user.encode()).decode()}"}
    request = Request(f"http://{daemon.admin}/api/{path}", body or None, given, method=method)
    try:
        with urlopen(request, timeout=60) as answer:
            found = answer.read()
            return answer.status, json.loads(found) if found else None
    except HTTPError as error:
        found = error.read()
        return error.code, json.loads(found) if found else None


def test_a_broker_moves_in_and_its_users_stay(daemon: DaemonProcess) -> None:
    """The daemon imports definitions that RabbitMQ exported; users, rights and policies survive a restart."""
    ana = "ana:ana-password"
    assert call(daemon, "GET", "users", user=ana)[0] == 401
    status, report = call(daemon, "POST", "definitions", EXPORTED.read_bytes())
    assert status == 200
    assert report["imported"]["users"] == 5
    assert any("ha-mode is not known here" in text for text in report["skipped"])
    message = {"routing_key": "order.1.paid", "payload": "x", "payload_encoding": "string"}
    body = json.dumps({**message, "properties": {"delivery_mode": 2}}).encode()
    assert call(daemon, "POST", "exchanges/sales/orders/publish", body, ana) == (200, {"routed": True})
    _, queue = call(daemon, "GET", "queues/sales/shop.orders", user=ana)
    assert queue["messages"] == 1
    assert queue["effective_policy_definition"] == {"max-length": 50000, "message-ttl": 3600000}
    assert call(daemon, "DELETE", "users/watch", user=ana)[0] == 204
    daemon.stop()
    daemon.start()
    _, users = call(daemon, "GET", "users", user=ana)
    assert sorted(one["name"] for one in users) == ["ana", "guest", "nologin", "shop"]
    assert call(daemon, "GET", "queues/sales/shop.orders", user=ana)[1]["messages"] == 1
    assert call(daemon, "GET", "permissions/sales/shop", user=ana)[1]["write"] == "^(shop\\..*|orders)$"
    assert {one["name"] for one in call(daemon, "GET", "policies", user=ana)[1]} == {"limits", "mirrored"}
    assert call(daemon, "GET", "cluster-name", user=ana)[1] == {"name": "orders-cluster"}


def test_what_clients_ask_first(daemon: DaemonProcess) -> None:
    status, overview = call(daemon, "GET", "overview")
    assert status == 200
    port = int(daemon.ready["amqp"].rpartition(":")[2])
    assert [one["port"] for one in overview["listeners"]] == [port]
    _, (node,) = call(daemon, "GET", "nodes")
    assert node["name"] == overview["node"]
    assert node["mem_used"] > 2**20
    assert call(daemon, "GET", f"health/checks/port-listener/{port}")[0] == 200
    assert call(daemon, "GET", "overview", user="guest:wrong")[0] == 401
    assert call(daemon, "PUT", "queues/%2F/q", b"{" * 100)[0] == 400


def test_rabbitmqadmin(daemon: DaemonProcess, require_tool: Any, tmp_path: Path) -> None:
    program = require_tool("rabbitmqadmin")
    host, _, port = daemon.admin.rpartition(":")

    def run(*arguments: str) -> str:
        command = [program, "-H", host, "-P", port, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run("declare", "exchange", "name=x", "type=topic")
    run("declare", "queue", "name=q", 'arguments={"x-max-length": 10}')
    run("declare", "binding", "source=x", "destination=q", "routing_key=a.#")
    run("declare", "policy", "name=p", "pattern=^q$", 'definition={"message-ttl": 60000}', "apply-to=queues")
    for payload in ("one", "two", "three"):
        run("publish", "exchange=x", "routing_key=a.b", f"payload={payload}")
    assert "three" in run("get", "queue=q", "count=3", "ackmode=ack_requeue_true")
    lines = run("-f", "tsv", "list", "queues", "name", "messages", "policy").splitlines()
    assert lines == ["name\tmessages\tpolicy", "q\t3\tp"]
    run("declare", "vhost", "name=v")
    run("declare", "user", "name=u", "password=secret", "tags=administrator")
    run("declare", "permission", "vhost=v", "user=u", "configure=.*", "write=.*", "read=.*")
    document = tmp_path / "definitions.json"
    run("export", str(document))
    run("purge", "queue", "name=q")
    run("delete", "binding", "source=x", "destination_type=queue", "destination=q", "properties_key=a.%23")
    run("delete", "queue", "name=q")
    assert "No items" in run("list", "queues")
    run("-u", "u", "-p", "secret", "import", str(document))
    assert run("-f", "tsv", "list", "bindings", "source", "routing_key").splitlines()[2:] == ["x\ta.#"]
    for what in ("users", "permissions", "vhosts", "exchanges", "nodes", "connections", "channels"):
        run("list", what)
    run("show", "overview")
