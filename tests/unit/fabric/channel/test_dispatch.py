"""The typed table of methods, and calls through it."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Awaitable, Callable

import pytest
from tests.unit.fabric.channel.hosts import Host, until

from treecast.middleware.fabric.channel import ECHO, Answer, Echo, Method, Methods
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


def test_an_invalid_head_is_refused() -> None:
    with pytest.raises(TreecastError) as caught:
        Methods().handle(2, ECHO.number, b"\xff\xff", memoryview(b""))
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
