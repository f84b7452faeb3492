"""The thread that forces data to disk, beside the loop."""

from __future__ import annotations

import asyncio
import threading
from typing import cast

from treecast.middleware.storage.block_log import SyncTicket
from treecast.middleware.storage.sync_thread import SyncThread


class Ticket:
    """A sync that waits until it may run, and then fails with `error` unless that is ""."""

    def __init__(self, error: str = "", *, waits: bool = False) -> None:
        self.may = threading.Event()
        if not waits:
            self.may.set()
        self.thread: threading.Thread | None = None  # the one that runs it
        self.began = threading.Event()
        self._error = error

    def run(self) -> None:
        self.thread = threading.current_thread()
        self.began.set()
        self.may.wait(60)
        if self._error:
            raise OSError(5, self._error)


def tickets(*given: Ticket) -> list[SyncTicket]:
    return [cast(SyncTicket, ticket) for ticket in given]


async def test_the_loop_gets_the_error_of_each_sync_in_the_order_of_the_calls() -> None:
    syncs, found = SyncThread(asyncio.get_running_loop()), list[list[str]]()
    one, other = Ticket(waits=True), Ticket("no disk")
    syncs.run(tickets(one), found.append)
    syncs.run(tickets(other, Ticket()), found.append)
    await asyncio.sleep(0)
    assert found == []
    one.may.set()
    await syncs.settled()
    assert found == [[""], ["[Errno 5] no disk", ""]]
    assert one.thread is other.thread is not None
    assert one.thread.name == "forces data to disk"
    syncs.close()


async def test_it_is_not_settled_before_what_a_sync_asks_for() -> None:
    syncs, found = SyncThread(asyncio.get_running_loop()), list[str]()

    def again(errors: list[str]) -> None:
        found.append("first")
        syncs.run(tickets(Ticket()), lambda errors: found.append("second"))

    syncs.run(tickets(Ticket()), again)
    await syncs.settled()
    assert found == ["first", "second"]
    syncs.close()


async def test_the_thread_ends_when_it_is_closed_and_begins_again_with_the_next_sync() -> None:
    syncs, found = SyncThread(asyncio.get_running_loop()), list[list[str]]()
    ran = list[threading.Thread]()
    for count in (1, 2):
        ticket = Ticket()
        syncs.run(tickets(ticket), found.append)
        syncs.close()
        syncs.close()
        await syncs.settled()
        assert found == [[""]] * count
        assert ticket.thread is not None
        await asyncio.to_thread(ticket.thread.join, 60)
        assert not ticket.thread.is_alive()
        ran.append(ticket.thread)
    assert ran[0] is not ran[1]


def test_a_loop_that_is_closed_is_told_nothing() -> None:
    loop = asyncio.new_event_loop()
    syncs, ticket = SyncThread(loop), Ticket(waits=True)
    syncs.run(tickets(ticket), lambda errors: None)
    assert ticket.began.wait(60)
    assert ticket.thread is not None
    loop.close()
    syncs.close()
    ticket.may.set()
    ticket.thread.join(60)
    assert not ticket.thread.is_alive()
