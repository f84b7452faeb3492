"""The link to the coordinator survives faults in its parts."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.unit.relay.test_definitions import House, Led
from tests.unit.relay.world import until

from treecast.middleware.api import coordinator_calls
from treecast.middleware.api.attachment import Attachment
from treecast.middleware.api.entries import TopicEntry
from treecast.middleware.api.lasting import BackOff, lasting
from treecast.middleware.broker.values import NewTopic
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.relay import coordinator_link


@pytest.fixture
async def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[House]:
    monkeypatch.setattr(coordinator_link, "REFUSED_SECONDS", 0.01)
    made = House(tmp_path)
    await made.open()
    yield made
    await made.close()


def logged(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_the_watch_outlives_a_listener_that_fails(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    """Other listeners hear of the same change, and all of the next; the log has the traceback once."""
    heard: list[str] = []

    def fails(before: TopicEntry | None, after: TopicEntry | None) -> None:
        raise ZeroDivisionError("a fault of ours")

    def hears(before: TopicEntry | None, after: TopicEntry | None) -> None:
        heard.append(after.name if after is not None else "")

    house.link.view.topics.subscribe(fails)
    house.link.view.topics.subscribe(hears)
    for name in ("one", "two", "three"):
        await house.definitions.create_topic(NewTopic(name))
        await until(lambda name=name: name in heard)
    assert heard == ["one", "two", "three"]
    await until(lambda: logged(caplog))
    (said,) = logged(caplog)
    assert said.getMessage().startswith("work failed and is restarted: work=watch of the coordinator, ")
    assert "ZeroDivisionError: a fault of ours" in caplog.text
    assert "in fails" in caplog.text, "a traceback is logged"


async def test_the_watch_outlives_an_update_that_cannot_be_taken(
    house: House, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The update is requested again, and nothing is missing in the end."""
    refused, real = 0, coordinator_calls.heard_change

    def breaks(change):
        nonlocal refused
        if refused < 3:
            refused += 1
            raise RuntimeError("a change that is not understood")
        return real(change)

    monkeypatch.setattr(coordinator_calls, "heard_change", breaks)
    made = await house.definitions.create_topic(NewTopic("t"))
    assert (refused, house.definitions.topics()) == (3, {"t": made})
    assert len(logged(caplog)) == 1


async def test_the_lease_is_renewed_although_something_failed(
    house: House, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[int] = []

    async def breaks(self: Attachment, back_off: BackOff) -> float:
        asked.append(1)
        if len(asked) < 3:
            raise RuntimeError("a fault of ours")
        return 0.01

    attachment = house.link._attachment
    await attachment.close(detach=False)
    monkeypatch.setattr(Attachment, "_keep", breaks)
    attachment.start()
    await until(lambda: len(asked) > 4)
    assert len(logged(caplog)) == 1


async def test_work_that_fails_in_another_way_is_told_again_and_ends_when_it_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    errors: list[Exception] = [
        RuntimeError("one"),
        RuntimeError("one"),
        TreecastError(Fault.TIMED_OUT, "two"),
    ]

    async def work() -> None:
        await asyncio.sleep(0)
        if errors:
            raise errors.pop(0)

    await lasting("work", work, BackOff(random.Random(1), 0.001, 0.01))
    assert [record.exc_info is not None for record in logged(caplog)] == [True, False]


async def test_a_refusal_to_attach_is_logged_once_and_known_while_it_lasts(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    """Another daemon runs on a copy of the directory: unlike an absent coordinator, that does not pass."""
    attachment, late = house.link._attachment, []
    house.link.once_attached(lambda: late.append(1))
    refusal = TreecastError(Fault.POLICY_VIOLATION, "another daemon runs as host h")
    for error in (refusal, refusal, TreecastError(Fault.COORDINATOR_UNAVAILABLE, "away")):
        attachment.on_change(error)
        assert house.link.not_attached is (refusal if error is refusal else None)
    assert (len(logged(caplog)), late) == (1, [])
    attachment.on_change(refusal)
    assert len(logged(caplog)) == 2
    for _ in range(2):
        attachment.on_change(None)
    assert (house.link.not_attached, late) == (None, [1])


async def test_a_coordinator_whose_store_is_older_takes_nothing_away(house: House) -> None:
    """The store is restored from a copy of before a topic was made and another deleted."""
    for name in ("old", "gone"):
        await house.definitions.create_topic(NewTopic(name, 1))
    await house.close()
    store = house.path / "coordinator.db"
    copy = store.read_bytes()
    await house.open()
    made = await house.definitions.create_topic(NewTopic("new", 1))
    await house.definitions.delete_topic("gone")
    await house.close()
    for path in house.path.glob("coordinator.db*"):
        path.unlink()
    store.write_bytes(copy)
    house.led = Led()
    await house.open()
    await until(lambda: house.counters.views_handed_in == 1)
    await until(lambda: house.link.view.position.history == house.coordinator.coordinator.stored.history_id)
    await house.definitions.settled()
    assert sorted(house.definitions.topics()) == ["new", "old"]
    assert house.definitions.topics()["new"] == made
    assert not {name for name, _ in house.led.told} & {"remove", "put aside"}
    await until(lambda: not house.link.wanted)
    assert house.coordinator.coordinator.older.problems() == []
    assert {topic.name for topic in house.coordinator.coordinator.stored.state.topics()} == {"new", "old"}


async def test_the_wish_for_a_view_is_shown_until_the_store_has_it(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuses(*arguments: object) -> None:
        raise TreecastError(Fault.COORDINATOR_UNAVAILABLE, "not now")

    wanted = coordinator_calls.ViewWanted("there")
    monkeypatch.setattr(house.client, "hand_in", refuses)
    with pytest.raises(TreecastError, match="not now"):
        await house.link._hand_in(wanted)
    assert "older state" in house.link.wanted
    house.link._note_attachment(None)
    assert house.link.wanted == ""
