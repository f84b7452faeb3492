"""Links kept between tasks: only reusable ones, together with their learned state."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from treecast.middleware.api.discovery import Address
from treecast.middleware.load import frames
from treecast.spark_connectors import links
from treecast.spark_connectors.errors import OptionError
from treecast.spark_connectors.links import MOST, Link, Links
from treecast.spark_connectors.servers import Servers

NOBODY = Address("127.0.0.1", 1)


class Server:
    """Accepts connections and keeps them."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = Address("127.0.0.1", self.listener.getsockname()[1])
        self.accepted: list[socket.socket] = []

    def accept(self) -> socket.socket:
        connection, _ = self.listener.accept()
        connection.settimeout(30)
        self.accepted.append(connection)
        return connection

    def close(self) -> None:
        for one in (self.listener, *self.accepted):
            one.close()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


@pytest.fixture
def kept() -> Iterator[Links]:
    made = Links()
    yield made
    made.close()


def until_noticed(link: Link) -> None:
    """Waits until the other end's action has arrived here."""
    deadline = time.monotonic() + 30
    while link.connection.quiet:
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_what_was_given_back_is_taken_again(server: Server, kept: Links) -> None:
    first = kept.take(server.address, 30)
    kept.give(first)
    assert kept.take(server.address, 30) is first
    second = kept.take(server.address, 30)
    assert second is not first, "it is not idle"
    for link in (first, second):
        kept.give(link)
    assert kept.take(server.address, 30) is second, "the last used comes first"
    second.close()


def test_one_that_the_other_end_has_closed_is_not_taken(server: Server, kept: Links) -> None:
    first = kept.take(server.address, 30)
    kept.give(first)
    server.accept().close()
    until_noticed(first)
    second = kept.take(server.address, 30)
    assert second is not first
    kept.give(second)


def assert_not_kept(link: Link, server: Server, kept: Links) -> None:
    second = kept.take(server.address, 30)
    assert second is not link
    kept.give(second)


def test_one_that_waits_for_an_answer_is_not_kept(server: Server, kept: Links) -> None:
    link = kept.take(server.address, 30)
    link.connection.send(frames.metadata_request([]))
    kept.give(link)
    assert_not_kept(link, server, kept)


def test_one_that_was_told_more_than_it_asked_is_not_kept(server: Server, kept: Links) -> None:
    link = kept.take(server.address, 30)
    server.accept().sendall(b"\0\0\0\0")
    until_noticed(link)
    kept.give(link)
    assert_not_kept(link, server, kept)


def test_one_that_was_idle_for_long_is_not_taken(server: Server, kept: Links) -> None:
    first = kept.take(server.address, 30)
    kept.give(first)
    first.since -= links.IDLE_S
    second = kept.take(server.address, 30)
    assert second is not first
    kept.give(second)


def test_not_more_are_kept_than_may_be(server: Server, kept: Links) -> None:
    made = [kept.take(server.address, 30) for _ in range(MOST + 1)]
    for link in made:
        kept.give(link)
    again = [kept.take(server.address, 30) for _ in range(MOST)]
    assert again == made[:0:-1]
    for link in again:
        kept.give(link)


def test_one_is_closed_where_its_use_fails(server: Server, kept: Links) -> None:
    with pytest.raises(ValueError, match="this use fails"), kept.lent(server.address, 30):
        raise ValueError("this use fails")
    assert server.accept().recv(1) == b""


@pytest.mark.parametrize(("brokers", "asked"), [(1, 1), (2, 2)])
def test_a_view_is_remembered_where_one_broker_stands_for_all(
    server: Server, kept: Links, brokers: int, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[list[str] | None] = []
    view = frames.ClusterView({n: ("h", n) for n in range(brokers)}, {"t": (0, {0: 0, 1: 0})}, "c")

    def metadata(topics: list[str] | None) -> frames.ClusterView:
        calls.append(topics)
        return view

    with kept.lent(server.address, 30) as link:
        monkeypatch.setattr(link, "metadata", metadata)
        assert (link.view("t"), link.view("t")) == (view, view)
        assert len(calls) == asked
        assert (link.cluster_id(), link.cluster_id()) == ("c", "c")
        assert len(calls) == asked + 1


def test_a_view_is_asked_anew_where_another_topic_of_that_name_is_meant(
    server: Server, kept: Links, monkeypatch: pytest.MonkeyPatch
) -> None:
    def view(topic_id: str) -> frames.ClusterView:
        return frames.ClusterView({0: ("h", 0)}, {"t": (0, {0: 0})}, "c", {"t": topic_id})

    said = [view("old"), view("new")]
    with kept.lent(server.address, 30) as link:
        monkeypatch.setattr(link, "metadata", lambda _: said.pop(0))
        assert link.view("t").ids == link.view("t", topic_id="old").ids == {"t": "old"}
        assert link.view("t", topic_id="new").ids == link.view("t").ids == {"t": "new"}


def test_the_first_server_that_can_be_reached_is_taken(server: Server, kept: Links) -> None:
    both = Servers((NOBODY, server.address))
    link = kept.take_any(both, 30)
    assert link.address == server.address
    kept.give(link)
    assert kept.take_any(both, 30) is link
    kept.give(link)
    with pytest.raises(OSError, match="refused"):
        kept.take_any(Servers((NOBODY, NOBODY)), 30)


def test_servers_that_failed_lately_are_tried_last(kept: Links, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, c = servers = Servers(Address("h", port) for port in range(3))
    now = 1000.0
    monkeypatch.setattr(links.time, "monotonic", lambda: now)
    assert kept._ordered(servers) == [a, b, c]
    kept.failed(b)
    now += 1
    kept.failed(a)
    assert kept._ordered(servers) == [c, b, a]
    now += links.FAILED_S
    assert kept._ordered(servers) == [a, b, c]


def test_one_that_accepts_and_does_not_answer_is_tried_last(server: Server, kept: Links) -> None:
    second = Server()
    both = Servers((server.address, second.address))
    with pytest.raises(TimeoutError), kept.lent_any(both, 30):
        raise TimeoutError
    assert server.accept()
    with kept.lent_any(both, 30) as link:
        assert link.address == second.address
    second.close()


def test_the_option() -> None:
    assert Servers.parse(" h:1 ,[::1]:2,, ") == (Address("h", 1), Address("::1", 2))
    assert str(Servers.parse("h:1,[::1]:2")) == "h:1,[::1]:2"
    for text, message in (("h:1,g", "expected HOST:PORT"), (" , ", "names no address")):
        with pytest.raises(OptionError, match=rf"kafka\.bootstrap\.servers:? {message}"):
            Servers.parse(text)
