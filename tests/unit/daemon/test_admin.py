"""The admin pages over HTTP: metrics that Prometheus' own parser accepts, status, health."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from aiohttp import ClientSession, UnixConnector
from msgspec.structs import replace
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from treecast.middleware.api.discovery import Address
from treecast.middleware.broker import GROUPS, CommittedOffset, MemberIdentity, NewTopic
from treecast.middleware.daemon.admin import AdminServer
from treecast.middleware.daemon.listeners import bound_address, listen, listen_unix
from treecast.middleware.daemon.resource_problems import Look, Space, Troubles
from treecast.middleware.daemon.status import Subject
from treecast.middleware.model.identity import TopicPartition


@pytest.fixture
async def url(subject: Subject, tmp_path: Path) -> AsyncIterator[str]:
    server = AdminServer()
    listener = listen("admin", Address("127.0.0.1", 0))
    server.take(listener)
    server.take(listen_unix(tmp_path / "admin.sock"))
    server.start(subject)
    yield f"http://{bound_address(listener)}"
    await server.close()
    await server.close()


async def get(url: str, **headers: str) -> tuple[int, str, str]:
    async with ClientSession() as session, session.get(url, headers=headers) as answer:
        return answer.status, answer.content_type, await answer.text()


async def commit(subject: Subject) -> None:
    home = subject.cluster.home(GROUPS, "g")
    await home.commit_offsets("g", MemberIdentity(), {TopicPartition("orders", 0): CommittedOffset(1)})


async def test_metrics(subject: Subject, url: str) -> None:
    await commit(subject)
    subject.counters.broker.refused["UNKNOWN_TOPIC"] = 2
    status, content_type, text = await get(f"{url}/metrics")
    assert (status, content_type) == (200, "text/plain")
    samples = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in parse_text(text)
        for sample in family.samples
    }
    assert samples["treecast_storage_appended_records_total",] == 3
    assert samples["treecast_face_connections", "kafka"] == 2
    assert samples["treecast_face_requests_total", "Fetch", "kafka"] == 8
    assert samples["treecast_broker_refused_total", "UNKNOWN_TOPIC"] == 2
    assert samples["treecast_topics",] == 1
    assert samples["treecast_partition_end_offset", "0", "orders"] == 3
    assert samples["treecast_partition_log_bytes", "0", "orders"] > 0
    assert samples["treecast_group_lag", "0", "g", "orders"] == 2
    assert samples["process_resident_memory_bytes",] > 2**20
    assert samples["process_cpu_seconds_total",] > 0


async def test_metrics_list_no_more_than_they_may(
    subject: Subject, url: str, append_records: Callable[[str, int, int], None]
) -> None:
    definitions = subject.cluster.definitions
    for name in ("empty", "more", "zz"):
        await definitions.create_topic(NewTopic(name, 2))
    append_records("zz", 1, 1)
    subject.settings = replace(subject.settings, metrics_listed=3)
    home = subject.cluster.home(GROUPS, "g")
    commits = {TopicPartition(name, index): CommittedOffset(0) for name in ("more", "zz") for index in (0, 1)}
    for group in ("g", "h", "i"):
        await home.commit_offsets(group, MemberIdentity(), commits)
    _, _, text = await get(f"{url}/metrics")
    listed = re.findall(r'^treecast_partition_end_offset{partition="(\d)",topic="(\w+)"} (\S+)', text, re.M)
    assert listed == [("0", "empty", "0.0"), ("0", "orders", "3.0"), ("1", "zz", "1.0")]
    assert dict(re.findall(r'^treecast_metrics_left_out{kind="(\w+)"} (\S+)', text, re.M)) == {
        "partitions": "5.0",
        "streams": "0.0",
        "groups": "2.0",
        "offsets": "1.0",
    }
    size = subject.cluster.partition("orders", 0).size + subject.cluster.partition("zz", 1).size
    for line in ("topics 4.0", "partitions 8.0", "groups 3.0", f"log_bytes {float(size)}"):
        assert f"\ntreecast_{line}\n" in text


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("127.0.0.1:1", 200),
        ("h1:7670", 200),
        ("Prom.Example.org", 200),
        ("evil.org", 421),
    ],
)
async def test_a_foreign_name_is_refused(subject: Subject, tmp_path: Path, host: str, status: int) -> None:
    subject.settings = replace(subject.settings, admin_names="prom.example.org other")
    server = AdminServer()
    listener = listen("admin", Address("127.0.0.1", 0))
    server.take(listener)
    server.take(listen_unix(tmp_path / "admin.sock"))
    server.start(subject)
    for path in ("/metrics", "/status", "/", "/nowhere"):
        found, _, text = await get(f"http://{bound_address(listener)}{path}", Host=host)
        assert found == (404 if path == "/nowhere" and status == 200 else status)
        assert ("--admin-names" in text) is (status == 421)
    connector = UnixConnector(str(tmp_path / "admin.sock"))
    async with ClientSession(connector=connector) as session, session.get(f"http://{host}/healthz") as answer:
        assert answer.status == 200
    await server.close()


async def test_openmetrics_where_asked_for(url: str) -> None:
    accept = "application/openmetrics-text; version=1.0.0"
    _, content_type, text = await get(f"{url}/metrics", Accept=accept)
    assert content_type == "application/openmetrics-text"
    assert len(list(parse_openmetrics(text))) > 20


async def test_status_is_the_control_services(subject: Subject, url: str) -> None:
    status, content_type, text = await get(f"{url}/status")
    assert (status, content_type) == (200, "application/json")
    found = json.loads(text)
    assert found["name"] == "h1"
    assert found["totals"]["records_stored"] == 3
    assert found["faces"][0]["traffic"]["connections"] == 2


async def test_health_and_readiness(subject: Subject, url: str) -> None:
    assert await get(f"{url}/healthz") == (200, "text/plain", "ok\n")
    assert await get(f"{url}/readyz") == (200, "text/plain", "ready\n")
    subject.joined = SimpleNamespace(isolation=lambda: "no other host accepts this one")  # type: ignore[assignment]
    assert await get(f"{url}/readyz") == (503, "text/plain", "no other host accepts this one\n")
    subject.joined = None
    subject.ready = False
    assert await get(f"{url}/readyz") == (503, "text/plain", "shutting down\n")
    assert (await get(f"{url}/healthz"))[0] == 200


async def test_what_keeps_the_daemon_from_its_work(subject: Subject, url: str) -> None:
    """Ready means ready for writes; a client that only reads can ask for that."""
    subject.troubles = Troubles("/data", 64, 16)
    assert (await get(f"{url}/readyz"))[0] == 200
    subject.troubles.look(Look(Space(7, 100), "No space left on device"), 0.0)
    status, _, text = await get(f"{url}/readyz")
    assert (status, text) == (503, f"{subject.troubles.disk.text}\n")
    assert (await get(f"{url}/readyz?for=reads"))[0] == 200
    _, _, metrics = await get(f"{url}/metrics")
    for line in ("disk_free_bytes 7.0", "disk_bytes 100.0", "disk_refuses 1.0", "descriptors_used_up 0.0"):
        assert f"\ntreecast_{line}\n" in metrics
    found = json.loads((await get(f"{url}/status"))[2])
    assert found["problems"] == [subject.troubles.disk.text]
    assert int(found["resources"]["disk_free_bytes"]) == 7
    subject.troubles.look(Look(Space(7, 100), no_files=True), 1.0)
    for query in ("", "?for=reads"):
        assert (await get(f"{url}/readyz{query}"))[0] == 503


async def test_the_front_page_links_the_others_and_unknown_pages_are_not_found(url: str) -> None:
    _, _, text = await get(url)
    assert 'href="/metrics"' in text
    assert (await get(f"{url}/nowhere"))[0] == 404


async def test_the_unix_socket_serves_too(url: str, tmp_path: Path) -> None:
    connector = UnixConnector(str(tmp_path / "admin.sock"))
    async with ClientSession(connector=connector) as session, session.get("http://h/healthz") as answer:
        assert await answer.text() == "ok\n"


async def test_a_topic_that_goes_away_meanwhile_is_left_out(
    subject: Subject, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = dict(subject.cluster.definitions.topics())
    await subject.cluster.definitions.delete_topic("orders")
    monkeypatch.setattr(type(subject.cluster.definitions), "topics", lambda self: topics)
    status, _, text = await get(f"{url}/metrics")
    assert status == 200
    assert "treecast_partition_end_offset{" not in text


async def test_nobody_came(subject: Subject) -> None:
    server = AdminServer()
    listener = listen("admin", Address("127.0.0.1", 0))
    server.take(listener)
    server.start(subject)
    address = bound_address(listener)
    await server.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((address.host, address.port), 10)


async def test_connections_queue_until_the_pages_are_loaded(
    subject: Subject, append_records: Callable[[str, int, int], None]
) -> None:
    server = AdminServer()
    listener = listen("admin", Address("127.0.0.1", 0))
    server.take(listener)
    url = f"http://{bound_address(listener)}/healthz"
    early = [asyncio.create_task(get(url)) for _ in range(5)]
    append_records("orders", 1, 1)  # the broker serves before the pages do
    server.start(subject)
    assert [status for status, _, _ in await asyncio.gather(*early)] == [200] * 5
    await server.close()


@pytest.mark.parametrize(
    ("headers", "refused"),
    [
        ({}, False),
        ({"Origin": "{url}"}, False),
        ({"Sec-Fetch-Site": "same-origin"}, False),
        ({"Origin": "https://evil.example"}, True),
        ({"Origin": "http://127.0.0.1:1"}, True),
        ({"Origin": "null"}, True),
        ({"Sec-Fetch-Site": "same-site"}, True),
        ({"Sec-Fetch-Site": "cross-site", "Content-Type": "text/plain"}, True),
    ],
)
async def test_a_foreign_page_changes_nothing(url: str, headers: dict[str, str], refused: bool) -> None:
    given = {name: text.format(url=url) for name, text in headers.items()}
    async with ClientSession() as session:
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            async with session.request(method, f"{url}/api/definitions", headers=given) as answer:
                assert answer.status == (403 if refused else 404)  # this daemon has no management calls
        for method in ("GET", "HEAD"):
            async with session.request(method, f"{url}/healthz", headers=given) as answer:
                assert answer.status == 200
