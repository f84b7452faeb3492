"""A face and queues of another host: answers of their home that come later than other news of it."""

from __future__ import annotations

import pytest
from pamqp import frame
from tests.unit.queues.joined_hosts import Host, Net

from .face import Basic, Channel, MemoryHost, Message, Queue


def face_of(host: Host) -> MemoryHost:
    face = MemoryHost()
    face.amqp.vhosts["/"] = host.vhost
    face.queues.joined = host.joined
    return face


class Town:
    """Queues `q` and `r` of host `home`, each with two messages, and a client with two channels at `far`."""

    def __init__(self) -> None:
        self.net = Net()
        self.home = self.net.add(1)
        self.client = face_of(self.net.add(2)).client(1, 2)
        here = face_of(self.home).client()
        for name in ("q", "r"):
            here.declare(name)
            here.publish(name, f"{name}1".encode(), f"{name}2".encode())
        self.net.settle()

    def decide(self) -> None:
        """The coordinator's next decision reaches all hosts before anything that is on its way."""
        self.home.joined.definitions.send()
        self.net._decide(*self.net._defines.popleft())


@pytest.fixture
def town() -> Town:
    return Town()


def test_how_many_messages_were_deleted_although_the_queue_is_gone_here_before_the_answer(town: Town) -> None:
    town.client.send(Queue.Delete(queue="q"))
    assert town.net.step()  # the home deletes it
    town.decide()
    town.net.settle()
    (deleted,) = town.client.got()
    assert isinstance(deleted, Queue.DeleteOk)
    assert deleted.message_count == 2


def test_an_answer_that_comes_too_late_is_not_taken_for_that_of_the_next_method(town: Town) -> None:
    town.client.send_bytes(frame.marshal(Basic.Get(queue="q"), 1) + frame.marshal(Basic.Get(queue="r"), 2))
    assert town.net.step()  # the home hands out a message of q
    town.home.vhost.queue_definitions.delete(b"q", None)
    town.decide()
    town.net.settle()
    closed, got = town.client.got()
    assert isinstance(closed, Channel.Close)
    assert closed.reply_code == 404
    assert isinstance(got, Message)
    assert got.body == b"r1"
