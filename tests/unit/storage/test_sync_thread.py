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
        self.thread = ""
        self._error = error

    def run(self) -> None:
        self.may.wait(60)
        self.thread = threading.current_thread().name
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
    assert one.thread == other.thread == "forces data to disk"
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
    def threads() -> list[threading.Thread]:
        return [
            one for one in threading.enumerate() if one.name == "forces data to disk" and one not in before
        ]

    before = threading.enumerate()
    syncs, found = SyncThread(asyncio.get_running_loop()), list[list[str]]()
    assert threads() == []
    for count in (1, 2):
        syncs.run(tickets(Ticket()), found.append)
        syncs.close()
        syncs.close()
        await syncs.settled()
        assert found == [[""]] * count
        for thread in threads():
            await asyncio.to_thread(thread.join, 60)
        assert threads() == []


def test_a_loop_that_is_closed_is_told_nothing() -> None:
    loop = asyncio.new_event_loop()
    syncs, ticket = SyncThread(loop), Ticket(waits=True)
    syncs.run(tickets(ticket), lambda errors: None)
    (thread,) = [one for one in threading.enumerate() if one.name == "forces data to disk"]
    loop.close()
    syncs.close()
    ticket.may.set()
    thread.join(60)
    assert not thread.is_alive()
