"""The typed table of methods, and calls through it."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Awaitable, Callable

import pytest
from tests.unit.fabric.channel.hosts import Host, until

from treecast.middleware.fabric.channel import ECHO, Answer, Echo, Later, Method, Methods
from treecast.middleware.model.buffers import Buffer
from treecast.middleware.model.errors import Fault, TreecastError

AT_ONCE = Method(40, Echo, Echo)
LATER = Method(41, Echo, Echo)
REFUSED = Method(42, Echo, Echo)
UNKNOWN = Method(43, Echo, Echo)


def at_once(host: int, request: Echo, body: memoryview) -> tuple[Echo, Buffer]:
    return Echo(text=f"{host} {request.text}"), body


async def later(host: int, request: Echo, body: memoryview) -> tuple[Echo, Buffer]:
    return at_once(host, request, body)


def refused(host: int, request: Echo, body: memoryview) -> tuple[Echo, Buffer]:
    raise TreecastError(Fault.NOT_LEADER, request.text)


@pytest.fixture
async def methods(start_host: Callable[..., Awaitable[Host]]) -> Methods:
    """The methods of host 1, which is connected to host 2; host 2 serves `Number`."""
    served, own = Methods(), Methods()
    served.register(AT_ONCE, at_once)
    served.register(LATER, later)
    served.register(REFUSED, refused, cancellable=True)
    a, b = await start_host(1, own.handle), await start_host(2, served.handle)
    a.knows(b)
    own.use(a.channels)
    served.use(b.channels)
    assert b.channels.cancellable == {REFUSED.number}
    await until(lambda: a.channels.is_up(2))
    return own


async def test_asking(methods: Methods) -> None:
    for number, text in ((AT_ONCE, "1 x"), (LATER, "1 x"), (ECHO, "x")):
        answer, body = await methods.ask(2, number, Echo(text="x"), 10.0, b"body")
        assert (answer.text, bytes(body)) == (text, b"body")
    assert methods.tell(2, AT_ONCE, Echo(text="x"))


async def test_refusals(methods: Methods) -> None:
    for number, fault in ((REFUSED, Fault.NOT_LEADER), (UNKNOWN, Fault.NOT_SUPPORTED)):
        with pytest.raises(TreecastError) as caught:
            await methods.ask(2, number, Echo(text="x"), 10.0)
        assert caught.value.fault is fault


async def test_asking_with_a_callback(methods: Methods) -> None:
    found = list[tuple[Echo, memoryview] | TreecastError]()
    for number in (AT_ONCE, REFUSED):
        methods.ask_then(2, number, Echo("x"), found.append, 60.0, b"body")
    unreadable = Method(ECHO.number, Echo, int)
    methods.ask_then(2, unreadable, Echo("x"), found.append, 60.0)
    await until(lambda: len(found) == 3)
    answers = {one[0].text: bytes(one[1]) for one in found if not isinstance(one, TreecastError)}
    assert answers == {"1 x": b"body"}
    faults = {one.fault for one in found if isinstance(one, TreecastError)}
    assert faults == {Fault.NOT_LEADER, Fault.INTERNAL}


async def test_answers_that_are_given_later(start_host: Callable[..., Awaitable[Host]]) -> None:
    """In any order, and also before the handler has returned; only the first outcome of each counts."""
    served, own = Methods(), Methods()
    waiting = dict[str, Later]()

    def keep(host: int, request: Echo, body: memoryview) -> Later:
        waiting[request.text] = later = Later()
        if request.text == "now":
            later.give(Answer(LATER.head(Echo("at once"))))
        return later

    served.register(LATER, keep)
    a, b = await start_host(1, own.handle), await start_host(2, served.handle)
    a.knows(b)
    own.use(a.channels)
    asked = {
        text: asyncio.ensure_future(own.ask(2, LATER, Echo(text), 60.0)) for text in ("1", "2", "3", "now")
    }
    assert (await asked["now"])[0].text == "at once"
    await until(lambda: len(waiting) == 4)
    waiting["3"].give(Answer(LATER.head(Echo("three"))))
    waiting["3"].give(TreecastError(Fault.STORAGE, "too late"))
    assert (await asked["3"])[0].text == "three"
    waiting["2"].give(TreecastError(Fault.STORAGE, "the disk refuses"))
    with pytest.raises(TreecastError, match="the disk refuses"):
        await asked["2"]
    asked["1"].cancel()
    await until(lambda: b.channels.peers()[0].handling == 1)
    waiting["1"].give(Answer(LATER.head(Echo("nobody waits"))))
    await until(lambda: b.channels.peers()[0].handling == 0 and a.channels.peers()[0].in_flight == 0)


@pytest.mark.parametrize("head", [b"\xff\xff", b"\x91\xa1\xff"], ids=["no message", "no UTF-8"])
def test_an_invalid_head_is_refused(head: bytes) -> None:
    with pytest.raises(TreecastError) as caught:
        ECHO.asked(head)
    assert caught.value.fault is Fault.INVALID_REQUEST
    with pytest.raises(TreecastError) as caught:
        Methods().handle(2, ECHO.number, head, memoryview(b""))
    assert caught.value.fault is Fault.INVALID_REQUEST


def test_a_number_has_one_handler() -> None:
    methods = Methods()
    methods.register(AT_ONCE, at_once)
    with pytest.raises(ValueError, match="already"):
        methods.register(AT_ONCE, later)
    answer = methods.handle(3, AT_ONCE.number, AT_ONCE.head(Echo("y")), memoryview(b"b"))
    assert isinstance(answer, Answer)
    assert AT_ONCE.answered(answer).text == "3 y"


async def test_a_handler_that_is_cancelled_before_it_has_begun_leaves_nothing_behind() -> None:
    """A call and its cancel may come in one chunk: then the handler's task never takes a step."""
    methods = Methods()
    methods.register(LATER, later, cancellable=True)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        answer = methods.handle(2, LATER.number, LATER.head(Echo("x")), memoryview(b""))
        assert not isinstance(answer, Answer)
        task = asyncio.ensure_future(answer)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        del task, answer
        gc.collect()
    assert not [one for one in found if "'later'" in str(one.message)]


async def test_a_handler_that_ends_in_spite_of_its_cancelling_has_answered() -> None:
    waits = asyncio.Event()

    async def stubborn(host: int, request: Echo, body: memoryview) -> tuple[Echo, Buffer]:
        try:
            await waits.wait()
        except asyncio.CancelledError:
            pass
        return request, b"all the same"

    methods = Methods()
    methods.register(LATER, stubborn, cancellable=True)
    answer = methods.handle(2, LATER.number, LATER.head(Echo("x")), memoryview(b""))
    assert not isinstance(answer, Answer)
    task = asyncio.ensure_future(answer)
    await asyncio.sleep(0)
    task.cancel()
    assert (await task).body == b"all the same"
